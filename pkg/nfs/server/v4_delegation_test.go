package server

import (
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/xdr"
	"sluice.dev/sluice/test/prereq"
)

func unshared(c *Config) { c.NFS4.Unshared = true }

func delegReturn(id nfs4.StateID) nfs4test.Raw { return op4(nfs4.OpDelegReturn, stateID(id)) }

// recalled checks a CB_RECALL.
func recalled(t testing.TB, k backOp, o opened) {
	t.Helper()
	var a nfs4.CBRecallArgs
	var d xdr.Decoder
	d.ResetBytes(k.args)
	if a.Decode(&d); d.Err() != nil || d.Left() > 0 || a.StateID != o.Delegation.StateID || string(a.Object) != string(o.handle) {
		t.Errorf("CB_RECALL %+v of %+v", a, o.Delegation)
	}
	if len(k.seq.Referring) != 1 {
		t.Errorf("referring calls: %+v", k.seq.Referring)
	}
}

// delegated opens a file until that gives a delegation: another call that still uses the file
// prevents it.
func (s *session4) delegated(want nfs4.DelegType, access int, how nfs4test.Raw, name string) (o opened) {
	s.t.Helper()
	eventually(s.t, "a delegation", func() bool {
		if o = s.open("o", access, 0, how, name); o.Delegation.Type != want {
			s.ok(putFH(o.handle), closeOp(o.StateID))
		}
		return o.Delegation.Type == want
	})
	return o
}

func (o *opened) has(t testing.TB, want nfs4.DelegType) {
	t.Helper()
	if o.Delegation.Type != want {
		t.Fatalf("delegation %+v, must have type %d", o.Delegation, want)
	}
}

// needLease skips a test if the file system of the env has no leases.
func needLease(r *env) {
	r.t.Helper()
	r.put("lease", "")
	f, err := os.Open(r.path("lease"))
	r.must(err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		prereq.Missing(r.t, "no lease can be had: %v", err)
	}
}

// TestReadDelegation has read delegations of a directory that local processes use too.
func TestReadDelegation(t *testing.T) {
	r := newEnv4(t, nil)
	needLease(r)
	r.put("file", "contents")
	a, back := r.sessionBack("a", 701)
	b, backB := r.sessionBack("b", 702)
	oa, ob := a.delegated(nfs4.DelegRead, accR, noCreate, "file"), b.delegated(nfs4.DelegRead, accR, noCreate, "file")
	file := putFH(oa.handle)
	a.ok(file, op4(nfs4.OpRead, stateID(oa.Delegation.StateID), uint64(0), 4))
	a.fails(nfs4.ErrOpenMode, file, op4(nfs4.OpWrite, stateID(oa.Delegation.StateID), uint64(0), 0, "x"))
	// A writer recalls both, and waits.
	b.slots[1]++
	done := make(chan *nfs4test.Results)
	go func() { done <- b.compound(2, b.seq(1), rootFH, openOp("w", accW, 0, noCreate, "file")) }()
	recalled(t, back.next(nfs4.OpCBRecall), oa)
	recalled(t, backB.next(nfs4.OpCBRecall), ob)
	a.ok(file, closeOp(oa.StateID))
	a.ok(file, delegReturn(oa.Delegation.StateID))
	b.ok(file, delegReturn(ob.Delegation.StateID))
	if res := <-done; nfs4.Status(res.Status) != nfs4.OK && nfs4.Status(res.Status) != nfs4.ErrDelay {
		t.Errorf("an open for writing: %v", nfs4.Status(res.Status))
	}
	w := b.open("w", accW, 0, noCreate, "file")
	a.fails(nfs4.ErrBadStateID, file, delegReturn(oa.Delegation.StateID))
	// No delegation soon after a recall, and the reason if it was asked for.
	b.ok(file, closeOp(w.StateID))
	oa = a.open("o", accR|nfs4.WantReadDeleg, 0, noCreate, "file")
	oa.has(t, nfs4.DelegNoneExt)
	if oa.Delegation.Why != nfs4.WhyContention {
		t.Errorf("reason %d", oa.Delegation.Why)
	}
	// A delegation for writing needs a directory that nobody else uses.
	o := a.open("o", accRW|nfs4.WantWriteDeleg, 0, unchecked, "new")
	o.has(t, nfs4.DelegNoneExt)
}

// TestLocalProcess: a local process opens a delegated file for writing.
func TestLocalProcess(t *testing.T) {
	r := newEnv4(t, nil)
	needLease(r)
	r.put("file", "contents")
	a, back := r.sessionBack("a", 701)
	o := a.delegated(nfs4.DelegRead, accR, noCreate, "file")
	done := make(chan error)
	go func() {
		f, err := os.OpenFile(r.path("file"), os.O_WRONLY, 0)
		if err == nil {
			f.Close()
		}
		done <- err
	}()
	recalled(t, back.next(nfs4.OpCBRecall), o)
	select {
	case err := <-done:
		t.Errorf("the process did not wait: %v", err)
	default:
	}
	a.ok(putFH(o.handle), delegReturn(o.Delegation.StateID))
	r.must(<-done)
}

// TestWriteDelegation has delegations for writing, and each operation that recalls one.
func TestWriteDelegation(t *testing.T) {
	for _, c := range []struct {
		name string
		ops  func(o opened) []nfs4test.Raw
		want nfs4.Status // when the delegation was returned
	}{
		{"OPEN", func(opened) []nfs4test.Raw { return []nfs4test.Raw{rootFH, openOp("b", accR, 0, noCreate, "file")} }, nfs4.OK},
		{"READ", func(o opened) []nfs4test.Raw {
			return []nfs4test.Raw{putFH(o.handle), op4(nfs4.OpRead, stateID(nfs4.BypassStateID), uint64(0), 1)}
		}, nfs4.OK},
		{"WRITE", func(o opened) []nfs4test.Raw {
			return []nfs4test.Raw{putFH(o.handle), op4(nfs4.OpWrite, stateID(nfs4.AnonymousStateID), uint64(0), 0, "x")}
		}, nfs4.OK},
		{"SETATTR", func(o opened) []nfs4test.Raw {
			return []nfs4test.Raw{putFH(o.handle), op4(nfs4.OpSetAttr, stateID(nfs4.AnonymousStateID), nfs4test.Attrs([]uint32{nfs4.AttrMode}, 0o600))}
		}, nfs4.OK},
		{"REMOVE", func(opened) []nfs4test.Raw { return []nfs4test.Raw{rootFH, op4(nfs4.OpRemove, "file")} }, nfs4.OK},
		{"RENAME of it", func(opened) []nfs4test.Raw {
			return []nfs4test.Raw{rootFH, op4(nfs4.OpSaveFH), op4(nfs4.OpRename, "file", "other")}
		}, nfs4.OK},
		{"RENAME onto it", func(opened) []nfs4test.Raw {
			return []nfs4test.Raw{rootFH, op4(nfs4.OpSaveFH), op4(nfs4.OpRename, "second", "file")}
		}, nfs4.OK},
		{"LINK", func(o opened) []nfs4test.Raw {
			return []nfs4test.Raw{putFH(o.handle), op4(nfs4.OpSaveFH), rootFH, op4(nfs4.OpLink, "another")}
		}, nfs4.OK},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newEnv4(t, unshared)
			r.put("second", "")
			a, back := r.sessionBack("a", 701)
			b := r.session("b")
			o := a.delegated(nfs4.DelegWrite, accRW, unchecked, "file")
			// Its holder does all of it undisturbed.
			file := putFH(o.handle)
			a.ok(file, op4(nfs4.OpWrite, stateID(o.Delegation.StateID), uint64(0), 0, "data"))
			a.ok(file, op4(nfs4.OpSetAttr, stateID(o.Delegation.StateID), nfs4test.Attrs([]uint32{nfs4.AttrSize}, uint64(3))))
			second := a.open("o2", accR, 0, noCreate, "file")
			second.has(t, nfs4.DelegNone)
			ops := c.ops(o)
			b.fails(nfs4.ErrDelay, ops...)
			recalled(t, back.next(nfs4.OpCBRecall), o)
			b.fails(nfs4.ErrDelay, ops...)
			// An open by the delegation is still possible.
			claim := op4(nfs4.OpOpen, 0, accRW, 0, uint64(0), "late", noCreate, int(nfs4.ClaimDelegCurFH), stateID(o.Delegation.StateID))
			name := op4(nfs4.OpOpen, 0, accR, 0, uint64(0), "late", noCreate, int(nfs4.ClaimDelegateCur), stateID(o.Delegation.StateID), "file")
			a.ok(file, claim)
			a.ok(rootFH, name)
			b.fails(nfs4.ErrBadStateID, file, claim)
			a.ok(file, delegReturn(o.Delegation.StateID))
			b.fails(c.want, ops...)
			if st := r.s.v4.state.Stats(time.Now()); st.Delegations != 0 {
				t.Errorf("%d delegations are left", st.Delegations)
			}
			if len(back.ops) > 0 {
				t.Errorf("another callback: %+v", <-back.ops)
			}
		})
	}
}

// TestVersion3Recalls has each call of version 3 that recalls a delegation, and those that keep
// silent about the attributes instead.
func TestVersion3Recalls(t *testing.T) {
	for _, c := range []struct {
		name string
		call func(r *env, h nfs3.Handle) nfs3.Status
	}{
		{"GETATTR", func(r *env, h nfs3.Handle) nfs3.Status { return r.getattr(h).Status }},
		{"READ", func(r *env, h nfs3.Handle) nfs3.Status { res, _ := r.read(h, 0, 1); return res.Status }},
		{"WRITE", func(r *env, h nfs3.Handle) nfs3.Status { return r.write(h, 0, "x", nfs3.Unstable).Status }},
		{"SETATTR", func(r *env, h nfs3.Handle) nfs3.Status {
			return r.setattr(h, nfs3.SetAttrs{SetMode: true, Mode: 0o600}).Status
		}},
		{"CREATE", func(r *env, h nfs3.Handle) nfs3.Status {
			return r.create(r.root, "file", nfs3.Unchecked, nfs3.SetAttrs{SetSize: true}).Status
		}},
		{"REMOVE", func(r *env, h nfs3.Handle) nfs3.Status { return r.removing(nfs3.ProcRemove, r.root, "file").Status }},
		{"RENAME", func(r *env, h nfs3.Handle) nfs3.Status { return r.rename(r.root, "file", r.root, "other").Status }},
		{"RENAME onto it", func(r *env, h nfs3.Handle) nfs3.Status { return r.rename(r.root, "second", r.root, "file").Status }},
		{"LINK", func(r *env, h nfs3.Handle) nfs3.Status { return r.link(h, r.root, "another").Status }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newEnv4(t, unshared)
			r.put("second", "")
			r.put("file", "contents")
			a, back := r.sessionBack("a", 701)
			h := r.handle("file")
			o := a.delegated(nfs4.DelegWrite, accRW, noCreate, "file")
			look := r.lookup(r.root, "file")
			if look.Status != nfs3.OK || look.Attr.Present || r.access(h, nfs3.AccessRead).Attr.Present {
				t.Errorf("LOOKUP %v, attributes %v", look.Status, look.Attr)
			}
			wantStatus(t, "with the delegation", c.call(r, h), nfs3.ErrJukebox)
			recalled(t, back.next(nfs4.OpCBRecall), o)
			// The call waits for the return.
			done := make(chan nfs3.Status)
			go func() { done <- c.call(r.with(r.cred, "127.0.0.1:800"), h) }()
			a.ok(putFH(o.handle), delegReturn(o.Delegation.StateID))
			if st := <-done; st != nfs3.OK && st != nfs3.ErrJukebox {
				t.Errorf("during the return: %v", st)
			}
		})
	}
}

// TestRevoked: a delegation that was not returned is revoked, and its holder learns it.
func TestRevoked(t *testing.T) {
	r := newEnv4(t, func(c *Config) { c.NFS4.Unshared, c.NFS4.Lease = true, 2*time.Second })
	a, back := r.sessionBack("a", 701)
	b := r.session("b")
	o := a.delegated(nfs4.DelegWrite, accRW, unchecked, "file")
	b.fails(nfs4.ErrDelay, rootFH, openOp("b", accR, 0, noCreate, "file"))
	recalled(t, back.next(nfs4.OpCBRecall), o)
	eventually(t, "the revocation", func() bool { b.flags(); return a.flags() == nfs4.SeqRecallableRevoked })
	b.open("b", accR, 0, noCreate, "file")
	file := putFH(o.handle)
	a.fails(nfs4.ErrDelegRevoked, file, op4(nfs4.OpRead, stateID(o.Delegation.StateID), uint64(0), 1))
	res := a.ok(op4(nfs4.OpTestStateID, 1, stateID(o.Delegation.StateID)))
	if d := opResult(res, 1); d.Uint32() != 1 || nfs4.Status(d.Uint32()) != nfs4.ErrDelegRevoked {
		t.Errorf("TEST_STATEID: %x", res.Op(1))
	}
	a.ok(op4(nfs4.OpFreeStateID, stateID(o.Delegation.StateID)))
	if f := a.flags(); f != 0 {
		t.Errorf("flags %#x", f)
	}
	a.fails(nfs4.ErrBadStateID, op4(nfs4.OpFreeStateID, stateID(o.Delegation.StateID)))
}

// TestRecallAny: a server with too many delegations asks for some.
func TestRecallAny(t *testing.T) {
	r := newEnv4(t, func(c *Config) { c.NFS4.Unshared, c.NFS4.Delegations = true, 4 })
	a, back := r.sessionBack("a", 701)
	for _, name := range []string{"1", "2", "3"} {
		a.delegated(nfs4.DelegWrite, accRW, unchecked, name)
	}
	o := a.open("o", accRW, 0, unchecked, "4")
	o.has(t, nfs4.DelegNone)
	k := back.next(nfs4.OpCBRecallAny)
	var args nfs4.CBRecallAnyArgs
	var d xdr.Decoder
	d.ResetBytes(k.args)
	if args.Decode(&d); args.ObjectsToKeep != 1 || args.Types != nfs4.BitmapOf(nfs4.RecallAnyReadDeleg, nfs4.RecallAnyWriteDeleg) {
		t.Errorf("CB_RECALL_ANY %+v", args)
	}
	// The last ones are for clients that ask.
	o = a.open("o", accRW|nfs4.WantWriteDeleg, 0, unchecked, "5")
	o.has(t, nfs4.DelegWrite)
	o = a.open("o", accRW|nfs4.WantWriteDeleg, 0, unchecked, "6")
	o.has(t, nfs4.DelegNoneExt)
}

// TestHeldAttributes: a client asks for attributes of a file that another one is writing by a
// delegation.
func TestHeldAttributes(t *testing.T) {
	r := newEnv4(t, unshared)
	r.put("file", "contents")
	a, back := r.sessionBack("a", 701)
	b := r.session("b")
	o := a.delegated(nfs4.DelegWrite, accRW, noCreate, "file")
	file := putFH(o.handle)
	attrs := nfs4test.Fields(1, 1<<nfs4.AttrChange|1<<nfs4.AttrSize)
	read := func(s *session4) (change, size uint64) {
		t.Helper()
		var res nfs4.Attrs
		res.Decode(opResult(s.ok(file, op4(nfs4.OpGetAttr, attrs)), 2))
		var d xdr.Decoder
		d.ResetBytes(res.Values)
		return d.Uint64(), d.Uint64()
	}
	change, size := read(a) // the holder is not asked
	if size != 8 || len(back.ops) > 0 {
		t.Errorf("size %d", size)
	}
	answer := func(change, size uint64, st nfs4.Status) {
		back.set(func(k *backClient) {
			k.answer = func(op nfs4.CBOp, _ []byte, e *xdr.Encoder) nfs4.Status {
				if op == nfs4.OpCBGetAttr && st == nfs4.OK {
					e.Fixed(nfs4test.Attrs([]uint32{nfs4.AttrChange, nfs4.AttrSize}, change, size))
				} else if op == nfs4.OpCBGetAttr {
					return st
				}
				return nfs4.OK
			}
		})
	}
	answer(change, 8, nfs4.OK)
	if c, s := read(b); c != change || s != 8 {
		t.Errorf("an unmodified file: change %d, size %d", c, s)
	}
	back.next(nfs4.OpCBGetAttr)
	answer(change+1, 4711, nfs4.OK)
	if c, s := read(b); c <= change || s != 4711 {
		t.Errorf("a modified file: change %d after %d, size %d", c, change, s)
	}
	var args nfs4.CBGetAttrArgs
	var d xdr.Decoder
	d.ResetBytes(back.next(nfs4.OpCBGetAttr).args)
	if args.Decode(&d); d.Err() != nil || string(args.Object) != string(o.handle) || args.Request != nfs4.BitmapOf(nfs4.AttrChange, nfs4.AttrSize) {
		t.Errorf("CB_GETATTR %+v", args)
	}
	// A holder that does not answer well loses the delegation.
	answer(0, 0, nfs4.ErrBadHandle)
	b.fails(nfs4.ErrDelay, file, op4(nfs4.OpGetAttr, attrs))
	back.next(nfs4.OpCBGetAttr)
	recalled(t, back.next(nfs4.OpCBRecall), o)
	a.ok(file, delegReturn(o.Delegation.StateID))
	if _, s := read(b); s != 8 {
		t.Errorf("size %d without the delegation", s)
	}
}

// TestHeldListing: a client lists files that another one is writing by delegations.
func TestHeldListing(t *testing.T) {
	r := newEnv4(t, unshared)
	a, back := r.sessionBack("a", 701)
	b := r.session("b")
	sizes := map[string]uint64{}
	held := map[string]string{} // names by handle
	for i := range 5 {
		name := fmt.Sprint("held", i)
		r.put(name, "contents")
		o := a.delegated(nfs4.DelegWrite, accRW, noCreate, name)
		held[string(o.handle)] = name
		sizes[name] = uint64(1000 + i)
		r.put(fmt.Sprint("other", i), "contents")
		sizes[fmt.Sprint("other", i)] = 8
	}
	back.set(func(k *backClient) {
		k.answer = func(op nfs4.CBOp, args []byte, e *xdr.Encoder) nfs4.Status {
			var get nfs4.CBGetAttrArgs
			var d xdr.Decoder
			d.ResetBytes(args)
			if get.Decode(&d); op != nfs4.OpCBGetAttr || d.Err() != nil {
				t.Errorf("callback %d", op)
			}
			e.Fixed(nfs4test.Attrs([]uint32{nfs4.AttrChange, nfs4.AttrSize}, uint64(1)<<62, sizes[held[string(get.Object)]]))
			return nfs4.OK
		}
	})
	check := func(s *session4, own bool) {
		t.Helper()
		for name, attrs := range s.entries4(4096, nfs4.AttrChange, nfs4.AttrSize) {
			var d xdr.Decoder
			d.ResetBytes(attrs.Values)
			d.Uint64()
			want := sizes[name]
			if own { // the holder knows better, and is not asked
				want = 8
			}
			if got := d.Uint64(); got != want {
				t.Errorf("%s has %d bytes, want %d", name, got, want)
			}
		}
	}
	check(b, false)
	if n := len(back.ops); n != len(held) {
		t.Errorf("%d questions for %d files", n, len(held))
	}
	check(a, true)
	// Attributes that the holder does not change take no question.
	b.entries4(4096, nfs4.AttrMode, nfs4.AttrFileID)
	if n := len(back.ops); n != len(held) {
		t.Errorf("%d questions for %d files", n, len(held))
	}
}

// TestReclaimDelegation: a client gets its delegation again after a restart of the server.
func TestReclaimDelegation(t *testing.T) {
	dir := t.TempDir()
	keep := func(c *Config) {
		withState4(dir)(c)
		unshared(c)
	}
	r := newEnv(t, keep)
	r.put("file", "contents")
	a, _ := r.sessionBack("a", 701)
	b := r.session("b")
	o := a.delegated(nfs4.DelegWrite, accRW, noCreate, "file")
	r.restart(keep)
	a.s, b.s = r.s, r.s
	a, b = a.again(), b.again()
	claim := op4(nfs4.OpOpen, 0, accRW, 0, uint64(0), "o", noCreate, int(nfs4.ClaimPrevious), int(nfs4.DelegWrite))
	file := putFH(o.handle)
	var again nfs4.OpenRes
	again.Decode(opResult(a.ok(file, claim), 2))
	if again.Delegation.Type != nfs4.DelegWrite {
		t.Fatalf("reclaimed: %+v", again.Delegation)
	}
	a.ok(file, op4(nfs4.OpWrite, stateID(again.Delegation.StateID), uint64(0), 0, "x"))
	a.ok(reclaimComplete)
	b.ok(reclaimComplete)
	b.fails(nfs4.ErrDelay, rootFH, openOp("o", accR, 0, noCreate, "file"))
	a.ok(file, delegReturn(again.Delegation.StateID))
	b.open("o", accR, 0, noCreate, "file")
	for _, claim := range []nfs4.Claim{nfs4.ClaimDelegatePrev, nfs4.ClaimDelegPrevFH} {
		args := []any{0, accR, 0, uint64(0), "o", noCreate, int(claim)}
		if claim == nfs4.ClaimDelegatePrev {
			args = append(args, "file")
		}
		b.fails(nfs4.ErrNotSupp, rootFH, op4(nfs4.OpOpen, args...))
	}
}

// TestDelegatedAgain opens files that the client has open already, or had, and asks for
// delegations. They outlive the opens, and the holder's own changes of attributes.
func TestDelegatedAgain(t *testing.T) {
	for name, change := range map[string]func(*Config){"shared": nil, "unshared": unshared} {
		t.Run(name, func(t *testing.T) {
			r := newEnv4(t, change)
			if change == nil {
				needLease(r)
			}
			a, _ := r.sessionBack("a", 701)
			const want = accR | nfs4.WantReadDeleg
			again := func(owner, name string) (o opened) {
				t.Helper()
				eventually(t, "a delegation", func() bool {
					o = a.open(owner, want, 0, noCreate, name)
					return o.Delegation.Type == nfs4.DelegRead
				})
				return o
			}
			holds := func(o opened) {
				t.Helper()
				res := a.ok(op4(nfs4.OpTestStateID, 1, stateID(o.Delegation.StateID)))
				if d := opResult(res, 1); d.Uint32() != 1 || nfs4.Status(d.Uint32()) != nfs4.OK {
					t.Error("the delegation is gone")
				}
			}
			// by the same owner, whose stateid goes on
			first := a.open("o", accR|nfs4.WantNoDeleg, 0, unchecked, "upgraded")
			o := again("o", "upgraded")
			holds(o)
			if o.StateID.Other != first.StateID.Other || o.StateID.Seq <= first.StateID.Seq {
				t.Errorf("stateid %+v, then %+v", first.StateID, o.StateID)
			}
			// by another owner, who closes the file
			a.open("o", accR|nfs4.WantNoDeleg, 0, unchecked, "two owners")
			o = again("p", "two owners")
			a.ok(putFH(o.handle), closeOp(o.StateID))
			holds(o)
			// after it was written and closed
			first = a.open("o", accRW|nfs4.WantNoDeleg, 0, unchecked, "closed")
			a.ok(putFH(first.handle), closeOp(first.StateID))
			o = again("o", "closed")
			a.ok(putFH(o.handle), op4(nfs4.OpSetAttr, anonymous, nfs4test.Bitmap(nfs4.AttrMode), nfs4test.Fields(4, 0o600)))
			holds(o)
			// beside a writer there is none
			b := r.session("b")
			b.open("o", accW, 0, unchecked, "written")
			o = a.open("o", want, 0, noCreate, "written")
			o.has(t, nfs4.DelegNoneExt)
		})
	}
}

// TestHolderWrites: the holder of a delegation for reading opens the file for writing, and does not
// wait. A lease of the kernel would keep it out, so that ends, and the delegation is recalled.
func TestHolderWrites(t *testing.T) {
	for name, change := range map[string]func(*Config){"shared": nil, "unshared": unshared} {
		t.Run(name, func(t *testing.T) {
			r := newEnv4(t, change)
			if change == nil {
				needLease(r)
			}
			r.put("file", "contents")
			a, back := r.sessionBack("a", 701)
			b := r.session("b")
			o := a.delegated(nfs4.DelegRead, accR, noCreate, "file")
			w := a.open("o", accW, 0, noCreate, "file")
			a.ok(putFH(w.handle), write4(stateID(w.StateID), 0, int(nfs4.FileSync), "x"))
			if change == nil {
				recalled(t, back.next(nfs4.OpCBRecall), o)
			}
			// Others wait for its return in any case.
			b.fails(nfs4.ErrDelay, rootFH, openOp("b", accW, 0, noCreate, "file"))
			if change != nil {
				recalled(t, back.next(nfs4.OpCBRecall), o)
			}
			a.ok(putFH(o.handle), delegReturn(o.Delegation.StateID))
			b.open("b", accW, 0, noCreate, "file")
			if len(back.ops) > 0 {
				t.Errorf("another callback: %+v", <-back.ops)
			}
		})
	}
}
