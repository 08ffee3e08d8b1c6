package v1alpha1

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// TestSparse: a file without defaults parses to the original, and contains only fields that were
// set.
func TestSparse(t *testing.T) {
	plain := func(name, port string) Export {
		e := DefaultExport()
		e.Name, e.UID = name, "0123-4567"
		e.Listeners = []Listener{{Network: RDMA, Address: "127.0.0.1:" + port}, {Network: TCP, Address: "127.0.0.2:" + port}}
		nfs := DefaultNFSServer()
		nfs.Server, nfs.Path = "filer.example", "/vol"
		e.Backend.NFS = &nfs
		e.Access = []AccessRule{{From: AccessFrom{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Mode: ReadOnly, Squash: SquashRoot}}
		return e
	}
	a, b := plain("a", "2049"), plain("b", "2050")
	d := plain("d", "2051")
	d.UID, d.Backend = "", Backend{Volume: DefaultVolume("/srv/data")}
	e := plain("e", "2052")
	e.UID, e.Backend = "", Backend{Volume: &Volume{Path: "/srv/e", NFS4: NFS4{Lease: Duration(time.Minute), Grace: Duration(2 * time.Minute), Clients: 3, Opens: 4, Locks: 5, Delegations: 6, Sessions: SessionsPersistent}}}
	b.UID = "0123-4568"
	b.Listeners[0].Options = &ListenerOptions{Spin: Duration(time.Millisecond)}
	b.Backend = Backend{RDMA: &RDMAServer{Server: "other.example", Port: 20049, Path: "/x", Versions: []NFSVersion{NFSv42}, SoftTimeout: Duration(time.Minute)}}
	b.Access = []AccessRule{{From: AccessFrom{NetworkSets: []string{"nodes"}}, Mode: ReadWrite, Squash: SquashNone}}
	b.Transport.RPCRDMAVersions = []int{1, 2}
	b.Transport.Extensions = []Extension{}
	b.Transport.RemoteInvalidation = false
	b.Transport.Credits = Credits{Policy: Adaptive, Max: 64, Memory: 64 << 20}
	b.Limits.Memory = 8 << 20
	c := Default()
	c.APIVersion, c.Kind = APIVersion, Kind
	c.Log.Format, c.Limits.Memory = "json", 1<<30
	c.NetworkSets = []NetworkSet{{Name: "nodes", Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}}
	c.Exports = []Export{a, b, d, e}
	for i := range c.Exports {
		c.Exports[i].Complete()
	}
	c.Resolve()
	text, err := yaml.Marshal(c.Sparse())
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(text)
	if err != nil || len(f.Refused) > 0 {
		t.Fatalf("%v %+v\n%s", err, f, text)
	}
	if !reflect.DeepEqual(f.Config, c) {
		t.Errorf("read as\n%+v\nof\n%+v\n%s", f.Config, c, text)
	}
	for i := range c.Exports {
		if got, want := f.Config.Exports[i].Hash(), c.Exports[i].Hash(); got != want {
			t.Errorf("%s: hash %s, want %s", c.Exports[i].Name, got, want)
		}
	}
	first, _, _ := strings.Cut(string(text[strings.Index(string(text), "exports:"):]), "name: b")
	for _, field := range []string{"transport", "mode", "squash", "port", "options", "drainTimeout", "memoryPerConnection"} {
		if strings.Contains(strings.Split(first, "- access:")[1], field+":") {
			t.Errorf("the first export has the default %s:\n%s", field, first)
		}
	}
}
