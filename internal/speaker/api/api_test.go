package api

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestParse(t *testing.T) {
	const good = "interface: rdma0\ngroups:\n- {lease: fast-vip-0, addresses: [192.0.2.10, 'fd00::10']}\n- {lease: fast-vip-1, addresses: []}\nnetworks: [192.0.2.0/24]\ngateways: [192.0.2.1, 'fe80::1']\n"
	c, err := Parse([]byte(good))
	if err != nil || len(c.Groups) != 2 || c.Groups[0].Addresses[1].String() != "fd00::10" {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, x := range []struct{ old, new, want string }{
		{"rdma0", "''", "interface: "},
		{"rdma0", "a-name-of-16-chars", "interface: "},
		{"interface: rdma0", "interfaces: rdma0", "unknown field"},
		{"fast-vip-0", "''", "groups[0].lease"},
		{"fast-vip-0", "a/b", "groups[0].lease"},
		{"fast-vip-1", "fast-vip-0", "groups[1].lease: fast-vip-0 is another group's too"},
		{"addresses: []", "addresses: [192.0.2.10]", "groups[1].addresses[0]: 192.0.2.10 is in group fast-vip-0 too"},
		{"192.0.2.10", "224.0.0.1", "groups[0].addresses[0]"},
		{"192.0.2.10", "255.255.255.255", "groups[0].addresses[0]"},
		{"192.0.2.10", "127.0.0.1", "groups[0].addresses[0]"},
		{"fd00::10", "fe80::10", "groups[0].addresses[1]"},
		{"fd00::10", "::ffff:192.0.2.1", "groups[0].addresses[1]"},
		{"192.0.2.0/24", "192.0.2.1/24", "networks[0]"},
		{"192.0.2.0/24", "0.0.0.0/0", "networks[0]"},
		{"192.0.2.1,", "0.0.0.0,", "gateways[0]"},
		{"'fe80::1'", "192.0.2.2", "gateways[1]: 192.0.2.2, want at most one"},
		{"192.0.2.10", "192.0.2.", "ParseAddr"},
	} {
		_, err := Parse([]byte(strings.Replace(good, x.old, x.new, 1)))
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error %v, want %q", x.new, err, x.want)
		}
	}
	if _, err := Parse(make([]byte, MaxFile+1)); err == nil {
		t.Error("a file of any length is read")
	}
}

func TestBounds(t *testing.T) {
	for n, want := range map[int]bool{MaxGroups: true, MaxGroups + 1: false} {
		c := Config{Interface: "rdma0"}
		for i := range n {
			c.Groups = append(c.Groups, Group{Lease: "vip-" + strings.Repeat("x", i)})
		}
		if err := c.check(); (err == nil) != want {
			t.Errorf("%d groups: %v", n, err)
		}
	}
}

func TestIdentity(t *testing.T) {
	if pod, uid := PodOf(Identity("fast-0", "4711")); pod != "fast-0" || uid != "4711" {
		t.Errorf("%q, %q", pod, uid)
	}
	if pod, uid := PodOf("by-hand"); pod != "by-hand" || uid != "" {
		t.Errorf("%q, %q", pod, uid)
	}
}

// FuzzParse: an accepted Config is within the bounds, and is accepted again when it is written.
func FuzzParse(f *testing.F) {
	f.Add([]byte("interface: rdma0\ngroups: [{lease: a, addresses: [192.0.2.1, 'fd00::1']}]\nnetworks: [192.0.2.0/24]\ngateways: [192.0.2.1]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			return
		}
		again, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := Parse(again); err != nil || len(c.Groups) > MaxGroups {
			t.Fatalf("%v\n%s", err, again)
		}
	})
}
