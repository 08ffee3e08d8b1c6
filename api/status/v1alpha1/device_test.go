package v1alpha1

import (
	"net/netip"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

func TestMTUMismatch(t *testing.T) {
	client := func(address, device string, port, mtu int) Client {
		return Client{Network: config.RDMA, Remote: netip.MustParseAddrPort(address), RDMA: &RDMA{QueuePair: &QueuePair{Device: device, Port: port, PathMTU: mtu}}}
	}
	tcp := Client{Network: config.TCP, Remote: netip.MustParseAddrPort("192.0.2.1:700")}
	software := Client{Network: config.RDMA, Remote: netip.MustParseAddrPort("192.0.2.1:700"), RDMA: &RDMA{}}
	for _, c := range []struct {
		name    string
		clients []Client
		want    string // words of the sentence, separated by |
	}{
		{name: "nobody"},
		{name: "no adapter", clients: []Client{tcp, software}},
		{name: "the same MTU", clients: []Client{client("192.0.2.7:9", "mlx5_4", 1, 1024)}},
		{name: "a smaller MTU", clients: []Client{client("192.0.2.7:9", "mlx5_4", 1, 512)}},
		{name: "a port whose MTU is unknown", clients: []Client{client("192.0.2.7:9", "mlx5_4", 2, 4096)}},
		{name: "another device", clients: []Client{client("192.0.2.7:9", "mlx5_5", 1, 4096)}},
		{name: "a larger MTU", clients: []Client{tcp, client("[::ffff:192.0.2.7]:9", "mlx5_4", 1, 4096)},
			want: "client 192.0.2.7 is 4096|active MTU of port 1 of mlx5_4 is 1024"},
		{name: "several", clients: []Client{client("192.0.2.7:9", "mlx5_4", 1, 2048), client("192.0.2.8:9", "mlx5_4", 1, 4096), client("192.0.2.9:9", "mlx5_4", 1, 4096)},
			want: "client 192.0.2.7 is 2048|and 2 more clients"},
	} {
		x := Export{Clients: c.clients, Listeners: []Listener{{}, {Device: &Device{Name: "mlx5_4", Ports: []Port{{Number: 1, ActiveMTU: 1024}, {Number: 2}}}}}}
		got := x.MTUMismatch()
		for word := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(got, word) || (c.want == "") != (got == "") {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
	}
}
