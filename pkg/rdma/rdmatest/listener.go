package rdmatest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

type listener struct {
	f    *Fabric
	addr netip.AddrPort

	mu      sync.Mutex
	ready   sync.Cond
	pending []*incoming
	closed  bool
}

// incoming is a request for a connection, shared by the dialer and the listener's side.
type incoming struct {
	f             *Fabric
	options       rdma.Options // the dialer's
	domain        *domain
	private       []byte
	local, remote netip.AddrPort // as the listener's side sees them

	mu       sync.Mutex
	answered bool
	gaveUp   error
	answer   chan answer // holds one
}

type answer struct {
	endpoint *endpoint
	err      error
}

func (f *Fabric) listen(ctx context.Context, address string) (*listener, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	a, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if a.Port() == 0 {
		a = netip.AddrPortFrom(a.Addr(), f.portLocked())
	}
	for b := range f.listeners {
		if b.Port() == a.Port() && (b.Addr() == a.Addr() || b.Addr().IsUnspecified() || a.Addr().IsUnspecified()) {
			return nil, fmt.Errorf("rdma fabric: listen on %s: %w", address, syscall.EADDRINUSE)
		}
	}
	l := &listener{f: f, addr: a}
	l.ready.L = &l.mu
	f.listeners[a] = l
	return l, nil
}

func (f *Fabric) find(a netip.AddrPort) *listener {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.listeners[a]; l != nil {
		return l
	}
	for b, l := range f.listeners {
		if b.Port() == a.Port() && b.Addr().IsUnspecified() {
			return l
		}
	}
	return nil
}

func (l *listener) Addr() net.Addr { return addr(l.addr) }

func (l *listener) Accept() (rdma.ConnRequest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.pending) == 0 && !l.closed {
		l.ready.Wait()
	}
	if l.closed {
		return nil, net.ErrClosed
	}
	in := l.pending[0]
	l.pending = slices.Delete(l.pending, 0, 1)
	return in, nil
}

// Close refuses the requests that are not accepted.
func (l *listener) Close() error {
	l.f.mu.Lock()
	delete(l.f.listeners, l.addr)
	l.f.mu.Unlock()
	l.mu.Lock()
	pending := l.pending
	l.pending, l.closed = nil, true
	l.ready.Broadcast()
	l.mu.Unlock()
	for _, in := range pending {
		_ = in.respond(answer{err: syscall.ECONNREFUSED}) // if its dialer still waits
	}
	return nil
}

// offer queues a request.
func (l *listener) offer(in *incoming) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.pending = append(l.pending, in)
		l.ready.Signal()
	}
	return !l.closed
}

// withdraw removes a request that its dialer gave up.
func (l *listener) withdraw(in *incoming) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = slices.DeleteFunc(l.pending, func(x *incoming) bool { return x == in })
}

func (f *Fabric) dial(ctx context.Context, from netip.Addr, address string, o rdma.Options) (rdma.Endpoint, error) {
	e, err := f.connect(ctx, from, address, o)
	if err != nil {
		return nil, fmt.Errorf("rdma fabric: dial %s: %w", address, err)
	}
	return e, nil
}

func (f *Fabric) connect(ctx context.Context, from netip.Addr, address string, o rdma.Options) (*endpoint, error) {
	to, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	o.SetPrivateData(!f.o.NoRemoteInvalidation)
	d, err := f.checkOptions(&o)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, f.o.Delay); err != nil {
		return nil, err
	}
	f.mu.Lock()
	local := netip.AddrPortFrom(from, f.portLocked())
	f.mu.Unlock()
	in := &incoming{
		f: f, options: o, domain: d, private: slices.Clone(o.PrivateData), local: to, remote: local,
		answer: make(chan answer, 1),
	}
	l := f.find(to)
	var a answer
	if l == nil || !l.offer(in) {
		a.err = syscall.ECONNREFUSED
	} else {
		select {
		case a = <-in.answer:
		case <-ctx.Done():
			if in.giveUp(ctx.Err()) {
				l.withdraw(in)
				return nil, ctx.Err()
			}
			a = <-in.answer // it was on its way
		}
	}
	if err := sleep(ctx, f.o.Delay); err != nil {
		if a.endpoint != nil {
			a.endpoint.Close()
		}
		return nil, err
	}
	return a.endpoint, a.err
}

// checkOptions returns the fault of o, and fills in defaults.
func (f *Fabric) checkOptions(o *rdma.Options) (*domain, error) {
	d, ok := o.Domain.(*domain)
	switch {
	case !ok || d.f != f:
		return nil, fmt.Errorf("Options.Domain is %T, it must be a domain of this fabric", o.Domain)
	case d.isClosed():
		return nil, fmt.Errorf("Options.Domain: %w", errClosedDomain)
	case len(o.PrivateData) > MaxPrivateData:
		return nil, fmt.Errorf("Options.PrivateData has %d bytes, at most %d are possible", len(o.PrivateData), MaxPrivateData)
	case o.SendQueue < 0 || o.ReceiveQueue < 0 || o.ORD < 0 || o.IRD < 0:
		return nil, fmt.Errorf("a negative number in Options: SendQueue %d, ReceiveQueue %d, ORD %d, IRD %d",
			o.SendQueue, o.ReceiveQueue, o.ORD, o.IRD)
	}
	if err := checkShared(d, o); err != nil {
		return nil, err
	}
	o.SendQueue, o.ReceiveQueue = orDefault(o.SendQueue, 1024), orDefault(o.ReceiveQueue, 1024)
	o.ORD, o.IRD = min(o.ORD, f.o.MaxReads), min(o.IRD, f.o.MaxReads)
	return d, f.checkReceives(d, o.Receives, o.ReceiveQueue)
}

// giveUp withdraws the request, unless it is answered already.
func (in *incoming) giveUp(err error) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.answered {
		in.gaveUp = err
	}
	return !in.answered
}

func (in *incoming) respond(a answer) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	switch {
	case in.answered:
		return fmt.Errorf("rdma fabric: ConnRequest was accepted or rejected before")
	case in.gaveUp != nil:
		return fmt.Errorf("rdma fabric: the peer gave up: %w", in.gaveUp)
	}
	in.answered = true
	in.answer <- a
	return nil
}

func (in *incoming) PrivateData() []byte  { return in.private }
func (in *incoming) LocalAddr() net.Addr  { return addr(in.local) }
func (in *incoming) RemoteAddr() net.Addr { return addr(in.remote) }

// SRQKey implements rdma.ConnRequest: a fabric is one device.
func (in *incoming) SRQKey() any {
	if in.f.o.MaxShared < 0 {
		return nil
	}
	return in.f
}

// NewSRQ implements rdma.ConnRequest.
func (in *incoming) NewSRQ(d rdma.Domain, depth int) (rdma.SRQ, error) {
	return in.f.newReceiveQueue(d, depth)
}

func (in *incoming) Accept(o rdma.Options) (rdma.Endpoint, error) {
	e, err := in.accept(o)
	if err != nil {
		return nil, fmt.Errorf("rdma fabric: accept: %w", err)
	}
	return e, nil
}

func (in *incoming) accept(o rdma.Options) (*endpoint, error) {
	d, err := in.f.checkOptions(&o)
	if err != nil {
		_ = in.respond(answer{err: syscall.ECONNRESET})
		return nil, err
	}
	c, err := in.f.newConn(in, d, o)
	if err != nil {
		_ = in.respond(answer{err: syscall.ECONNRESET})
		return nil, err
	}
	if err := in.respond(answer{endpoint: c.ends[0]}); err != nil {
		c.ends[0].Close()
		c.ends[1].Close()
		return nil, err
	}
	return c.ends[1], nil
}

func (in *incoming) Reject(private []byte) error {
	if len(private) > MaxPrivateData {
		return fmt.Errorf("rdma fabric: reject: %d bytes of private data, at most %d are possible", len(private), MaxPrivateData)
	}
	return in.respond(answer{err: &rdma.RejectedError{PrivateData: slices.Clone(private)}})
}

func sleep(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
