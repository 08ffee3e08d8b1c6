package server

import (
	"fmt"
	"os"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

// readdir4 is READDIR with a zero verifier.
func readdir4(cookie uint64, maxCount int, attrs ...uint32) Raw {
	return op4(nfs4.OpReaddir, cookie, uint64(0), 0, maxCount, Bitmap(attrs...))
}

// entries4 reads a directory in parts.
func (s *session4) entries4(maxCount int, attrs ...uint32) map[string]nfs4.Attrs {
	s.t.Helper()
	out := map[string]nfs4.Attrs{}
	for cookie, parts := uint64(0), 0; ; parts++ {
		if parts > 1000 {
			s.t.Fatal("the list has no end")
		}
		res := s.ok(putRoot, readdir4(cookie, maxCount, attrs...))
		d := opResult(res, 2)
		if d.Left() > maxCount {
			s.t.Errorf("%d bytes, the limit was %d", d.Left(), maxCount)
		}
		var verf nfs4.Verifier
		verf.Decode(d)
		for n := (nfs4.Entry{}); n.Decode(d); cookie = n.Cookie {
			if _, twice := out[string(n.Name)]; twice || n.Cookie < 3 {
				s.t.Errorf("%s again, or its cookie is %d", n.Name, n.Cookie)
			}
			out[string(n.Name)] = n.Attrs
		}
		if d.Bool() {
			return out
		}
	}
}

func TestReaddir4(t *testing.T) {
	s := newTreeSession4(t, nil)
	const files = 300
	for i := range files {
		s.put(fmt.Sprintf("many-%03d", i), "")
	}
	attrs := []uint32{nfs4.AttrType, nfs4.AttrChange, nfs4.AttrRdattrError, nfs4.AttrFileHandle, nfs4.AttrFileID}
	for _, maxCount := range []int{200, 1000, 1 << 20} {
		entries := s.entries4(maxCount, attrs...)
		if len(entries) != files+4 {
			t.Errorf("maxcount %d: %d entries", maxCount, len(entries))
		}
		for name, a := range entries {
			if a.Mask.Len() != len(attrs) {
				t.Errorf("%s has %v", name, a.Mask)
			}
		}
	}
	if entries := s.entries4(4096); len(entries) != files+4 {
		t.Errorf("without attributes: %d entries", len(entries))
	}
	// The handles and attributes of READDIR are those of LOOKUP.
	d := values(s.entries4(1<<16, attrs...)["dir"])
	kind, change, _, handle, id := d.Uint32(), d.Uint64(), d.Uint32(), d.Opaque(128), d.Uint64()
	e := values(s.attrs4("dir", attrs...))
	kind2, change2, _, handle2, id2 := e.Uint32(), e.Uint64(), e.Uint32(), e.Opaque(128), e.Uint64()
	if kind != kind2 || change != change2 || string(handle) != string(handle2) || id != id2 {
		t.Errorf("READDIR has %d %d %x %d, GETATTR %d %d %x %d", kind, change, handle, id, kind2, change2, handle2, id2)
	}
	created := s.entries4(1<<16, nfs4.AttrTimeCreate)
	if a := created["file"]; a.Mask.Has(nfs4.AttrTimeCreate) != s.env.s.fs.Capabilities().Births {
		t.Errorf("time_create: %v", a.Mask)
	}
	for name, x := range map[string]struct {
		want nfs4.Status
		op   Raw
	}{
		"maxcount 0":  {nfs4.ErrTooSmall, readdir4(0, 0)},
		"maxcount 20": {nfs4.ErrTooSmall, readdir4(0, 20)},
		"cookie 1":    {nfs4.ErrBadCookie, readdir4(1, 4096)},
		"cookie 2":    {nfs4.ErrBadCookie, readdir4(2, 4096)},
		"cookie 2^63": {nfs4.ErrBadCookie, readdir4(1<<63, 4096)},
		"verifier":    {nfs4.ErrNotSame, op4(nfs4.OpReaddir, uint64(5), uint64(77), 0, 4096, 0)},
		"cut off":     {nfs4.ErrBadXDR, Op(int(nfs4.OpReaddir), uint64(0))},
	} {
		expect(t, name, s.do(putRoot, x.op), x.want)
	}
	expect(t, "of a file", s.do(putRoot, lookup4("file"), readdir4(0, 4096)), nfs4.ErrNotDir)
	expect(t, "of a link", s.do(putRoot, lookup4("link"), readdir4(0, 4096)), nfs4.ErrNotDir)
	expect(t, "of nothing", s.do(readdir4(0, 4096)), nfs4.ErrNoFileHandle)
	s.must(os.Mkdir(s.path("void"), 0o755))
	res := s.ok(putRoot, lookup4("void"), readdir4(0, 4096))
	if v := opResult(res, 3); v.Uint64() == 0 || v.Bool() || !v.Bool() {
		t.Errorf("an empty directory is %x", res.Op(3))
	}
}
