package server

import (
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// repeated is a call that is repeated without allocating, as by a transport.
type repeated struct {
	w      *wire
	stream []byte
	items  []xdr.Item
	xid    uint32
}

func (r *env) repeated(proc uint32, args encoder) *repeated {
	r.t.Helper()
	w := r.prepare(1, nfs3.Program, nfs3.Version, proc, args, 0)
	w.keep = true
	c := w.call
	p := &repeated{w: w, stream: c.Stream[0], items: append([]xdr.Item(nil), c.Items...), xid: 1 << 30}
	c.Recycle()
	return p
}

func (p *repeated) run() {
	c := p.w.call
	p.xid++
	p.stream[0], p.stream[1], p.stream[2], p.stream[3] = byte(p.xid>>24), byte(p.xid>>16), byte(p.xid>>8), byte(p.xid)
	c.Stream = append(c.Stream, p.stream)
	c.Items = append(c.Items, p.items...)
	c.Conn = p.w.env.conn
	if err := oncrpc.DecodeCall(c); err != nil {
		panic(err)
	}
	p.w.env.s.ServeRPC(c)
	<-p.w.done
}

// hot are the calls of the data path.
func hot(r *env) map[string]*repeated {
	r.put("file", string(make([]byte, 1<<20)))
	h := r.handle("file")
	return map[string]*repeated{
		"NULL":         r.repeated(nfs3.ProcNull, nil),
		"GETATTR":      r.repeated(nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: h}),
		"ACCESS":       r.repeated(nfs3.ProcAccess, &nfs3.AccessArgs{Object: h, Access: 0x3f}),
		"LOOKUP":       r.repeated(nfs3.ProcLookup, &nfs3.LookupArgs{Dir: r.root, Name: []byte("file")}),
		"LOOKUP none":  r.repeated(nfs3.ProcLookup, &nfs3.LookupArgs{Dir: r.root, Name: []byte("none")}),
		"READ 4KiB":    r.repeated(nfs3.ProcRead, &nfs3.ReadArgs{File: h, Count: 4096}),
		"READ 1MiB":    r.repeated(nfs3.ProcRead, &nfs3.ReadArgs{File: h, Count: 1 << 20}),
		"WRITE 4KiB":   r.repeated(nfs3.ProcWrite, writeArgs(h, 0, string(make([]byte, 4096)), nfs3.Unstable)),
		"WRITE 1MiB":   r.repeated(nfs3.ProcWrite, writeArgs(h, 0, string(make([]byte, 1<<20)), nfs3.Unstable)),
		"WRITE synced": r.repeated(nfs3.ProcWrite, writeArgs(h, 0, string(make([]byte, 4096)), nfs3.FileSync)),
		"COMMIT":       r.repeated(nfs3.ProcCommit, &nfs3.CommitArgs{File: h}),
	}
}

func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	var s syncs
	for _, inline := range []int{0, -1} {
		r := newEnv(t, func(c *Config) {
			c.InlineRead, c.InlineWrite, c.Files.Sync = inline, inline, s.sync
			c.Files.Recheck = 1
			c.ReplyCache.PerClient = 16
		})
		users := map[string]*env{"root": r}
		if r.s.Info().Identities {
			users["a user"] = r.as(1001, 1001, 1002, 1003)
			users["a user"].must(chmodAll(r))
		}
		for who, u := range users {
			for name, call := range hot(u) {
				for range 50 {
					call.run()
				}
				if n := testing.AllocsPerRun(200, call.run); n != 0 {
					t.Errorf("%s by %s, inline %d: %v allocations", name, who, inline, n)
				}
			}
		}
	}
}

// chmodAll makes the objects of hot writable for all.
func chmodAll(r *env) error {
	r.put("file", "")
	return unix.Chmod(r.path("file"), 0o666)
}

func BenchmarkCalls(b *testing.B) {
	r := newEnv(b, func(c *Config) { c.Files.Recheck = 0 })
	calls := hot(r)
	for _, name := range []string{"NULL", "GETATTR", "ACCESS", "LOOKUP", "READ 4KiB", "READ 1MiB", "WRITE 4KiB", "WRITE 1MiB"} {
		call := calls[name]
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				call.run()
			}
		})
	}
}
