package server

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
	"sluice.dev/sluice/test/prereq"
)

func drawACL(t *rapid.T) []vfs.ACLEntry {
	perm := rapid.Uint16Range(0, 7)
	list := modeACL(rapid.Uint32Range(0, 0o777).Draw(t, "mode"))
	for _, tag := range []vfs.ACLTag{vfs.ACLUser, vfs.ACLGroup} {
		for id := range rapid.Uint32Range(0, 3).Draw(t, "entries") {
			list = append(list, vfs.ACLEntry{Tag: tag, Perm: perm.Draw(t, "perm"), ID: 1000 + id})
		}
	}
	return withMask(list)
}

// withMask adds the mask that POSIX wants with users or groups: all that they grant together.
func withMask(list []vfs.ACLEntry) []vfs.ACLEntry {
	mask := uint16(0)
	for _, e := range list {
		if e.Tag == vfs.ACLUser || e.Tag == vfs.ACLGroup || e.Tag == vfs.ACLGroupObj {
			mask |= e.Perm
		}
	}
	if len(list) > 3 {
		list = append(list, vfs.ACLEntry{Tag: vfs.ACLMask, Perm: mask})
	}
	return sorted(list)
}

func sorted(list []vfs.ACLEntry) []vfs.ACLEntry {
	slices.SortFunc(list, func(a, b vfs.ACLEntry) int {
		return cmp.Or(cmp.Compare(a.Tag, b.Tag), cmp.Compare(a.ID, b.ID))
	})
	return list
}

func aces(t testing.TB, list []vfs.ACLEntry, dir bool, flags uint32) []nfs4.ACE {
	t.Helper()
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 1<<14), nil)
	w := aclWriter{c: &compound{}, e: &e, dir: dir, flags: flags}
	w.write(list)
	var out []nfs4.ACE
	var d xdr.Decoder
	for d.ResetBytes(e.Bytes()); d.Left() > 0; {
		var a nfs4.ACE
		a.Decode(&d)
		out = append(out, a)
	}
	return out
}

// A POSIX list survives the way to version 4 and back, as a default list too.
func TestACLMapping(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		access, inherited := drawACL(r), drawACL(r)
		dir := rapid.Bool().Draw(r, "dir")
		list := aces(t, access, dir, 0)
		if dir {
			list = append(list, aces(t, inherited, dir, aceInheritance)...)
		} else {
			inherited = nil
		}
		gotAccess, gotInherited, st := (&compound{}).readACL(list, dir)
		if st != nfs4.OK || !slices.Equal(sorted(gotAccess), access) || !slices.Equal(sorted(gotInherited), inherited) {
			r.Fatalf("%v\n%v became\n%v, and\n%v became\n%v", st, access, gotAccess, inherited, gotInherited)
		}
	})
}

// The list of a file with a mode alone grants that mode, by the rule of RFC 8881 section 6.3.2.
func TestModeOfACL(t *testing.T) {
	for mode := range uint32(0o1000) {
		got := uint32(0)
		for _, who := range []string{"OWNER@", "GROUP@", "EVERYONE@"} {
			granted, decided := uint32(0), uint32(0)
			for _, a := range aces(t, modeACL(mode), false, 0) {
				if string(a.Who) != who && string(a.Who) != "EVERYONE@" {
					continue
				}
				if a.Type == nfs4.ACEAllow {
					granted |= a.Mask &^ decided
				}
				decided |= a.Mask
			}
			got = got<<3 | uint32(permBits(granted, false))
		}
		if got != mode {
			t.Errorf("the list of mode %o grants %o", mode, got)
		}
	}
}

// In a list of version 4 the first entry with a bit decides. POSIX may grant
// less, never more.
func TestACLNeverGrantsMore(t *testing.T) {
	who := []string{"OWNER@", "GROUP@", "EVERYONE@", "1000", "1001"}
	rapid.Check(t, func(r *rapid.T) {
		var list []nfs4.ACE
		for range rapid.IntRange(0, 6).Draw(r, "entries") {
			a := nfs4.ACE{Type: rapid.Uint32Range(0, 1).Draw(r, "type"), Who: []byte(rapid.SampledFrom(who).Draw(r, "who"))}
			a.Mask = aceBits(rapid.Uint16Range(0, 7).Draw(r, "perm"), false)
			if a.Who[0] == '1' && rapid.Bool().Draw(r, "group") {
				a.Flags = nfs4.ACEIdentifierGroup
			}
			list = append(list, a)
		}
		access, _, st := (&compound{}).readACL(list, false)
		if st != nfs4.OK {
			r.Fatal(st)
		}
		// Somebody who is neither owner nor in a named group.
		for _, uid := range []string{"1000", "1001", "1002"} {
			granted, decided := uint32(0), uint32(0)
			for _, a := range list {
				applies := string(a.Who) == "EVERYONE@" || string(a.Who) == uid && a.Flags == 0
				if applies && a.Type == nfs4.ACEAllow {
					granted |= a.Mask &^ decided
				}
				if applies {
					decided |= a.Mask
				}
			}
			perm := uint16(0)
			mask := uint16(7)
			for _, e := range access {
				if e.Tag == vfs.ACLMask {
					mask = e.Perm
				}
			}
			named := false
			for _, e := range access {
				switch {
				case e.Tag == vfs.ACLUser && fmt.Sprint(e.ID) == uid:
					perm, named = e.Perm&mask, true
				case e.Tag == vfs.ACLOther && !named:
					perm = e.Perm
				}
			}
			if more := perm &^ permBits(granted, false); more != 0 {
				r.Fatalf("uid %s got %o more than\n%+v\nby\n%v", uid, more, list, access)
			}
		}
	})
}

// Lists are set and read through the server, on a file system that has them.
func TestACL4(t *testing.T) {
	s := newTreeSession4(t, nil)
	if !s.env.s.fs.Capabilities().ACLs {
		if a := s.attrs4("file", nfs4.AttrACL); !a.Mask.Empty() {
			t.Error("acl is not supported and was returned")
		}
		prereq.Missing(t, "the file system has no access control lists")
	}
	ace := func(kind, flags, mask int, who string) Raw { return Fields(kind, flags, mask, who) }
	set := func(name string, want nfs4.Status, list ...Raw) {
		t.Helper()
		value := Fields(len(list), slices.Concat(list...))
		expect(t, "acl of "+name, s.do(putRoot, lookup4(name), setAttr4(Attrs([]uint32{nfs4.AttrACL}, value))), want)
	}
	rw := int(nfs4.ACEReadData | aceWrite)
	read := nfs4.ACEReadData
	set("file", nfs4.OK, ace(0, 0, rw, "OWNER@"), ace(0, 0, read, "1234"), ace(0, nfs4.ACEIdentifierGroup, read, "77"), ace(0, nfs4.ACEIdentifierGroup, read, "GROUP@"))
	list := nfs4.DecodeACL(values(s.attrs4("file", nfs4.AttrACL)), nil)
	got := map[string]bool{}
	for _, a := range list {
		if a.Type == nfs4.ACEAllow && a.Mask&nfs4.ACEReadData != 0 {
			got[string(a.Who)] = true
		}
	}
	if len(got) != 4 || !got["1234"] || !got["77"] || !got["OWNER@"] || !got["GROUP@"] {
		t.Errorf("who may read: %v", got)
	}
	if st := s.lstat("file"); st.Mode&0o777 != 0o640 {
		t.Errorf("mode is %o", st.Mode)
	}
	set("dir", nfs4.OK, ace(0, 0, rw, "OWNER@"), ace(0, aceInheritance, rw, "OWNER@"), ace(0, aceInheritance, read, "1234"))
	s.must(unix.Mkdir(s.path("dir/child"), 0o777))
	if _, err := unix.Getxattr(s.path("dir/child"), "system.posix_acl_default", nil); err != nil {
		t.Errorf("a new directory inherited no list: %v", err)
	}
	set("file", nfs4.ErrAttrNotSupp, ace(2, 0, rw, "OWNER@"))
	set("file", nfs4.ErrInval, ace(0, nfs4.ACEFileInherit, rw, "OWNER@"))
	set("file", nfs4.ErrInval, ace(0, nfs4.ACENoPropagate, rw, "OWNER@"))
	set("file", nfs4.ErrBadOwner, ace(0, 0, rw, "nobody special"))
	set("link", nfs4.ErrAttrNotSupp, ace(0, 0, rw, "OWNER@"))
}
