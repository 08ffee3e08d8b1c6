package rpcrdma

import (
	"errors"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// unusedForms are the ways in which responders return Write chunks from some chunk on that they
// have not used.
var unusedForms = []struct {
	name  string
	chunk func(dst []byte, offered []wire.Segment) []byte // nil: there is no Write list
}{
	{"unused", func(dst []byte, s []wire.Segment) []byte { return wire.AppendReturned(dst, s, 0) }},
	{"empty", func(dst []byte, _ []wire.Segment) []byte { return wire.AppendChunk(dst, 0) }},
	{"as offered", func(dst []byte, s []wire.Segment) []byte { return append(dst, chunkBytes(s)...) }},
	{"no Write list", nil},
}

// TestFailedReads answers READs of both versions of NFS with an error, or with success and no data,
// and returns the Write chunk in every form.
func TestFailedReads(t *testing.T) {
	const room, read = 8192, 25
	read3 := func(e encoder) { e.Fixed(words(16, make([]byte, 16), uint64(0), room)) }
	read4 := func(e encoder) { e.Fixed(words(0, 2, 1, read, make([]byte, 16), uint64(0), room)) }
	for _, c := range []struct {
		name      string
		version   uint32
		procedure uint32
		args      func(encoder)
		reply     []byte
		fails     bool // at the transport: data are missing
	}{
		{"nfs3 STALE", 3, nfs3.ProcRead, read3, words(70, 0), false},
		{"nfs3 at the end", 3, nfs3.ProcRead, read3, words(0, 0, 0, 1, 0), false},
		{"nfs3 without data", 3, nfs3.ProcRead, read3, words(0, 0, room, 0, room), true},
		{"nfs4 STALE", 4, 1, read4, words(70, 0, 1, read, 70), false},
		{"nfs4 fails before", 4, 1, read4, words(70, 0, 0), false},
		{"nfs4 at the end", 4, 1, read4, words(0, 0, 1, read, 0, 1, 0), false},
		{"nfs4 without data", 4, 1, read4, words(0, 0, 1, read, 0, 0, room), true},
	} {
		for _, form := range unusedForms {
			// that is how data are returned which fill the chunk
			if c.fails && form.name == "as offered" {
				continue
			}
			t.Run(c.name+", "+form.name, func(t *testing.T) {
				cl, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.Bindings = binding.For }, nil)
				first := make(chan error, 1)
				go func() { first <- null(cl, w.cpool, procNull) }()
				p.answerNull(8)
				if err := <-first; err != nil {
					t.Fatal(err)
				}
				r, e, err := oncrpc.NewRequest(w.cpool, nfs3.Program, c.version, c.procedure, oncrpc.Auth{}, 512)
				if err != nil {
					t.Fatal(err)
				}
				begin := e.Pos()
				c.args(e)
				r.Plan.Results = append(r.Plan.Results, oncrpc.Result{Max: room, Begin: begin, End: e.Pos()})
				r.Plan.MaxReply = room + 512
				if err := r.Seal(); err != nil {
					t.Fatal(err)
				}
				done := submit(cl, r)
				h, _ := p.parse(p.get().b)
				if h.Writes() != 1 {
					t.Fatalf("%d Write chunks", h.Writes())
				}
				msg := words(uint32(h.XID), 1, 8, 0, 0)
				if form.chunk != nil {
					msg = form.chunk(msg, h.Write(0))
				}
				p.send(append(msg, words(0, 0, uint32(h.XID), 1, 0, 0, 0, 0, c.reply)...))
				<-done
				var bad *ReplyError
				switch d, err := r.Results(); {
				case c.fails:
					if !errors.As(err, &bad) {
						t.Errorf("a READ without its data: %v", err)
					}
				case err != nil:
					t.Error(err)
				case d.Left() != len(c.reply):
					t.Errorf("%d bytes of results, want %d", d.Left(), len(c.reply))
				case r.Plan.Results[0].State != oncrpc.Absent:
					t.Errorf("state of the result is %d", r.Plan.Results[0].State)
				}
				r.Free()
				go func() { first <- null(cl, w.cpool, procNull) }()
				p.answerNull(8)
				if err := <-first; err != nil {
					t.Errorf("the next call: %v", err)
				}
				p.close()
				w.close(cl)
			})
		}
	}
}

type encoder interface{ Fixed([]byte) }

// TestFailedBehindPlaced answers a COMPOUND of three READs of which some fill their chunks and the
// next one fails.
func TestFailedBehindPlaced(t *testing.T) {
	const room, read = 8192, 25
	for good := range 3 {
		for _, form := range unusedForms[:3] {
			t.Run(fmt.Sprintf("%d good, %s", good, form.name), func(t *testing.T) {
				cl, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.Bindings = binding.For }, nil)
				first := make(chan error, 1)
				go func() { first <- null(cl, w.cpool, procNull) }()
				p.answerNull(8)
				if err := <-first; err != nil {
					t.Fatal(err)
				}
				r, e, err := oncrpc.NewRequest(w.cpool, nfs3.Program, 4, 1, oncrpc.Auth{}, 512)
				if err != nil {
					t.Fatal(err)
				}
				e.Fixed(words(0, 2, 3))
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
				msg := words(uint32(h.XID), 1, 8, 0, 0)
				ops := words(70, 0, good+1)
				for k := range 3 {
					if k < good {
						msg = wire.AppendReturned(msg, h.Write(k), room)
						ops = append(ops, words(read, 0, 0, room)...)
						continue
					}
					msg = form.chunk(msg, h.Write(k))
				}
				p.send(append(msg, words(0, 0, uint32(h.XID), 1, 0, 0, 0, 0, ops, read, 70)...))
				<-done
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				for k := range 3 {
					want := oncrpc.Absent
					if k < good {
						want = oncrpc.Placed
					}
					if got := r.Plan.Results[k].State; got != want {
						t.Errorf("state of result %d is %d, want %d", k, got, want)
					}
				}
				if n := len(r.Reply.Items); n != good {
					t.Errorf("%d items, want %d", n, good)
				}
				r.Free()
				p.close()
				w.close(cl)
			})
		}
	}
}
