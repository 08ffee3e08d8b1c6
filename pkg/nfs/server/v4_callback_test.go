package server

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const testCBProgram = 0x40000000

// backClient is a client's side of a back channel. It checks CB_SEQUENCE as a client does, and
// passes each operation to the test.
type backClient struct {
	t    testing.TB
	done chan struct{} // of the connection

	mu    sync.Mutex
	slots map[string][]uint32
	ops   chan backOp
	nulls int
	cred  oncrpc.Auth
	// lost: the connection ends before the answer. refuse: the status of the RPC.
	lost bool
	// stalled: a callback waits for its end, and has no answer.
	stalled chan struct{}
	refuse  oncrpc.AcceptStat
	answer  func(op nfs4.CBOp, args []byte, e *xdr.Encoder) nfs4.Status
}

// backOp is an operation of CB_COMPOUND, after CB_SEQUENCE.
type backOp struct {
	op   nfs4.CBOp
	seq  nfs4.CBSequenceArgs
	args []byte
}

func (b *backClient) NextXID() uint32 { return 7 }
func (b *backClient) Close() error    { return nil }

func (b *backClient) Submit(r *oncrpc.Request) {
	go func() {
		if r.Err = b.serve(r); r.Err != nil {
			r.Reply.Release()
		}
		r.Done(r)
	}()
}

var errLost = errors.New("connection lost")

func (b *backClient) serve(r *oncrpc.Request) error {
	b.mu.Lock()
	if wait := b.stalled; wait != nil {
		b.stalled = nil
		b.mu.Unlock()
		<-wait
		return errLost
	}
	defer b.mu.Unlock()
	if b.lost {
		return errLost
	}
	c := &oncrpc.Call{}
	c.Stream = append(c.Stream, r.Call.Stream...)
	if err := oncrpc.DecodeCall(c); err != nil {
		b.t.Errorf("callback: %v", err)
		return err
	}
	if c.Program != testCBProgram || c.Version != nfs4.CallbackVersion {
		b.t.Errorf("callback to program %#x, version %d", c.Program, c.Version)
	}
	b.cred = oncrpc.Auth{Flavor: c.Cred.Flavor, Body: append([]byte{}, c.Cred.Body...)}
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 4096), nil)
	h := oncrpc.ReplyHeader{XID: r.XID, Status: oncrpc.Status{Accept: b.refuse}}
	h.Encode(&e)
	switch {
	case b.refuse != oncrpc.Success:
	case c.Procedure == nfs4.ProcNull:
		b.nulls++
	default:
		b.compound(c.Args(), &e)
	}
	r.Reply.Stream = append(r.Reply.Stream[:0], e.Bytes())
	return nil
}

func (b *backClient) compound(d *xdr.Decoder, e *xdr.Encoder) {
	var head nfs4.CBCompoundArgs
	head.Decode(d)
	var seq nfs4.CBSequenceArgs
	if op := nfs4.CBOp(d.Uint32()); op != nfs4.OpCBSequence || head.Minor != 2 || head.Count != 2 {
		b.t.Errorf("a callback begins with %d, %+v", op, head)
	}
	seq.Decode(d)
	op := nfs4.CBOp(d.Uint32())
	left := d.Left()
	args := append([]byte{}, d.Fixed(left)...)
	if d.Err() != nil {
		b.t.Errorf("callback: %v", d.Err())
	}
	id := string(seq.Session[:])
	slots := b.slots[id]
	if slots == nil {
		slots = make([]uint32, 2)
		b.slots[id] = slots
	}
	st := nfs4.OK
	switch {
	case int(seq.Slot) >= len(slots) || seq.HighestSlot < seq.Slot:
		st = nfs4.ErrBadSlot
	case seq.Sequence == slots[seq.Slot]+1:
		slots[seq.Slot]++
	case seq.Sequence != slots[seq.Slot]:
		st = nfs4.ErrSeqMisordered
	}
	if st != nfs4.OK {
		b.t.Errorf("CB_SEQUENCE %+v: %v", seq, st)
	}
	var result xdr.Encoder
	result.Reset(make([]byte, 0, 1024), nil)
	opStatus := nfs4.OK
	if b.answer != nil {
		opStatus = b.answer(op, args, &result)
	}
	res := nfs4.CompoundRes{Status: opStatus, Count: 2}
	res.Encode(e)
	e.Uint32(uint32(nfs4.OpCBSequence))
	e.Uint32(0)
	sr := nfs4.CBSequenceRes{Session: seq.Session, Sequence: seq.Sequence, Slot: seq.Slot}
	sr.Encode(e)
	e.Uint32(uint32(op))
	e.Uint32(uint32(opStatus))
	e.Fixed(result.Bytes())
	b.ops <- backOp{op, seq, args}
}

// set changes the behavior of b.
func (b *backClient) set(change func(b *backClient)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// next returns the next operation, which must be op.
func (b *backClient) next(op nfs4.CBOp) backOp {
	b.t.Helper()
	select {
	case k := <-b.ops:
		if k.op != op {
			b.t.Fatalf("callback %d, must be %d", k.op, op)
		}
		return k
	case <-time.After(time.Minute):
		b.t.Fatalf("no callback %d", op)
	}
	panic("unreachable")
}

// connect gives r a connection of its own, with a back channel.
func (r *env) connect(port int) (*env, *backClient) {
	b := &backClient{t: r.t, done: make(chan struct{}), slots: map[string][]uint32{}, ops: make(chan backOp, 64)}
	n := &env{t: r.t, dir: r.dir, s: r.s, pool: r.pool, cred: r.cred, root: r.root}
	n.conn = &oncrpc.Conn{
		Network: "tcp", Remote: netip.MustParseAddrPort(fmt.Sprint("127.0.0.1:", port)), Back: b, Done: b.done, Values: map[any]any{},
	}
	n.xid.Store(r.xid.Add(1 << 16))
	return n, b
}

const backFlag = nfs4.SessionConnBackChan

func createBack(client uint64, sequence uint32, sec ...any) nfs4test.Raw {
	return createSession(client, sequence, backFlag, nfs4test.Channel(32<<10, 16, testSlots), nfs4test.Channel(4096, 4, 2), testCBProgram, nfs4test.Fields(sec...))
}

// sessionBack makes a client with a session that has a back channel, and waits until the server
// knows that it works.
func (r *env) sessionBack(owner string, port int, sec ...any) (*session4, *backClient) {
	r.t.Helper()
	n, b := r.connect(port)
	if len(sec) == 0 {
		sec = []any{1, 0}
	}
	s := n.client4(owner, "verifier")
	res := s.compound(2, createBack(s.client, s.sequence, sec...))
	expect(r.t, "CREATE_SESSION", res, nfs4.OK)
	s.sequence++
	s.id = append(nfs4test.Raw{}, res.Op(0)[:16]...)
	s.slots = make([]uint32, testSlots)
	s.ok(op4(nfs4.OpReclaimComplete, false))
	var id nfs4.SessionID
	copy(id[:], s.id)
	eventually(r.t, "the probe", func() bool { _, ok := r.s.v4.state.Probe(id); return !ok })
	return s, b
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s has not happened", what)
		}
	}
}

// flags are sr_status_flags of a SEQUENCE alone.
func (s *session4) flags() uint32 {
	s.t.Helper()
	res := s.ok()
	var r nfs4.SequenceRes
	r.Decode(opResult(res, 0))
	return r.StatusFlags
}

// TestBackChannel loses the connections of a back channel, and binds new ones.
func TestBackChannel(t *testing.T) {
	r := newEnv4(t, nil)
	cred, err := (&oncrpc.AuthSysParms{Stamp: 5, Machine: []byte("client"), UID: 3, GID: 4, GIDs: []uint32{6}}).Auth()
	r.must(err)
	s, b := r.sessionBack("client", 701, 2, 6, 1, "a", "b", 1, nfs4test.Raw(cred.Body))
	b.set(func(b *backClient) {
		if b.nulls != 1 || b.cred.Flavor != oncrpc.AuthSys || string(b.cred.Body) != string(cred.Body) {
			t.Errorf("%d calls of CB_NULL, credential %+v", b.nulls, b.cred)
		}
	})
	if f := s.flags(); f != 0 {
		t.Errorf("flags %#x", f)
	}
	close(b.done)
	eventually(t, "the loss of the back channel", func() bool { return s.flags() == nfs4.SeqCBPathDownSession })
	again, b2 := s.connect(702)
	expect(t, "BIND_CONN_TO_SESSION", again.compound(1, op4(nfs4.OpBindConnToSession, s.id, int(nfs4.ChannelBoth), false)), nfs4.OK)
	eventually(t, "the return of the back channel", func() bool { return s.flags() == 0 })
	eventually(t, "the probe", func() (ok bool) { b2.set(func(b *backClient) { ok = b.nulls == 1 }); return ok })
	// A client that refuses the calls learns it.
	b2.set(func(b *backClient) { b.refuse = oncrpc.ProgUnavail })
	s.ok(op4(nfs4.OpBackchannelCtl, testCBProgram, 1, 0))
	eventually(t, "the fault", func() bool { return s.flags() == nfs4.SeqBackchannelFault })
	b2.set(func(b *backClient) { b.refuse = oncrpc.Success })
	s.ok(op4(nfs4.OpBackchannelCtl, testCBProgram, 1, 0))
	eventually(t, "the end of the fault", func() bool { return s.flags() == 0 })
	s.fails(nfs4.ErrNoEnt, op4(nfs4.OpBackchannelCtl, testCBProgram, 1, 6, 1, "a", "b"))
	close(b2.done)
}

// TestRecallAgain: the connection of a recall is lost before its answer. It is sent again in its
// slot by the next connection, and once more since the client answers NFS4ERR_DELAY.
func TestRecallAgain(t *testing.T) {
	e := newEnv4(t, unshared)
	e.put("file", "contents")
	a, back := e.sessionBack("a", 701)
	b := e.session("b")
	o := a.delegated(nfs4.DelegWrite, accRW, noCreate, "file")
	back.set(func(k *backClient) { k.lost = true })
	b.fails(nfs4.ErrDelay, rootFH, openOp("o", accR, 0, noCreate, "file"))
	eventually(t, "the loss", func() bool { return a.flags() == nfs4.SeqCBPathDown|nfs4.SeqCBPathDownSession })
	again, second := a.connect(702)
	asked := 0
	second.answer = func(nfs4.CBOp, []byte, *xdr.Encoder) nfs4.Status {
		if asked++; asked == 1 {
			return nfs4.ErrDelay
		}
		return nfs4.OK
	}
	expect(t, "BIND_CONN_TO_SESSION", again.compound(2, op4(nfs4.OpBindConnToSession, a.id, int(nfs4.ChannelBoth), false)), nfs4.OK)
	k := second.next(nfs4.OpCBRecall)
	recalled(t, k, o)
	if k.seq.Slot != 0 || k.seq.Sequence != 1 {
		t.Errorf("CB_SEQUENCE %+v", k.seq)
	}
	recalled(t, second.next(nfs4.OpCBRecall), o)
	a.ok(putFH(o.handle), delegReturn(o.Delegation.StateID))
}

// TestRecallAfterSession: a recall has no answer, and its session ends. The connection stays good
// for the next session, which gets the recall.
func TestRecallAfterSession(t *testing.T) {
	e := newEnv4(t, unshared)
	e.put("file", "contents")
	a, back := e.sessionBack("a", 701)
	b := e.session("b")
	o := a.delegated(nfs4.DelegWrite, accRW, noCreate, "file")
	stalled := make(chan struct{})
	back.set(func(k *backClient) { k.stalled = stalled })
	b.fails(nfs4.ErrDelay, rootFH, openOp("o", accR, 0, noCreate, "file"))
	eventually(t, "the recall", func() (began bool) { back.set(func(k *backClient) { began = k.stalled == nil }); return began })
	expect(t, "DESTROY_SESSION", a.compound(2, op4(nfs4.OpDestroySession, a.id)), nfs4.OK)
	res := a.compound(2, createBack(a.client, a.sequence, 1, 0))
	expect(t, "CREATE_SESSION", res, nfs4.OK)
	a.id, a.slots = append(nfs4test.Raw{}, res.Op(0)[:16]...), make([]uint32, testSlots)
	close(stalled)
	k := back.next(nfs4.OpCBRecall)
	recalled(t, k, o)
	if string(k.seq.Session[:]) != string(a.id) {
		t.Errorf("session %x", k.seq.Session)
	}
	a.ok(putFH(o.handle), delegReturn(o.Delegation.StateID))
}

// TestRecallSlot: many sessions take the slots of all, so an idle one is asked for some of its own.
func TestRecallSlot(t *testing.T) {
	r := newEnv4(t, nil)
	n, back := r.connect(701)
	a := n.client4("idle", "verifier")
	res := a.compound(2, createSession(a.client, a.sequence, backFlag, nfs4test.Channel(32<<10, 16, 64), nfs4test.Channel(4096, 4, 2), testCBProgram, 1, 0))
	expect(t, "CREATE_SESSION", res, nfs4.OK)
	eventually(t, "the probe", func() (ok bool) { back.set(func(b *backClient) { ok = b.nulls == 1 }); return ok })
	cfg := r.s.v4.state.Config()
	for i := 0; r.s.v4.state.Stats(time.Now()).Slots <= cfg.MaxAllSlots-cfg.MaxAllSlots/4; i++ {
		s := r.with(r.cred, fmt.Sprintf("127.0.%d.1:700", i/12)).client4(fmt.Sprint("busy ", i), "verifier")
		for range 16 { // the most sessions of a client
			if res := s.compound(1, createSession(s.client, s.sequence, 0, nfs4test.Channel(32<<10, 16, 64), nfs4test.Channel(4096, 4, 2), 0, 0)); res.Status != 0 {
				t.Fatalf("CREATE_SESSION: %v", nfs4.Status(res.Status))
			}
			s.sequence++
		}
	}
	var args nfs4.CBRecallSlotArgs
	var d xdr.Decoder
	k := back.next(nfs4.OpCBRecallSlot)
	d.ResetBytes(k.args)
	if args.Decode(&d); d.Err() != nil || args.TargetHighestSlot != 31 || string(k.seq.Session[:]) != string(res.Op(0)[:16]) {
		t.Errorf("CB_RECALL_SLOT %+v to %x", args, k.seq.Session)
	}
}

// TestDelegationAfterControl: BACKCHANNEL_CTL does not make a client wait for delegations, while
// the back channel that has worked so far is probed with the new credential.
func TestDelegationAfterControl(t *testing.T) {
	e := newEnv4(t, unshared)
	e.put("file", "contents")
	a, back := e.sessionBack("a", 701)
	stalled := make(chan struct{})
	defer close(stalled)
	back.set(func(k *backClient) { k.stalled = stalled })
	a.ok(op4(nfs4.OpBackchannelCtl, testCBProgram, 1, 0))
	eventually(t, "the probe", func() (began bool) { back.set(func(k *backClient) { began = k.stalled == nil }); return began })
	a.delegated(nfs4.DelegWrite, accRW, noCreate, "file")
}
