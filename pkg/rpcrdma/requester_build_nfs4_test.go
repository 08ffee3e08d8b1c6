package rpcrdma

import (
	"bytes"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestCompoundChunks answers a COMPOUND of three READs in both ways in which responders use Write
// chunks: chunk k belongs to the k-th READ (RFC 8267 section 6.4.1), or to the next one that has
// data (RFC 8166 section 4.3.2.2, and Linux).
func TestCompoundChunks(t *testing.T) {
	const room, read, failed = 8192, 25, -1
	for _, lens := range [][]int{
		{5000, 6001, 7002}, {0, 6001, 7002}, {5000, 0, 7002}, {5000, 6001, 0}, {0, 0, 7002}, {0, 6001, 0}, {0, 0, 0}, {3, 3, 0}, {0, 3, 3},
		{0, 6001, failed}, {5000, failed}, {failed},
	} {
		for _, slide := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,slide=%v", lens, slide), func(t *testing.T) {
				cl, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.Bindings = binding.For }, nil)
				first := make(chan error, 1)
				go func() { first <- null(cl, w.cpool, procNull) }()
				p.answerNull(8)
				if err := <-first; err != nil {
					t.Fatal(err)
				}
				r, e, err := oncrpc.NewRequest(w.cpool, 100003, 4, 1, oncrpc.Auth{}, 512)
				if err != nil {
					t.Fatal(err)
				}
				e.Fixed(words(0, 2, 3)) // tag, minor version, operations
				for range 3 {
					begin := e.Pos()
					e.Fixed(words(read, make([]byte, 16), uint64(0), room))
					r.Plan.Results = append(r.Plan.Results, oncrpc.Result{Max: room, Begin: begin, End: e.Pos()})
				}
				r.Plan.MaxReply = 3*room + 512
				if err := r.Seal(); err != nil {
					t.Fatal(err)
				}
				done := submit(cl, r)
				h, _ := p.parse(p.get().b)
				if h.Writes() != 3 {
					t.Fatalf("%d Write chunks", h.Writes())
				}
				placed := make([]int, 3) // bytes by chunk
				status, chunk := 0, 0
				var ops []byte
				for k, n := range lens {
					if n == failed {
						status = 5
						ops = append(ops, words(read, status)...)
						continue
					}
					ops = append(ops, words(read, 0, 0, n)...) // status, eof, count
					if !slide {
						chunk = k
					}
					if n > 0 {
						placed[chunk] = n
						mem := p.mem(n)
						fill([][]byte{mem}, k)
						s := h.Write(chunk)[0]
						if err := p.ep.Post([]rdma.WorkRequest{{Op: rdma.Write, Local: [][]byte{mem}, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset}}}); err != nil {
							t.Fatal(err)
						}
						chunk++
					}
				}
				msg := words(uint32(h.XID), 1, 8, 0, 0)
				for j, n := range placed {
					msg = wire.AppendReturned(msg, h.Write(j), n)
				}
				msg = append(msg, words(0, 0, uint32(h.XID), 1, 0, 0, 0, 0)...)
				msg = append(msg, words(status, 0, len(lens), ops)...)
				p.send(msg)
				<-done
				d, err := r.Results()
				if err != nil {
					t.Fatal(err)
				}
				d.Skip(12)
				for k := range 3 {
					want := oncrpc.Absent
					if k < len(lens) && lens[k] > 0 {
						want = oncrpc.Placed
					}
					if got := r.Plan.Results[k].State; got != want {
						t.Errorf("state of result %d is %d, want %d", k, got, want)
					}
					if k >= len(lens) || lens[k] == failed {
						continue
					}
					d.Skip(12)
					data, n, taken := d.Bulk(room, nil)
					if n != lens[k] || taken != (n > 0) || !bytes.Equal(bytes.Join(data, nil), pattern(n, k)) {
						t.Errorf("result %d has %d bytes, taken %v, %v", k, n, taken, d.Err())
					}
				}
				r.Free()
				p.close()
				w.close(cl)
			})
		}
	}
}
