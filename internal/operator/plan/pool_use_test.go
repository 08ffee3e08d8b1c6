package plan

import "testing"

// TestPoolUse checks sizes of pools of both families, and that addresses of others do not count.
func TestPoolUse(t *testing.T) {
	for _, c := range []struct {
		pool []string
		vips []string
		want PoolUse
	}{
		{nil, nil, PoolUse{}},
		{[]string{"192.0.2.10"}, []string{"192.0.2.10", "192.0.2.11", ""}, PoolUse{1, 1}},
		{[]string{"192.0.2.10-192.0.3.9", "198.51.100.0/24"}, []string{"192.0.2.255", "198.51.100.7"}, PoolUse{256 + 254, 2}},
		{[]string{"2001:db8::1-2001:db8::1:0"}, []string{"2001:db8::ffff"}, PoolUse{1 << 16, 1}},
		{[]string{"2001:db8::/64"}, nil, PoolUse{1<<64 - 2, 0}},
	} {
		p, problems := parsePool(c.pool)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		var exports []Export
		for _, v := range c.vips {
			exports = append(exports, Export{VIP: v})
		}
		if got := p.use(exports); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.pool, got, c.want)
		}
	}
}
