//go:build kernel

package hostile

import (
	"bytes"
	"slices"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/schema"
)

// TestCounts sends COMPOUNDs with a wrong count of operations. The slot stays in step.
func TestCounts(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	c := g.intrude(t, "tcp", 0)
	c.begin(1)
	send := func(count int, ops ...raw) (*nfs4test.Results, error) {
		c.session.Slots[0]++
		all := append([]raw{c.session.Sequence(0)}, ops...)
		b, err := c.Call(c.ctx, nfs4test.NFS, 4, 1, fields("tag", 2, count, slices.Concat(all...)))
		if err != nil {
			return nil, err
		}
		return nfs4test.Read(b)
	}
	// bytes behind the last operation are not for the backend
	res, err := send(2, putRoot, lookupP, getFH)
	check(t, err)
	c.want(res, 0, schema.OpPutRootFH)
	c.fine()
	res, err = send(4, putRoot, getFH) // one less than announced
	check(t, err)
	if res.Status != errBadXDR || len(res.Ops) != 4 {
		t.Errorf("an operation less than said: status %d, %d results", res.Status, len(res.Ops))
	}
	c.fine()
	many := slices.Repeat([]raw{putRoot}, 100)
	if res, err = send(1+len(many), many...); err != nil {
		t.Fatal(err)
	}
	if res.Status == 0 || len(res.Ops) == 0 {
		t.Errorf("more operations than the session may have: status %d, %d results", res.Status, len(res.Ops))
	}
	if res.Ops[0].Status != 0 { // SEQUENCE itself may have refused
		c.session.Slots[0]--
	}
	c.fine()
	for _, count := range []int{257, 1 << 20, 1<<32 - 1} {
		res, err := send(count, putRoot)
		check(t, err)
		if res.Status != errTooManyOps || len(res.Ops) != 1 || res.Ops[0].Code != schema.OpSequence {
			t.Errorf("%d operations: %+v", count, res)
		}
		c.session.Slots[0]-- // a failed SEQUENCE leaves the slot as it was
		c.fine()
	}
}

// TestSlots uses all slots at once, for refused and accepted operations. All stay in step.
func TestSlots(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone, readOnly: true})
	const slots, rounds = 8, 60
	for _, network := range networks {
		c := g.intrude(t, network, 0)
		c.begin(slots)
		tries := []attempt{
			{"", []raw{putRoot, getFH}, 0, schema.OpGetFH}, {"", []raw{putRoot, lookupP}, errNoEnt, schema.OpLookupP},
			{"", []raw{op(schema.OpRemove, "file")}, errROFS, schema.OpRemove}, {"", []raw{putRoot, lookup("dir"), lookupP, lookupP}, errNoEnt, schema.OpLookupP},
			{"", []raw{putRoot, lookup("dir"), op(schema.OpCreate, 2, "new", noAttrs), getFH}, errROFS, schema.OpCreate}, {"", []raw{putFH(nil)}, errBadHandle, schema.OpPutFH},
		}
		before := h.relay.count()
		var wg sync.WaitGroup
		for slot := range slots {
			wg.Go(func() {
				for i := range rounds {
					a := tries[(slot+i)%len(tries)]
					res, err := c.session.Next(c.ctx, slot, a.ops...)
					if err != nil {
						t.Error(err)
						return
					}
					c.want(res, a.status, a.code)
				}
			})
		}
		wg.Wait()
		passed := h.relay.since(before)
		for i := range passed {
			if !passed[i].sequenced() {
				t.Errorf("the backend got %v", passed[i])
			}
		}
		if len(passed) != slots*rounds {
			t.Errorf("the backend got %d COMPOUNDs, want %d", len(passed), slots*rounds)
		}
	}
}

// TestOutsideOfSession checks the status of an operation that is refused before there is a session.
func TestOutsideOfSession(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	c := g.intrude(t, "tcp", 0)
	const notInSession = 10071
	for _, ops := range [][]raw{{putRoot, lookupP}, {lookupP}, {op(schema.OpLayoutGet, false, 1, 1, uint64(0), uint64(1), uint64(0), anonymous, 4096)}} {
		if res := c.compound(2, ops...); res.Status != notInSession {
			t.Errorf("status %d", res.Status)
		}
	}
	// 4.0 has no sessions: try each way out alone.
	for _, a := range append(named(".."), attempt{"", []raw{putRoot, lookupP}, errNoEnt, schema.OpLookupP},
		attempt{"", []raw{putPublic, lookupP}, errNoEnt, schema.OpLookupP}, attempt{"", []raw{putRoot, lookup("dir"), lookupP, lookupP}, errNoEnt, schema.OpLookupP},
		attempt{"", []raw{putRoot, lookup(secretName)}, errNoEnt, schema.OpLookup}) {
		if a.code == schema.OpOpen && a.name[:7] == "OPEN by" {
			continue // those claims need a client id
		}
		c.want(c.compound(0, a.ops...), a.status, a.code)
	}
}

// TestNoFileHandle checks that the proxy itself answers an operation that lacks its file handle.
// NFS-Ganesha 4.3 crashes on such a READ_PLUS.
func TestNoFileHandle(t *testing.T) {
	const noFileHandle = 10020
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			c := g.intrude(t, network, 0)
			c.begin(1)
			for _, o := range []struct {
				code int
				op   raw
			}{
				{schema.OpReadPlus, op(schema.OpReadPlus, anonymous, uint64(0), 4096)},
				{schema.OpSeek, op(schema.OpSeek, anonymous, uint64(0), 0)},
				{schema.OpGetFH, getFH},
				{schema.OpSaveFH, op(schema.OpSaveFH)},
				{schema.OpRestoreFH, op(schema.OpRestoreFH)},
			} {
				c.want(c.next(o.op), noFileHandle, o.code)
				c.want(c.next(putRoot, op(schema.OpSecInfoNoName, 0), o.op), noFileHandle, o.code)
				c.fine()
			}
		})
	}
}

// TestMovedUp walks down and up in one COMPOUND while another moves the directory. The walk never
// leaves the root.
func TestMovedUp(t *testing.T) {
	h := newEnv(t)
	g := h.open(guard{uid: "export one", path: "/exported", squash: access.SquashNone})
	a, b := g.intrude(t, "tcp", 0), g.intrude(t, "tcp", 0)
	a.begin(1)
	mover, err := nfs4test.NewSession(b.ctx, &b.Caller, 2, "mover", 1, 0, 0)
	check(t, err)
	root := a.walk()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		down := []raw{putRoot, lookup("dir"), saveFH, putRoot, op(schema.OpRename, "deep", "deep")}
		up := []raw{putRoot, saveFH, lookup("dir"), op(schema.OpRename, "deep", "deep")}
		for ; ; down, up = up, down {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := mover.Next(b.ctx, 0, down...); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	slow := slices.Repeat([]raw{op(schema.OpAccess, 0x3f)}, 50)
	for range 2500 {
		res, err := a.session.Next(a.ctx, 0, slices.Concat([]raw{putRoot, lookup("dir"), lookup("deep")}, slow, []raw{lookupP, lookupP, getFH})...)
		check(t, err)
		if res.Status == 0 && !bytes.Equal(res.Handle(t, len(res.Ops)-1), root) {
			t.Fatal("two levels up from the second level is not the root")
		}
	}
}
