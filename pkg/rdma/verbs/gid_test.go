package verbs

import (
	"net/netip"
	"testing"
	"testing/fstest"
)

func TestGID(t *testing.T) {
	for _, c := range []struct {
		raw  [16]byte
		want netip.Addr
	}{
		{[16]byte{}, netip.Addr{}},
		{[16]byte{10: 0xff, 11: 0xff, 12: 10, 15: 5}, netip.MustParseAddr("10.0.0.5")},
		{[16]byte{0: 0xfe, 1: 0x80, 15: 1}, netip.MustParseAddr("fe80::1")},
	} {
		if got := gidOf(c.raw); got != c.want {
			t.Errorf("GID %x is %v, want %v", c.raw, got, c.want)
		}
	}
}

func TestGIDType(t *testing.T) {
	sys := fstest.MapFS{"class/infiniband/mlx5_0/ports/2/gid_attrs/types/11": {Data: []byte("RoCE v2\n")}}
	if got := gidType(sys, "mlx5_0", 2, 11); got != "RoCE v2" {
		t.Errorf("%q, want RoCE v2", got)
	}
	if got := gidType(sys, "mlx5_0", 2, 12); got != "" {
		t.Errorf("%q for an empty place", got)
	}
}
