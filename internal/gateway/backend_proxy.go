package gateway

import (
	"cmp"
	"net"
	"reflect"
	"slices"
	"strconv"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// remote is an NFS server elsewhere, to which calls are forwarded. It need not be there: calls wait for it.
type remote struct {
	is      settings
	srv     *proxy.Server
	gateway *Gateway
	signer  *sign.Signer
}

// settings are what cannot change of a remote backend while it is open.
type settings struct {
	network     config.Network
	server      config.NFSServer // without Versions
	provider    config.Provider  // and device: on RDMA
	device      string
	verbs       *config.VerbsOptions
	v3          bool
	minor       [3]bool
	identity    string
	signHandles config.SignHandles
	gss         config.GSS
	// extensions are those of RPC-over-RDMA version 2 that a backend on that network is offered.
	extensions rpcrdma.Extensions
}

func settingsOf(x *config.Export) (s settings) {
	s.server, s.network, _ = x.Backend.Remote()
	for _, v := range s.server.Versions {
		switch v {
		case config.NFSv3:
			s.v3 = true
		case config.NFSv40:
			s.minor[0] = true
		case config.NFSv41:
			s.minor[1] = true
		case config.NFSv42:
			s.minor[2] = true
		}
	}
	s.server.Versions = nil
	if r := x.Backend.RDMA; r != nil {
		s.provider, s.device, s.verbs = cmp.Or(r.Provider, config.IWARP), r.Device, r.Verbs
		// What costs memory is for those who asked for it.
		s.extensions = rpcrdma.TransportProperties | extensions(&x.Transport)
	}
	s.identity, s.signHandles, s.gss = string(x.Identity()), x.SignHandles, x.GSS
	return s
}

func openRemote(o *opened, x *config.Export) (_ *remote, err error) {
	r := &remote{is: settingsOf(x), gateway: o.e.gateway}
	if r.signer, err = r.gateway.signer(x); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.gateway.dropSigner(r.signer)
		}
	}()
	var provider rdma.Provider
	switch {
	case r.is.network != config.RDMA:
	case r.is.provider == config.Verbs:
		provider, err = r.gateway.provider(r.is.device, r.is.verbs)
	default:
		provider, err = iwarp.New(iwarp.Config{Logger: o.e.log})
	}
	if err != nil {
		return nil, err
	}
	s := &r.is.server
	r.srv, err = proxy.New(proxy.Config{
		UID: []byte(r.is.identity), Network: string(r.is.network), Server: s.Server, Port: s.Port, MountPort: s.MountPort, Path: s.Path, Within: s.Within, Provider: provider, Extensions: r.is.extensions,
		V3: r.is.v3, Minor: r.is.minor, Signer: r.signer, GSS: r.is.gss == config.GSSPassThrough, SoftTimeout: time.Duration(s.SoftTimeout),
		Access: rules(x.Access), Pool: o.pool, WaitLimit: int64(x.Limits.Memory) / 2, Logger: o.e.log,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *remote) handler() oncrpc.Handler { return r.srv }

func (r *remote) same(x *config.Export) bool { return reflect.DeepEqual(r.is, settingsOf(x)) }

func (r *remote) setAccess(rs []config.AccessRule) error { return r.srv.SetAccess(rules(rs)) }

func (r *remote) away() bool {
	st := r.srv.Status()
	return !st.Healthy || st.RootError != "" && len(st.Versions) == 0
}

func (r *remote) status() status.Backend { return r.is.status(r.srv.Status()) }

// status tells of the backend what its proxy does.
func (is *settings) status(st proxy.Status) status.Backend {
	s := status.Backend{
		Kind: "nfs", Server: net.JoinHostPort(is.server.Server, strconv.Itoa(is.server.Port)), Path: is.server.Path,
		Healthy: st.Healthy, Identity: "the callers' uids and gids, as the server allows",
		Versions: st.Versions,
		Remote: &status.Remote{
			Since: st.Since, Connections: st.Connections, Detached: st.Detached, Calls: st.Calls, WaitingBytes: st.WaitBytes, Ports: st.Ports,
		},
	}
	if is.network == config.RDMA {
		s.Kind = "rdma"
	}
	switch { // the backend is no less healthy for that
	case st.MountError == "":
	case slices.Contains(st.Versions, string(config.NFSv3)):
		s.Notes = []string{"version 3 is mounted by the root that was known before: " + st.MountError}
	default:
		s.Notes = []string{"version 3 cannot be mounted: " + st.MountError}
	}
	switch {
	case !st.Healthy && st.Err != nil:
		s.Error = st.Err.Error()
	case st.Healthy && st.RootError != "":
		s.Healthy, s.Error = false, st.RootError
		s.Refused, s.AskedFrom, s.AskedAddress = true, int(st.RootFrom.Port()), st.RootFrom.Addr().Unmap()
	}
	return s
}

func (r *remote) collect(counter counterFunc, gauge gaugeFunc) {
	st := r.srv.Status()
	gauge(linksDesc, float64(st.Connections))
	gauge(detachedDesc, float64(st.Detached))
	gauge(unansweredDesc, float64(st.Calls))
	gauge(waitBytesDesc, float64(st.WaitBytes))
	gauge(orphanedBytesDesc, float64(st.OrphanedBytes))
	gauge(portsDesc, float64(st.Ports))
	counter(dialsDesc, st.Dials-st.DialErrors, "ok")
	counter(dialsDesc, st.DialErrors, "error")
	counter(resendsDesc, st.Resends)
	counter(overloadsDesc, st.Overloads)
	counter(delayedDesc, st.Delayed)
	counter(callbacksDesc, st.Callbacks)
	counter(unreadableDesc, st.Unreadable)
}

func (r *remote) close() error {
	defer r.gateway.dropSigner(r.signer)
	return r.srv.Close()
}
