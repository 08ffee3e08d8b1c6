package rpcrdma

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// TestBackGroups makes calls from server to client that no single message holds, with every set of
// extensions on either side, the very first one among them. Nothing is exposed for them.
func TestBackGroups(t *testing.T) {
	sets := []Extensions{0, MessageContinuation, SendBasedPlacement, MessageContinuation | SendBasedPlacement}
	for _, server := range sets {
		for _, client := range sets {
			t.Run(fmt.Sprintf("server%d,client%d", server, client), func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true, Record: true}, extended(server))
				callbacks := &testHandler{async: server == client}
				c := w.dial(func(cfg *Config) { extended(client)(cfg); cfg.Handler, cfg.ReverseCredits = callbacks, 5 })
				if err := null(c, w.cpool, procNull); err != nil {
					t.Fatal(err)
				}
				back := w.back()
				for _, m := range []move{
					{args: []int{8000}}, {results: []int{9001}}, {args: []int{10000, 300, 5000}, results: []int{100, 7000, 20000}, how: []int{0, 1, 0}},
					{args: []int{100}, results: []int{100}}, {args: []int{9000}, inline: true, results: []int{9000}, how: []int{2}},
				} {
					err := m.do(back, w.pool)
					var refused *RequestError
					switch both := server & client; {
					case both&MessageContinuation != 0, m.args != nil && m.args[0] == 100:
						if err != nil {
							t.Errorf("%+v: %v", m, err)
						}
					case err != nil && !errors.As(err, &refused), err == nil && (server == 0 || client == 0):
						t.Errorf("%+v: %v, want a RequestError", m, err)
					}
				}
				for _, e := range w.fabric.Events() {
					if e.What == "exposed" {
						t.Errorf("%+v", e)
					}
				}
				for range 12 {
					if err := null(c, w.cpool, procNull); err != nil {
						t.Error(err)
					}
				}
				callbacks.wg.Wait()
				w.waitIdle()
				w.close(c)
			})
		}
	}
}

// TestBackGroupsUnderLoad makes long calls in both directions at once, with few credits in either.
func TestBackGroupsUnderLoad(t *testing.T) {
	for _, credits := range []int{2, 5} {
		t.Run(fmt.Sprintf("credits%d", credits), func(t *testing.T) {
			change := func(cfg *Config) {
				extended(allExtensions)(cfg)
				cfg.Credits, cfg.ReverseCredits = credit.Static(credits), credits
				cfg.Placement = Placement{ReceiveBuffer: 8192, MinLength: 512}
			}
			w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, change)
			callbacks := &testHandler{async: true}
			c := w.dial(func(cfg *Config) { change(cfg); cfg.Handler = callbacks })
			if err := null(c, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
			back := w.back()
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Add(2)
				go func() {
					defer wg.Done()
					for n := range 20 {
						m := move{args: []int{(n*731 + g*2000) % (8192 * credits)}, results: []int{(n * 977) % 30000}}
						if err := m.do(back, w.pool); err != nil {
							t.Errorf("%+v: %v", m, err)
							return
						}
					}
				}()
				go func() {
					defer wg.Done()
					for n := range 20 {
						m := move{args: []int{(n*577 + g*3000) % 30000}, results: []int{(n * 1201) % 30000}}
						if err := m.do(c, w.cpool); err != nil {
							t.Errorf("%+v: %v", m, err)
							return
						}
					}
				}()
			}
			wg.Wait()
			callbacks.wg.Wait()
			for range 80 { // receives of past reverse calls are used up
				if err := null(c, w.cpool, procNull); err != nil {
					t.Fatal(err)
				}
			}
			w.waitIdle()
			w.close(c)
		})
	}
}

// TestBackGroupsLost ends connections at any step while groups of the reverse direction are under
// way: between the transmissions of a call, and of its reply.
func TestBackGroupsLost(t *testing.T) {
	for _, side := range []rdmatest.Side{rdmatest.Dialer, rdmatest.Acceptor} {
		for n, struck := 1, true; struck; n++ {
			if n > 60 {
				t.Fatal("the fault still strikes at step 60")
			}
			w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, extended(MessageContinuation))
			callbacks := &testHandler{async: n%2 == 0}
			c := w.dial(func(cfg *Config) { extended(MessageContinuation)(cfg); cfg.Handler = callbacks })
			if err := null(c, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
			back := w.back()
			f := w.fabric.Inject(rdmatest.Fault{Do: rdmatest.LoseBeforeDelivery, Op: rdma.Send, From: side, Nth: n})
			var failed error
			for range 2 {
				m := move{args: []int{9000}, results: []int{9000}}
				if err := m.do(back, w.pool); err != nil {
					failed = err
				}
			}
			var lost *LostError
			if struck = f.Fired(); struck != (failed != nil) || struck && !errors.As(failed, &lost) {
				t.Errorf("step %d: lost %v, the calls ended with %v", n, struck, failed)
			}
			w.close(c)
			callbacks.wg.Wait()
		}
	}
}

// TestBackRefused makes calls of the reverse direction that cannot be sent: they cost no receive,
// so the client may use all the credits it has.
func TestBackRefused(t *testing.T) {
	const credits = 4
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) { cfg.Credits = credit.Static(credits) })
	c := w.dial(func(cfg *Config) { cfg.Handler, cfg.ReverseCredits = &testHandler{}, 5 })
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	back := w.back()
	for range spareReceives + credits {
		var e *RequestError
		if err := plain(back, w.pool, 5000, 1); !errors.As(err, &e) {
			t.Errorf("a call of 5000 bytes: %v, want a RequestError", err)
		}
	}
	r := &w.server.only().receives
	r.mu.Lock()
	extra := r.extra
	r.mu.Unlock()
	if extra != spareReceives {
		t.Errorf("%d receives besides those for credits, want %d", extra, spareReceives)
	}
	var wg sync.WaitGroup
	for range 2 * credits {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 5 {
				if err := null(c, w.cpool, procNull); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	w.waitIdle()
	w.close(c)
}

// TestBackGroupsFirst has many goroutines make the first calls of the reverse direction, each of
// which needs more credits than there are before an answer has come.
func TestBackGroupsFirst(t *testing.T) {
	for range 20 {
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, extended(MessageContinuation))
		c := w.dial(func(cfg *Config) { extended(MessageContinuation)(cfg); cfg.Handler = &testHandler{} })
		if err := null(c, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
		back := w.back()
		begin := make(chan struct{})
		var wg sync.WaitGroup
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				<-begin
				if err := (&move{args: []int{8000}}).do(back, w.pool); err != nil {
					t.Error(err)
				}
			}()
		}
		close(begin)
		wg.Wait()
		w.close(c)
	}
}

// TestBackEnded makes a call of the reverse direction on a connection whose end has not reached the
// requester yet.
func TestBackEnded(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	c := w.dial(func(cfg *Config) { cfg.Handler = &testHandler{} })
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	conn := w.server.only()
	conn.recvMu.Lock()
	_ = conn.ep.Close()
	var lost *LostError
	if err := null(w.back(), w.pool, procNull); !errors.As(err, &lost) {
		t.Errorf("got %v, want a LostError", err)
	}
	conn.recvMu.Unlock()
	w.close(c)
}
