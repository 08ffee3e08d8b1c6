package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
)

// TestTags sends tags that are no UTF-8 (RFC 8881 section 16.2.4).
func TestTags(t *testing.T) {
	r := newEnv4(t, nil)
	for _, tag := range []string{"", "ascii", "größe", "\xf0\x9f\x90\x9f"} {
		res := r.compoundOf(nfs4test.Fields(tag, 1, 0))
		if expect(t, tag, res, nfs4.OK); !bytes.HasPrefix(res.Bytes[4:], nfs4test.Fields(tag)) {
			t.Errorf("tag %q: results %x", tag, res.Bytes)
		}
	}
	for _, tag := range []string{"\xc0\xc1", "\xe0\x8a", "\xc0\xaf", "\xed\xa0\x80", "\x80", "\xff", "a\xdf "} {
		res := r.compoundOf(nfs4test.Fields(tag, 1, 1, op4(nfs4.OpDestroyClientID, uint64(1))))
		if expect(t, tag, res, nfs4.ErrInval); len(res.Ops) > 0 {
			t.Errorf("tag %q: %d results", tag, len(res.Ops))
		}
	}
}

// TestFenceFlag sends the flag of EXCHANGE_ID that version 4.2 added (RFC 7862 section 14.1).
func TestFenceFlag(t *testing.T) {
	r := newEnv4(t, nil)
	exchange := op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "client", nfs4.ExchangeSupportsFenceOps, 0, 0)
	expect(t, "version 4.1", r.compound(1, exchange), nfs4.ErrInval)
	expect(t, "version 4.2", r.compound(2, exchange), nfs4.OK)
}

// TestImplIDs sends more than one implementation.
func TestImplIDs(t *testing.T) {
	r := newEnv4(t, nil)
	impl := nfs4test.Fields("example.org", "client", uint64(1), 2)
	exchange := func(n int) nfs4test.Raw {
		return op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "client", 0, 0, n, nfs4test.Raw(bytes.Repeat(impl, n)))
	}
	expect(t, "one", r.compound(1, exchange(1)), nfs4.OK)
	expect(t, "two", r.compound(1, exchange(2)), nfs4.ErrBadXDR)
}

// TestUnconfirmedLease has a client that nobody confirms during a lease. (RFC 8881 section 18.35.4,
// "Client ID Removal").
func TestUnconfirmedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv4(t, nil)
		lease := r.s.v4.state.Config().Lease
		early, late := r.client4("early", "verifier"), r.client4("late", "verifier")
		time.Sleep(lease - time.Second)
		early.create()
		time.Sleep(2 * time.Second)
		expect(t, "after the lease", r.compound(1, createSession(late.client, late.sequence)), nfs4.ErrStaleClientID)
		early.ok()
		r.stop()
	})
}

// TestBackChannelSizes has back channels on which no callback fits.
func TestBackChannelSizes(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.client4("client", "verifier")
	fore := nfs4test.Channel(8192, 16, 8)
	back := func(request, response, ops, slots int) nfs4test.Raw {
		return createSession(s.client, s.sequence, 0, fore, nfs4test.Fields(0, request, response, response, ops, slots, 0), 1, 0)
	}
	for name, op := range map[string]nfs4test.Raw{
		"requests of 10 bytes": back(10, 8192, 8, 8),
		"replies of 10 bytes":  back(8192, 10, 8, 8),
		"one operation":        back(8192, 8192, 1, 8),
	} {
		for range 3 { // the sequence stays
			expect(t, name, r.compound(1, op), nfs4.ErrTooSmall)
		}
	}
	expect(t, "no slots", r.compound(1, back(8192, 8192, 8, 0)), nfs4.ErrInval)
	expect(t, "enough", r.compound(1, back(1024, 1024, 2, 1)), nfs4.OK)
}

// TestSequenceReplySize has limits below the reply of SEQUENCE alone.
func TestSequenceReplySize(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.client4("client", "verifier")
	channel := nfs4test.Channel(8192, 16, testSlots)
	fore := nfs4test.Fields(0, 8192, 8192, 10, 16, testSlots, 0)
	res := r.compound(1, createSession(s.client, s.sequence, 0, fore, channel, 1, 0))
	expect(t, "session", res, nfs4.OK)
	s.id, s.slots = append(nfs4test.Raw{}, res.Op(0)[:16]...), make([]uint32, testSlots)
	s.cache = true
	s.fails(nfs4.ErrRepTooBigToCache)
	s.slots[0]-- // the slot was not used
	s.fails(nfs4.ErrRepTooBigToCache, rootFH)
	s.slots[0]--
	s.cache = false
	s.ok(rootFH)
}

// TestRetries repeats calls in other words: the tag, sa_cachethis and the highest slot may differ.
func TestRetries(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	s.slots[0]++
	call := func(tag string, highest int, cache bool, ops ...nfs4test.Raw) *nfs4test.Results {
		ops = append([]nfs4test.Raw{op4(nfs4.OpSequence, s.id, s.slots[0], 0, highest, cache)}, ops...)
		return r.compoundOf(nfs4test.Fields(tag, 1, len(ops), nfs4test.Raw(bytes.Join(raws(ops), nil))))
	}
	first := call("first", 0, true, rootFH, op4(nfs4.OpGetFH))
	expect(t, "first", first, nfs4.OK)
	for _, again := range []*nfs4test.Results{
		call("again", 0, true, rootFH, op4(nfs4.OpGetFH)),
		call("first", 0, false, rootFH, op4(nfs4.OpGetFH)),
		call("first", 2, true, rootFH, op4(nfs4.OpGetFH)),
	} {
		if !bytes.Equal(first.Bytes, again.Bytes) {
			t.Errorf("retry: %x, must be %x", again.Bytes, first.Bytes)
		}
	}
	expect(t, "another operation", call("first", 0, true, rootFH, op4(nfs4.OpSaveFH)), nfs4.ErrSeqFalseRetry)
	expect(t, "one operation less", call("first", 0, true, rootFH), nfs4.ErrSeqFalseRetry)
	expect(t, "one operation more", call("first", 0, true, rootFH, op4(nfs4.OpGetFH), rootFH), nfs4.ErrSeqFalseRetry)
}

func raws(ops []nfs4test.Raw) (list [][]byte) {
	for _, op := range ops {
		list = append(list, op)
	}
	return list
}

// TestUnrecordedClient has a client whose record cannot be written.
func TestUnrecordedClient(t *testing.T) {
	dir := t.TempDir()
	r := newEnv(t, withState4(dir))
	s := r.client4("client", "verifier")
	s.create()
	// A directory in the record's place.
	place := filepath.Join(r.s.v4.records.dir, recordName([]byte("client")))
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	s.fails(nfs4.ErrDelay, reclaimComplete)
	s.fails(nfs4.ErrGrace, rootFH, openOp("o", accRW, 0, unchecked, "file"))
	if err := os.Remove(place); err != nil {
		t.Fatal(err)
	}
	s.ok(reclaimComplete)
	s.ok(rootFH, openOp("o", accRW, 0, unchecked, "file"))
	s.fails(nfs4.ErrCompleteAlready, reclaimComplete)
	if owner, err := os.ReadFile(place); err != nil || string(owner) != "client" {
		t.Errorf("record: %q, %v", owner, err)
	}
}

// TestStateProtection has the operations that are for SSV alone.
func TestStateProtection(t *testing.T) {
	s := newEnv4(t, nil).session("client")
	s.fails(nfs4.ErrInval, op4(nfs4.OpSetSSV, "ssv", "digest"))
	s.fails(nfs4.ErrBadXDR, op4(nfs4.OpSetSSV, "ssv", 99))
}

func TestSessionErrors(t *testing.T) { testFailures(t, sessionFailures) }

// sessionFailures are those of the operations on clients and sessions.
func sessionFailures(e *errorEnv) (list []failure) {
	alone := func(op nfs4.Op, want nfs4.Status, name string, ops ...nfs4test.Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, alone: true})
	}
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...nfs4test.Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	exchange := func(owner, verifier string, flags uint32, protect ...any) nfs4test.Raw {
		if protect == nil {
			protect = []any{0}
		}
		return op4(nfs4.OpExchangeID, append([]any{nfs4test.Raw(verifier), owner, flags}, append(protect, 0)...)...)
	}
	const update = nfs4.ExchangeUpdateConfirmed
	enforce := nfs4test.Bitmap(uint32(nfs4.OpCreateSession), uint32(nfs4.OpDestroySession))
	ssv := nfs4test.Fields(nfs4.ProtectSSV, enforce, 0, 1, "sha256", 1, "aes256", 4, 2)
	for _, x := range []struct {
		want nfs4.Status
		name string
		op   nfs4test.Raw
	}{
		{nfs4.ErrInval, "an unknown flag", exchange("new", "verifier", 8)},
		{nfs4.ErrInval, "a flag of the server", exchange("new", "verifier", nfs4.ExchangeConfirmed)},
		{nfs4.ErrInval, "SP4_MACH_CRED", exchange("new", "verifier", 0, nfs4.ProtectMachCred, enforce, 0)},
		{nfs4.ErrEncrAlgUnsupp, "SP4_SSV", exchange("new", "verifier", 0, ssv)},
		{nfs4.ErrBadXDR, "unknown protection", exchange("new", "verifier", 0, 3)},
		{nfs4.ErrNoEnt, "update of nothing", exchange("new", "verifier", update)},
		{nfs4.ErrNotSame, "update with another verifier", exchange("client", "VERIFIER", update)},
		{nfs4.ErrPerm, "update by another principal", exchange("user", "verifier", update)},
		{nfs4.ErrClientIDInUse, "another principal", exchange("user", "verifier", 0)},
		{nfs4.ErrClientIDInUse, "another principal and verifier", exchange("user", "VERIFIER", 0)},
	} {
		alone(nfs4.OpExchangeID, x.want, x.name, x.op)
		add(nfs4.OpExchangeID, x.want, x.name+" in a session", x.op)
	}
	channel := nfs4test.Channel(8192, 16, testSlots)
	small := func(at int) nfs4test.Raw { // a channel with one word of 1
		c := append(nfs4test.Raw{}, channel...)
		copy(c[4*at:], []byte{0, 0, 0, 1})
		return c
	}
	for _, x := range []struct {
		want nfs4.Status
		name string
		op   nfs4test.Raw
	}{
		{nfs4.ErrStaleClientID, "an unknown client", createSession(e.client+1<<20, 1)},
		{nfs4.ErrSeqMisordered, "a sequence too high", createSession(e.client, e.sequence+1)},
		{nfs4.ErrSeqMisordered, "a sequence too low", createSession(e.client, e.sequence-2)},
		{nfs4.ErrInval, "an unknown flag", createSession(e.client, e.sequence, 15, channel, channel, 1, 0)},
		{nfs4.ErrTooSmall, "requests of 1 byte", createSession(e.client, e.sequence, 0, small(1), channel, 1, 0)},
		{nfs4.ErrTooSmall, "replies of 1 byte", createSession(e.client, e.sequence, 0, small(2), channel, 1, 0)},
		{nfs4.ErrTooSmall, "callbacks of 1 byte", createSession(e.client, e.sequence, 0, channel, small(1), 1, 0)},
		{nfs4.ErrBadXDR, "two IRDs", createSession(e.client, e.sequence, 0, nfs4test.Fields(0, 8192, 8192, 8192, 16, 8, 2, 13, 57), channel, 1, 0)},
	} {
		alone(nfs4.OpCreateSession, x.want, x.name, x.op)
		add(nfs4.OpCreateSession, x.want, x.name+" in a session", x.op)
	}
	unknown := nfs4test.Raw(make([]byte, 16))
	for op, x := range map[nfs4.Op]nfs4test.Raw{
		nfs4.OpExchangeID: exchange("new", "verifier", 0), nfs4.OpCreateSession: createSession(e.client, e.sequence),
		nfs4.OpDestroySession: op4(nfs4.OpDestroySession, e.id), nfs4.OpDestroyClientID: op4(nfs4.OpDestroyClientID, e.client),
		nfs4.OpBindConnToSession: op4(nfs4.OpBindConnToSession, e.id, nfs4.ChannelFore, false),
	} {
		list = append(list, failure{op: op, want: nfs4.ErrNotOnlyOp, name: "with a companion", ops: []nfs4test.Raw{x, rootFH}, alone: true, early: 1})
	}
	list = append(list, failure{
		op: nfs4.OpDestroySession, want: nfs4.ErrNotOnlyOp, name: "before another operation",
		ops: []nfs4test.Raw{op4(nfs4.OpDestroySession, e.id), rootFH}, early: 1,
	})
	add(nfs4.OpBindConnToSession, nfs4.ErrNotOnlyOp, "in a session", op4(nfs4.OpBindConnToSession, e.id, nfs4.ChannelFore, false))
	alone(nfs4.OpBindConnToSession, nfs4.ErrBadSession, "an unknown session", op4(nfs4.OpBindConnToSession, unknown, nfs4.ChannelFore, false))
	alone(nfs4.OpBindConnToSession, nfs4.ErrInval, "a connection without callbacks", op4(nfs4.OpBindConnToSession, e.id, nfs4.ChannelBack, false))
	alone(nfs4.OpBindConnToSession, nfs4.ErrBadXDR, "direction 5", op4(nfs4.OpBindConnToSession, e.id, 5, false))
	stranger := *e.session4
	stranger.env = e.with(e.cred, "127.0.0.1:999")
	list = append(list, failure{
		op: nfs4.OpDestroySession, want: nfs4.ErrConnNotBoundToSession, name: "a connection without the session",
		ops: []nfs4test.Raw{op4(nfs4.OpDestroySession, e.id)}, by: &stranger, alone: true,
	})
	alone(nfs4.OpDestroySession, nfs4.ErrBadSession, "an unknown session", op4(nfs4.OpDestroySession, unknown))
	add(nfs4.OpDestroySession, nfs4.ErrBadSession, "an unknown session in a session", op4(nfs4.OpDestroySession, unknown))
	for _, client := range []uint64{e.client, e.other.client} {
		alone(nfs4.OpDestroyClientID, nfs4.ErrClientIDBusy, "a client with a session", op4(nfs4.OpDestroyClientID, client))
		add(nfs4.OpDestroyClientID, nfs4.ErrClientIDBusy, "a client with a session, in a session", op4(nfs4.OpDestroyClientID, client))
	}
	for _, client := range []uint64{0, e.client + 1<<20, e.client ^ 1<<40} {
		alone(nfs4.OpDestroyClientID, nfs4.ErrStaleClientID, "an unknown client", op4(nfs4.OpDestroyClientID, client))
		add(nfs4.OpDestroyClientID, nfs4.ErrStaleClientID, "an unknown client, in a session", op4(nfs4.OpDestroyClientID, client))
	}
	add(nfs4.OpSequence, nfs4.ErrSequencePos, "a second SEQUENCE", op4(nfs4.OpSequence, e.id, 1, 1, 1, false))
	add(nfs4.OpSequence, nfs4.ErrSequencePos, "SEQUENCE behind another operation", rootFH, op4(nfs4.OpSequence, e.id, 1, 1, 1, false))
	add(nfs4.OpSetSSV, nfs4.ErrInval, "without SSV", op4(nfs4.OpSetSSV, "ssv", "digest"))
	add(nfs4.OpReclaimComplete, nfs4.ErrCompleteAlready, "a second time", reclaimComplete)
	add(nfs4.OpReclaimComplete, nfs4.ErrNoFileHandle, "of a file system", op4(nfs4.OpReclaimComplete, true))
	for _, op := range []nfs4.Op{
		nfs4.OpOpenAttr, nfs4.OpGetDirDelegation, nfs4.OpGetDeviceInfo, nfs4.OpGetDeviceList, nfs4.OpLayoutCommit, nfs4.OpLayoutGet,
		nfs4.OpLayoutReturn, nfs4.OpOpenConfirm, nfs4.OpReleaseLockOwner, nfs4.OpRenew, nfs4.OpSetClientID,
		nfs4.OpSetClientIDConfirm, nfs4.OpWriteSame, nfs4.OpLayoutError, nfs4.OpLayoutStats,
	} {
		add(op, nfs4.ErrNotSupp, "not supported", rootFH, op4(op, 0))
	}
	for _, number := range []int{0, 1, 2, 76, 10044, 1 << 30} {
		add(nfs4.OpIllegal, nfs4.ErrOpIllegal, "an unknown operation", nfs4test.Fields(number))
		alone(nfs4.OpIllegal, nfs4.ErrOpIllegal, "an unknown operation without a session", nfs4test.Fields(number))
	}
	for op := nfs4.OpAllocate; op <= nfs4.OpRemoveXattr; op++ {
		alone(nfs4.OpIllegal, nfs4.ErrOpIllegal, op.String()+" in version 4.1", op4(op))
	}
	return list
}

// TestDestroyElsewhere ends a session on other connections (RFC 8881 section 18.37.3).
func TestDestroyElsewhere(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	destroy := op4(nfs4.OpDestroySession, s.id)
	bound, _ := r.connect(701)
	for _, dir := range []int{nfs4.ChannelFore, nfs4.ChannelBack} {
		other, _ := r.connect(702)
		expect(t, "not bound", other.compound(1, destroy), nfs4.ErrConnNotBoundToSession)
		expect(t, "BIND_CONN_TO_SESSION", bound.compound(1, op4(nfs4.OpBindConnToSession, s.id, dir, false)), nfs4.OK)
		expect(t, "bound", bound.compound(1, destroy), nfs4.OK)
		s.create()
		destroy = op4(nfs4.OpDestroySession, s.id)
	}
	// SEQUENCE binds.
	other, _ := r.connect(703)
	on := *s
	on.env = other
	on.ok()
	expect(t, "bound by SEQUENCE", other.compound(1, destroy), nfs4.OK)
	// In a session of its own, a connection ends another one only if it is bound to that too.
	s.create()
	second := r.session("second")
	second.env = other
	second.ok()
	second.fails(nfs4.ErrConnNotBoundToSession, op4(nfs4.OpDestroySession, s.id))
	// A client that has lost all its connections comes back by another one.
	lost := r.client4("lost", "verifier")
	first, back := r.connect(704)
	lost.env = first
	lost.create()
	destroy = op4(nfs4.OpDestroySession, lost.id)
	expect(t, "not bound", r.compound(1, destroy), nfs4.ErrConnNotBoundToSession)
	close(back.done)
	expect(t, "after the loss of the connection", r.compound(1, destroy), nfs4.OK)
}

// TestManySessions has more sessions than a client may have.
func TestManySessions(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	for range r.s.v4.state.Config().MaxSessions - 1 {
		expect(t, "session", r.compound(1, createSession(s.client, s.sequence)), nfs4.OK)
		s.sequence++
	}
	expect(t, "one more", r.compound(1, createSession(s.client, s.sequence)), nfs4.ErrNoSpc)
	s.ok(rootFH)
}

// TestExpiredPrincipal has a client whose owner another principal takes over after its lease (RFC
// 8881 section 18.35.4, case 3), and state that others take then.
func TestExpiredPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newEnv4(t, nil)
		r.put("file", "contents")
		lease := r.s.v4.state.Config().Lease
		s := r.session("client")
		o := s.open("owner", accRW, nfs4.ShareDenyBoth, noCreate, "file")
		s.locked(putFH(o.handle), lockNew(o, "locker", nfs4.LockWrite, 0, toEnd))
		user := r.as(1001, 1001)
		exchange := op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "client", 0, 0, 0)
		expect(t, "within the lease", user.compound(1, exchange), nfs4.ErrClientIDInUse)
		time.Sleep(2 * lease)
		// A courteous server keeps the state until somebody needs it.
		s.ok(putFH(o.handle), read4(stateID(o.StateID), 0, 8))
		expect(t, "the lease is renewed", user.compound(1, exchange), nfs4.ErrClientIDInUse)
		time.Sleep(2 * lease)
		expect(t, "after the lease", user.compound(1, exchange), nfs4.OK)
		s.fails(nfs4.ErrBadSession)
		other := r.session("other")
		other.locked(putFH(o.handle), lockNew(other.open("owner", accRW, 0, noCreate, "file"), "locker", nfs4.LockWrite, 0, toEnd))
		r.stop()
	})
}

// TestManyExpiredClients has many expired clients with a file open, and an OPEN that ends them.
func TestManyExpiredClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 300
		dir := t.TempDir()
		r := newEnv(t, withState4(dir))
		r.put("file", "contents")
		records := func() int {
			t.Helper()
			names, err := os.ReadDir(r.s.v4.records.dir)
			r.must(err)
			return len(names)
		}
		for i := range clients {
			r.session(fmt.Sprint("client", i)).open("owner", accW|nfs4.WantNoDeleg, 0, noCreate, "file")
		}
		if n := records(); n != clients {
			t.Errorf("%d records, must be %d", n, clients)
		}
		time.Sleep(2 * r.s.v4.state.Config().Lease)
		last := r.session("last")
		last.open("owner", accR|nfs4.WantNoDeleg, nfs4.ShareDenyWrite, noCreate, "file")
		if st := r.s.v4.state.Stats(time.Now()); st.Clients != 1 || st.Opens != 1 {
			t.Errorf("%+v", st)
		}
		if n := records(); n != 1 {
			t.Errorf("%d records after all but one client have ended", n)
		}
		r.stop()
	})
}
