package rpcrdma

import (
	"errors"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestBadReplies answers a call wrongly: it fails with an error that says why, and the connection
// goes on.
func TestBadReplies(t *testing.T) {
	placed := move{results: []int{20000}}
	long := move{args: []int{4}} // with a bound that asks for a Reply chunk
	plainReply := func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 0, 0, 0, 0) }
	// reply puts a header with lists before a payload
	reply := func(h *wire.Header, proc int, lists []byte, payload ...any) []byte {
		return append(append(words(uint32(h.XID), 1, 8, proc), lists...), words(payload...)...)
	}
	one := func(s wire.Segment, n int) []byte { // a Write list of one chunk
		s.Length = uint32(n)
		return words(0, 1, 1, s, 0, 0)
	}
	for _, c := range []struct {
		name   string
		m      *move
		answer func(h *wire.Header) []byte
		ok     bool
		remote wire.ErrorCode
	}{
		{name: "ERR_CHUNK", m: &placed, answer: func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 8, 4, 2) }, remote: wire.ErrChunk},
		{name: "ERR_VERS", m: &placed, answer: func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 8, 4, 1, 2, 3) }, remote: wire.ErrVers},
		{name: "an unknown error", m: &placed, answer: func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 8, 4, 9, 0, 0) }},
		{name: "version 2", m: &placed, answer: func(h *wire.Header) []byte { return words(uint32(h.XID), 2, 8, 0, 0, 0, 0) }},
		{name: "procedure 7", m: &placed, answer: func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 8, 7, 0, 0, 0) }},
		{name: "lists cut", m: &placed, answer: func(h *wire.Header) []byte { return words(uint32(h.XID), 1, 8, 0, 0, 1, 5) }},
		{name: "a Read list", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(1, 8, someSegment, 0, 0, 0), plainReply(h))
		}},
		{name: "no Write list", m: &placed, answer: func(h *wire.Header) []byte { return reply(h, 0, words(0, 0, 0), plainReply(h)) }},
		{name: "two Write chunks", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 1, 1, h.Write(0)[0], 1, 1, h.Write(0)[0], 0, 0), plainReply(h))
		}},
		{name: "another segment count", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 1, 2, h.Write(0)[0], h.Write(0)[0], 0, 0), plainReply(h), 0, 0, 1, 1, tail)
		}},
		{name: "no Write list, and a result without its data", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 0, 0), plainReply(h), 0, 0, 1, 0, 20000, tail)
		}},
		{name: "an empty Write chunk, and a result without its data", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 1, 0, 0, 0), plainReply(h), 0, 0, 1, 0, 20000, tail)
		}},
		{name: "an unused Write chunk, and a result without its data", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 0), plainReply(h), 0, 0, 1, 0, 20000, tail)
		}},
		{name: "a Write chunk almost as it was offered, and no result", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 19999), plainReply(h), 0, 0, 1, 1, tail)
		}},
		{name: "another handle", m: &placed, answer: func(h *wire.Header) []byte {
			s := h.Write(0)[0]
			s.Handle++
			return reply(h, 0, one(s, 20000), plainReply(h))
		}},
		{name: "a length above the segment's", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 20001), plainReply(h))
		}},
		{name: "a Reply chunk that was not offered", m: &placed, answer: func(h *wire.Header) []byte {
			s := h.Write(0)[0]
			return reply(h, 0, words(0, 1, 1, s, 0, 1, 1, s), plainReply(h))
		}},
		{name: "fewer bytes placed than the reply says", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 19996), plainReply(h), 0, 0, 1, 0, 20000, tail)
		}},
		{name: "results cut", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 20000), plainReply(h), 0)
		}},
		{name: "RDMA_NOMSG without Reply chunk", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 1, one(h.Write(0)[0], 0))
		}},
		{name: "RDMA_NOMSG with an unused Reply chunk", m: &long, answer: func(h *wire.Header) []byte {
			s := h.Reply()[0]
			s.Length = 0
			return reply(h, 1, words(0, 0, 1, 1, s))
		}},
		{name: "RDMA_MSG with a used Reply chunk", m: &long, answer: func(h *wire.Header) []byte {
			s := h.Reply()[0]
			s.Length = 100
			return reply(h, 0, words(0, 0, 1, 1, s), plainReply(h))
		}},
		{name: "a Reply chunk of nothing that was written", m: &long, answer: func(h *wire.Header) []byte {
			s := h.Reply()[0]
			s.Length = 4
			return reply(h, 1, words(0, 0, 1, 1, s))
		}},
		{name: "another XID inside", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 0), uint32(h.XID)+1, 1, 0, 0, 0, 0)
		}},
		{name: "payload cut", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 0), uint32(h.XID), 1, 0)
		}},
		{name: "no payload", m: &placed, answer: func(h *wire.Header) []byte { return reply(h, 0, one(h.Write(0)[0], 0)) }},
		{name: "reply_stat 5", m: &placed, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 0), uint32(h.XID), 1, 5, 0, 0, 0)
		}},
		{name: "good, unused", m: &placed, ok: true, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 0), plainReply(h), 0, 0, 1, 1, tail)
		}},
		{name: "good, Write chunk as it was offered", m: &placed, ok: true, answer: func(h *wire.Header) []byte {
			return reply(h, 0, one(h.Write(0)[0], 20000), plainReply(h), 0, 0, 1, 1, tail)
		}},
		{name: "good, empty Write chunk", m: &placed, ok: true, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 1, 0, 0, 0), plainReply(h), 0, 0, 1, 1, tail)
		}},
		{name: "good, no Write list", m: &placed, ok: true, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 0, 0), plainReply(h), 0, 0, 1, 1, tail)
		}},
		{name: "good, offered Reply chunk left out", m: &long, ok: true, answer: func(h *wire.Header) []byte {
			return reply(h, 0, words(0, 0, 0), plainReply(h), checksum(4), 4, 0, tail)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl, p, w := newRequesterEnv(t, rawPrivate(4096), nil, nil)
			first := make(chan error, 1)
			go func() { first <- null(cl, w.cpool, procNull) }()
			p.answerNull(8)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			r, err := c.m.build(w.cpool)
			if err != nil {
				t.Fatal(err)
			}
			if c.m == &long {
				r.Plan.MaxReply = 30000
			}
			if err := r.Seal(); err != nil {
				t.Fatal(err)
			}
			done := submit(cl, r)
			h, _ := p.parse(p.get().b)
			p.send(c.answer(h))
			<-done
			var bad *ReplyError
			var remote *RemoteError
			switch {
			case c.ok:
				if r.Err != nil {
					t.Error(r.Err)
				}
			case c.remote != 0:
				if !errors.As(r.Err, &remote) || remote.Code != c.remote {
					t.Errorf("error %v", r.Err)
				}
			case !errors.As(r.Err, &bad):
				t.Errorf("error %v", r.Err)
			}
			r.Free()
			p.send(c.answer(h)) // once more, and late: nobody waits for it
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

// TestSlidingChunks answers as RFC 8166 section 4.3.2.2 has it, where the next result takes the
// chunk of one that has nothing, and as RFC 8267 section 6.4.1 has it.
func TestSlidingChunks(t *testing.T) {
	m := move{results: []int{5000, 5000, 5000, 5000}, how: []int{1, 0, 1, 0}}
	for _, slide := range []bool{false, true} {
		t.Run(fmt.Sprintf("slide=%v", slide), func(t *testing.T) {
			cl, p, w := newRequesterEnv(t, rawPrivate(4096), nil, nil)
			first := make(chan error, 1)
			go func() { first <- null(cl, w.cpool, procNull) }()
			p.answerNull(8)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			r, err := m.build(w.cpool)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Seal(); err != nil {
				t.Fatal(err)
			}
			done := submit(cl, r)
			h, _ := p.parse(p.get().b)
			if h.Writes() != 4 {
				t.Fatalf("%d Write chunks", h.Writes())
			}
			chunks := map[int]int{1: 1, 3: 3} // results by chunk
			if slide {
				chunks = map[int]int{0: 1, 1: 3}
			}
			msg := words(uint32(h.XID), 1, 8, 0, 0)
			for j := range 4 {
				n := 0
				if k, ok := chunks[j]; ok {
					n = 5000
					mem := p.mem(n)
					fill([][]byte{mem}, k)
					s := h.Write(j)[0]
					if err := p.ep.Post([]rdma.WorkRequest{{Op: rdma.Write, Local: [][]byte{mem}, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset}}}); err != nil {
						t.Fatal(err)
					}
				}
				msg = wire.AppendReturned(msg, h.Write(j), n)
			}
			msg = append(msg, words(0, 0, uint32(h.XID), 1, 0, 0, 0, 0, 0, 0, 4, 1, 0, 5000, 1, 0, 5000, tail)...)
			p.send(msg)
			<-done
			if err := m.check(r); err != nil {
				t.Error(err)
			}
			for k, want := range []oncrpc.ResultState{oncrpc.Absent, oncrpc.Placed, oncrpc.Absent, oncrpc.Placed} {
				if got := r.Plan.Results[k].State; got != want {
					t.Errorf("state of result %d is %d, want %d", k, got, want)
				}
			}
			r.Free()
			p.close()
			w.close(cl)
		})
	}
}

// TestSplitReceives cuts receives into odd segments: headers and payload cross them anywhere.
func TestSplitReceives(t *testing.T) {
	for _, layout := range [][]int{{1, 4095}, {3, 5, 7, 11, 13, 4057}, {30, 30, 4036}, {2048, 2048}, {17, 4079}} {
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) { cfg.layout = layout })
		c := w.dial(func(cfg *Config) { cfg.layout = layout })
		testShapes(w, c)
		w.close(c)
	}
}
