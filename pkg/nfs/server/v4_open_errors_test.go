package server

import (
	"os"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/test/prereq"
)

func TestOpenErrors(t *testing.T) { testFailures(t, openFailures) }

// openFailures are those of OPEN, OPEN_DOWNGRADE, CLOSE and FREE_STATEID.
func openFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	claim := func(access int, how Raw, claim nfs4.Claim, list ...any) Raw {
		return op4(nfs4.OpOpen, append([]any{0, access, 0, uint64(0), "o", how, int(claim)}, list...)...)
	}
	created := func(mode nfs4.CreateMode, attr uint32, values ...any) Raw {
		return Fields(1, int(mode), Attrs([]uint32{attr}, values...))
	}
	for _, x := range []struct {
		want nfs4.Status
		name string
		op   Raw
	}{
		{nfs4.ErrInval, "no access", openOp("o", 0, 0, noCreate, "file")},
		{nfs4.ErrInval, "access 4", openOp("o", 4, 0, noCreate, "file")},
		{nfs4.ErrInval, "deny 4", openOp("o", accR, 4, noCreate, "file")},
		{nfs4.ErrInval, "wish 6", openOp("o", accR|0x600, 0, noCreate, "file")},
		{nfs4.ErrNoEnt, "nothing", openOp("o", accR, 0, noCreate, "nothing")},
		{nfs4.ErrExist, "GUARDED4 of a file", openOp("o", accR, 0, guarded, "file")},
		{nfs4.ErrExist, "EXCLUSIVE4 of a file", openOp("o", accR, 0, exclusive("verifier"), "file")},
		{nfs4.ErrExist, "EXCLUSIVE4_1 of a file", openOp("o", accR, 0, exclusive1("verifier", noAttrs), "file")},
		{nfs4.ErrExist, "GUARDED4 of a directory", openOp("o", accR, 0, guarded, "dir")},
		{nfs4.ErrInval, "EXCLUSIVE4_1 with a time", openOp("o", accR, 0, exclusive1("verifier", Attrs([]uint32{nfs4.AttrTimeAccessSet}, 0)), "x")},
		{nfs4.ErrInval, "a read-only attribute", openOp("o", accR, 0, created(nfs4.Guarded, nfs4.AttrType, 1), "x")},
		{nfs4.ErrAttrNotSupp, "an unsupported attribute", openOp("o", accR, 0, created(nfs4.Guarded, nfs4.AttrHidden, true), "x")},
		{nfs4.ErrAttrNotSupp, "EXCLUSIVE4_1, unsupported", openOp("o", accR, 0, exclusive1("verifier", Attrs([]uint32{nfs4.AttrHidden}, true)), "x")},
		{nfs4.ErrBadOwner, "an unknown owner", openOp("o", accR, 0, created(nfs4.Unchecked, nfs4.AttrOwner, "nobody-knows"), "x")},
		{nfs4.ErrFBig, "a size beyond", openOp("o", accRW, 0, created(nfs4.Unchecked, nfs4.AttrSize, uint64(1)<<63), "x")},
		{nfs4.ErrBadXDR, "mode 4 of creation", openOp("o", accR, 0, Fields(1, 4), "x")},
		{nfs4.ErrBadXDR, "claim 7", claim(accR, noCreate, 7)},
		{nfs4.ErrBadStateID, "CLAIM_DELEGATE_CUR", claim(accR, noCreate, nfs4.ClaimDelegateCur, stateID(e.open.StateID), "open")},
	} {
		add(nfs4.OpOpen, x.want, x.name, putRoot, x.op)
	}
	objects := map[string]nfs4.Status{"dir": nfs4.ErrIsDir, "link": nfs4.ErrSymlink}
	for _, object := range specials {
		objects[object] = nfs4.ErrWrongType
	}
	for object, want := range objects {
		add(nfs4.OpOpen, want, object, putRoot, openOp("o", accR, 0, noCreate, object))
		add(nfs4.OpOpen, want, "UNCHECKED4 of "+object, putRoot, openOp("o", accR, 0, unchecked, object))
		add(nfs4.OpOpen, want, "CLAIM_FH of "+object, in(object, openFH("o", accR, 0))...)
		add(nfs4.OpOpen, want, "CLAIM_PREVIOUS of "+object, in(object, reclaim("o", accR, 0))...)
	}
	add(nfs4.OpOpen, nfs4.ErrInval, "CLAIM_FH with creation", in("file", claim(accR, unchecked, nfs4.ClaimFH))...)
	add(nfs4.OpOpen, nfs4.ErrInval, "CLAIM_PREVIOUS with creation", in("file", claim(accR, unchecked, nfs4.ClaimPrevious, 0))...)
	add(nfs4.OpOpen, nfs4.ErrNoGrace, "a reclaim after its end", in("file", reclaim("o", accR, 0))...)
	for _, c := range []nfs4.Claim{nfs4.ClaimDelegatePrev, nfs4.ClaimDelegPrevFH} {
		args := []any{}
		if c == nfs4.ClaimDelegatePrev {
			args = append(args, "file")
		}
		add(nfs4.OpOpen, nfs4.ErrNotSupp, "an earlier delegation", putRoot, claim(accR, noCreate, c, args...))
	}
	by(e.user, nfs4.OpOpen, nfs4.ErrAccess, "a file of root", putRoot, openOp("o", accR, 0, noCreate, "secret"))
	by(e.user, nfs4.OpOpen, nfs4.ErrAccess, "CLAIM_FH of a file of root", in("secret", openFH("o", accR, 0))...)
	by(e.user, nfs4.OpOpen, nfs4.ErrAccess, "truncation of a file of root", putRoot, openOp("o", accR, 0, truncating, "file"))
	by(e.user, nfs4.OpOpen, nfs4.ErrAccess, "creation in a directory of root", putRoot, openOp("o", accR, 0, unchecked, "x"))
	by(e.guest, nfs4.OpOpen, nfs4.ErrROFS, "for writing with read-only access", putRoot, openOp("o", accW, 0, noCreate, "file"))

	// Share reservations of another owner, and of another client.
	e.put("shared", "0123456789")
	shared := e.session4.open("denier", accR, nfs4.ShareDenyWrite, noCreate, "shared")
	for _, s := range []*session4{e.session4, e.other} {
		by(s, nfs4.OpOpen, nfs4.ErrShareDenied, "a denied access", putRoot, openOp("o", accW, 0, noCreate, "shared"))
		by(s, nfs4.OpOpen, nfs4.ErrShareDenied, "a denied access by filehandle", in("shared", openFH("o", accRW, 0))...)
		by(s, nfs4.OpOpen, nfs4.ErrShareDenied, "a deny of an access", putRoot, openOp("o", accR, nfs4.ShareDenyRead, noCreate, "shared"))
		by(s, nfs4.OpOpen, nfs4.ErrShareDenied, "a denied access with truncation", putRoot, openOp("o", accRW, 0, truncating, "shared"))
		by(s, nfs4.OpOpen, nfs4.ErrShareDenied, "a denied truncation", putRoot, openOp("o", accR, 0, truncating, "shared"))
	}

	file := putFH(e.open.handle)
	down := func(id nfs4.StateID, access, deny int) Raw {
		return op4(nfs4.OpOpenDowngrade, stateID(id), 0, access, deny)
	}
	add(nfs4.OpOpenDowngrade, nfs4.ErrInval, "no access", file, down(e.open.StateID, 0, 0))
	add(nfs4.OpOpenDowngrade, nfs4.ErrInval, "access 4", file, down(e.open.StateID, 4, 0))
	add(nfs4.OpOpenDowngrade, nfs4.ErrInval, "deny 4", file, down(e.open.StateID, accRW, 4))
	add(nfs4.OpOpenDowngrade, nfs4.ErrInval, "an access that was not opened", file, down(e.open.StateID, accR, 0))
	add(nfs4.OpOpenDowngrade, nfs4.ErrInval, "a deny that was not opened", file, down(e.open.StateID, accRW, nfs4.ShareDenyRead))
	add(nfs4.OpOpenDowngrade, nfs4.ErrInval, "an upgrade", putFH(shared.handle), down(shared.StateID, accRW, nfs4.ShareDenyWrite))
	// The second OPEN of an owner changes the stateid.
	e.put("twice", "")
	once := e.session4.open("o", accR, 0, noCreate, "twice")
	twice := e.session4.open("o", accRW, 0, noCreate, "twice")
	add(nfs4.OpOpenDowngrade, nfs4.ErrOldStateID, "an old stateid", putFH(once.handle), down(once.StateID, accR, 0))
	add(nfs4.OpClose, nfs4.ErrOldStateID, "an old stateid", putFH(once.handle), closeOp(once.StateID))
	add(nfs4.OpFreeStateID, nfs4.ErrOldStateID, "an old stateid", op4(nfs4.OpFreeStateID, stateID(once.StateID)))
	add(nfs4.OpFreeStateID, nfs4.ErrLocksHeld, "an open", op4(nfs4.OpFreeStateID, stateID(twice.StateID)))
	bad := append(e.badStateIDs(),
		badStateID{"the anonymous stateid", nfs4.AnonymousStateID, e.session4, nfs4.ErrBadStateID},
		badStateID{"the bypass stateid", nfs4.BypassStateID, e.session4, nfs4.ErrBadStateID},
		badStateID{"a lock stateid", e.lock, e.session4, nfs4.ErrBadStateID})
	for _, x := range bad {
		if x.want != nfs4.ErrBadStateID {
			continue
		}
		by(x.by, nfs4.OpClose, x.want, x.name, file, closeOp(x.id))
		by(x.by, nfs4.OpDelegReturn, x.want, x.name, file, op4(nfs4.OpDelegReturn, stateID(x.id)))
		by(x.by, nfs4.OpOpenDowngrade, x.want, x.name, file, down(x.id, accR, 0))
		switch x.name {
		case "a lock stateid", "a stateid of another file":
		default:
			by(x.by, nfs4.OpFreeStateID, x.want, x.name, op4(nfs4.OpFreeStateID, stateID(x.id)))
		}
	}
	add(nfs4.OpDelegReturn, nfs4.ErrBadStateID, "an open", file, op4(nfs4.OpDelegReturn, stateID(e.open.StateID)))
	add(nfs4.OpFreeStateID, nfs4.ErrLocksHeld, "a lock", op4(nfs4.OpFreeStateID, stateID(e.lock)))
	return list
}

// TestExclusiveAttrs has the attributes that hold the verifier in EXCLUSIVE4_1's attrset, and the
// repeat of a creation (RFC 8881 section 18.16.3).
func TestExclusiveAttrs(t *testing.T) {
	s := newEnv4(t, nil).session("client")
	mode := Attrs([]uint32{nfs4.AttrMode}, 0o640)
	times := nfs4.BitmapOf(nfs4.AttrTimeAccess, nfs4.AttrTimeModify)
	with := times.Or(nfs4.BitmapOf(nfs4.AttrMode))
	for i, x := range []struct {
		how  Raw
		name string
		want nfs4.Bitmap
	}{
		{exclusive1("verifier", mode), "a", with},
		{exclusive1("verifier", mode), "a", with}, // a repeat
		{exclusive1("verifier", noAttrs), "b", times},
		{exclusive("verifier"), "c", times},
	} {
		if o := s.open("o", accRW, 0, x.how, x.name); o.AttrSet != x.want {
			t.Errorf("%d: attrset %v, must be %v", i, o.AttrSet, x.want)
		}
	}
	s.fails(nfs4.ErrExist, putRoot, openOp("o", accRW, 0, exclusive1("VERIFIER", mode), "a"))
	if st := s.lstat("a"); st.Mode&0o777 != 0o640 {
		t.Errorf("mode is %o", st.Mode)
	}
	// The client sets the times next; then a repeat is another creation.
	set := Attrs([]uint32{nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet}, 0, 0)
	s.ok(in("a", setAttr4(set))...)
	s.fails(nfs4.ErrExist, putRoot, openOp("o", accRW, 0, exclusive1("verifier", mode), "a"))
}

// TestCreatedOwners creates for another owner, which only root may do: others own their files, and
// attrset does not have the owner.
func TestCreatedOwners(t *testing.T) {
	e := newErrorEnv(t)
	e.must(os.Chmod(e.path("empty"), 0o777))
	attrs := Attrs([]uint32{nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup}, 0o640, "1002", "1003")
	mode := nfs4.BitmapOf(nfs4.AttrMode)
	for _, x := range []struct {
		by       *session4
		name     string
		uid, gid uint32
		set      nfs4.Bitmap
	}{
		{e.user, "of-user", 1001, 1001, mode},
		{e.session4, "of-root", 1002, 1003, mode.Or(nfs4.BitmapOf(nfs4.AttrOwner, nfs4.AttrOwnerGroup))},
	} {
		var file nfs4.OpenRes
		file.Decode(opResult(x.by.ok(in("empty", openOp("o", accRW, 0, Fields(1, int(nfs4.Guarded), attrs), x.name))...), 3))
		var dir nfs4.CreateRes
		dir.Decode(opResult(x.by.ok(in("empty", op4(nfs4.OpCreate, int(nfs4.Dir), x.name+"-dir", attrs))...), 3))
		if file.AttrSet != x.set || dir.Set != x.set {
			t.Errorf("%s: OPEN set %v, CREATE set %v, must be %v", x.name, file.AttrSet, dir.Set, x.set)
		}
		for _, name := range []string{"empty/" + x.name, "empty/" + x.name + "-dir"} {
			if st := e.lstat(name); st.Uid != x.uid || st.Gid != x.gid || st.Mode&0o777 != 0o640 {
				t.Errorf("%s: owner %d:%d, mode %o", name, st.Uid, st.Gid, st.Mode)
			}
		}
	}
}

// TestCreatedACL creates with a mode and an access control list in each mode of creation: the list
// decides (RFC 8881 section 6.4.3).
func TestCreatedACL(t *testing.T) {
	s := newEnv4(t, nil).session("client")
	if !s.env.s.fs.Capabilities().ACLs {
		prereq.Missing(t, "the file system has no access control lists")
	}
	ace := func(mask int, who string) Raw { return Fields(int(nfs4.ACEAllow), 0, mask, who) }
	const read, write, execute = int(nfs4.ACEReadData), int(nfs4.ACEWriteData | nfs4.ACEAppendData), int(nfs4.ACEExecute)
	list := []any{3, ace(read|write|execute|nfs4.ACEReadACL, "OWNER@"), ace(read|execute, "GROUP@"), ace(read, "EVERYONE@")}
	only := Attrs([]uint32{nfs4.AttrACL}, list...)
	both := Attrs([]uint32{nfs4.AttrACL, nfs4.AttrMode}, append(list, 0o600)...)
	for name, how := range map[string]Raw{
		"unchecked": Fields(1, int(nfs4.Unchecked), both), "guarded": Fields(1, int(nfs4.Guarded), both),
		"exclusive": exclusive1("verifier", both), "only": exclusive1("verifier", only),
	} {
		o := s.open("o", accRW, 0, how, name)
		if !o.AttrSet.Has(nfs4.AttrACL) || o.AttrSet.Has(nfs4.AttrMode) != (name != "only") {
			t.Errorf("%s: attrset %v", name, o.AttrSet)
		}
		if mode := s.lstat(name).Mode & 0o777; mode != 0o754 {
			t.Errorf("%s: mode is %o", name, mode)
		}
		// The list returns with all that was asked for, in its order.
		got := nfs4.DecodeACL(values(s.attrs4(name, nfs4.AttrACL)), nil)
		for i, want := range []nfs4.ACE{
			{Mask: uint32(read | write | execute | nfs4.ACEReadACL), Who: []byte("OWNER@")},
			{Mask: uint32(read | execute), Who: []byte("GROUP@")}, {Mask: uint32(read), Who: []byte("EVERYONE@")},
		} {
			if i >= len(got) || got[i].Type != nfs4.ACEAllow || string(got[i].Who) != string(want.Who) || got[i].Mask&want.Mask != want.Mask {
				t.Fatalf("%s: the list is %+v", name, got)
			}
		}
	}
}
