package gateway

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/internal/gateway/listen"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// adapterPort listens by verbs.
type adapterPort struct {
	res    *resources
	memory *memory
	export func() *config.Export // its configuration now
	spec   config.Listener
	found  atomic.Pointer[verbs.Found] // of the last attempt
	limits atomic.Pointer[verbs.Limits]
	// foreign says that another export opened the shared port with other settings, which hold.
	foreign atomic.Bool
}

// bind finds the device, and listens on the address.
func (a *adapterPort) bind(ctx context.Context) (listen.Source[rdma.ConnRequest], error) {
	_, link, err := a.address()
	// with Wildcard the host may get the address later
	if err != nil && a.spec.Bind != config.Wildcard {
		return nil, err
	}
	sys := os.DirFS("/sys")
	if link == "" && a.spec.Bind == config.Wildcard { // use the interface of the address's network
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
			a.limits.Store(&limits)
		}
	}
	if _, err := a.memory.domainOf(p); err != nil {
		return nil, err
	}
	bind := func(ctx context.Context, address string) (listen.Source[rdma.ConnRequest], error) {
		l, err := p.Listen(ctx, address)
		if err != nil {
			return nil, err
		}
		return byProvider{l, p}, nil
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
	return inDomain{src, a, p}, nil
}

func (a *adapterPort) where() string { return a.res.resolve(a.spec.Address) }

// address returns the address and its interface. Both are zero for all addresses.
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

// byProvider marks the connections of a listener with their provider.
type byProvider struct {
	listen.Source[rdma.ConnRequest]
	provider rdma.Provider
}

func (s byProvider) Accept() (rdma.ConnRequest, error) {
	in, err := s.Source.Accept()
	if err != nil {
		return nil, err
	}
	return provided{in, s.provider}, nil
}

type provided struct {
	rdma.ConnRequest
	provider rdma.Provider
}

// inDomain has connections belong to the export's protection domain of their provider. That may
// differ from the listener's own: exports that share a port may have different settings.
type inDomain struct {
	listen.Source[rdma.ConnRequest]
	of  *adapterPort
	own rdma.Provider
}

func (s inDomain) Accept() (rdma.ConnRequest, error) {
	for {
		in, err := s.Source.Accept()
		if err != nil {
			return nil, err
		}
		by := in.(provided)
		s.of.foreign.Store(by.provider != s.own)
		d, err := s.of.memory.domainOf(by.provider)
		if err == nil {
			return &requestIn{by.ConnRequest, d}, nil
		}
		s.of.res.log.Warn("no protection domain for an RDMA connection; connection rejected", "peer", in.RemoteAddr(), "error", err)
		_ = in.Reject(nil)
	}
}

type requestIn struct {
	rdma.ConnRequest
	domain rdma.Domain
}

func (in *requestIn) Accept(o rdma.Options) (rdma.Endpoint, error) {
	o.Domain = in.domain
	return in.ConnRequest.Accept(o)
}

// SRQKey implements rdma.ConnRequest. Receives are registered in one domain.
func (in *requestIn) SRQKey() any {
	if device := in.ConnRequest.SRQKey(); device != nil {
		return [2]any{device, in.domain}
	}
	return nil
}

func (in *requestIn) NewSRQ(_ rdma.Domain, depth int) (rdma.SRQ, error) {
	return in.ConnRequest.NewSRQ(in.domain, depth)
}

// status describes the device and its problems.
func (a *adapterPort) status() *status.Device {
	at, link, _ := a.address() // the listener reports this error
	w := doctor.Wanted{Device: a.spec.Device, Address: at, Interface: link, Memory: lockedBytes(a.export())}
	s := &status.Device{Name: a.spec.Device}
	if a.spec.Bind == config.Wildcard && at.IsValid() && link == "" {
		// Another host has the address: only its device needs the GID.
		w.Address = netip.Addr{}
		s.Notes = append(s.Notes, fmt.Sprintf("no interface here has the address %s now: its GID is checked when one has", at))
	}
	if a.foreign.Load() {
		s.Notes = append(s.Notes, "the verbs settings of another export, which opened the port first, hold here too: restart the gateway to change them")
	}
	if found := a.found.Load(); found != nil && found.Device != "" {
		w.Device, s.Name, s.By = found.Device, found.Device, found.By
	}
	host := a.res.adapters.hostNow()
	for _, p := range host.Check(w) {
		s.Problems = append(s.Problems, status.Problem(p))
	}
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
		if l := a.limits.Load(); l != nil {
			limits := status.DeviceLimits(*l)
			s.Limits = &limits
		}
	}
	return s
}

// lockedBytes returns the bytes that the export may lock for a device: receives, limits.memory and
// the queues of its connections.
func lockedBytes(x *config.Export) uint64 {
	c, connections := &x.Transport.Credits, uint64(x.Limits.Connections)
	size := uint64(x.Transport.ReceiveSize())
	receives := connections * uint64(c.Max) * size
	if c.Policy == config.Adaptive {
		receives = min(receives, uint64(c.Memory)+connections*uint64(c.Min)*size)
	}
	sends, depth := rpcrdma.QueueDepths(c.Max, slices.Contains(x.Transport.Extensions, config.MessageContinuation))
	own := min(connections, ownReceives)
	queues := own*verbs.Queues{Sends: sends, Receives: depth}.Memory() + (connections-own)*verbs.Queues{Sends: sends, Receives: depth, Shared: true}.Memory()
	if connections > own {
		queues += verbs.SharedMemory(rpcrdma.SharedDepth)
	}
	return receives + uint64(x.Limits.Memory) + queues
}
