package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
)

func op4(op nfs4.Op, list ...any) nfs4test.Raw { return nfs4test.Op(int(op), list...) }

var rootFH = op4(nfs4.OpPutRootFH)

func TestMinorVersions(t *testing.T) {
	r := newEnv4(t, nil)
	for _, minor := range []int{0, 3, 1 << 20} {
		res := r.compound(minor, rootFH)
		expect(t, fmt.Sprint("minor version ", minor), res, nfs4.ErrMinorVersMismatch)
		if len(res.Ops) != 0 {
			t.Errorf("minor version %d: %d results", minor, len(res.Ops))
		}
	}
	expect(t, "no operation", r.compound(1), nfs4.OK)
	w := r.prepare(1, nfs4.Program, 2, 1, nil, 0).send().wait()
	if w.status.Accept != oncrpc.ProgMismatch || w.status.Low != 3 || w.status.High != 4 {
		t.Errorf("version 2: %v", w.status)
	}
	if w := r.prepare(2, nfs4.Program, 4, 2, nil, 0).send().wait(); w.status.Accept != oncrpc.ProcUnavail {
		t.Errorf("procedure 2: %v", w.status)
	}
	if w := r.prepare(3, nfs4.Program, 4, 1, nil, 0).send().wait(); w.status.Accept != oncrpc.GarbageArgs {
		t.Errorf("no arguments: %v", w.status)
	}
}

// TestPlaces sends operations where they must not be (RFC 8881 sections 2.10.6 and 18.46).
func TestPlaces(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	exchange := op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "other", 0, 0, 0)
	expect(t, "no SEQUENCE", r.compound(1, rootFH), nfs4.ErrOpNotInSession)
	expect(t, "an operation behind EXCHANGE_ID", r.compound(1, exchange, rootFH), nfs4.ErrNotOnlyOp)
	expect(t, "an unknown operation alone", r.compound(1, nfs4test.Fields(99)), nfs4.ErrOpIllegal)
	s.fails(nfs4.ErrSequencePos, s.seq(1))
	s.fails(nfs4.ErrNotOnlyOp, op4(nfs4.OpBindConnToSession, s.id, 1, false))
	s.fails(nfs4.ErrOpIllegal, nfs4test.Fields(2))
	s.fails(nfs4.ErrOpIllegal, nfs4test.Fields(76))
	s.fails(nfs4.ErrNotSupp, op4(nfs4.OpSetClientID))
	s.fails(nfs4.ErrNotSupp, op4(nfs4.OpRenew, uint64(1)))
	s.fails(nfs4.ErrBadXDR, nfs4test.Fields(nfs4test.Raw{0, 0}))
	s.fails(nfs4.ErrBadXDR, nfs4test.Fields(int(nfs4.OpPutFH), 5))
	s.fails(nfs4.ErrNoFileHandle, op4(nfs4.OpGetFH))
	s.fails(nfs4.ErrNoFileHandle, op4(nfs4.OpSaveFH))
	s.fails(nfs4.ErrNoFileHandle, op4(nfs4.OpRestoreFH))
	s.fails(nfs4.ErrBadHandle, op4(nfs4.OpPutFH, "guessed"))
	// The illegal operation's result has the number of OP_ILLEGAL.
	if res := s.do(rootFH, nfs4test.Fields(99)); len(res.Ops) != 3 || res.Ops[2].Code != uint32(nfs4.OpIllegal) {
		t.Errorf("%d results, %+v", len(res.Ops), res.Ops)
	}
	res := s.compound(1, append([]nfs4test.Raw{s.next(0)}, op4(nfs4.OpAllocate))...)
	expect(t, "an operation of 4.2 in 4.1", res, nfs4.ErrOpIllegal)
	handle := s.ok(rootFH, op4(nfs4.OpGetFH)).Handle(t, 2)
	if !bytes.Equal(handle, r.root) {
		t.Errorf("root's handle is %x, must be %x", handle, r.root)
	}
	again := s.ok(op4(nfs4.OpPutFH, handle), op4(nfs4.OpSaveFH), op4(nfs4.OpPutFH, handle), op4(nfs4.OpRestoreFH), op4(nfs4.OpGetFH))
	if !bytes.Equal(again.Handle(t, 5), handle) {
		t.Error("RESTOREFH restored another filehandle")
	}
}

func (s *session4) next(slot int) nfs4test.Raw {
	s.slots[slot]++
	return s.seq(slot)
}

// TestExchangeID goes through the cases of RFC 8881 section 18.35.4.
func TestExchangeID(t *testing.T) {
	const update = nfs4.ExchangeUpdateConfirmed
	r := newEnv4(t, nil)
	exchange := func(r *env, owner, verifier string, flags uint32) (x nfs4.ExchangeIDRes, st nfs4.Status) {
		t.Helper()
		res := r.compound(1, op4(nfs4.OpExchangeID, nfs4test.Raw(verifier), owner, flags, 0, 0))
		if res.Status == 0 {
			x.Decode(opResult(res, 0))
		}
		return x, nfs4.Status(res.Status)
	}
	must := func(what string, got, want nfs4.Status) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v, must be %v", what, got, want)
		}
	}
	a, st := exchange(r, "a", "verifier", 0)
	must("new", st, nfs4.OK)
	if a.Flags&nfs4.ExchangeConfirmed != 0 || a.Flags&nfs4.ExchangeUseNonPNFS == 0 || a.Protect != 0 || len(a.MajorID) == 0 || len(a.Scope) == 0 {
		t.Errorf("%+v", a)
	}
	_, st = exchange(r, "a", "verifier", update)
	must("update of an unconfirmed one", st, nfs4.ErrNoEnt)
	b, st := exchange(r, "a", "verifier", 0)
	if must("again, unconfirmed", st, nfs4.OK); b.ClientID == a.ClientID {
		t.Error("the unconfirmed record was not replaced")
	}
	expect(t, "session of the replaced record", r.compound(1, createSession(a.ClientID, a.Sequence)), nfs4.ErrStaleClientID)
	expect(t, "session", r.compound(1, createSession(b.ClientID, b.Sequence)), nfs4.OK)
	c, st := exchange(r, "a", "verifier", 0)
	if must("again, confirmed", st, nfs4.OK); c.ClientID != b.ClientID || c.Flags&nfs4.ExchangeConfirmed == 0 {
		t.Errorf("%+v, must be client %#x, confirmed", c, b.ClientID)
	}
	c, st = exchange(r, "a", "verifier", update)
	if must("update", st, nfs4.OK); c.ClientID != b.ClientID || c.Flags&nfs4.ExchangeConfirmed == 0 {
		t.Errorf("%+v, must be client %#x, confirmed", c, b.ClientID)
	}
	_, st = exchange(r, "a", "VERIFIER", update)
	must("update with another verifier", st, nfs4.ErrNotSame)
	other := r.as(17, 17)
	_, st = exchange(other, "a", "verifier", update)
	must("update by another principal", st, nfs4.ErrPerm)
	_, st = exchange(other, "a", "verifier", 0)
	must("another principal", st, nfs4.ErrClientIDInUse)
	// A restart: the old record lives until the new one is confirmed.
	d, st := exchange(r, "a", "VERIFIER", 0)
	if must("restart", st, nfs4.OK); d.ClientID == b.ClientID || d.Flags&nfs4.ExchangeConfirmed != 0 {
		t.Errorf("%+v", d)
	}
	c, st = exchange(r, "a", "verifier", 0)
	if must("the old incarnation", st, nfs4.OK); c.ClientID != b.ClientID {
		t.Errorf("%+v, must be client %#x", c, b.ClientID)
	}
	expect(t, "session of the dropped record", r.compound(1, createSession(d.ClientID, d.Sequence)), nfs4.OK)
	expect(t, "session of the earlier incarnation", r.compound(1, createSession(b.ClientID, b.Sequence+1)), nfs4.ErrStaleClientID)

	_, st = exchange(r, "f", "verifier", nfs4.ExchangeConfirmed)
	must("a flag of the server", st, nfs4.ErrInval)
	_, st = exchange(r, "f", "verifier", 8)
	must("an unknown flag", st, nfs4.ErrInval)
	mach := op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "m", 0, nfs4.ProtectMachCred, 0, 0, 0)
	expect(t, "SP4_MACH_CRED", r.compound(1, mach), nfs4.ErrInval)
	ssv := op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "m", 0, nfs4.ProtectSSV, 0, 0, 0, 0, 1, 1, 0)
	expect(t, "SP4_SSV", r.compound(1, ssv), nfs4.ErrEncrAlgUnsupp)
	long := op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), strings.Repeat("o", 1025), 0, 0, 0)
	expect(t, "an owner of 1025 bytes", r.compound(1, long), nfs4.ErrBadXDR)
}

// TestCreateSession goes through RFC 8881 section 18.36.
func TestCreateSession(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.client4("client", "verifier")
	channel := nfs4test.Channel(64<<10, 16, testSlots)
	small := func(at int) nfs4test.Raw { // a channel with one word of 1
		c := append(nfs4test.Raw{}, channel...)
		copy(c[4*at:], []byte{0, 0, 0, 1})
		return c
	}
	zero := append(nfs4test.Raw{}, channel...)
	copy(zero[20:], []byte{0, 0, 0, 0})
	for _, c := range []struct {
		name string
		op   nfs4test.Raw
		by   *env
		want nfs4.Status
	}{
		{"an unknown client", createSession(s.client+1, s.sequence), r, nfs4.ErrStaleClientID},
		{"a client of another instance", createSession(s.client+1<<32, s.sequence), r, nfs4.ErrStaleClientID},
		{"a sequence too high", createSession(s.client, s.sequence+1), r, nfs4.ErrSeqMisordered},
		{"a replay of nothing", createSession(s.client, s.sequence-1), r, nfs4.ErrSeqMisordered},
		{"an unknown flag", createSession(s.client, s.sequence, 8, channel, channel, 1, 0), r, nfs4.ErrInval},
		{"requests of 1 byte", createSession(s.client, s.sequence, 0, small(1), channel, 1, 0), r, nfs4.ErrTooSmall},
		{"replies of 1 byte", createSession(s.client, s.sequence, 0, small(2), channel, 1, 0), r, nfs4.ErrTooSmall},
		{"no slots", createSession(s.client, s.sequence, 0, zero, channel, 1, 0), r, nfs4.ErrInval},
		{"another principal", createSession(s.client, s.sequence), r.as(17, 17), nfs4.ErrClientIDInUse},
		{"an unknown flavor", createSession(s.client, s.sequence, 0, channel, channel, 1, 1, 17), r, nfs4.ErrBadXDR},
	} {
		expect(t, c.name, c.by.compound(1, c.op), c.want)
	}
	s.create()
	// A retry has the same result, and another one makes another session.
	res := r.compound(1, createSession(s.client, s.sequence-1))
	if expect(t, "retry", res, nfs4.OK); !bytes.Equal(res.Op(0)[:16], s.id) {
		t.Error("a retry made another session")
	}
	res = r.compound(1, createSession(s.client, s.sequence))
	if expect(t, "second session", res, nfs4.OK); bytes.Equal(res.Op(0)[:16], s.id) {
		t.Error("two sessions have one id")
	}
	expect(t, "a client with sessions", r.compound(1, op4(nfs4.OpDestroyClientID, s.client)), nfs4.ErrClientIDBusy)
	expect(t, "DESTROY_SESSION", r.compound(1, op4(nfs4.OpDestroySession, nfs4test.Raw(res.Op(0)[:16]))), nfs4.OK)
	expect(t, "DESTROY_SESSION again", r.compound(1, op4(nfs4.OpDestroySession, nfs4test.Raw(res.Op(0)[:16]))), nfs4.ErrBadSession)
	s.fails(nfs4.ErrNotOnlyOp, op4(nfs4.OpDestroySession, s.id), rootFH)
	s.ok(op4(nfs4.OpDestroySession, s.id))
	s.fails(nfs4.ErrBadSession)
	expect(t, "DESTROY_CLIENTID", r.compound(1, op4(nfs4.OpDestroyClientID, s.client)), nfs4.OK)
	expect(t, "DESTROY_CLIENTID again", r.compound(1, op4(nfs4.OpDestroyClientID, s.client)), nfs4.ErrStaleClientID)
	// The server bounds the client's wishes.
	s = r.client4("greedy", "verifier")
	most := nfs4test.Fields(64, 1<<30, 1<<30, 1<<30, 1<<20, 1<<20, 0)
	res = r.compound(1, createSession(s.client, s.sequence, nfs4.SessionFlags, most, most, 1, 0))
	var got nfs4.CreateSessionRes
	got.Decode(opResult(res, 0))
	limits := r.s.v4.state.Config()
	if f := got.Fore; f.MaxRequests != uint32(limits.MaxSlots) || f.MaxOperations != uint32(limits.MaxOps) || f.MaxRequestSize != uint32(limits.MaxRequest) ||
		f.MaxResponseSizeCached != uint32(limits.MaxCached) || f.HeaderPadSize != 0 || got.Flags != 0 {
		t.Errorf("%+v", got)
	}
}

// TestSequence goes through RFC 8881 section 18.46 and 2.10.6.1.
func TestSequence(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	seq := func(sequence uint32, slot, highest int, cache bool) nfs4test.Raw {
		return op4(nfs4.OpSequence, s.id, sequence, slot, highest, cache)
	}
	now := s.slots[0]
	for _, c := range []struct {
		name string
		op   nfs4test.Raw
		want nfs4.Status
	}{
		{"an unknown session", op4(nfs4.OpSequence, nfs4test.Raw(make([]byte, 16)), 1, 0, 0, false), nfs4.ErrBadSession},
		{"a slot too high", seq(1, testSlots, testSlots, false), nfs4.ErrBadSlot},
		{"a highest slot too high", seq(now+1, 0, testSlots, false), nfs4.ErrBadHighSlot},
		{"a highest slot below the slot", seq(1, 1, 0, false), nfs4.ErrBadHighSlot},
		{"a sequence too high", seq(now+2, 0, 0, false), nfs4.ErrSeqMisordered},
		{"a sequence too low", seq(now-1, 0, 0, false), nfs4.ErrSeqMisordered},
		{"a slot's first sequence 0", seq(0, 1, 1, false), nfs4.ErrSeqMisordered},
	} {
		expect(t, c.name, r.compound(1, c.op, rootFH), c.want)
	}
	// A cached reply.
	call := []nfs4test.Raw{seq(now+1, 0, 3, true), rootFH, op4(nfs4.OpGetFH)}
	first := r.compound(2, call...)
	if again := r.compound(2, call...); !bytes.Equal(first.Bytes, again.Bytes) || first.Status != 0 {
		t.Errorf("reply\n%x, again\n%x", first.Bytes, again.Bytes)
	}
	expect(t, "another call in place of a retry", r.compound(2, call[0], rootFH, op4(nfs4.OpSaveFH)), nfs4.ErrSeqFalseRetry)
	if again := r.compound(2, call...); !bytes.Equal(first.Bytes, again.Bytes) {
		t.Errorf("reply after a false retry\n%x", again.Bytes)
	}
	// One that is not cached.
	call = []nfs4test.Raw{seq(now+2, 0, 3, false), rootFH, op4(nfs4.OpGetFH)}
	expect(t, "not cached", r.compound(2, call...), nfs4.OK)
	if res := r.compound(2, call...); res.Status != uint32(nfs4.ErrRetryUncachedRep) || len(res.Ops) != 2 || res.Ops[1].Code != uint32(nfs4.OpPutRootFH) {
		t.Errorf("retry: %v, %d results", nfs4.Status(res.Status), len(res.Ops))
	}
	// SEQUENCE alone can always be repeated.
	expect(t, "SEQUENCE alone", r.compound(2, seq(now+3, 0, 3, false)), nfs4.OK)
	expect(t, "SEQUENCE alone again", r.compound(2, seq(now+3, 0, 3, false)), nfs4.OK)
	s.slots[0] = now + 3
	// A failed COMPOUND is cached as well.
	call = []nfs4test.Raw{seq(now+4, 0, 3, true), op4(nfs4.OpPutFH, "guessed")}
	first = r.compound(2, call...)
	if again := r.compound(2, call...); !bytes.Equal(first.Bytes, again.Bytes) || first.Status != uint32(nfs4.ErrBadHandle) {
		t.Errorf("reply\n%x, again\n%x", first.Bytes, again.Bytes)
	}
	s.slots[0] = now + 4
	var many []nfs4test.Raw
	for range 16 {
		many = append(many, rootFH)
	}
	s.fails(nfs4.ErrTooManyOps, many...)
	s.slots[0]-- // the slot was not used
	s.fails(nfs4.ErrReqTooBig, op4(nfs4.OpPutFH, strings.Repeat("h", 40<<10)))
	s.slots[0]--
	s.ok(many[1:]...)
}

// TestReplySize has replies that exceed the session's limits.
func TestReplySize(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.client4("client", "verifier")
	fore := nfs4test.Fields(0, 64<<10, 512, 256, 16, testSlots, 0)
	res := r.compound(1, createSession(s.client, s.sequence, 0, fore, fore, 1, 0))
	expect(t, "session", res, nfs4.OK)
	s.id, s.slots = append(nfs4test.Raw{}, res.Op(0)[:16]...), make([]uint32, testSlots)
	var many []nfs4test.Raw
	for range 7 {
		many = append(many, rootFH, op4(nfs4.OpGetFH))
	}
	s.fails(nfs4.ErrRepTooBig, many...)
	s.cache = true
	s.fails(nfs4.ErrRepTooBigToCache, many...)
	s.ok(many[:2]...)
}

func TestBindConn(t *testing.T) {
	r := newEnv4(t, nil)
	s := r.session("client")
	expect(t, "fore channel", r.compound(1, op4(nfs4.OpBindConnToSession, s.id, nfs4.ChannelForeOrBoth, false)), nfs4.OK)
	expect(t, "a connection that cannot call back", r.compound(1, op4(nfs4.OpBindConnToSession, s.id, nfs4.ChannelBack, false)), nfs4.ErrInval)
	expect(t, "an unknown session", r.compound(1, op4(nfs4.OpBindConnToSession, nfs4test.Raw(make([]byte, 16)), 1, false)), nfs4.ErrBadSession)
	expect(t, "an unknown direction", r.compound(1, op4(nfs4.OpBindConnToSession, s.id, 4, false)), nfs4.ErrBadXDR)
	s.ok(op4(nfs4.OpBackchannelCtl, 0x40000001, 1, 0))
	s.fails(nfs4.ErrCompleteAlready, op4(nfs4.OpReclaimComplete, false))
	s.fails(nfs4.ErrNoFileHandle, op4(nfs4.OpReclaimComplete, true))
}
