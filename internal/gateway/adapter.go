package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/internal/gateway/listen"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// adapters are the verbs providers of the process, by device and settings: a provider lasts as long as the process.
type adapters struct {
	open func(verbs.Config) (rdma.Provider, error) // for tests: instead of verbs.New
	read func() *doctor.Host                       // for tests: instead of doctor.ReadHost

	mu     sync.Mutex
	opened map[string]rdma.Provider // by device and settings

	hostMu sync.Mutex
	host   *doctor.Host
	readAt time.Time // of host
}

// hostAge is how old the host's state may be that listeners report: a page of many listeners reads the host once.
const hostAge = time.Second

// hostNow returns the host's state, which callers do not change.
func (a *adapters) hostNow() *doctor.Host {
	a.hostMu.Lock()
	defer a.hostMu.Unlock()
	if a.host == nil || time.Since(a.readAt) > hostAge {
		read := a.read
		if read == nil {
			read = doctor.ReadHost
		}
		a.host, a.readAt = read(), time.Now()
	}
	return a.host
}

// provider returns that of a device with these settings, nil for the defaults; "" is whichever device leads to an address.
func (r *resources) verbsProvider(device string, settings *config.VerbsOptions) (rdma.Provider, error) {
	cfg := verbsConfig(device, settings)
	key := fmt.Sprintf("%+v", cfg)
	cfg.Logger = r.log
	a := &r.adapters
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.opened[key]; p != nil {
		return p, nil
	}
	open := a.open
	if open == nil {
		open = verbs.New
	}
	p, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if a.opened == nil {
		a.opened = map[string]rdma.Provider{}
	}
	a.opened[key] = p
	return p, nil
}

// used reports whether there is a provider.
func (a *adapters) used() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.opened) > 0
}

// verbsConfig is a provider's configuration for a device.
func verbsConfig(device string, o *config.VerbsOptions) verbs.Config {
	cfg := verbs.Config{Device: device}
	if o == nil {
		return cfg
	}
	cfg.KeepAlive, cfg.AckTimeout = time.Duration(o.KeepAlive), time.Duration(o.AckTimeout)
	cfg.RetryCount, cfg.TOS = o.RetryCount, o.TOS
	cfg.CompletionVectors = o.CompletionVectors
	cfg.Moderation = verbs.Moderation{Completions: o.ModerationCount, Period: time.Duration(o.ModerationPeriod)}
	cfg.Inline, cfg.Spin, cfg.StrictOrdering = o.Inline, o.Spin, o.StrictOrdering
	return cfg
}

// adapterPort listens by verbs.
type adapterPort struct {
	res    *resources
	memory *memory
	export func() *config.Export // its configuration now
	spec   config.Listener
	found  atomic.Pointer[verbs.Found] // when it was last tried
	has    atomic.Pointer[verbs.Limits]
}

// bind chooses the device, and takes the address.
func (a *adapterPort) bind(ctx context.Context) (listen.Source[rdma.ConnRequest], error) {
	_, link, err := a.address()
	if err != nil && a.spec.Bind != config.Wildcard { // with that, the host may get the address later
		return nil, err
	}
	sys := os.DirFS("/sys")
	if link == "" && a.spec.Bind == config.Wildcard { // the address comes to the interface of its network
		if at, err := netip.ParseAddrPort(a.spec.Address); err == nil {
			if name := doctor.InterfaceFor(at.Addr()); verbs.DeviceOf(sys, name) != "" {
				link = name
			}
		}
	}
	found, err := verbs.Find(verbs.Sources{Name: a.spec.Device, Environ: os.Environ(), Sys: sys, Interface: link})
	if err != nil {
		return nil, err
	}
	a.found.Store(&found)
	p, err := a.res.verbsProvider(found.Device, a.spec.Verbs)
	if err != nil {
		return nil, err
	}
	if found.Device != "" {
		if limits, err := verbs.Query(found.Device); err == nil {
			a.has.Store(&limits)
		}
	}
	d, err := a.memory.domainOf(p)
	if err != nil {
		return nil, err
	}
	bind := func(ctx context.Context, address string) (listen.Source[rdma.ConnRequest], error) {
		return p.Listen(ctx, address)
	}
	var src listen.Source[rdma.ConnRequest]
	if a.spec.Bind == config.Wildcard {
		var at netip.AddrPort
		if at, err = netip.ParseAddrPort(a.spec.Address); err == nil {
			src, err = a.res.verbsSockets.Join(ctx, found.Device, at, bind)
		}
	} else {
		src, err = bind(ctx, a.where())
	}
	if err != nil {
		return nil, err
	}
	return inDomain{src, d}, nil
}

func (a *adapterPort) where() string { return a.res.resolve(a.spec.Address) }

// address is where it listens, and the interface that has that address: "" for any.
func (a *adapterPort) address() (at netip.Addr, link string, err error) {
	host, _, err := net.SplitHostPort(a.where())
	if err != nil {
		return at, "", err
	}
	switch host {
	case "":
		return at, "", nil
	case "localhost":
		host = "127.0.0.1"
	}
	if at, err = netip.ParseAddr(host); err != nil {
		return at, "", err
	}
	link, err = doctor.InterfaceOf(at)
	return at, link, err
}

// inDomain has connections belong to a protection domain: a server is there before the device is known.
type inDomain struct {
	listen.Source[rdma.ConnRequest]
	domain rdma.Domain
}

func (s inDomain) Accept() (rdma.ConnRequest, error) {
	in, err := s.Source.Accept()
	if err != nil {
		return nil, err
	}
	return &incomingIn{in, s.domain}, nil
}

type incomingIn struct {
	rdma.ConnRequest
	domain rdma.Domain
}

func (in *incomingIn) Accept(o rdma.Options) (rdma.Endpoint, error) {
	o.Domain = in.domain
	return in.ConnRequest.Accept(o)
}

// SRQKey implements rdma.ConnRequest: receives are memory of one domain.
func (in *incomingIn) SRQKey() any {
	if device := in.ConnRequest.SRQKey(); device != nil {
		return [2]any{device, in.domain}
	}
	return nil
}

func (in *incomingIn) NewSRQ(_ rdma.Domain, depth int) (rdma.SRQ, error) {
	return in.ConnRequest.NewSRQ(in.domain, depth)
}

// status reports the device and its problems, from a reading of the host that is at most [hostAge] old.
func (a *adapterPort) status() *status.Device {
	at, link, _ := a.address() // an address that nobody has is the listener's error
	w := doctor.Wanted{Device: a.spec.Device, Address: at, Interface: link, Memory: locked(a.export())}
	s := &status.Device{Name: a.spec.Device}
	if a.spec.Bind == config.Wildcard && at.IsValid() && link == "" {
		// Another host carries the address, whose device needs the GID.
		w.Address = netip.Addr{}
		s.Notes = append(s.Notes, fmt.Sprintf("no interface here has the address %s now: its GID is checked when one has", at))
	}
	if found := a.found.Load(); found != nil && found.Device != "" {
		w.Device, s.Name, s.By = found.Device, found.Device, found.By
	}
	host := a.res.adapters.hostNow()
	s.Problems = host.Check(w)
	s.Notes = append(s.Notes, host.Notes(w)...)
	for i := range host.Devices {
		d := &host.Devices[i]
		if d.Name != s.Name {
			continue
		}
		s.Transport = d.Transport()
		for _, p := range d.Ports {
			ps := status.Port{Number: p.Number, State: p.State, GIDTable: p.Table, ActiveMTU: p.MTU}
			for _, g := range p.GIDs {
				ps.GIDs, ps.GIDTypes = append(ps.GIDs, g.Address.String()), append(ps.GIDTypes, g.Type)
			}
			for _, key := range p.PKeys {
				ps.PKeys = append(ps.PKeys, fmt.Sprintf("%#04x", key))
			}
			s.Ports = append(s.Ports, ps)
		}
		if l := a.has.Load(); l != nil {
			limits := status.DeviceLimits(*l)
			s.Limits = &limits
		}
	}
	return s
}

// locked is how many bytes an export may have locked for a device: its receives, what limits.memory bounds, and the queues of its connections.
func locked(x *config.Export) uint64 {
	c, connections := &x.Transport.Credits, uint64(x.Limits.Connections)
	size := uint64(x.Transport.ReceiveSize())
	receives := connections * uint64(c.Max) * size
	if c.Policy == config.Adaptive {
		receives = min(receives, uint64(c.Memory)+connections*uint64(c.Min)*size)
	}
	credits := c.Max
	if c.Policy == config.Adaptive {
		credits = config.MaxCredits // max may be raised while connections last
	}
	sends, depth := rpcrdma.QueueDepths(credits, slices.Contains(x.Transport.Extensions, config.MessageContinuation))
	own := min(connections, ownReceives)
	queues := own*verbs.Queues{Sends: sends, Receives: depth}.Memory() + (connections-own)*verbs.Queues{Sends: sends, Receives: depth, Shared: true}.Memory()
	if connections > own {
		queues += verbs.SharedMemory(rpcrdma.SharedDepth)
	}
	return receives + uint64(x.Limits.Memory) + queues
}
