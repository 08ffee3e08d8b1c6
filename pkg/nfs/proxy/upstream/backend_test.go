package upstream

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

// step is one event of the model.
type step struct {
	Kind, Link, XID, Arg, How int
}

// modelEnv has three clients, two of them at one address, and a backend that fails and recovers.
type modelEnv struct {
	*Backend
	dialer *fakeDialer
	pool   *bufpool.Pool
	links  [3]*Link
	opened int
	mu     sync.Mutex
	faults []string
	open   int // requests not finished
	broken int // number of broken connections
}

func (w *modelEnv) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *modelEnv) openLink(i int) {
	w.opened++
	addr := netip.AddrFrom4([4]byte{192, 0, 2, byte(i / 2)})
	w.links[i] = w.Open(&oncrpc.Conn{Remote: netip.AddrPortFrom(addr, uint16(w.opened))}, nil)
}

func (w *modelEnv) do(t *testing.T, s step) {
	switch s.Kind {
	case 0, 1, 2, 3:
		arg, ends := uint32(s.Arg), 0
		r := newRequest(t, w.pool, uint32(s.XID), 1, arg)
		r.Timeout, r.NoReplay = TimeoutPolicy(s.How%3), s.How >= 3
		w.mu.Lock()
		w.open++
		w.mu.Unlock()
		r.Finished = func(r *Request) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if ends++; ends > 1 {
				w.fault("call %d was finished %d times", s.XID, ends)
			}
			w.open--
			switch err := r.Err; {
			case err == nil:
				if d, err := r.Results(); err != nil {
					w.fault("call %d: %v", s.XID, err)
				} else if got := d.Uint32(); got != arg {
					w.fault("call %d with %d got the reply to one with %d", s.XID, arg, got)
				}
			case errors.Is(err, ErrSoftTimeout):
				if r.Timeout == TimeoutNever {
					w.fault("call %d: %v", s.XID, err)
				}
			case errors.Is(err, ErrLost):
				if !r.NoReplay && w.broken < maxDeaths {
					w.fault("call %d: %v", s.XID, err)
				}
			case !errors.Is(err, ErrClosed) && !errors.Is(err, ErrSuperseded) && !errors.Is(err, ErrOverloaded):
				w.fault("call %d: %v", s.XID, err)
			}
			r.Reset()
		}
		w.links[s.Link].Submit(r)
	case 4, 5:
		if c := w.conn(s.Arg); c != nil {
			c.mu.Lock()
			var xids []uint32
			for _, r := range c.calls {
				xids = append(xids, r.XID)
			}
			xids = append(xids, c.owed...)
			c.mu.Unlock()
			if n := len(xids); n > 0 {
				if xid := xids[s.XID%n]; !c.late(xid) {
					c.reply(xid)
				}
			}
		}
	case 6:
		if c := w.conn(s.Arg); c != nil {
			w.mu.Lock()
			w.broken++
			w.mu.Unlock()
			c.end(errBroken)
		}
	case 7:
		w.dialer.setFail(func(int) error { return errRefused })
	case 8:
		w.dialer.setFail(nil)
	case 9:
		time.Sleep(time.Duration(s.XID*s.XID*s.Arg) * 20 * time.Millisecond)
	case 10:
		w.links[s.Link].Close()
		w.openLink(s.Link)
	}
	synctest.Wait()
}

// conn returns the ith latest connection, or nil.
func (w *modelEnv) conn(i int) *fakeConn {
	w.dialer.mu.Lock()
	defer w.dialer.mu.Unlock()
	if n := len(w.dialer.conns); i < n {
		return w.dialer.conns[n-1-i]
	}
	return nil
}

// TestModel checks that every request finishes once, with the reply to its own call or a permitted
// error, that no connection has two calls with one XID, and that a recovered backend answers all
// calls.
func TestModel(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.IntRange(0, 10).Draw(t, "kind"), Link: rapid.IntRange(0, 2).Draw(t, "link"), XID: rapid.IntRange(0, 7).Draw(t, "xid"),
			Arg: rapid.IntRange(0, 2).Draw(t, "arg"), How: rapid.IntRange(0, 5).Draw(t, "how"),
		}
	}), 1, 80)
	rapid.Check(t, func(rt *rapid.T) {
		list := steps.Draw(rt, "steps")
		var faults []string
		synctest.Test(t, func(t *testing.T) {
			w := &modelEnv{dialer: &fakeDialer{}, pool: bufpool.New(0)}
			var err error
			if w.Backend, err = New(Config{
				Dialer: w.dialer, Pool: w.pool, SoftTimeout: 7 * time.Second, MaxDetached: 2, WaitLimit: 12 * (callCost + 44),
			}); err != nil {
				t.Fatal(err)
			}
			for i := range w.links {
				w.openLink(i)
			}
			for _, s := range list {
				w.do(t, s)
			}
			w.dialer.setFail(nil)
			for range 10 {
				pass(10 * time.Second)
				for i := 0; w.conn(i) != nil; i++ {
					c := w.conn(i)
					for xid := range uint32(8) {
						for c.reply(xid) {
							synctest.Wait()
						}
					}
				}
			}
			synctest.Wait()
			if st := w.Status(); st.Calls != 0 || st.WaitBytes != 0 || st.OrphanedBytes != 0 || w.open != 0 {
				w.fault("%d calls are left: %+v", w.open, st)
			}
			for i := 0; w.conn(i) != nil; i++ {
				if w.conn(i).twice {
					w.fault("a connection had two calls with one XID")
				}
			}
			w.Close()
			synctest.Wait()
			if st := w.Status(); st.WaitBytes != 0 || st.OrphanedBytes != 0 || st.Ports != 0 || st.Links != 0 || st.Connections != 0 {
				w.fault("after the end: %+v", st)
			}
			if err := w.pool.Close(); err != nil {
				w.fault("%v", err)
			}
			faults = w.faults
		})
		for _, f := range faults {
			rt.Error(f)
		}
	})
}
