package oncrpc

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

const minProgress = 64 << 10

func from(host byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, host), Port: 700} }

// sumCall returns a record with a call of procSum that has n bytes of arguments.
func sumCall(xid uint32, n int) []byte {
	return marked(append(callBytes(xid, procSum, uint32(n)), make([]byte, n)...))
}

// TestHalfRecords: connections that announce large calls and send little of them take no memory
// that others wait for.
func TestHalfRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := bufpool.NewBudget(8<<20, 2<<20)
		var links []*link
		for range 100 {
			l, w := onWireFrom(t, Config{Budget: budget}, &testService{}, from(1))
			w.says <- sumCall(1, 1<<20)[:2048]
			links = append(links, l)
		}
		synctest.Wait()
		if n := budget.Used(); n != 0 {
			t.Errorf("half records hold %d bytes", n)
		}
		l, w := onWireFrom(t, Config{Budget: budget}, &testService{}, from(2))
		w.says <- sumCall(2, 1<<20)
		synctest.Wait()
		if n := l.stats.recordsOut.Load(); n != 1 {
			t.Errorf("another client's call: %d replies", n)
		}
		for _, l := range append(links, l) {
			l.fail(net.ErrClosed)
		}
	})
}

// TestStalledRecord sends a large call slowly while another client waits: the connection ends below
// the minimum rate, and only then.
func TestStalledRecord(t *testing.T) {
	for name, tt := range map[string]struct {
		rate  int // bytes per second
		waits bool
		ends  bool
	}{
		"nothing comes":            {0, true, true},
		"too little comes":         {minProgress / 2, true, true},
		"enough comes":             {minProgress * 3 / 2, true, false},
		"nobody waits":             {0, false, false},
		"little, and nobody waits": {1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bufpool.NewBudget(0, 0)
				budget.SetLimits(bufpool.Limits{Total: 3 << 20, MinProgress: minProgress})
				slow, w := onWireFrom(t, Config{Budget: budget, MaxRecord: 3 << 20}, &testService{}, from(1))
				other, ow := onWireFrom(t, Config{Budget: budget, MaxRecord: 3 << 20}, &testService{}, from(2))
				call := sumCall(1, 3<<20-1000)
				w.says <- call[:firstPart+1000]
				call = call[firstPart+1000:]
				synctest.Wait()
				if tt.waits {
					ow.says <- sumCall(2, 1<<20)
					synctest.Wait()
					if budget.Waiting() != 1 {
						t.Fatal("nobody waits")
					}
				}
				for range 20 {
					time.Sleep(time.Second)
					synctest.Wait()
					if slow.err() != nil {
						break
					}
					if tt.rate > 0 {
						w.says <- call[:tt.rate]
						call = call[tt.rate:]
					}
				}
				synctest.Wait()
				if err := slow.err(); tt.ends != errors.Is(err, bufpool.ErrNoProgress) || !tt.ends && err != nil {
					t.Errorf("the connection: %v", err)
				}
				if n := other.stats.recordsOut.Load(); tt.waits && tt.ends != (n == 1) {
					t.Errorf("the other client has %d replies", n)
				}
				for _, l := range []*link{slow, other} {
					l.fail(net.ErrClosed)
				}
			})
		})
	}
}

// TestRepliesNotTaken: a peer that takes its replies too slowly while another client waits is
// disconnected. A slow backend is no reason.
func TestRepliesNotTaken(t *testing.T) {
	const size = 1 << 20
	for name, tt := range map[string]struct {
		taking int
		held   bool // the backend does not answer
		ends   bool
	}{
		"nothing is taken":    {taking: 1, ends: true},
		"too little is taken": {taking: minProgress * 8 / 10, ends: true},
		"enough is taken":     {taking: minProgress * 3 / 2},
		"a slow backend":      {held: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				budget := bufpool.NewBudget(0, 0)
				budget.SetLimits(bufpool.Limits{Total: size, MinProgress: minProgress})
				cfg := Config{Budget: budget, Bindings: bulkBindings, MaxRecord: size}
				service := &testService{held: make(chan *Call, 1)}
				l, w := onWireFrom(t, cfg, service, from(1))
				w.taking = tt.taking
				if tt.held {
					w.says <- marked(callBytes(1, procHold, size))
				} else {
					w.says <- marked(callBytes(1, procPool, size))
				}
				synctest.Wait()
				if budget.Used() != size {
					t.Fatalf("%d bytes are reserved", budget.Used())
				}
				other, ow := onWireFrom(t, cfg, service, from(2))
				ow.says <- marked(callBytes(2, procPool, size))
				synctest.Wait()
				if budget.Waiting() != 1 {
					t.Fatal("nobody waits")
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if err := l.err(); tt.ends != errors.Is(err, bufpool.ErrNoProgress) || !tt.ends && err != nil {
					t.Errorf("the connection: %v", err)
				}
				if n := other.stats.recordsOut.Load(); tt.ends != (n == 1) {
					t.Errorf("the other client has %d replies", n)
				}
				if tt.held {
					(<-service.held).ReplyAccept(Success)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := other.stats.recordsOut.Load(); n != 1 {
					t.Errorf("the other client has %d replies in the end", n)
				}
				for _, l := range []*link{l, other} {
					l.fail(net.ErrClosed)
				}
			})
		})
	}
}

// TestRetainedCalls: large calls that wait for the memory of large replies are bounded, although
// they hold nothing of the budget.
func TestRetainedCalls(t *testing.T) {
	const total, size, calls = 8 << 20, 500_000, 20
	synctest.Test(t, func(t *testing.T) {
		budget := bufpool.NewBudget(total, 0)
		var held bufpool.Grant
		if ok, err := budget.Share(netip.Addr{}, nil).Acquire(&held, total, nil); !ok || err != nil {
			t.Fatal(ok, err)
		}
		cfg := Config{Budget: budget, Bindings: bulkBindings}
		service := &testService{held: make(chan *Call, calls)}
		var links []*link
		for i := range calls {
			l, w := onWireFrom(t, cfg, service, from(byte(i)))
			w.says <- marked(append(callBytes(1, procHold, 1<<20), make([]byte, size)...))
			links = append(links, l)
		}
		synctest.Wait()
		// enough for each call, one after the other, and not for a reply
		held.Shrink(total - 600_000)
		synctest.Wait()
		waiting := 0
		for _, l := range links {
			switch err := l.err(); {
			case err == nil:
				waiting++
			case !errors.Is(err, bufpool.ErrExhausted):
				t.Error(err)
			}
		}
		if n := budget.Retained(); waiting == 0 || waiting != int(n/size) || n > total/8 {
			t.Errorf("%d calls wait, with %d bytes; at most %d may", waiting, n, total/8)
		}
		held.Release()
		synctest.Wait()
		for range waiting {
			(<-service.held).ReplyAccept(Success)
		}
		synctest.Wait()
		if budget.Used() != 0 || budget.Retained() != 0 {
			t.Errorf("%d bytes are used, %d retained", budget.Used(), budget.Retained())
		}
		for _, l := range links {
			l.fail(net.ErrClosed)
		}
	})
}
