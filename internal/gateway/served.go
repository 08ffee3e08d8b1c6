package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/backend"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/internal/gateway/listen"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

var healthyDesc = metric.Desc("backend_healthy", "1 if the backend answered the last health check, otherwise 0.")

// servedExport is an export while it is served: its memory, backend and ports. start opens them in
// this order, close closes them in reverse order. Apart from status, metrics and configuration, its
// methods belong to the export's goroutine.
type servedExport struct {
	*traffic
	*memory
	name       string
	res        *resources
	drains     sync.WaitGroup // draining servers, and former backends
	drainCtx   context.Context
	abortDrain context.CancelFunc

	mu      sync.Mutex // guards the fields below against readers
	config  *config.Export
	backend *backend.Backend
	ports   []listen.Port
}

// startExport serves the export name as x. After an error it has given everything back.
func startExport(name string, res *resources, t *traffic, x *config.Export) (_ *servedExport, err error) {
	s := &servedExport{traffic: t, name: name, res: res, config: x}
	s.drainCtx, s.abortDrain = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.Background()))
		}
	}()
	if s.memory, err = newMemory(res); err != nil {
		return nil, err
	}
	if s.backend, err = s.openBackend(x); err != nil {
		return nil, err
	}
	s.applyLimits(x)
	go s.trim(s.log, s.drainCtx.Done())
	go s.conns.Sweep(s.drainCtx)
	_, err = s.listen(x)
	return s, err
}

func (s *servedExport) openBackend(x *config.Export) (*backend.Backend, error) {
	return backend.Open(backend.Env{
		Export: s.name, Log: s.log, Pool: s.pool, StateDir: s.res.stateDir, Keys: s.res.keys,
		Provider: s.res.verbsProvider, Decorate: s.res.decorate,
	}, x)
}

// change serves the export as x. If the backend fails, nothing has changed. Errors of listeners
// leave the rest changed.
func (s *servedExport) change(x *config.Export) error {
	old, oldConfig := s.backend, s.config
	current, replaced := old, !old.Same(x)
	var err error
	if replaced {
		current, err = s.openBackend(x)
	} else {
		err = current.Update(x)
	}
	if err != nil {
		return err
	}
	s.applyLimits(x)
	s.mu.Lock()
	s.config, s.backend = x, current
	s.mu.Unlock()
	kept, err := s.listen(x)
	for _, p := range kept {
		if replaced {
			err = errors.Join(err, p.ReplaceServer(config.Reconnect))
		} else if p.Spec().Network == config.RDMA && !reflect.DeepEqual(negotiated(oldConfig), negotiated(x)) {
			err = errors.Join(err, p.ReplaceServer(x.Transport.OnChange))
		}
	}
	if replaced {
		s.drains.Go(func() {
			if err := old.Close(); err != nil {
				s.log.Error("former backend not closed", "error", err)
			}
		})
	}
	return err
}

// negotiated returns the settings that a connection keeps from its start.
func negotiated(x *config.Export) config.Transport {
	t := x.Transport
	t.Credits, t.OnChange = config.Credits{}, ""
	return t
}

// applyLimits sets everything that may change at any time.
func (s *servedExport) applyLimits(x *config.Export) {
	if err := s.credits.setLimits(&x.Transport); err != nil {
		s.log.Error("credits not changed", "error", err)
	}
	s.conns.SetLimits(&x.Limits)
	// the backend has accepted the same rules
	if rs, err := access.NewRules(backend.Rules(x.Access)); err == nil {
		s.conns.SetRules(rs)
	}
	s.setLimits(&x.Limits)
}

// listen opens and closes ports to match x, and returns those that stay. It opens new ports before
// it closes old ones; a new port whose address an old one has retries afterwards.
func (s *servedExport) listen(x *config.Export) (kept []listen.Port, err error) {
	same := func(a, b config.Listener) bool {
		a.RPCBind, b.RPCBind = false, false
		return reflect.DeepEqual(a, b)
	}
	old := s.ports
	var added []listen.Port
	var errs []error
next:
	for _, l := range x.Listeners {
		for i, p := range old {
			if same(p.Spec(), l) {
				kept = append(kept, p)
				p.Register(registered(x, &l))
				old = slices.Concat(old[:i], old[i+1:])
				continue next
			}
		}
		p, err := s.openPort(l)
		if err != nil {
			errs = append(errs, fmt.Errorf("listener %s %s: %w", l.Network, l.Address, err))
			continue
		}
		added = append(added, p)
		p.Register(registered(x, &l))
	}
	s.mu.Lock()
	s.ports = slices.Concat(kept, added)
	s.mu.Unlock()
	var blocked []listen.Port
	for _, p := range added {
		if p.AwaitFirstTry() {
			blocked = append(blocked, p)
		}
	}
	for _, p := range old {
		p.Close()
	}
	if len(old) > 0 {
		for _, p := range blocked {
			p.Retry()
		}
	}
	return kept, errors.Join(errs...)
}

// registered returns the versions of NFS that rpcbind knows at a listener.
func registered(x *config.Export, l *config.Listener) []config.NFSVersion {
	if !l.RPCBind {
		return nil
	}
	return x.Versions()
}

func (s *servedExport) openPort(l config.Listener) (listen.Port, error) {
	if l.Network == config.TCP {
		return listen.OpenPort(l, s.log, s.res.rpcbind(), listen.PortConfig[net.Conn]{
			Bind:      func(ctx context.Context) (listen.Source[net.Conn], error) { return s.bindTCP(ctx, l) },
			NewServer: s.newTCPServer, ClientOf: conns.RemoteOf[net.Conn], Admit: s.admit(conns.TCP), Release: s.conns.Release,
			Refuse: listen.RefuseTCP, Drain: s.drain,
		})
	}
	cfg := listen.PortConfig[rdma.ConnRequest]{
		NewServer: s.newRDMAServer, ClientOf: conns.RemoteOf[rdma.ConnRequest], Admit: s.admit(conns.RDMA), Release: s.conns.Release,
		Refuse: refuseRDMA, Drain: s.drain,
	}
	if l.Provider == config.Verbs {
		a := &adapterPort{res: s.res, memory: s.memory, export: s.currentConfig, spec: l}
		cfg.Bind, cfg.Device = a.bind, a.status
	} else {
		cfg.Bind = s.bindIWARP(l)
	}
	return listen.OpenPort(l, s.log, s.res.rpcbind(), cfg)
}

// bindTCP listens on TCP, for clients that an access rule has.
func (s *servedExport) bindTCP(ctx context.Context, l config.Listener) (listen.Source[net.Conn], error) {
	src, err := listen.BindTCP(ctx, s.res.tcpSockets, l, s.res.resolve(l.Address))
	if err != nil {
		return nil, err
	}
	network := conns.TCP
	if l.Network == config.RDMA {
		network = conns.RDMA
	}
	return listen.Screen(src, func(c net.Conn) bool {
		client := conns.RemoteOf(c)
		if s.conns.Allows(client) {
			return true
		}
		s.conns.Refuse(network, client, conns.ByAccess, "")
		return false
	}), nil
}

// bindIWARP returns the Bind of a port of software iWARP.
func (s *servedExport) bindIWARP(l config.Listener) func(context.Context) (listen.Source[rdma.ConnRequest], error) {
	cfg := iwarp.Config{MaxFPDU: int(l.Options.MaxFPDU), Spin: time.Duration(l.Options.Spin), Logger: s.log}
	cfg.Failed = func(peer net.Addr, cause error) {
		s.conns.Refuse(conns.RDMA, conns.ClientOf(conns.AddrPort(peer).Addr()), conns.ByHandshake, cause.Error())
	}
	if !l.Options.CRC {
		cfg.CRC = iwarp.CRCMirror
	}
	return func(ctx context.Context) (listen.Source[rdma.ConnRequest], error) {
		tcp, err := s.bindTCP(ctx, l)
		if err != nil {
			return nil, err
		}
		src, err := iwarp.NewListener(cfg, tcp)
		if err != nil {
			return nil, errors.Join(err, tcp.Close())
		}
		return src, nil
	}
}

// admit returns the admission check of a network. It counts refusals.
func (s *servedExport) admit(network conns.Network) func(netip.Addr) bool {
	var room func() bool
	if network == conns.RDMA {
		room = s.credits.Room
	}
	return func(client netip.Addr) bool {
		why, ok := s.conns.Admit(client, room)
		if !ok {
			s.conns.Refuse(network, client, why, "")
		}
		return ok
	}
}

// maxConns is above the limit that the configuration allows: the limit belongs to the export, over
// all ports, and conns.Table holds it.
const maxConns = 1 << 20

func (s *servedExport) newTCPServer(l *listen.ChanListener[net.Conn]) (*listen.Server[net.Conn], error) {
	srv, err := oncrpc.NewServer(oncrpc.Config{
		Pool: s.pool, Handler: s.observe(s.backend.Handler()), Bindings: binding.For, Budget: s.budget,
		Observer: tcpObserver{t: s.traffic, ended: l.ConnEnded}, MaxConns: maxConns,
	})
	if err != nil {
		return nil, err
	}
	s.servers.add(srv)
	return newServer(l, s.backend, func() error { return srv.Serve(l) }, func(ctx context.Context) error {
		defer s.servers.remove(srv)
		return srv.Shutdown(ctx)
	}), nil
}

func (s *servedExport) newRDMAServer(l *listen.ChanListener[rdma.ConnRequest]) (*listen.Server[rdma.ConnRequest], error) {
	t := &s.config.Transport
	cfg := rpcrdma.Config{
		Pool: s.pool, Domain: s.iwarp, Handler: s.observe(s.backend.Handler()), Bindings: binding.For, Budget: s.budget,
		InlineCall: int(t.InlineThreshold.Call), InlineReply: int(t.InlineThreshold.Reply), Credits: s.credits.Adaptive,
		RemoteInvalidation: t.RemoteInvalidation, Observer: rdmaObserver{t: s.traffic, ended: l.ConnEnded}, Logger: s.log,
		OwnReceives: ownReceives, Versions: t.RPCRDMAVersions, Extensions: names.MustExtensions(t.Extensions),
		RFC5666: names.MustRFC5666(t.RFC5666), Dialect: names.MustDialect(t.Version2Dialect),
	}
	if c := t.Continuation; c != nil {
		cfg.Continuation = rpcrdma.Continuation(*c)
	}
	if p := t.Placement; p != nil {
		cfg.Placement = rpcrdma.Placement{ReceiveBuffer: int(p.ReceiveBuffer), MinLength: int(p.MinLength)}
	}
	srv, err := rpcrdma.NewServer(cfg, l)
	if err != nil {
		return nil, err
	}
	return newServer(l, s.backend, srv.Serve, srv.Shutdown), nil
}

// newServer returns a server that hands its calls to b. Its shutdown does not wait for an
// unreachable backend.
func newServer[T any](l *listen.ChanListener[T], b *backend.Backend, serve func() error, shutdown func(context.Context) error) *listen.Server[T] {
	b.Acquire()
	return &listen.Server[T]{Listener: l, Serve: serve, Shutdown: func(ctx context.Context) error {
		defer b.Release()
		ctx, cancel := b.UntilUnreachable(ctx)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			return context.Cause(ctx)
		}
		return nil
	}}
}

// drain shuts a server down in the background when wait has returned.
func (s *servedExport) drain(wait func(), shutdown func(context.Context) error) {
	s.drains.Go(func() {
		wait()
		ctx, cancel := context.WithTimeout(s.drainCtx, s.res.drainLimit())
		defer cancel()
		if err := shutdown(ctx); err != nil {
			s.log.Warn("calls in flight cut off", "reason", err)
		}
	})
}

// close drains the export until ctx ends, and gives everything back.
func (s *servedExport) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.abortDrain)()
	defer s.abortDrain()
	for _, p := range s.ports {
		p.Close()
	}
	s.drains.Wait()
	var errs []error
	if s.backend != nil {
		errs = append(errs, s.backend.Close())
	}
	return errors.Join(append(errs, s.memory.close())...)
}

func (s *servedExport) status(st *status.Export) {
	s.mu.Lock()
	x, b, ports := s.config, s.backend, s.ports // ports is never changed in place
	s.mu.Unlock()
	st.Listeners = make([]status.Listener, len(ports))
	for i, p := range ports {
		st.Listeners[i] = p.State()
	}
	st.Backend, st.UID, st.Credits = b.Status(), x.UID, s.credits.status(&x.Transport)
}

func (s *servedExport) expel(client string) bool {
	s.mu.Lock()
	b := s.backend
	s.mu.Unlock()
	return b.Expel(client)
}

// healthy is the health in the last status.
func (s *servedExport) collect(sink metric.Sink, healthy bool) {
	s.mu.Lock()
	x, b := s.config, s.backend
	s.mu.Unlock()
	s.memory.collect(sink, x.Limits.Memory)
	sink.Gauge(healthyDesc, metric.Bool(healthy))
	b.Collect(sink)
}

func (s *servedExport) currentConfig() *config.Export {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}
