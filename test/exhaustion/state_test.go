//go:build kernel

package exhaustion

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
)

func op(code nfs4.Op, list ...any) nfs4test.Raw { return nfs4test.Op(int(code), list...) }

var putRoot = op(nfs4.OpPutRootFH)

// openOp is OPEN by name, without a wish for a delegation.
func openOp(owner string, access int, create bool, name string) nfs4test.Raw {
	how := nfs4test.Fields(0)
	if create {
		how = nfs4test.Fields(1, int(nfs4.Unchecked), nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o644))
	}
	return op(nfs4.OpOpen, 0, access|nfs4.WantNoDeleg, 0, uint64(0), owner, how, int(nfs4.ClaimNull), name)
}

// lockNew is LOCK by a new lock-owner.
func lockNew(open []byte, owner string, typ nfs4.LockType, offset, length uint64) nfs4test.Raw {
	return op(nfs4.OpLock, int(typ), false, offset, length, true, 0, nfs4test.Raw(open), 0, uint64(0), owner)
}

// stateID is the stateid that a result begins with.
func stateID(r *nfs4test.Results, i int) []byte { return bytes.Clone(r.Op(i)[:16]) }

// flooder is one connection of an attack on the state of version 4.
type flooder struct {
	nfs4test.Caller
	ctx   context.Context
	name  string
	count *atomic.Int64 // calls of the whole attack
}

func (f *flooder) compound(ops ...nfs4test.Raw) (*nfs4test.Results, error) {
	f.count.Add(1)
	return f.Compound(f.ctx, 2, ops...)
}

// unique returns another name each time.
func (f *flooder) unique() string { return fmt.Sprint(f.name, " ", f.count.Load()) }

func (f *flooder) session(flags int) (*nfs4test.Session, error) {
	s, err := nfs4test.NewSession(f.ctx, &f.Caller, 2, f.unique(), 4, 0, flags)
	if err == nil {
		_, err = s.Next(f.ctx, 0, op(nfs4.OpReclaimComplete, false))
	}
	return s, err
}

// repeat sends a COMPOUND again and again.
func (f *flooder) repeat(s *nfs4test.Session, make func(n uint64) []nfs4test.Raw) error {
	for n := uint64(0); ; n++ {
		f.count.Add(1)
		if _, err := s.Next(f.ctx, 0, make(n)...); err != nil {
			return err
		}
	}
}

func floodExchangeID(f *flooder) error {
	for {
		if _, err := f.compound(nfs4test.ExchangeID(f.unique(), 0)); err != nil {
			return err
		}
	}
}

// floodCreateSession makes clients with as many and as large sessions as they can get.
func floodCreateSession(f *flooder) error {
	most := nfs4test.Fields(0, math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32, math.MaxInt32, 0)
	for {
		res, err := f.compound(nfs4test.ExchangeID(f.unique(), 0))
		if err != nil {
			return err
		}
		if res.Status != 0 {
			continue
		}
		id := nfs4test.Raw(bytes.Clone(res.Op(0)[:8]))
		for n := range 20 {
			if _, err := f.compound(op(nfs4.OpCreateSession, id, 1+n, 0, most, most, 1, 0)); err != nil {
				return err
			}
		}
	}
}

func floodOpen(f *flooder) error {
	s, err := f.session(0)
	if err != nil {
		return err
	}
	return f.repeat(s, func(uint64) []nfs4test.Raw {
		return []nfs4test.Raw{putRoot, openOp(f.unique(), nfs4.ShareAccessRead, false, "big")}
	})
}

// floodLock takes locks of single bytes that do not touch, for one owner and for many.
func floodLock(f *flooder) error {
	s, err := f.session(0)
	if err != nil {
		return err
	}
	res, err := s.Next(f.ctx, 0, putRoot, openOp("owner", nfs4.ShareAccessBoth, false, "big"))
	if err != nil || res.Status != 0 {
		return errors.Join(err, fmt.Errorf("OPEN: status %d", res.Status))
	}
	open := stateID(res, 2)
	return f.repeat(s, func(n uint64) []nfs4test.Raw {
		owner := "one"
		if n%2 == 0 {
			owner = f.unique()
		}
		return []nfs4test.Raw{putRoot, op(nfs4.OpLookup, "big"), lockNew(open, owner, nfs4.LockReadW, 2*n, 1)}
	})
}

// floodSlots sends SEQUENCE out of order, for slots and sessions that there are not, and retries
// with other operations.
func floodSlots(f *flooder) error {
	s, err := f.session(0)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		id := bytes.Clone(s.ID)
		id[n%16] ^= byte(n % 3)
		seq := op(nfs4.OpSequence, nfs4test.Raw(id), s.Slots[0]+uint32(n%3), n%80, n%80, true)
		if _, err := f.compound(seq, putRoot, op(nfs4.OpLookup, fmt.Sprint(n))); err != nil {
			return err
		}
	}
}

// floodRecall has delegations recalled, and answers no CB_RECALL.
func floodRecall(f *flooder) error {
	holder, err := f.session(nfs4.SessionConnBackChan)
	if err != nil {
		return err
	}
	other, err := f.session(0)
	if err != nil {
		return err
	}
	for {
		name := f.unique()
		wish := op(nfs4.OpOpen, 0, nfs4.ShareAccessRead|nfs4.WantReadDeleg, 0, uint64(0), "o", 0, int(nfs4.ClaimNull), name)
		calls := []struct {
			s   *nfs4test.Session
			ops []nfs4test.Raw
		}{
			{other, []nfs4test.Raw{putRoot, openOp("o", nfs4.ShareAccessWrite, true, name)}},
			{holder, []nfs4test.Raw{putRoot, wish}},
			{other, []nfs4test.Raw{putRoot, openOp("w", nfs4.ShareAccessWrite, false, name)}},
		}
		for i, c := range calls {
			res, err := c.s.Next(f.ctx, 0, c.ops...)
			if err != nil {
				return err
			}
			if i == 0 && res.Status == 0 { // nobody may write where there is to be a delegation
				_, err = c.s.Next(f.ctx, 0, putRoot, op(nfs4.OpLookup, name), op(nfs4.OpClose, 0, nfs4test.Raw(stateID(res, 2))))
			}
			if err != nil {
				return err
			}
			f.count.Add(1)
		}
	}
}

// deaf answers CB_NULL, and no other callback.
type deaf struct {
	mu      sync.Mutex
	waiting []*oncrpc.Call
}

func (d *deaf) ServeRPC(c *oncrpc.Call) {
	if c.Procedure == nfs4.ProcNull {
		c.ReplyAccept(oncrpc.Success)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = append(d.waiting, c)
}

func (d *deaf) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.waiting {
		c.Drop()
	}
}

// flood runs an attack over TCP from an address, until the returned function is called.
func (g *gateway) flood(from netip.Addr, connections int, run func(*flooder) error) (count *atomic.Int64, end func()) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(g.t.Context())
	count = new(atomic.Int64)
	pool := bufpool.New(0)
	var wg sync.WaitGroup
	for i := range connections {
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
		conn, err := d.DialContext(ctx, "tcp", g.tcp)
		check(g.t, err)
		back := &deaf{}
		c, err := oncrpc.NewClient(conn, oncrpc.Config{Pool: pool, Handler: back, Bindings: binding.For})
		check(g.t, err)
		f := &flooder{ctx: ctx, name: fmt.Sprint(from, " ", i), count: count, Caller: nfs4test.Caller{Requester: c, Pool: pool, Cred: root(g.t)}}
		wg.Go(func() {
			if err := run(f); ctx.Err() == nil {
				g.t.Errorf("the attack ended: %v", err)
			}
			back.end()
			_ = c.Close()
			c.Wait()
		})
	}
	return count, func() {
		cancel()
		wg.Wait()
		check(g.t, pool.Close())
	}
}

func root(t testing.TB) oncrpc.Auth {
	a, err := (&oncrpc.AuthSysParms{Machine: []byte("host")}).Auth()
	check(t, err)
	return a
}

// TestState floods a volume's state of version 4, each time from another address, and leaves the
// state behind.
func TestState(t *testing.T) {
	g := start(t, setUp{rules: guests})
	for i, x := range []struct {
		name  string
		calls int64 // before the client comes
		run   func(*flooder) error
	}{
		{"EXCHANGE_ID", 2000, floodExchangeID},
		{"CREATE_SESSION", 8000, floodCreateSession},
		{"OPEN", 2000, floodOpen},
		{"LOCK", 2000, floodLock},
		{"SEQUENCE", 2000, floodSlots},
		{"CB_RECALL", 32, floodRecall}, // each waits for the delegation
	} {
		t.Run(x.name, func(t *testing.T) {
			count, end := g.flood(netip.AddrFrom4([4]byte{127, 0, 1, byte(i)}), 8, x.run)
			defer end()
			for begun := time.Now(); count.Load() < x.calls; time.Sleep(time.Millisecond) {
				if time.Since(begun) > patience {
					t.Fatalf("%d calls of the attack", count.Load())
				}
			}
			g.visit(t, []string{"rdma", "tcp"}[i%2], 64*mib, "--nfs", "4.2")
			t.Logf("%d calls of the attack", count.Load())
		})
	}
}
