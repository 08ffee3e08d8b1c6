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

// inDomain is a source of connections in a protection domain. The server exists before the device
// is known, so it cannot choose the domain.
type inDomain struct {
	listen.Source[rdma.ConnRequest]
	domain rdma.Domain
}

func (s inDomain) Accept() (rdma.ConnRequest, error) {
	in, err := s.Source.Accept()
	if err != nil {
		return nil, err
	}
	return &requestIn{in, s.domain}, nil
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
	credits := c.Max
	if c.Policy == config.Adaptive {
		credits = config.MaxCredits // max may rise while connections stay
	}
	sends, depth := rpcrdma.QueueDepths(credits, slices.Contains(x.Transport.Extensions, config.MessageContinuation))
	own := min(connections, ownReceives)
	queues := own*verbs.Queues{Sends: sends, Receives: depth}.Memory() + (connections-own)*verbs.Queues{Sends: sends, Receives: depth, Shared: true}.Memory()
	if connections > own {
		queues += verbs.SharedMemory(rpcrdma.SharedDepth)
	}
	return receives + uint64(x.Limits.Memory) + queues
}
