package rpcrdma

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// closedConns is an Observer that notes why connections ended.
type closedConns struct {
	counts
	mu     sync.Mutex
	causes []error
}

func (c *closedConns) ConnClosed(_ *Conn, cause error) {
	c.mu.Lock()
	c.causes = append(c.causes, cause)
	c.mu.Unlock()
}

func (c *closedConns) ended() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.causes
}

// readCall is a call with an argument of n bytes in a Read chunk of segments of so many bytes, and
// one result.
func readCall(p *rawPeer, xid, n, segment, result int) []byte {
	mem := p.mem(n)
	b := words(xid, 1, 32, 0)
	for i := 0; i < n; i += segment {
		b = append(b, words(1, 48, p.expose(mem[i:min(n, i+segment)], rdma.RemoteRead))...)
	}
	return append(b, words(0, 0, 0, rpcCall(xid, procMove, moveArgs([]int{n}, result)))...)
}

// writeCall is a call with a result of n bytes in a Write chunk.
func writeCall(p *rawPeer, xid, n int) []byte {
	return words(xid, 1, 32, 0, 0, 1, 1, p.expose(p.mem(n), rdma.RemoteWrite), 0, 0, rpcCall(xid, procMove, moveArgs(nil, n)))
}

// TestNoProgress has a client whose calls hold all memory, and another one that waits for some.
func TestNoProgress(t *testing.T) {
	const size, rate = 1 << 20, 64 << 10
	stall := func(op rdma.Opcode) *rdmatest.Fault {
		return &rdmatest.Fault{Do: rdmatest.Stall, Conn: 1, From: rdmatest.Acceptor, Op: op}
	}
	reads := func(p *rawPeer) []byte { return readCall(p, 1, size-4096, 64<<10, 4) }
	writes := func(p *rawPeer) []byte { return writeCall(p, 1, size-4096) }
	for name, tt := range map[string]struct {
		fabric  rdmatest.Options
		fault   *rdmatest.Fault
		call    func(p *rawPeer) []byte
		backend time.Duration // how long the handler takes
		alone   bool          // nobody waits
		within  time.Duration // the connection ends, not before 5 s
		cause   error
	}{
		"unanswered Reads":             {fault: stall(rdma.Read), call: reads, within: 7 * time.Second, cause: bufpool.ErrNoProgress},
		"unanswered Reads, alone":      {fault: stall(rdma.Read), call: reads, alone: true, within: 2 * readTimeout, cause: ErrReadTimeout},
		"a reply not taken":            {fault: &rdmatest.Fault{Do: rdmatest.DelaySent, Delay: time.Hour, Conn: 1, From: rdmatest.Acceptor, Op: rdma.SendWithInvalidate}, call: writes, within: 7 * time.Second, cause: bufpool.ErrNoProgress},
		"slow Reads":                   {fabric: rdmatest.Options{Bandwidth: 2 * rate}, call: reads},
		"very slow Reads":              {fabric: rdmatest.Options{Bandwidth: rate / 2}, call: reads, within: 12 * time.Second, cause: bufpool.ErrNoProgress},
		"very slow Reads, alone":       {fabric: rdmatest.Options{Bandwidth: rate / 8}, call: reads, alone: true},
		"a slow backend":               {call: reads, backend: time.Hour},
		"a slow backend's long result": {call: writes, backend: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bufpool.NewBudget(0, 0)
				budget.SetLimits(bufpool.Limits{Total: size, MinProgress: rate})
				seen, hold := new(closedConns), new(slow)
				w := newEnv(t, tt.fabric, func(cfg *Config) {
					cfg.Budget, cfg.Observer = budget, seen
					if tt.backend > 0 {
						cfg.Handler = hold
					}
				})
				w.budget = budget
				if tt.fault != nil {
					w.fabric.Inject(*tt.fault)
				}
				p, other := w.rawDial(rawPrivate(4096)), w.rawDial(rawPrivate(4096))
				start := time.Now()
				p.send(tt.call(p))
				time.Sleep(time.Second)
				if budget.Used() < size/2 {
					t.Fatalf("%d bytes are reserved", budget.Used())
				}
				if !tt.alone {
					other.send(readCall(other, 2, size/2, size/2, 4))
				}
				for len(seen.ended()) == 0 && time.Since(start) < max(5*time.Minute, tt.backend) {
					time.Sleep(time.Second)
					synctest.Wait()
				}
				causes, took := seen.ended(), time.Since(start)
				switch {
				case tt.cause == nil && len(causes) > 0:
					t.Errorf("ended after %v: %v", took, causes)
				case tt.cause != nil && (len(causes) != 1 || !errors.Is(causes[0], tt.cause) || took < 5*time.Second || took > tt.within+time.Second):
					t.Errorf("after %v: %v, want one %v within %v", took, causes, tt.cause, tt.within)
				}
				time.Sleep(time.Minute) // the other's own Read may take its time
				for hold.respond() > 0 {
					synctest.Wait()
				}
				if !tt.alone {
					if h, _ := other.parse(other.get().b); h.Procedure != wire.Msg {
						t.Errorf("the other client got %+v", h)
					}
				}
				p.close()
				other.close()
				w.close()
			})
		})
	}
}

// TestReadTimeoutIsNoLimit: calls with Reads now and then, and others in between, are no stall.
func TestReadTimeoutIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := new(closedConns)
		w := newEnv(t, rdmatest.Options{Delay: 10 * time.Millisecond}, func(cfg *Config) { cfg.Observer = seen })
		p := w.rawDial(rawPrivate(4096))
		for i, pause := range []time.Duration{0, readTimeout - 30*time.Millisecond, readTimeout, 2*readTimeout - 20*time.Millisecond, readTimeout / 2, time.Hour, 0} {
			time.Sleep(pause)
			p.send(readCall(p, 1+i, 5000, 5000, 4))
			p.get()
		}
		if e := seen.ended(); len(e) > 0 {
			t.Errorf("ended: %v", e)
		}
		p.close()
		w.close()
	})
}

// TestRetainedTogether: retained replies are bounded for all connections together, and leave room
// for those of later connections.
func TestRetainedTogether(t *testing.T) {
	const total, conns = 16 << 20, 8 // of which an eighth is for kept replies
	budget := bufpool.NewBudget(total, 0)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits, cfg.Budget = credit.Static(32), budget
	})
	w.budget = budget
	var peers []*rawPeer
	for range conns {
		p := w.rawDial(rawPrivate(4096))
		peers = append(peers, p)
		for xid := range 20 { // 5 MiB
			p.send(words(10+xid, 2, 32, 0, 0, 0, 0, 0, 0, rpcCall(10+xid, procMove, moveArgs(nil, 250<<10))))
			if h := p.parse2(p.get().b); h.Code != wire.ReplyResource {
				t.Fatalf("answer %+v", h)
			}
		}
		w.waitIdle()
		if n := budget.Retained(); n == 0 || n > total/8 {
			t.Errorf("with %d connections %d bytes are kept, at most %d may be", len(peers), n, total/8)
		}
	}
	for _, p := range peers {
		p.close()
	}
	w.close()
	if n := budget.Retained(); n != 0 {
		t.Errorf("%d bytes are kept after all", n)
	}
}
