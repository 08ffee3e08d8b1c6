package backend

import (
	"cmp"
	"net"
	"reflect"
	"slices"
	"strconv"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// remote forwards calls to an NFS server elsewhere. While the server is unreachable, calls wait.
type remote struct {
	settings settings
	srv      *proxy.Server
	keys     *Keys
	signer   *sign.Signer
}

// settings are the fixed parameters of an open remote backend.
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
	// extensions of RPC-over-RDMA version 2, on RDMA.
	extensions rpcrdma.Extensions
	dialect    wire.Dialect
	rfc5666    rpcrdma.RFC5666
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
		s.rfc5666 = names.MustRFC5666(r.RFC5666)
		// The other extensions cost memory: only configured ones are offered.
		s.dialect = names.MustDialect(x.Transport.Version2Dialect)
		s.extensions = rpcrdma.TransportProperties | names.MustExtensions(x.Transport.Extensions)
	}
	s.identity, s.signHandles, s.gss = string(x.Identity()), x.SignHandles, x.GSS
	return s
}

func openRemote(env *Env, x *config.Export) (_ *remote, err error) {
	r := &remote{settings: settingsOf(x), keys: env.Keys}
	if r.signer, err = r.keys.signer(x); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.keys.release(r.signer)
		}
	}()
	var provider rdma.Provider
	switch {
	case r.settings.network != config.RDMA:
	case r.settings.provider == config.Verbs:
		provider, err = env.Provider(r.settings.device, r.settings.verbs)
	default:
		provider, err = iwarp.New(iwarp.Config{Logger: env.Log})
	}
	if err != nil {
		return nil, err
	}
	s := &r.settings.server
	r.srv, err = proxy.New(proxy.Config{
		UID: []byte(r.settings.identity), Network: string(r.settings.network), Server: s.Server, Port: s.Port, MountPort: s.MountPort, Path: s.Path, Within: s.Within, Provider: provider, Extensions: r.settings.extensions, Dialect: r.settings.dialect, RFC5666: r.settings.rfc5666,
		V3: r.settings.v3, Minor: r.settings.minor, Signer: r.signer, GSS: r.settings.gss == config.GSSPassThrough, SoftTimeout: time.Duration(s.SoftTimeout),
		Access: Rules(x.Access), Pool: env.Pool, WaitLimit: int64(x.Limits.Memory) / 2, Logger: env.Log,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *remote) handler() oncrpc.Handler { return r.srv }

func (r *remote) Same(x *config.Export) bool { return reflect.DeepEqual(r.settings, settingsOf(x)) }

func (r *remote) Update(x *config.Export) error { return r.srv.SetAccess(Rules(x.Access)) }

func (r *remote) unreachable() bool {
	st := r.srv.Status()
	return !st.Healthy || st.RootError != "" && len(st.Versions) == 0
}

func (r *remote) Status() status.Backend { return r.settings.status(r.srv.Status()) }

// status describes the backend from the status of its proxy.
func (p *settings) status(st proxy.Status) status.Backend {
	s := status.Backend{
		Kind: "nfs", Server: net.JoinHostPort(p.server.Server, strconv.Itoa(p.server.Port)), Path: p.server.Path,
		Healthy: st.Healthy, Identity: "the callers' uids and gids, as the server allows",
		Versions: st.Versions,
		Remote: &status.Remote{
			Since: st.Since, Connections: st.Connections, Detached: st.Detached, Calls: st.Calls, WaitingBytes: st.WaitBytes, Ports: st.Ports,
		},
	}
	if p.network == config.RDMA {
		s.Kind = "rdma"
	}
	if st.RDMA != nil {
		s.RDMA = conns.RDMAStatus(st.RDMA)
	}
	switch { // the backend is healthy all the same
	case st.MountError == "":
	case slices.Contains(st.Versions, string(config.NFSv3)):
		s.Notes = []string{"version 3 uses the last known root: " + st.MountError}
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

// Expel returns false: a proxy has no state.
func (r *remote) Expel(string) bool { return false }

func (r *remote) Collect(s metric.Sink) {
	st := r.srv.Status()
	s.Gauge(connectionsDesc, float64(st.Connections))
	s.Gauge(detachedDesc, float64(st.Detached))
	s.Gauge(callsDesc, float64(st.Calls))
	s.Gauge(waitingBytesDesc, float64(st.WaitBytes))
	s.Gauge(orphanedBytesDesc, float64(st.OrphanedBytes))
	s.Gauge(portsDesc, float64(st.Ports))
	s.Counter(dialsDesc, st.Dials-st.DialErrors, "ok")
	s.Counter(dialsDesc, st.DialErrors, "error")
	s.Counter(resendsDesc, st.Resends)
	s.Counter(overloadsDesc, st.Overloads)
	s.Counter(delayedDesc, st.Delayed)
	s.Counter(callbacksDesc, st.Callbacks)
	s.Counter(unreadableDesc, st.Unreadable)
}

func (r *remote) close() error {
	defer r.keys.release(r.signer)
	return r.srv.Close()
}
