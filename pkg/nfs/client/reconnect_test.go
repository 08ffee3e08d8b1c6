package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// fakeConn is a connection whose calls a test answers.
type fakeConn struct {
	mu    sync.Mutex
	calls []*oncrpc.Request
	got   []uint32 // XIDs, in order
	ended error
	done  chan struct{}
}

func newFakeConn() *fakeConn { return &fakeConn{done: make(chan struct{})} }

func (c *fakeConn) NextXID() uint32       { panic("the reconnector chooses XIDs") }
func (c *fakeConn) Done() <-chan struct{} { return c.done }

func (c *fakeConn) Submit(r *oncrpc.Request) {
	c.mu.Lock()
	err := c.ended
	if err == nil {
		c.calls = append(c.calls, r)
		c.got = append(c.got, r.XID)
	}
	c.mu.Unlock()
	if err != nil {
		r.Err = err
		r.Done(r)
	}
}

func (c *fakeConn) Cancel(r *oncrpc.Request, cause error) {
	if c.take(func(x *oncrpc.Request) bool { return x == r }) != nil {
		r.Err = cause
		r.Done(r)
	}
}

func (c *fakeConn) take(which func(*oncrpc.Request) bool) *oncrpc.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.calls, which)
	if i < 0 {
		return nil
	}
	r := c.calls[i]
	c.calls = slices.Delete(c.calls, i, i+1)
	return r
}

// answer answers the oldest call, if there is one.
func (c *fakeConn) answer() bool {
	r := c.take(func(*oncrpc.Request) bool { return true })
	if r != nil {
		r.Err = nil
		r.Done(r)
	}
	return r != nil
}

// end ends the connection, as its peer does.
func (c *fakeConn) end(err error) {
	c.mu.Lock()
	if c.ended != nil {
		c.mu.Unlock()
		return
	}
	c.ended = err
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, r := range calls {
		r.Err = err
		r.Done(r)
	}
	close(c.done)
}

func (c *fakeConn) Close() error { c.end(errConnClosed); return nil }

var errConnClosed = errors.New("closed here")

// fakeServer is dialled by a Reconnector.
type fakeServer struct {
	mu    sync.Mutex
	conns []*fakeConn
	down  bool
	tries int
}

func (s *fakeServer) dial(ctx context.Context) (Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tries++
	if s.down {
		return nil, io.ErrUnexpectedEOF
	}
	c := newFakeConn()
	s.conns = append(s.conns, c)
	return c, ctx.Err()
}

func (s *fakeServer) last() *fakeConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns[len(s.conns)-1]
}

func (s *fakeServer) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// result counts the ends of a request.
type result struct {
	oncrpc.Request
	mu    sync.Mutex
	times int
	err   error
}

func submit(rc *Reconnector) *result {
	x := &result{}
	x.XID = rc.NextXID()
	x.Done = func(r *oncrpc.Request) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.times++
		x.err = r.Err
	}
	rc.Submit(&x.Request)
	return x
}

// state returns how often x ended, and the error.
func (x *result) state() (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.times, x.err
}

func newTestReconnector(t *testing.T, cfg ReconnectConfig) (*Reconnector, *fakeServer) {
	t.Helper()
	s := &fakeServer{}
	cfg.Dial = s.dial
	rc, err := NewReconnector(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return rc, s
}

func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lost []error
		var resumed []time.Duration
		rc, s := newTestReconnector(t, ReconnectConfig{
			OnLost: func(err error) { lost = append(lost, err) }, OnResumed: func(d time.Duration) { resumed = append(resumed, d) },
		})
		a, b, c := submit(rc), submit(rc), submit(rc)
		old := s.last()
		old.answer()
		s.setDown(true)
		old.end(io.EOF)
		d := submit(rc) // waits
		time.Sleep(10 * time.Second)
		s.setDown(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		conn := s.last()
		if want := []uint32{b.XID, c.XID, d.XID}; !slices.Equal(conn.got, want) {
			t.Fatalf("sent again: %x, want %x", conn.got, want)
		}
		for conn.answer() {
		}
		for i, x := range []*result{a, b, c, d} {
			if n, err := x.state(); n != 1 || err != nil {
				t.Errorf("call %d ended %d times: %v", i, n, err)
			}
		}
		if len(lost) != 1 || !errors.Is(lost[0], io.EOF) || len(resumed) != 1 || resumed[0] != 15*time.Second {
			t.Errorf("lost %v, resumed %v", lost, resumed)
		}
		// Attempts at 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3 and 11.3 s, after the first connection.
		if s.tries != 9 {
			t.Errorf("%d attempts", s.tries)
		}
		// An idle connection that ends is noticed by the next call.
		conn.end(io.EOF)
		e := submit(rc)
		synctest.Wait()
		s.last().answer()
		if n, err := e.state(); n != 1 || err != nil {
			t.Errorf("after an idle connection: %d, %v", n, err)
		}
		// A cancelled call is no end of a connection.
		f := submit(rc)
		rc.Cancel(&f.Request, context.Canceled)
		if n, err := f.state(); n != 1 || !errors.Is(err, context.Canceled) || rc.Conn() != s.last() || s.tries != 10 {
			t.Errorf("after Cancel: %d, %v, %d attempts", n, err, s.tries)
		}
		_ = rc.Close()
		rc.Wait()
		if n, err := submit(rc).state(); n != 1 || !errors.Is(err, errClosed) {
			t.Errorf("after Close: %d, %v", n, err)
		}
	})
}

func TestReconnectPatience(t *testing.T) {
	t.Run("no connection", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rc, s := newTestReconnector(t, ReconnectConfig{Patience: time.Minute})
			x := submit(rc)
			s.setDown(true)
			began := time.Now()
			s.last().end(io.EOF)
			rc.wg.Wait()
			if n, err := x.state(); n != 1 || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d, %v", n, err)
			}
			if d := time.Since(began); d < 50*time.Second || d > time.Minute {
				t.Errorf("gave up after %v", d)
			}
			_ = rc.Close()
			rc.Wait()
		})
	})
	// A server that accepts connections and ends each is dialled ever less often, and not for ever.
	t.Run("no answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rc, s := newTestReconnector(t, ReconnectConfig{Patience: time.Minute})
			x := submit(rc)
			for {
				s.last().end(io.EOF)
				time.Sleep(time.Millisecond)
				if n, _ := x.state(); n > 0 {
					break
				}
			}
			if n, err := x.state(); n != 1 || !errors.Is(err, io.EOF) {
				t.Errorf("%d, %v", n, err)
			}
			if s.tries > 25 {
				t.Errorf("%d attempts in a minute", s.tries)
			}
			_ = rc.Close()
			rc.Wait()
		})
	})
	// A call that ends each connection, between calls that succeed, is given up.
	t.Run("deadly call", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rc, s := newTestReconnector(t, ReconnectConfig{})
			var x *result
			for i := range 20 {
				good := submit(rc)
				time.Sleep(time.Minute)
				c := s.last()
				if i == 0 {
					x = submit(rc)
				}
				c.take(func(r *oncrpc.Request) bool { return r == &good.Request }).Done(&good.Request)
				if n, err := x.state(); n > 0 {
					if i != maxDeaths || !errors.Is(err, io.EOF) {
						t.Errorf("given up after %d connections: %v", i, err)
					}
					break
				}
				c.end(io.EOF)
			}
			_ = rc.Close()
			rc.Wait()
		})
	})
}

// TestReconnectModel submits, answers, cancels and ends connections in random order: each call ends
// once: with an answer, with its cancellation, or as the suspect of maxDeaths ends.
func TestReconnectModel(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				rc, s := newTestReconnector(t, ReconnectConfig{Patience: time.Hour})
				cause := errors.New("cancelled")
				var all []*result
				cancelled := map[*result]bool{}
				var wg sync.WaitGroup
				for range 300 {
					switch n := rnd.IntN(20); {
					case n < 9:
						all = append(all, submit(rc))
					case n < 14:
						s.last().answer()
					case n < 16 && len(all) > 0:
						x := all[rnd.IntN(len(all))]
						if k, _ := x.state(); k == 0 {
							cancelled[x] = true
							wg.Go(func() { rc.Cancel(&x.Request, cause) })
						}
					case n == 16:
						c := s.last()
						wg.Go(func() { c.end(io.EOF) })
					case n == 17:
						s.setDown(rnd.IntN(2) == 0)
					case n == 18:
						time.Sleep(time.Duration(rnd.IntN(2000)) * time.Millisecond)
					default:
						synctest.Wait()
						s.last().answer()
					}
				}
				wg.Wait()
				s.setDown(false)
				for range 100 {
					time.Sleep(5 * time.Second)
					synctest.Wait()
					for s.last().answer() {
					}
				}
				for i, x := range all {
					n, err := x.state()
					lost := errors.Is(err, io.EOF) || errors.Is(err, errConnClosed) || cancelled[x] && errors.Is(err, cause)
					if n != 1 || err != nil && !lost {
						t.Fatalf("call %d of %d ended %d times: %v", i, len(all), n, err)
					}
				}
				_ = rc.Close()
				rc.Wait()
				if len(rc.calls) != 0 {
					t.Errorf("%d calls left", len(rc.calls))
				}
			})
		})
	}
}
