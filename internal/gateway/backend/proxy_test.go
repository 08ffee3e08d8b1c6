package backend

import (
	"slices"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/proxy"
)

// TestSameRemote checks which changes need a new backend.
func TestSameRemote(t *testing.T) {
	base := func() *config.Export {
		s := config.DefaultNFSServer()
		s.Server, s.Path = "filer", "/vol"
		x := &config.Export{Name: "a", Backend: config.Backend{NFS: &s}}
		x.Complete()
		return x
	}
	r := &remote{settings: settingsOf(base())}
	for name, tt := range map[string]struct {
		change func(*config.Export)
		same   bool
	}{
		"nothing":     {func(*config.Export) {}, true},
		"access":      {func(x *config.Export) { x.Access = make([]config.AccessRule, 1) }, true},
		"limits":      {func(x *config.Export) { x.Limits.Memory++ }, true},
		"order":       {func(x *config.Export) { v := x.Backend.NFS.Versions; v[0], v[1] = v[1], v[0] }, true},
		"versions":    {func(x *config.Export) { x.Backend.NFS.Versions = x.Backend.NFS.Versions[1:] }, false},
		"server":      {func(x *config.Export) { x.Backend.NFS.Server = "other" }, false},
		"path":        {func(x *config.Export) { x.Backend.NFS.Path = "/" }, false},
		"within":      {func(x *config.Export) { x.Backend.NFS.Within = "/" }, false},
		"softTimeout": {func(x *config.Export) { x.Backend.NFS.SoftTimeout++ }, false},
		"mountPort":   {func(x *config.Export) { x.Backend.NFS.MountPort++ }, false},
		"uid":         {func(x *config.Export) { x.UID = "another one" }, false},
		"sign":        {func(x *config.Export) { x.SignHandles = config.SignRequired }, false},
		"gss":         {func(x *config.Export) { x.GSS = config.GSSPassThrough }, false},
		"volume":      {func(x *config.Export) { x.Backend = config.Backend{Volume: &config.Volume{Path: "/vol"}} }, false},
		"rdma": {func(x *config.Export) {
			s, _, _ := x.Backend.Remote()
			x.Backend = config.Backend{RDMA: &config.RDMAServer{Server: s.Server, Port: s.Port, Path: s.Path, Versions: s.Versions}}
		}, false},
		// on TCP
		"extensions": {func(x *config.Export) { x.Transport.Extensions = []config.Extension{config.SendBasedPlacement} }, true},
	} {
		x := base()
		tt.change(x)
		if r.Same(x) != tt.same {
			t.Errorf("%s: same is %v", name, !tt.same)
		}
	}
	x := base()
	x.Backend = config.Backend{RDMA: &config.RDMAServer{Server: "filer", Path: "/"}}
	far := &remote{settings: settingsOf(x)}
	if x.Transport.Extensions = []config.Extension{config.TransportProperties}; !far.Same(x) {
		t.Error("rdma with TransportProperties, which is always offered: same is false")
	}
	if x.Transport.Extensions = []config.Extension{config.SendBasedPlacement}; far.Same(x) {
		t.Error("rdma with SendBasedPlacement: same is true")
	}
	x.Transport.Extensions = nil
	if x.Backend.RDMA.RFC5666 = []config.RFC5666Form{config.Padding}; far.Same(x) {
		t.Error("rdma with Padding: same is true")
	}
}

// TestRemoteNoMount checks that a backend with version 4 is healthy without MOUNT. The operator
// depends on that.
func TestRemoteNoMount(t *testing.T) {
	for _, tt := range []struct {
		st      proxy.Status
		healthy bool
		err     string
		notes   []string
	}{
		{proxy.Status{Versions: []string{"4.1"}, MountError: "refused"}, true, "", []string{"version 3 cannot be mounted: refused"}},
		{proxy.Status{Versions: []string{"3", "4.1"}, MountError: "refused"}, true, "", []string{"version 3 uses the last known root: refused"}},
		{proxy.Status{Versions: []string{"3", "4.1"}}, true, "", nil},
		{proxy.Status{Versions: []string{"4.1"}, RootError: "NFS3ERR_ACCES"}, false, "NFS3ERR_ACCES", nil},
	} {
		tt.st.Healthy = true
		got := new(settings).status(tt.st)
		if got.Healthy != tt.healthy || got.Refused == tt.healthy || got.Error != tt.err || !slices.Equal(got.Notes, tt.notes) || !slices.Equal(got.Versions, tt.st.Versions) {
			t.Errorf("%+v: %+v, %+v", tt.st, got, got.Remote)
		}
	}
}
