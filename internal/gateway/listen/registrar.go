package listen

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
)

const (
	// A failed registration is retried: another address of the export may be about to release it.
	firstRegister  = time.Second
	lastRegister   = 30 * time.Second
	registerWithin = 5 * time.Second
	registered     = "registered"
)

// registrar registers one address with the host's rpcbind, while that is wanted and the address is
// listened on. It works in the background: a slow rpcbind delays nothing else.
type registrar struct {
	log      *slog.Logger
	network  config.Network
	services []rpcbind.Address
	changed  chan struct{}
	stop     context.CancelFunc
	done     chan struct{}

	mu       sync.Mutex
	versions []config.NFSVersion // to register; none: not wanted
	addr     netip.AddrPort      // the zero value while nothing listens
	state    string
}

func startRegistrar(log *slog.Logger, network config.Network, services []rpcbind.Address) *registrar {
	ctx, cancel := context.WithCancel(context.Background())
	r := &registrar{
		log: log, network: network, services: services, changed: make(chan struct{}, 1), stop: cancel, done: make(chan struct{}),
	}
	go r.run(ctx)
	return r
}

func (r *registrar) setVersions(vs []config.NFSVersion) { r.set(func() { r.versions = vs }) }
func (r *registrar) setAddress(a netip.AddrPort)        { r.set(func() { r.addr = a }) }

func (r *registrar) set(f func()) {
	r.mu.Lock()
	f()
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// close removes the registration.
func (r *registrar) close() {
	r.stop()
	<-r.done
}

// status returns the state of the registration, empty while none is wanted.
func (r *registrar) status() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

func (r *registrar) run(ctx context.Context) {
	defer close(r.done)
	wait := firstRegister
	again := time.NewTimer(wait)
	defer again.Stop()
	var reg *rpcbind.Registration
	var at netip.AddrPort
	var as []config.NFSVersion
	for {
		select {
		case <-r.changed:
			wait = firstRegister
		case <-again.C:
		case <-ctx.Done():
			r.remove(reg)
			return
		}
		r.mu.Lock()
		versions, addr := r.versions, r.addr
		r.mu.Unlock()
		if reg != nil && (addr != at || !slices.Equal(versions, as)) {
			r.remove(reg)
			reg = nil
		}
		state := ""
		switch {
		case len(versions) == 0:
		case reg != nil:
			state = registered
		case !addr.IsValid():
			state = "waiting for the address"
		default:
			var err error
			if reg, err = r.register(ctx, addr, versions); err != nil {
				state = err.Error()
				again.Reset(wait)
				wait = min(2*wait, lastRegister)
			} else {
				state, at, as = registered, addr, versions
			}
		}
		r.setState(state)
	}
}

func (r *registrar) setState(state string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if state == r.state {
		return
	}
	r.state = state
	if state != "" {
		r.log.Info("rpcbind registration", "state", state)
	}
}

func (r *registrar) register(ctx context.Context, a netip.AddrPort, versions []config.NFSVersion) (*rpcbind.Registration, error) {
	ctx, cancel := context.WithTimeout(ctx, registerWithin)
	defer cancel()
	addrs := []netip.AddrPort{a}
	if a.Addr() == netip.IPv6Unspecified() { // the socket serves IPv4 too
		addrs = append(addrs, netip.AddrPortFrom(netip.IPv4Unspecified(), a.Port()))
	}
	var ms []rpcbind.Mapping
	for _, a := range addrs {
		id := rpcbind.NetID(string(r.network), a.Addr())
		if versions[0] == config.NFSv3 {
			ms = append(ms,
				rpcbind.Mapping{Program: nfs3.Program, Version: nfs3.Version, NetID: id, Addr: a},
				rpcbind.Mapping{Program: nfs3.MountProgram, Version: nfs3.MountVersion, NetID: id, Addr: a})
		}
		if versions[len(versions)-1] != config.NFSv3 {
			ms = append(ms, rpcbind.Mapping{Program: nfs4.Program, Version: nfs4.Version, NetID: id, Addr: a})
		}
	}
	reg, err := rpcbind.Register(ctx, r.services, ms...)
	if err != nil {
		return nil, fmt.Errorf("not registered: %w", err)
	}
	return reg, nil
}

func (r *registrar) remove(reg *rpcbind.Registration) {
	ctx, cancel := context.WithTimeout(context.Background(), registerWithin)
	defer cancel()
	if err := reg.Close(ctx); err != nil {
		r.log.Warn("rpcbind registration not removed", "error", err)
	}
}
