//go:build kernel

package hostile

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// TestChunks puts a handle and a name into Read chunks, where they are forbidden. The proxy does
// not inspect chunks, so it must refuse them.
func TestChunks(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	head := func(e *xdr.Encoder, ops int) { // too long for the rest to be inline
		e.Opaque(make([]byte, 900))
		e.Uint32(0)
		e.Uint32(uint32(ops))
	}
	for what, try := range map[string]struct {
		sizes              []int
		version, procedure uint32
		args               func(*xdr.Encoder, [][]byte, int)
	}{
		"the handle of GETATTR": {[]int{1000, 8000}, 3, nfs3.ProcGetAttr, func(e *xdr.Encoder, data [][]byte, n int) { e.Bulk(data, n) }},
		"the handle of WRITE": {[]int{1000, 8000}, 3, nfs3.ProcWrite, func(e *xdr.Encoder, data [][]byte, n int) {
			e.Bulk(data, n)
			e.Uint64(0)
			e.Uint32(4)
			e.Uint32(2)
			e.String("data")
		}},
		"the name of LOOKUP": {[]int{1, 2, 64, 1000, 8000}, 4, 1, func(e *xdr.Encoder, data [][]byte, n int) {
			head(e, 2)
			e.Uint32(schema.OpPutRootFH)
			e.Uint32(schema.OpLookup)
			e.Bulk(data, n)
		}},
		"the handle of PUTFH": {[]int{1, 36, 64, 128, 1000}, 4, 1, func(e *xdr.Encoder, data [][]byte, n int) {
			head(e, 1)
			e.Uint32(schema.OpPutFH)
			e.Bulk(data, n)
		}},
		"the tag": {[]int{1000, 8000}, 4, 1, func(e *xdr.Encoder, data [][]byte, n int) {
			e.Bulk(data, n)
			e.Uint32(0)
			e.Uint32(1)
			e.Uint32(schema.OpPutRootFH)
		}},
	} {
		for _, n := range try.sizes {
			c := g.intrude(t, "rdma", 0)
			before := h.relay.count()
			buf, err := c.Pool.Get(n)
			check(t, err)
			copy(buf.B, "..")
			r, e, err := oncrpc.NewRequest(c.Pool, nfs4test.NFS, try.version, try.procedure, c.Cred, 2048)
			check(t, err)
			try.args(e, [][]byte{buf.B[:n]}, n)
			r.Plan.MaxReply = 2048
			if err = oncrpc.Do(c.ctx, c.Requester, r); err == nil {
				_, err = r.Results()
			}
			if err == nil {
				t.Errorf("%s, %d bytes in a chunk: the call was accepted", what, n)
			}
			if calls := h.relay.since(before); len(calls) > 0 {
				t.Errorf("%s, %d bytes in a chunk: the backend got %v", what, n, calls)
			}
			r.Free()
			buf.Release()
		}
	}
}
