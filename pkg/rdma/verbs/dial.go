//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"sluice.dev/sluice/pkg/rdma"
)

// Dial implements [rdma.Provider].
func (p *provider) Dial(ctx context.Context, address string, o rdma.Options) (rdma.Endpoint, error) {
	if err := checkOptions(&o); err != nil {
		return nil, err
	}
	e, err := p.dial(ctx, address, &o)
	if err != nil {
		return nil, fmt.Errorf("verbs: connecting to %s: %w", address, err)
	}
	return e, nil
}

func (p *provider) dial(ctx context.Context, address string, o *rdma.Options) (*endpoint, error) {
	at, err := resolve(ctx, address)
	if err != nil {
		return nil, err
	}
	if at.Addr().IsUnspecified() {
		return nil, fmt.Errorf("%s is no address to connect to", at.Addr())
	}
	i, err := p.newIdent(nil)
	if err != nil {
		return nil, err
	}
	if p.cfg.TOS != 0 {
		if errno := managed(func() C.int { return C.sv_set_tos(i.id, C.uint8_t(p.cfg.TOS)) }); errno != 0 {
			i.free()
			return nil, fmt.Errorf("the type of service %d: %w", p.cfg.TOS, syscall.Errno(errno))
		}
	}
	if err := i.resolve(ctx, at); err != nil {
		i.free()
		return nil, err
	}
	dev, err := p.deviceOf(i.id)
	if err != nil {
		i.free()
		return nil, err
	}
	s, err := p.settle(dev, o, maxReads, maxReads)
	if err != nil {
		i.free()
		return nil, err
	}
	e, err := newEndpoint(i, dev, o, s)
	if err != nil {
		i.free()
		return nil, err
	}
	o.SetPrivateData(e.windows > 0)
	if err := checkPrivate(o.PrivateData); err != nil {
		e.destroy()
		return nil, err
	}
	ev, err := i.connect(ctx, o.PrivateData, s)
	if err != nil {
		e.destroy()
		return nil, err
	}
	if dev.limits.iwarp != 0 { // whose drivers give the answer from our point of view
		ev.ird, ev.ord = ev.ord, ev.ird
	}
	e.ird, e.ord = min(s.ird, ev.ord), min(s.ord, ev.ird)
	e.private = ev.private
	e.established()
	return e, nil
}

// resolve finds the device and the route.
func (i *ident) resolve(ctx context.Context, at netip.AddrPort) error {
	milliseconds := C.int(i.p.cfg.ResolveTimeout.Milliseconds())
	to := sockaddr(at)
	defer C.free(ptr(to))
	if errno := managed(func() C.int { return C.sv_resolve_address(i.id, to, milliseconds) }); errno != 0 {
		return fmt.Errorf("no RDMA device leads to the address: %w", syscall.Errno(errno))
	}
	if _, err := i.await(ctx, C.RDMA_CM_EVENT_ADDR_RESOLVED); err != nil {
		return err
	}
	if errno := managed(func() C.int { return C.sv_resolve_route(i.id, milliseconds) }); errno != 0 {
		return fmt.Errorf("no route to the address: %w", syscall.Errno(errno))
	}
	_, err := i.await(ctx, C.RDMA_CM_EVENT_ROUTE_RESOLVED)
	return err
}

// establish makes librdmacm connect to the peer, or accept it.
func (i *ident) establish(data []byte, s connParams, accept C.int) syscall.Errno {
	exponent := ackExponent(i.p.cfg.AckTimeout)
	return onHelper(func() syscall.Errno {
		if exponent != 0 {
			// kernels before 5.1 use their own alone
			C.sv_set_ack_timeout(i.id, C.uint8_t(exponent))
		}
		d, n := private(data)
		return syscall.Errno(C.sv_connect(i.id, d, n, C.uint8_t(s.ird), C.uint8_t(s.ord), C.uint8_t(i.p.cfg.RetryCount), C.uint8_t(s.rnrRetries), accept))
	})
}

// reject refuses the peer.
func (i *ident) reject(data []byte) syscall.Errno {
	return onHelper(func() syscall.Errno {
		d, n := private(data)
		return syscall.Errno(C.sv_reject(i.id, d, n))
	})
}

// connect connects to the peer and waits for its answer.
func (i *ident) connect(ctx context.Context, data []byte, s connParams) (event, error) {
	if errno := i.establish(data, s, 0); errno != 0 {
		return event{}, connectError("rdma_connect", len(data), errno)
	}
	return i.await(ctx, C.RDMA_CM_EVENT_ESTABLISHED)
}

// connectError explains a refusal by the connection manager: over InfiniBand and RoCE there is less
// room for private data.
func connectError(call string, private int, errno syscall.Errno) error {
	if errno == syscall.EINVAL && private > 56 {
		return fmt.Errorf("%s: %w (%d bytes of private data may be too many for this device)", call, errno, private)
	}
	return fmt.Errorf("%s: %w", call, errno)
}
