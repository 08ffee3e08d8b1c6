package gateway

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

func TestAnnounceExport(t *testing.T) {
	rdma := func(address string) status.Listener {
		return status.Listener{Network: config.RDMA, Provider: config.IWARP, Configured: address, Address: address, State: status.Listening}
	}
	tcp := func(address string) status.Listener {
		return status.Listener{Network: config.TCP, Configured: address, Address: address, State: status.Listening}
	}
	busy := tcp("10.0.0.1:2049")
	busy.State, busy.Error, busy.Address = status.Retrying, "bind: cannot assign requested address", ""
	x := &config.Export{Access: []config.AccessRule{
		{From: config.AccessFrom{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}, Mode: config.ReadWrite, Squash: config.SquashNone},
		{From: config.AccessFrom{Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, Mode: config.ReadOnly, Squash: config.SquashAll},
	}}
	backend := status.Backend{Path: "/srv", Identity: "the callers' uids and gids"}
	filer := status.Backend{Kind: "rdma", Server: "filer:20049", Path: "/vol", Identity: backend.Identity}
	remote := func(versions ...config.NFSVersion) *config.Export {
		return &config.Export{Access: x.Access, Backend: config.Backend{RDMA: &config.RDMAServer{Versions: versions}}}
	}
	const rest = `
  versions      3, 4.1, 4.2
  clients       10.0.0.0/8, fd00::/8: read and write, identities as they are
  clients       0.0.0.0/0: read only, everybody mapped to nobody
  files         accessed as the callers' uids and gids
`
	for _, tt := range []struct {
		name   string
		status status.Export
		x      *config.Export
		want   string
	}{
		{"loopback", status.Export{Name: "a", Backend: backend, Listeners: []status.Listener{rdma("127.0.0.1:20049"), tcp("127.0.0.1:2049")}}, x, `
export a: /srv
  rdma (iwarp)  127.0.0.1:20049        mount -t nfs -o vers=4.2,proto=rdma,port=20049 127.0.0.1:/ /mnt
  tcp           127.0.0.1:2049         mount -t nfs -o vers=4.2,proto=tcp,port=2049 127.0.0.1:/ /mnt` + rest},
		{"wildcard and IPv6", status.Export{Name: "a", Backend: backend, Listeners: []status.Listener{rdma("[::]:20049"), tcp("[fd00::1]:2049")}}, x, `
export a: /srv
  rdma (iwarp)  [::]:20049             mount -t nfs -o vers=4.2,proto=rdma,port=20049 HOST:/ /mnt
  tcp           [fd00::1]:2049         mount -t nfs -o vers=4.2,proto=tcp,port=2049 [fd00::1]:/ /mnt` + rest},
		{"version 3 alone", status.Export{Name: "a", Backend: filer, Listeners: []status.Listener{rdma("127.0.0.1:20049"), tcp("127.0.0.1:2049")}}, remote("3"), `
export a: rdma filer:20049:/vol
  rdma (iwarp)  127.0.0.1:20049        mount -t nfs -o vers=3,proto=rdma,port=20049,mountport=2049,mountproto=tcp,nolock 127.0.0.1:/ /mnt
  tcp           127.0.0.1:2049         mount -t nfs -o vers=3,proto=tcp,port=2049,mountport=2049,mountproto=tcp,nolock 127.0.0.1:/ /mnt` +
			strings.Replace(rest, "versions      3, 4.1, 4.2", "versions      3", 1)},
		{"no MOUNT", status.Export{Name: "a", Backend: filer, Listeners: []status.Listener{rdma("127.0.0.1:20049"), busy}}, remote("3"), `
export a: rdma filer:20049:/vol
  rdma (iwarp)  127.0.0.1:20049        no tcp listener serves MOUNT: Linux clients cannot mount this
  tcp           10.0.0.1:2049: bind: cannot assign requested address; retrying` +
			strings.Replace(rest, "versions      3, 4.1, 4.2", "versions      3", 1)},
		{"a server", status.Export{Name: "a", Backend: filer, Listeners: []status.Listener{rdma("127.0.0.1:20049")}}, remote("4.2", "3", "4.0"), `
export a: rdma filer:20049:/vol
  rdma (iwarp)  127.0.0.1:20049        mount -t nfs -o vers=4.2,proto=rdma,port=20049 127.0.0.1:/ /mnt` +
			strings.Replace(rest, "versions      3, 4.1, 4.2", "versions      3, 4.0, 4.2", 1)},
		{"not served", status.Export{Name: "a", Error: "it is no directory"}, nil, `
export a is not served: it is no directory
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var b strings.Builder
			announceExport(&b, &tt.status, tt.x)
			if d := cmp.Diff(tt.want, b.String()); d != "" {
				t.Error(d)
			}
		})
	}
}
