package server

import (
	"bytes"
	"os"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

func TestHandleErrors(t *testing.T) { testFailures(t, handleFailures) }

// handleFailures are those of the operations on filehandles.
func handleFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	e.put("short-lived", "")
	gone := bytes.Clone(e.handle("short-lived"))
	e.must(os.Remove(e.path("short-lived")))
	flipped := append([]byte{}, e.root...)
	flipped[len(flipped)-1] ^= 1
	for _, h := range []string{"", "abc", string(flipped), string(e.root[:len(e.root)-1]), string(make([]byte, nfs4.MaxHandle))} {
		add(nfs4.OpPutFH, nfs4.ErrBadHandle, "a bad handle", op4(nfs4.OpPutFH, h))
	}
	add(nfs4.OpPutFH, nfs4.ErrStale, "a removed object", op4(nfs4.OpPutFH, gone))
	add(nfs4.OpPutFH, nfs4.ErrBadXDR, "129 bytes", op4(nfs4.OpPutFH, string(make([]byte, nfs4.MaxHandle+1))))
	add(nfs4.OpRestoreFH, nfs4.ErrNoFileHandle, "without a saved one", rootFH, op4(nfs4.OpRestoreFH))
	return list
}

func TestAttrErrors(t *testing.T) { testFailures(t, attrFailures) }

// attrFailures are those of the operations on attributes.
func attrFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	set := func(attr uint32, values ...any) Raw { return setAttr4(Attrs([]uint32{attr}, values...)) }
	size := set(nfs4.AttrSize, uint64(4))
	for _, x := range []struct {
		want nfs4.Status
		name string
		op   Raw
	}{
		{nfs4.ErrInval, "mode 010000", set(nfs4.AttrMode, 0o10000)},
		{nfs4.ErrInval, "a mode and a umask", set(nfs4.AttrModeUmask, 0o644, 0o22)},
		{nfs4.ErrInval, "nanoseconds", set(nfs4.AttrTimeModifySet, 1, uint64(0), 1_000_000_000)},
		{nfs4.ErrBadXDR, "settime4 2", set(nfs4.AttrTimeAccessSet, 2)},
		{nfs4.ErrInval, "no owner", set(nfs4.AttrOwner, "")},
		{nfs4.ErrBadOwner, "an unknown owner", set(nfs4.AttrOwner, "nobody-knows")},
		{nfs4.ErrBadOwner, "an owner that is no UTF-8", set(nfs4.AttrOwner, "\xc0\xc1")},
		{nfs4.ErrBadOwner, "an unknown group", set(nfs4.AttrOwnerGroup, "nobody-knows")},
		{nfs4.ErrFBig, "a size beyond", set(nfs4.AttrSize, uint64(1)<<63)},
		{nfs4.ErrBadXDR, "no value", set(nfs4.AttrMode)},
		{nfs4.ErrBadXDR, "a value too many", set(nfs4.AttrMode, 0o644, 1)},
		{nfs4.ErrAttrNotSupp, "archive", set(nfs4.AttrArchive, true)},
		{nfs4.ErrAttrNotSupp, "hidden", set(nfs4.AttrHidden, true)},
		{nfs4.ErrAttrNotSupp, "time_backup", set(nfs4.AttrTimeBackup, uint64(0), 0)},
		{nfs4.ErrAttrNotSupp, "attribute 95", set(95, 1)},
		{nfs4.ErrAttrNotSupp, "attribute 129", op4(nfs4.OpSetAttr, anonymous, 5, 0, 0, 0, 0, 2, 4, 1)},
	} {
		add(nfs4.OpSetAttr, x.want, x.name, in("file", x.op)...)
	}
	for bit := range uint32(96) { // attributes that can only be read
		supported := e.s.supportedAttrs(2)
		if supported.Has(bit) && !settableAttrs.Has(bit) {
			add(nfs4.OpSetAttr, nfs4.ErrInval, "a read-only attribute", in("file", set(bit, 0))...)
		}
		if !supported.Has(bit) {
			compared := Attrs([]uint32{bit}, 0)
			add(nfs4.OpVerify, nfs4.ErrAttrNotSupp, "an unsupported attribute", in("file", op4(nfs4.OpVerify, compared))...)
			add(nfs4.OpNVerify, nfs4.ErrAttrNotSupp, "an unsupported attribute", in("file", op4(nfs4.OpNVerify, compared))...)
		}
	}
	for _, object := range append([]string{"link"}, specials...) {
		add(nfs4.OpSetAttr, nfs4.ErrInval, "the size of "+object, in(object, size)...)
	}
	// As with Linux: RFC 8881 section 15.2 does not list it.
	add(nfs4.OpSetAttr, nfs4.ErrIsDir, "the size of a directory", in("dir", size)...)
	withState := func(id nfs4.StateID) Raw {
		return op4(nfs4.OpSetAttr, stateID(id), Attrs([]uint32{nfs4.AttrSize}, uint64(4)))
	}
	for _, x := range e.badStateIDs() {
		by(x.by, nfs4.OpSetAttr, x.want, "size, "+x.name, putFH(e.open.handle), withState(x.id))
	}
	e.session4.open("denier", accR, nfs4.ShareDenyBoth, unchecked, "denied")
	add(nfs4.OpSetAttr, nfs4.ErrLocked, "the size of a denied file", in("denied", size)...)
	by(e.user, nfs4.OpSetAttr, nfs4.ErrAccess, "the size of a file of root", in("secret", size)...)
	by(e.user, nfs4.OpSetAttr, nfs4.ErrPerm, "the mode of a file of root", in("file", set(nfs4.AttrMode, 0o666))...)
	by(e.guest, nfs4.OpSetAttr, nfs4.ErrROFS, "with read-only access", in("file", set(nfs4.AttrMode, 0o666))...)
	for _, attr := range []uint32{nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet, nfs4.AttrModeUmask} {
		add(nfs4.OpGetAttr, nfs4.ErrInval, "a set-only attribute", in("file", op4(nfs4.OpGetAttr, Bitmap(attr)))...)
		for _, op := range []nfs4.Op{nfs4.OpVerify, nfs4.OpNVerify} {
			add(op, nfs4.ErrInval, "a set-only attribute", in("file", op4(op, Attrs([]uint32{attr}, 0)))...)
		}
	}
	for _, op := range []nfs4.Op{nfs4.OpVerify, nfs4.OpNVerify} {
		for _, size := range []int{0, 4, 12} {
			short := Fields(1, 1<<nfs4.AttrSize, make([]byte, size))
			add(op, nfs4.ErrBadXDR, "a size of another length", in("file", op4(op, short))...)
		}
		add(op, nfs4.ErrInval, "rdattr_error", in("file", op4(op, Attrs([]uint32{nfs4.AttrRdattrError}, 0)))...)
	}
	for _, object := range append([]string{"file", "dir", "link"}, specials...) {
		same := Attrs([]uint32{nfs4.AttrSize}, uint64(e.lstat(object).Size))
		other := Attrs([]uint32{nfs4.AttrSize}, uint64(e.lstat(object).Size+1))
		add(nfs4.OpVerify, nfs4.ErrNotSame, "the size of "+object, in(object, op4(nfs4.OpVerify, other))...)
		add(nfs4.OpNVerify, nfs4.ErrSame, "the size of "+object, in(object, op4(nfs4.OpNVerify, same))...)
	}
	add(nfs4.OpAccess, nfs4.ErrInval, "an unknown bit", in("file", op4(nfs4.OpAccess, 0x200))...)
	return list
}

// TestVerifyAll verifies all attributes that can be read, of an object of each kind.
func TestVerifyAll(t *testing.T) {
	e := newErrorEnv(t)
	for _, object := range append([]string{"file", "dir", "link"}, specials...) {
		for bit := range uint32(96) {
			mask := e.s.supportedAttrs(2).Minus(setOnlyAttrs)
			if !mask.Has(bit) || bit == nfs4.AttrRdattrError || bit >= nfs4.AttrFilesAvail && bit <= nfs4.AttrFilesTotal ||
				bit >= nfs4.AttrSpaceAvail && bit <= nfs4.AttrSpaceTotal {
				continue // others change the file system's usage
			}
			res := e.do(in(object, op4(nfs4.OpGetAttr, Bitmap(bit)))...)
			if nfs4.Status(res.Status) != nfs4.OK {
				t.Errorf("GETATTR of attribute %d of %s: %v", bit, object, nfs4.Status(res.Status))
				continue
			}
			got := Raw(res.Op(len(res.Ops) - 1))
			e.ok(in(object, op4(nfs4.OpVerify, got))...)
			e.fails(nfs4.ErrSame, in(object, op4(nfs4.OpNVerify, got))...)
		}
	}
}

func TestIOErrors(t *testing.T) { testFailures(t, ioFailures) }

// ioFailures are those of READ, WRITE and COMMIT.
func ioFailures(e *errorEnv) (list []failure) {
	add := func(op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops})
	}
	by := func(s *session4, op nfs4.Op, want nfs4.Status, name string, ops ...Raw) {
		list = append(list, failure{op: op, want: want, name: name, ops: ops, by: s})
	}
	read, write := read4(anonymous, 0, 5), write4(anonymous, 0, 0, "x")
	commit := op4(nfs4.OpCommit, uint64(0), 0)
	for object, want := range map[string]nfs4.Status{
		"dir": nfs4.ErrIsDir, "link": nfs4.ErrSymlink, "pipe": nfs4.ErrWrongType, "socket": nfs4.ErrWrongType,
		"block": nfs4.ErrWrongType, "char": nfs4.ErrWrongType,
	} {
		add(nfs4.OpRead, want, "of "+object, in(object, read)...)
		add(nfs4.OpWrite, want, "to "+object, in(object, write)...)
		add(nfs4.OpCommit, want, "of "+object, in(object, commit)...)
	}
	for _, x := range e.badStateIDs() {
		if x.want != nfs4.ErrOpenMode {
			by(x.by, nfs4.OpRead, x.want, x.name, putFH(e.open.handle), read4(stateID(x.id), 0, 5))
		}
		by(x.by, nfs4.OpWrite, x.want, x.name, putFH(e.open.handle), write4(stateID(x.id), 0, 0, "x"))
	}
	by(e.user, nfs4.OpRead, nfs4.ErrAccess, "of a file of root", in("secret", read)...)
	by(e.user, nfs4.OpWrite, nfs4.ErrAccess, "to a file of root", in("secret", write)...)
	by(e.user, nfs4.OpCommit, nfs4.ErrAccess, "of a file of root", in("secret", commit)...)
	by(e.guest, nfs4.OpWrite, nfs4.ErrROFS, "with read-only access", in("file", write)...)
	add(nfs4.OpWrite, nfs4.ErrFBig, "beyond the largest offset", in("file", write4(anonymous, 1<<63-1, 0, "x"))...)
	add(nfs4.OpWrite, nfs4.ErrFBig, "at the largest number", in("file", write4(anonymous, 1<<64-1, 0, "x"))...)
	add(nfs4.OpWrite, nfs4.ErrBadXDR, "stability 3", in("file", write4(anonymous, 0, 3, "x"))...)
	denied := e.session4.open("denier", accR, nfs4.ShareDenyBoth, unchecked, "denied")
	add(nfs4.OpRead, nfs4.ErrLocked, "of a denied file", putFH(denied.handle), read)
	add(nfs4.OpWrite, nfs4.ErrLocked, "to a denied file", putFH(denied.handle), write)
	return list
}

// TestCommitRanges has ranges beyond the largest offset, for which RFC 8881 has no error.
func TestCommitRanges(t *testing.T) {
	s := newTreeSession4(t, nil)
	for _, offset := range []uint64{0, 10, 1 << 40, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		for _, count := range []int{0, 1, 1 << 20} {
			s.ok(in("file", op4(nfs4.OpCommit, offset, count))...)
		}
	}
}

// badStateID is a stateid that an operation on errorEnv.open refuses when it writes.
type badStateID struct {
	name string
	id   nfs4.StateID
	by   *session4
	want nfs4.Status
}

func (e *errorEnv) badStateIDs() []badStateID {
	future, unknown, foreign, old := e.open.StateID, e.open.StateID, e.open.StateID, e.lock
	future.Seq = 9
	unknown.Other[11] ^= 0x40
	foreign.Other[0] ^= 0x80
	old.Seq = 1
	if e.lock.Seq == 1 {
		e.lock = e.locked(putFH(e.open.handle), lockMore(e.lock, nfs4.LockWrite, 0, 4))
	}
	other := e.session4.open("owner", accRW, 0, noCreate, "file")
	reader := e.session4.open("reader", accR, 0, noCreate, "open")
	return []badStateID{
		{"a stateid from the future", future, e.session4, nfs4.ErrBadStateID},
		{"an unknown stateid", unknown, e.session4, nfs4.ErrBadStateID},
		{"a stateid of another instance", foreign, e.session4, nfs4.ErrBadStateID},
		{"a stateid of another client", e.open.StateID, e.other, nfs4.ErrBadStateID},
		{"a stateid of another file", other.StateID, e.session4, nfs4.ErrBadStateID},
		{"the current stateid, without one", nfs4.CurrentStateID, e.session4, nfs4.ErrBadStateID},
		{"the invalid stateid", nfs4.InvalidStateID, e.session4, nfs4.ErrBadStateID},
		{"a special stateid's other part", nfs4.StateID{Seq: 7}, e.session4, nfs4.ErrBadStateID},
		{"an old stateid", old, e.session4, nfs4.ErrOldStateID},
		{"a stateid of a reader", reader.StateID, e.session4, nfs4.ErrOpenMode},
	}
}
