package server

import (
	"os"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/pkg/xdr"
)

func TestOwnersAreNames(t *testing.T) {
	s := newTreeSession4(t, func(c *Config) { c.NFS4.IDDomain = "example.com" })
	owner := func() (user, group string) {
		var d xdr.Decoder
		a := s.attrs4("file", nfs4.AttrOwner, nfs4.AttrOwnerGroup)
		d.ResetBytes(a.Values)
		return d.String(nfs4.MaxOpaque), d.String(nfs4.MaxOpaque)
	}
	set := func(want nfs4.Status, value string, attr uint32) {
		t.Helper()
		got := s.do(putRoot, Op(int(nfs4.OpLookup), "file"), setAttr4(Attrs([]uint32{attr}, value)))
		expect(t, value, got, want)
	}
	if u, g := owner(); u != "root@example.com" || g != "root@example.com" {
		t.Errorf("owner %q, group %q", u, g)
	}
	const unknown = 3_999_999_999
	s.must(os.Chown(s.dir+"/file", unknown, unknown))
	if u, g := owner(); u != "3999999999" || g != "3999999999" {
		t.Errorf("owner %q, group %q", u, g)
	}
	set(nfs4.OK, "root@EXAMPLE.com", nfs4.AttrOwner)
	set(nfs4.OK, "0", nfs4.AttrOwnerGroup)
	if u, g := owner(); u != "root@example.com" || g != "root@example.com" {
		t.Errorf("owner %q, group %q", u, g)
	}
	for _, bad := range []string{"root@other.example", "root", "@example.com", "there is no such user@example.com", "root@"} {
		set(nfs4.ErrBadOwner, bad, nfs4.AttrOwner)
		set(nfs4.ErrBadOwner, bad, nfs4.AttrOwnerGroup)
	}
}
