package access_test

import (
	"net/netip"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/nfs/access"
)

func networks(s ...string) (p []netip.Prefix) {
	for _, n := range s {
		p = append(p, netip.MustParsePrefix(n))
	}
	return p
}

// TestFind: the first rule with the address decides, whatever the form of the address.
func TestFind(t *testing.T) {
	rs, err := access.NewRules([]access.Rule{
		{Networks: networks("10.1.0.0/16", "fd00::/8")},
		{Networks: networks("10.0.0.0/8"), ReadOnly: true},
		{Networks: networks("::ffff:192.0.2.0/120"), Squash: access.SquashAll},
	})
	if err != nil {
		t.Fatal(err)
	}
	for client, want := range map[string]int{
		"10.1.2.3": 0, "fd00::1": 0, "fd00::1%eth0": 0, "10.2.3.4": 1, "::ffff:10.2.3.4": 1, "192.0.2.9": 2, "192.0.3.9": -1, "::1": -1,
	} {
		got := rs.Find(netip.MustParseAddr(client))
		if want < 0 && got != nil || want >= 0 && got != &rs.All()[want] {
			t.Errorf("%s is under rule %+v, want that with index %d", client, got, want)
		}
	}
}

func TestNewRulesRefuses(t *testing.T) {
	for want, rule := range map[string]access.Rule{
		"Squash is 9": {Squash: 9}, "network 1 is no address prefix": {Networks: append(networks("10.0.0.0/8"), netip.Prefix{})},
	} {
		if _, err := access.NewRules([]access.Rule{{}, rule}); err == nil || !strings.Contains(err.Error(), "access rule 1: "+want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}
