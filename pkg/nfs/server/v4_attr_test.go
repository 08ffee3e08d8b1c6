package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/pkg/xdr"
	"sluice.dev/sluice/test/prereq"
)

// attrs4 asks for attributes of an object.
func (s *session4) attrs4(name string, attrs ...uint32) nfs4.Attrs {
	s.t.Helper()
	res := s.ok(putRoot, lookup4(name), op4(nfs4.OpGetAttr, Bitmap(attrs...)))
	var r nfs4.GetAttrRes
	r.Decode(opResult(res, 3))
	return r.Attrs
}

func values(a nfs4.Attrs) *xdr.Decoder {
	var d xdr.Decoder
	d.ResetBytes(a.Values)
	return &d
}

// Every supported attribute can be read alone, compares equal to itself and unequal to another
// value, and can be set if it is settable.
func TestEveryAttribute(t *testing.T) {
	s := newTreeSession4(t, nil)
	var supported nfs4.Bitmap
	supported.Decode(values(s.attrs4("file", nfs4.AttrSupported)))
	for _, n := range []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 19, 75} { // REQUIRED
		if !supported.Has(n) {
			t.Errorf("attribute %d is missing", n)
		}
	}
	for n := range uint32(96) {
		get := []Raw{putRoot, lookup4("file"), op4(nfs4.OpGetAttr, Bitmap(n))}
		setOnly := n == nfs4.AttrTimeAccessSet || n == nfs4.AttrTimeModifySet || n == nfs4.AttrModeUmask
		bad := Attrs([]uint32{n}, Raw(make([]byte, 64)))
		verify := func(op nfs4.Op, a any) *Results { return s.do(putRoot, lookup4("file"), op4(op, a)) }
		name := fmt.Sprint("attribute ", n)
		switch {
		case !supported.Has(n):
			if a := s.attrs4("file", n); !a.Mask.Empty() {
				t.Errorf("%s is not supported and was returned", name)
			}
			expect(t, "VERIFY of "+name, verify(nfs4.OpVerify, bad), nfs4.ErrAttrNotSupp)
			expect(t, "NVERIFY of "+name, verify(nfs4.OpNVerify, bad), nfs4.ErrAttrNotSupp)
		case setOnly:
			expect(t, "GETATTR of "+name, s.do(get...), nfs4.ErrInval)
			expect(t, "VERIFY of "+name, verify(nfs4.OpVerify, bad), nfs4.ErrInval)
			expect(t, "READDIR of "+name, s.do(putRoot, readdir4(0, 4096, n)), nfs4.ErrInval)
		case n == nfs4.AttrRdattrError:
			expect(t, "VERIFY of "+name, verify(nfs4.OpVerify, bad), nfs4.ErrInval)
		default:
			a := s.attrs4("file", n)
			if !a.Mask.Has(n) || a.Mask.Len() != 1 {
				t.Errorf("%s: GETATTR returned %v", name, a.Mask)
				continue
			}
			// Others write to the disk meanwhile.
			if same := Attrs([]uint32{n}, Raw(a.Values)); !usageAttrs.Has(n) {
				expect(t, "VERIFY of "+name, verify(nfs4.OpVerify, same), nfs4.OK)
				expect(t, "NVERIFY of "+name, verify(nfs4.OpNVerify, same), nfs4.ErrSame)
			}
			other := bytes.Clone(a.Values)
			other[len(other)-1] ^= 0x80
			values := Attrs([]uint32{n}, Raw(other))
			expect(t, "VERIFY of "+name, verify(nfs4.OpVerify, values), nfs4.ErrNotSame)
			expect(t, "NVERIFY of "+name, verify(nfs4.OpNVerify, values), nfs4.OK)
		}
		want := nfs4.ErrAttrNotSupp
		settable := settableAttrs
		if supported.Has(n) {
			want = nfs4.ErrInval
		}
		if supported.Has(n) && settable.Has(n) {
			continue
		}
		expect(t, "SETATTR of "+name, s.do(putRoot, lookup4("file"), setAttr4(bad)), want)
	}
	// nfs4test.Read walks the reply by the schema, so the values are in the order of their numbers.
	all := supported.Minus(setOnlyAttrs)
	res := s.ok(putRoot, lookup4("file"), op4(nfs4.OpGetAttr, 3, all[0], all[1], all[2]))
	var r nfs4.GetAttrRes
	if r.Decode(opResult(res, 3)); r.Attrs.Mask != all {
		t.Errorf("GETATTR of all returned %v", r.Attrs.Mask)
	}
	expect(t, "attributes beyond", s.do(putRoot, op4(nfs4.OpGetAttr, 5, 2, 0, 0, 0, 0xffffffff)), nfs4.OK)
}

// setAttr4 is SETATTR without a stateid.
func setAttr4(attrs Raw) Raw { return op4(nfs4.OpSetAttr, Raw(make([]byte, 16)), attrs) }

func TestSetAttr4(t *testing.T) {
	s := newTreeSession4(t, nil)
	set := func(name string, want nfs4.Status, attrs Raw) {
		t.Helper()
		res := s.do(putRoot, lookup4(name), setAttr4(attrs))
		expect(t, "SETATTR of "+name, res, want)
		var r nfs4.SetAttrRes
		r.Decode(opResult(res, 3))
		if ok := want == nfs4.OK; ok == r.Set.Empty() {
			t.Errorf("%v: attributes %v were set", want, r.Set)
		}
	}
	serverTime, clientTime := Fields(0), Fields(1, uint64(1_000_000_000), 5)
	set("file", nfs4.OK, Attrs([]uint32{nfs4.AttrSize}, uint64(4)))
	set("file", nfs4.OK, Attrs([]uint32{nfs4.AttrMode}, 0o4711))
	set("file", nfs4.OK, Attrs([]uint32{nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet}, serverTime, clientTime))
	if st := s.lstat("file"); st.Size != 4 || st.Mode != unix.S_IFREG|0o4711 || st.Mtim.Sec != 1_000_000_000 || st.Atim.Sec < 1_600_000_000 {
		t.Errorf("file is %+v", st)
	}
	set("file", nfs4.OK, Attrs([]uint32{nfs4.AttrOwner, nfs4.AttrOwnerGroup}, fmt.Sprint(os.Getuid()), fmt.Sprint(os.Getgid())))
	set("dir", nfs4.ErrIsDir, Attrs([]uint32{nfs4.AttrSize}, uint64(4)))
	set("link", nfs4.ErrInval, Attrs([]uint32{nfs4.AttrSize}, uint64(4)))
	set("file", nfs4.ErrInval, Attrs([]uint32{nfs4.AttrMode}, 0o10000))
	set("file", nfs4.ErrInval, Attrs([]uint32{nfs4.AttrTimeModifySet}, 1, uint64(0), 1_000_000_000))
	set("file", nfs4.ErrBadXDR, Attrs([]uint32{nfs4.AttrTimeModifySet}, 2))
	set("file", nfs4.ErrBadXDR, Attrs([]uint32{nfs4.AttrMode}, 0o600, 0))
	set("file", nfs4.ErrBadXDR, Attrs([]uint32{nfs4.AttrSize}, 0))
	set("file", nfs4.ErrFBig, Attrs([]uint32{nfs4.AttrSize}, uint64(1<<63)))
	set("file", nfs4.ErrInval, Attrs([]uint32{nfs4.AttrModeUmask}, 0o600, 0o22))
	for _, owner := range []string{"x", "-1", "4294967295", "00", "1 ", "99999999999", "1@"} {
		set("file", nfs4.ErrBadOwner, Attrs([]uint32{nfs4.AttrOwner}, owner))
	}
	set("file", nfs4.ErrInval, Attrs([]uint32{nfs4.AttrOwner}, ""))
	expect(t, "cut off", s.do(putRoot, Op(int(nfs4.OpSetAttr))), nfs4.ErrBadXDR)
	expect(t, "no filehandle", s.do(setAttr4(noAttrs)), nfs4.ErrNoFileHandle)
}

// The change attribute grows with every change, even within a tick of the clock.
func TestChange4(t *testing.T) {
	s := newTreeSession4(t, nil)
	get := func() uint64 {
		return binary.BigEndian.Uint64(s.attrs4("file", nfs4.AttrChange).Values)
	}
	last := get()
	for i := range 50 {
		s.ok(putRoot, lookup4("file"), op4(nfs4.OpWrite, Raw(make([]byte, 16)), uint64(0), 0, "data"))
		now := get()
		if now <= last {
			t.Fatalf("write %d: change is %d, was %d", i, now, last)
		}
		if again := get(); again != now {
			t.Fatalf("change is %d without a change, was %d", again, now)
		}
		last = now
	}
	// A failure is no change.
	dir := func() uint64 {
		res := s.ok(putRoot, op4(nfs4.OpGetAttr, Bitmap(nfs4.AttrChange)))
		var r nfs4.GetAttrRes
		r.Decode(opResult(res, 2))
		return binary.BigEndian.Uint64(r.Attrs.Values)
	}
	before := dir()
	s.fails(nfs4.ErrExist, putRoot, op4(nfs4.OpCreate, 2, "file", noAttrs))
	s.fails(nfs4.ErrNoEnt, putRoot, op4(nfs4.OpRemove, "nothing"))
	if after := dir(); after != before {
		t.Errorf("change is %d, was %d", after, before)
	}
}

func TestAccess4(t *testing.T) {
	s := newTreeSession4(t, nil)
	access := func(name string, ask uint32) (supported, granted uint32) {
		t.Helper()
		res := s.ok(putRoot, lookup4(name), op4(nfs4.OpAccess, ask))
		d := opResult(res, 3)
		return d.Uint32(), d.Uint32()
	}
	if supported, granted := access("file", 0x3f); supported != 0x2d || granted&0x0d != 0x0d {
		t.Errorf("file: %#x of %#x", granted, supported)
	}
	if supported, granted := access("dir", 0x3f); supported != 0x1f || granted != 0x1f {
		t.Errorf("dir: %#x of %#x", granted, supported)
	}
	expect(t, "unknown bit", s.do(putRoot, op4(nfs4.OpAccess, 0x8000)), nfs4.ErrInval)
	expect(t, "no filehandle", s.do(op4(nfs4.OpAccess, 1)), nfs4.ErrNoFileHandle)
}

// mode_umask is the mode less the umask, unless the directory has a list to inherit (RFC 8275).
func TestModeUmask4(t *testing.T) {
	s := newTreeSession4(t, nil)
	attrs := Attrs([]uint32{nfs4.AttrModeUmask}, 0o776, 0o027)
	mode := func(dir string) uint32 {
		t.Helper()
		s.ok(putRoot, lookup4(dir), op4(nfs4.OpCreate, 2, "new", attrs))
		return s.lstat(dir+"/new").Mode & 0o777
	}
	if got := mode("dir"); got != 0o750 {
		t.Errorf("mode is %o", got)
	}
	both := Attrs([]uint32{nfs4.AttrMode, nfs4.AttrModeUmask}, 0o700, 0o776, 0o027)
	expect(t, "with a mode", s.do(putRoot, op4(nfs4.OpCreate, 2, "new", both)), nfs4.ErrInval)
	if !s.env.s.fs.Capabilities().ACLs {
		prereq.Missing(t, "the file system has no access control lists")
	}
	ace := func(who string) Raw {
		return Fields(0, aceInheritance, int(nfs4.ACEReadData|nfs4.ACEExecute|aceWrite|nfs4.ACEDeleteChild), who)
	}
	list := Attrs([]uint32{nfs4.AttrACL}, 3, ace("OWNER@"), ace("GROUP@"), ace("EVERYONE@"))
	s.ok(putRoot, lookup4("empty"), setAttr4(list))
	s.must(os.Chmod(s.path("empty"), 0o755))
	if got := mode("empty"); got != 0o776 {
		t.Errorf("mode with a list to inherit is %o", got)
	}
}
