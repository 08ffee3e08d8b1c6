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
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// opened is an export that is served: its memory, its protection domain, its backend and its ports, made in this order
// and given back in the other one. Its methods are called on the export's goroutine, but for those that only look.
type opened struct {
	e      *export
	pool   *bufpool.Pool
	budget *bufpool.Budget
	domain rdma.Domain    // of iwarp
	drains sync.WaitGroup // servers that end, and backends that wait for them
	hurry  context.Context
	now    context.CancelFunc // cancels hurry: what drains ends at once

	mu      sync.Mutex // guards what is below against those that only look
	have    *config.Export
	backend *held
	ports   []port
	domains map[rdma.Provider]rdma.Domain // of verbs; see domainOn
}

// start serves the export as x says. Nothing is left of it after an error.
func (e *export) start(x *config.Export) (_ *opened, err error) {
	o := &opened{e: e, pool: bufpool.New(0), budget: bufpool.NewBudget(0, 0), have: x}
	o.budget.Under(e.gateway.total.memory)
	if e.gateway.first.Memory.HugePages {
		o.pool.UseHugePages(e.gateway.noHugePages)
	}
	o.hurry, o.now = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, o.close(context.Background()))
		}
	}()
	provider, err := iwarp.New(iwarp.Config{})
	if err != nil {
		return nil, err
	}
	if o.domain, err = provider.NewDomain(); err != nil {
		return nil, fmt.Errorf("protection domain: %w", err)
	}
	if err := o.domain.Register(o.pool); err != nil {
		return nil, fmt.Errorf("registering memory: %w", err)
	}
	if o.backend, err = o.openBackend(x); err != nil {
		return nil, err
	}
	o.limits(x)
	go o.trim()
	go e.clients.sweep(o.hurry)
	_, err = o.listen(x)
	return o, err
}

// trimEvery is how long memory is unused before it goes back to the system, at the least.
const trimEvery = time.Minute

// trim gives unused memory back to the system until the export is closed.
func (o *opened) trim() {
	t := time.NewTicker(trimEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := o.pool.Trim(); err != nil {
				o.e.log.Error("unused memory was not given back", "error", err)
			}
		case <-o.hurry.Done():
			return
		}
	}
}

// change serves the export as x says, from what it is now. After an error it is as before, but for what can be told from /status.
func (o *opened) change(x *config.Export) error {
	have := o.have
	// A new backend is opened first: if that fails, nothing has happened.
	backend, fresh := o.backend, !o.backend.same(x)
	var err error
	if fresh {
		backend, err = o.openBackend(x)
	} else {
		err = backend.setAccess(x.Access)
	}
	if err != nil {
		return err
	}
	o.limits(x)
	old := o.backend
	o.mu.Lock()
	o.have, o.backend = x, backend
	o.mu.Unlock()
	kept, err := o.listen(x)
	// What was settled when a client connected cannot change for it: it has to connect again.
	settled := func(e *config.Export) any {
		t := e.Transport
		t.Credits, t.OnChange = config.Credits{}, ""
		return t
	}
	for _, p := range kept {
		if fresh {
			err = errors.Join(err, p.renew(config.Reconnect))
		} else if p.spec().Network == config.RDMA && !reflect.DeepEqual(settled(have), settled(x)) {
			err = errors.Join(err, p.renew(x.Transport.OnChange))
		}
	}
	if fresh {
		o.drains.Go(func() {
			if err := old.close(); err != nil {
				o.e.log.Error("the former backend", "error", err)
			}
		})
	}
	return err
}

// limits sets what can change at any time.
func (o *opened) limits(x *config.Export) {
	o.e.setCredits(&x.Transport)
	c := &o.e.clients
	c.limit.Store(int64(x.Limits.Connections))
	c.perClient.Store(int64(x.Limits.ConnectionsPerClient))
	c.idle.Store(&x.Limits.IdleTimeout)
	if rs, err := access.NewRules(rules(x.Access)); err == nil { // the backend has taken the same ones
		c.rules.Store(rs)
	}
	l := &x.Limits
	o.budget.SetLimits(bufpool.Limits{
		Total: int64(l.Memory), PerClient: int64(l.MemoryPerClient), PerShare: int64(l.MemoryPerConnection), MinProgress: int64(l.MinProgress),
	})
}

// listen makes the ports those of x, and returns those that were there before. New ones are opened before old ones are
// closed, but for one that waits for the address of an old one.
func (o *opened) listen(x *config.Export) (kept []port, err error) {
	same := func(a, b config.Listener) bool {
		a.RPCBind, b.RPCBind = false, false
		return reflect.DeepEqual(a, b)
	}
	left := o.ports
	var added []port
	var errs []error
next:
	for _, l := range x.Listeners {
		for i, p := range left {
			if same(p.spec(), l) {
				kept = append(kept, p)
				p.register(l.RPCBind)
				left = slices.Concat(left[:i], left[i+1:])
				continue next
			}
		}
		p, err := o.openPort(l)
		if err != nil {
			errs = append(errs, fmt.Errorf("listener %s %s: %w", l.Network, l.Address, err))
			continue
		}
		added = append(added, p)
		p.register(l.RPCBind)
	}
	o.mu.Lock()
	o.ports = slices.Concat(kept, added)
	o.mu.Unlock()
	var blocked []port
	for _, p := range added {
		if p.settled() {
			blocked = append(blocked, p)
		}
	}
	for _, p := range left {
		p.close()
	}
	if len(left) > 0 {
		for _, p := range blocked {
			p.retry()
		}
	}
	return kept, errors.Join(errs...)
}

func (o *opened) openPort(l config.Listener) (port, error) {
	if l.Network == config.TCP {
		return openPort(l, o.e, portKind[net.Conn]{
			bind: func(ctx context.Context) (source[net.Conn], error) { return o.bindTCP(ctx, l) },
			make: o.tcpServer, from: remoteOf[net.Conn], admit: o.admit(onTCP), leave: o.e.clients.leave, refuse: refuseTCP,
			drain: o.drain,
		})
	}
	kind := portKind[rdma.ConnRequest]{
		make: o.rdmaServer, from: remoteOf[rdma.ConnRequest], admit: o.admit(onRDMA), leave: o.e.clients.leave,
		refuse: func(in rdma.ConnRequest) { _ = in.Reject(nil) },
		drain:  o.drain,
	}
	if l.Provider == config.Verbs {
		a := &adapterPort{o: o, l: l}
		kind.bind, kind.device = a.bind, a.status
		return openPort(l, o.e, kind)
	}
	cfg := iwarp.Config{MaxFPDU: int(l.Options.MaxFPDU), Spin: time.Duration(l.Options.Spin), Logger: o.e.log}
	cfg.Failed = func(peer net.Addr, cause error) {
		o.e.clients.refuse(o.e.log, onRDMA, clientOf(addrPort(peer).Addr()), byHandshake, cause.Error())
	}
	if !l.Options.CRC {
		cfg.CRC = iwarp.CRCMirror
	}
	kind.bind = func(ctx context.Context) (source[rdma.ConnRequest], error) {
		s, err := o.bindTCP(ctx, l)
		if err != nil {
			return nil, err
		}
		src, err := iwarp.NewListener(cfg, s)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return src, nil
	}
	return openPort(l, o.e, kind)
}

// bindTCP takes a listener's address, for clients that an access rule names.
func (o *opened) bindTCP(ctx context.Context, l config.Listener) (source[net.Conn], error) {
	s, err := o.e.gateway.bindTCP(ctx, l)
	if err != nil {
		return nil, err
	}
	network := onTCP
	if l.Network == config.RDMA {
		network = onRDMA
	}
	return screened{s, o.e, network}, nil
}

// admit returns the admission check of connections, which counts refusals.
func (o *opened) admit(network int) func(netip.Addr) bool {
	var room func() bool
	if network == onRDMA {
		room = o.e.credits.Room
	}
	return func(client netip.Addr) bool {
		why, ok := o.e.clients.admit(client, room)
		if !ok {
			o.e.clients.refuse(o.e.log, network, client, why, "")
		}
		return ok
	}
}

// maxConns is above what the configuration allows: the limit is the export's, over all ports; see clients.admit.
const maxConns = 1 << 20

func (o *opened) tcpServer(r *relay[net.Conn]) (*serving[net.Conn], error) {
	s, err := oncrpc.NewServer(oncrpc.Config{
		Pool: o.pool, Handler: observed{o.e, o.backend.handler()}, Bindings: binding.For, Budget: o.budget,
		Observer: tcpObserver{e: o.e, left: r.left}, MaxConns: maxConns,
	})
	if err != nil {
		return nil, err
	}
	o.e.servers.add(s)
	return newServing(r, o.backend, func() error { return s.Serve(r) }, func(ctx context.Context) error {
		defer o.e.servers.remove(s)
		return s.Shutdown(ctx)
	}), nil
}

// ownReceives is how many RDMA connections of a listener have a queue of receives for themselves, which may be of another structure with version 2. Those
// beyond it share one, where the device has that.
const ownReceives = 16

func (o *opened) rdmaServer(r *relay[rdma.ConnRequest]) (*serving[rdma.ConnRequest], error) {
	t := &o.have.Transport
	s, err := rpcrdma.NewServer(speak(rpcrdma.Config{
		Pool: o.pool, Domain: o.domain, Handler: observed{o.e, o.backend.handler()}, Bindings: binding.For, Budget: o.budget,
		InlineCall: int(t.InlineThreshold.Call), InlineReply: int(t.InlineThreshold.Reply), Credits: o.e.credits,
		RemoteInvalidation: t.RemoteInvalidation, Observer: rdmaObserver{e: o.e, left: r.left}, Logger: o.e.log,
		OwnReceives: ownReceives,
	}, t), r)
	if err != nil {
		return nil, err
	}
	return newServing(r, o.backend, s.Serve, s.Shutdown), nil
}

// drain has a server end in the background, when it is time.
func (o *opened) drain(wait func(), shutdown func(context.Context) error) {
	o.drains.Go(func() {
		wait()
		ctx, cancel := context.WithTimeout(o.hurry, o.e.gateway.drainTimeout())
		defer cancel()
		if err := shutdown(ctx); err != nil {
			o.e.log.Warn("calls in flight were cut off", "why", err)
		}
	})
}

// close drains the export until ctx ends, and gives everything back.
func (o *opened) close(ctx context.Context) error {
	defer context.AfterFunc(ctx, o.now)()
	defer o.now()
	for _, p := range o.ports {
		p.close()
	}
	o.drains.Wait()
	var errs []error
	if o.backend != nil {
		errs = append(errs, o.backend.close())
	}
	if o.domain != nil {
		errs = append(errs, o.domain.Close())
	}
	for _, d := range o.domains {
		errs = append(errs, d.Close())
	}
	// A handler may still have a call in hand that was cut off.
	o.budget.Close()
	err := o.pool.Close()
	for range 20 {
		if err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
		err = o.pool.Close()
	}
	return errors.Join(append(errs, err)...)
}

func (o *opened) listeners() []status.Listener {
	o.mu.Lock()
	ports := o.ports // never changed in place
	o.mu.Unlock()
	s := make([]status.Listener, len(ports))
	for i, p := range ports {
		s[i] = p.state()
	}
	return s
}

// serves returns the present backend.
func (o *opened) serves() *held {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.backend
}

// served returns the configuration that is served.
func (o *opened) served() *config.Export {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.have
}
