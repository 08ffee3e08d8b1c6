package rpcrdma

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// slow is a handler that has the long replies of its calls in memory, and does not respond.
type slow struct {
	mu   sync.Mutex
	held []*oncrpc.Call
}

func (s *slow) ServeRPC(c *oncrpc.Call) {
	b, err := c.Pool().Get(1 << 20)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	c.Reply.Own(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, c)
}

func (s *slow) holds() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.held)
}

// respond answers all calls, and returns how many there were.
func (s *slow) respond() int {
	s.mu.Lock()
	held := s.held
	s.held = nil
	s.mu.Unlock()
	for _, c := range held {
		c.ReplyAccept(oncrpc.Success)
	}
	return len(held)
}

// TestBudgetOfReplies asks for long replies for which there are no chunks, or short ones: their
// memory is of the budget all the same.
func TestBudgetOfReplies(t *testing.T) {
	call := func(xid int) []byte { return rpcCall(xid, procMove, moveArgs(nil, 1<<20)) }
	for _, c := range []struct {
		name     string
		versions func(*Config)
		msg      func(p *rawPeer, xid int) []byte
	}{
		{"no chunks", nil, func(_ *rawPeer, xid int) []byte { return plainMsg(xid, call(xid)) }},
		{"a Write chunk of one byte", nil, func(p *rawPeer, xid int) []byte {
			return words(xid, 1, 32, 0, 0, 1, 1, p.expose(p.mem(1), 3), 0, 0, call(xid))
		}},
		{"a Reply chunk of one byte", nil, func(p *rawPeer, xid int) []byte {
			return words(xid, 1, 32, 0, 0, 0, 1, 1, p.expose(p.mem(1), 3), call(xid))
		}},
		{"a long call", nil, func(p *rawPeer, xid int) []byte {
			m := p.mem(len(call(xid)))
			copy(m, call(xid))
			return words(xid, 1, 32, 1, 1, 0, p.expose(m, 1), 0, 0, 0)
		}},
		{"version 2", version2, func(_ *rawPeer, xid int) []byte { return words(xid, 2, 32, 0, 0, 0, 0, 0, 0, call(xid)) }},
		{"a group", extended(MessageContinuation), func(_ *rawPeer, xid int) []byte {
			return words(xid, 2, 32, int(wire.Optional), 0, 5, 20, 0, 0, 1, 1, len(call(xid)), call(xid))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := new(slow)
			budget := bufpool.NewBudget(8<<20, 2<<20)
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
				if c.versions != nil {
					c.versions(cfg)
				}
				cfg.Handler, cfg.Budget, cfg.Credits = h, budget, credit.Static(16)
			})
			w.budget = budget
			p := w.rawDial(rawPrivate(4096))
			const calls = 16
			answered := 0
			if c.name == "a group" {
				p.send(words(1, 2, 32, 6, 2, 1, 4, 4096, 3, 4, 6, 0))
				p.get()
			}
			for xid := range calls {
				p.send(c.msg(p, 100+xid))
				if xid == 0 { // it brings the credits
					eventually(t, "the first call is served", func() bool { return h.holds() == 1 })
					answered += h.respond()
					p.get()
				}
			}
			for answered < calls {
				eventually(t, "all calls are served, or wait", func() bool { return answered+h.holds()+budget.Waiting() == calls && h.holds() > 0 })
				if n := h.holds(); n > 2 {
					t.Fatalf("%d MiB are held for replies, 2 may be", n)
				}
				n := h.respond()
				for range n {
					p.get()
				}
				answered += n
			}
			p.close()
			w.close()
		})
	}
}

// TestFarTargets has a client whose receives have much in front of their target: nothing is placed
// there, since that would have to be filled with zeros.
func TestFarTargets(t *testing.T) {
	for _, c := range []struct {
		front int
		want  wire.Placement
	}{{4096, wire.SendBased}, {200 << 10, wire.TooShort}, {3900 << 10, wire.TooShort}} {
		w := newEnv(t, rdmatest.Options{MaxSegments: 4}, extended(allExtensions))
		p := w.rawDial(rawPrivate(4096))
		p.send(words(1, 2, 32, 6, 3, 1, 4, c.front+4096, 3, 4, 6, 4, 40, c.front+4096, 2, 1, c.front, 1, 0, 1, 4096, 4096, 1, 0))
		p.get()
		call := rpcCall(10, procMove, moveArgs(nil, 4))
		head := wire.Transmit{Count: 1, ReplyBuffers: 1, PayloadLength: uint32(len(call))}
		result := oncrpc.Result{Max: 4, Begin: len(call) - 8, End: len(call)}
		if err := group.Direct(&head, []oncrpc.Result{result}, []group.Want{{Placement: wire.SendBased}}); err != nil {
			t.Fatal(err)
		}
		msg := wire.EndOption(head.Append(wire.BeginOption(nil, 10, 32, wire.Call, wire.XmtReq), wire.XmtReq), 0)
		p.send(append(msg, call...))
		if h := p.parse2(p.get().b); len(h.Transmit.Items) != 1 || h.Transmit.Items[0].Placement != c.want {
			t.Errorf("%d bytes in front of the target: answer %+v, want %v", c.front, h.Transmit, c.want)
		}
		p.close()
		w.close()
	}
}

// TestErrorHoldsNoReply answers calls with errors, since their replies have no room, and none of
// the errors is acknowledged: the memory of the replies is free, except for those of version 2 that
// may be requested.
func TestErrorHoldsNoReply(t *testing.T) {
	const calls = 40
	for version, most := range []int{1: 1 << 20, 2: retainedBytes + 1<<20} {
		if version == 0 {
			continue
		}
		t.Run(fmt.Sprintf("version%d", version), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bufpool.NewBudget(8<<20, 2<<20)
				w := newEnv(t, rdmatest.Options{SentDelay: time.Hour}, func(cfg *Config) {
					cfg.Versions, cfg.Budget, cfg.Credits = []int{version}, budget, credit.Static(32)
				})
				w.budget = budget
				p := w.rawDial(rawPrivate(4096))
				for xid := range calls {
					call := rpcCall(xid, procMove, moveArgs(nil, 1<<20))
					if version == 1 {
						p.send(plainMsg(xid, call))
					} else {
						p.send(words(xid, 2, 32, 0, 0, 0, 0, 0, 0, call))
					}
					p.get()
				}
				synctest.Wait()
				if w.handler.calls != calls || w.counts.faults(ReplyTooLong) != calls {
					t.Errorf("%d calls were executed, %d replies were too long, want %d", w.handler.calls, w.counts.faults(ReplyTooLong), calls)
				}
				if n := budget.Used(); n != 0 {
					t.Errorf("%d bytes of the budget are in use", n)
				}
				if n := w.pool.Stats().InUse; n > int64(most) {
					t.Errorf("%d bytes are in use, want %d at most", n, most)
				}
				p.close()
				w.close()
			})
		})
	}
}
