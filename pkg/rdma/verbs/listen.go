//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"

	"sluice.dev/sluice/pkg/rdma"
)

// listener has an id that is no connection.
type listener struct {
	p     *provider
	id    *C.struct_rdma_cm_id
	token uintptr
	addr  net.Addr

	mu      sync.Mutex
	cond    sync.Cond
	closed  bool
	lost    error // the device is gone
	pending []*incoming
}

// incoming implements [rdma.ConnRequest].
type incoming struct {
	*ident
	request event
}

// Listen implements [rdma.Provider].
func (p *provider) Listen(ctx context.Context, address string) (rdma.Listener, error) {
	at, err := resolve(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("verbs: listening on %q: %w", address, err)
	}
	l := &listener{p: p}
	l.cond.L = &l.mu
	if l.id, err = p.newID(); err != nil {
		return nil, err
	}
	l.token = p.enter(l)
	C.sv_set_token(l.id, C.uintptr_t(l.token))
	sa := sockaddr(at)
	defer C.free(ptr(sa))
	oneFamily := C.int(0) // ":PORT" serves both families
	if at.Addr().IsUnspecified() && !strings.HasPrefix(address, ":") {
		oneFamily = 1
	}
	if errno := managed(func() C.int { return C.sv_listen(l.id, sa, C.int(p.cfg.MaxPending), oneFamily) }); errno != 0 {
		_ = l.Close()
		return nil, fmt.Errorf("verbs: listening on %s: %w%s", at, syscall.Errno(errno), hint(syscall.Errno(errno)))
	}
	l.addr = goAddr(C.rdma_get_local_addr(l.id))
	if l.id.verbs != nil { // else it is any address
		if _, err := p.deviceOf(l.id); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	return l, nil
}

func hint(errno syscall.Errno) string {
	if errno == syscall.ENODEV || errno == syscall.EADDRNOTAVAIL {
		return " (no RDMA device carries this address)"
	}
	return ""
}

func (l *listener) context() *C.struct_ibv_context { return l.id.verbs }

// happened implements receiver.
func (l *listener) happened(ev event) {
	switch ev.kind {
	case C.RDMA_CM_EVENT_ADDR_CHANGE:
		l.p.cfg.Logger.Warn("the address of an RDMA listener moved to another device; connections there do not reach it", "address", l.addr)
	case C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		l.p.lost(ev.context)
		l.mu.Lock()
		l.lost = ev.err()
		l.cond.Broadcast()
		l.mu.Unlock()
	case C.RDMA_CM_EVENT_CONNECT_REQUEST:
		i, _ := l.p.newIdent(ev.id) // fails only when it has to make an id
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.closed || len(l.pending) >= l.p.cfg.MaxPending {
			_ = i.reject(nil) // without it the peer's try times out
			i.free()
			return
		}
		l.pending = append(l.pending, &incoming{i, ev})
		l.cond.Signal()
	}
}

// Accept implements [rdma.Listener].
func (l *listener) Accept() (rdma.ConnRequest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		for len(l.pending) == 0 && !l.closed && l.lost == nil {
			l.cond.Wait()
		}
		switch {
		case l.closed:
			return nil, net.ErrClosed
		case l.lost != nil:
			return nil, fmt.Errorf("verbs: listening on %s: %w", l.addr, l.lost)
		}
		in := l.pending[0]
		l.pending[0] = nil
		l.pending = l.pending[1:]
		if _, over := in.ended(); !over {
			return in, nil
		}
		in.free() // its peer gave up
	}
}

func (l *listener) Addr() net.Addr { return l.addr }

// Close implements [rdma.Listener].
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	pending := l.pending
	l.pending = nil
	l.cond.Broadcast()
	l.mu.Unlock()
	for _, in := range pending {
		_ = in.Reject(nil)
	}
	l.p.forget(l.token)
	l.p.destroyOf(l.id)
	return nil
}

func (in *incoming) PrivateData() []byte  { return in.request.private }
func (in *incoming) LocalAddr() net.Addr  { return in.localAddr() }
func (in *incoming) RemoteAddr() net.Addr { return in.remoteAddr() }

// SRQKey implements [rdma.ConnRequest].
func (in *incoming) SRQKey() any {
	dev, err := in.p.deviceOf(in.id)
	if err != nil || dev.limits.max_shared == 0 || dev.limits.max_shared_work == 0 {
		return nil
	}
	return sharingKey{dev, dev.overruns.Load()}
}

// sharingKey identifies the connections that can share receives. A completion queue that overran
// has lost some: its connections continue with the rest, and later ones have another queue.
type sharingKey struct {
	dev      *device
	overruns uint64
}

// NewSRQ implements [rdma.ConnRequest].
func (in *incoming) NewSRQ(of rdma.Domain, depth int) (rdma.SRQ, error) {
	d, ok := of.(*domain)
	if !ok || depth < 1 {
		return nil, fmt.Errorf("verbs: a queue of %d receives in a %T, want one at least in a domain that this provider made", depth, of)
	}
	dev, err := in.p.deviceOf(in.id)
	if err != nil {
		return nil, err
	}
	return newReceiveQueue(d, dev, depth)
}

// Reject implements [rdma.ConnRequest].
func (in *incoming) Reject(data []byte) error {
	defer in.free()
	if err := checkPrivate(data); err != nil {
		return err
	}
	if errno := in.reject(data); errno != 0 {
		return fmt.Errorf("verbs: rejecting: %w", connectError("rdma_reject", len(data), errno))
	}
	return nil
}

// Accept implements [rdma.ConnRequest].
func (in *incoming) Accept(o rdma.Options) (rdma.Endpoint, error) {
	e, err := in.accept(&o)
	if err != nil {
		_ = in.Reject(nil)
		return nil, err
	}
	return e, nil
}

func (in *incoming) accept(o *rdma.Options) (*endpoint, error) {
	if err := checkOptions(o); err != nil {
		return nil, err
	}
	dev, err := in.p.deviceOf(in.id)
	if err != nil {
		return nil, err
	}
	s, err := in.p.settle(dev, o, in.request.ird, in.request.ord)
	if err != nil {
		return nil, err
	}
	if dev.limits.iwarp != 0 { // whose drivers take the dialing end's value, or refuse it
		s.ird = min(in.request.ord, int(dev.limits.max_reads_in))
	}
	s.private = in.request.private
	e, err := newEndpoint(in.ident, dev, o, s)
	if err != nil {
		return nil, err
	}
	if errno := in.establish(o.PrivateData, s, 1); errno != 0 {
		e.free()
		return nil, fmt.Errorf("verbs: accepting a connection: %w", connectError("rdma_accept", len(o.PrivateData), errno))
	}
	e.established()
	return e, nil
}
