package upstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Config is what a backend is made of.
type Config struct {
	// Dialer connects to the backend. It is required.
	Dialer Dialer
	// Pool has the memory of the calls of the backend's own, and of the connections of DialTCP. It is required.
	Pool *bufpool.Pool
	// Probe is the program and version whose NULL procedure tells the backend's health. 0 means NFS, version 3; an answer that there is no such
	// version is as good as any other.
	Probe struct{ Program, Version uint32 }
	// AnyPort takes whatever source port there is, also where one below 1024 is to be had.
	AnyPort bool

	// WaitLimit bounds in bytes the calls that wait since there is no connection to the backend. It should be less than the bulk budget that these calls hold
	// elsewhere, or none is left to notice. 0 means 64 MiB.
	// It also bounds the calls whose client has gone, and which the backend has not answered: beyond that a connection is not kept, and they end with it.
	WaitLimit int64
	// SoftTimeout ends requests that permit it after that time without an answer, counted from Submit. 0 means never.
	SoftTimeout time.Duration
	// ReattachTimeout is how long the connection of a client that went is kept for it. 0 means one minute.
	ReattachTimeout time.Duration
	// MaxDetached bounds the connections that are kept; the one that was kept longest goes first. 0 means 256.
	MaxDetached int
	// BackoffMin and BackoffMax bound the time between two attempts to connect, which doubles from one to the next. 0 means 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// DialTimeout bounds one attempt to connect. 0 means 10 s.
	DialTimeout time.Duration
	// PortPatience is how long a connection's source port is tried again when it is not free, before another is taken. 0 means 5 s.
	PortPatience time.Duration
	// ProbeInterval is the time between two probes of the backend's health. 0 means 10 s.
	ProbeInterval time.Duration

	// OnHealthChange, if set, is told when the backend's health changes: that it answers, for the first time or again, or does not any more. That it answers is also
	// told after a connection was lost, since a restart may be over before anybody has missed the backend. It must not block.
	OnHealthChange func(healthy bool)
	// Rand returns numbers in [0, 1), for the spread of the attempts to connect. nil means math/rand.
	Rand func() float64
	// Logger is told what an operator should know. It may be nil.
	Logger *slog.Logger
}

const (
	nfsProgram = 100003

	// callCost is what a waiting call counts for besides its bytes.
	callCost = 1 << 10
)

func (c *Config) complete() error {
	if c.Dialer == nil {
		return errors.New("upstream: Config.Dialer is nil, must be a dialer")
	}
	if c.Pool == nil {
		return errors.New("upstream: Config.Pool is nil, must be a pool")
	}
	if c.SoftTimeout < 0 || c.WaitLimit < 0 || c.MaxDetached < 0 {
		return fmt.Errorf("upstream: Config.SoftTimeout is %v, WaitLimit %d and MaxParked %d, none may be negative", c.SoftTimeout, c.WaitLimit, c.MaxDetached)
	}
	for _, f := range []struct {
		name    string
		v       *time.Duration
		initial time.Duration
	}{
		{"ParkTime", &c.ReattachTimeout, time.Minute},
		{"BackoffMin", &c.BackoffMin, 50 * time.Millisecond},
		{"BackoffMax", &c.BackoffMax, 5 * time.Second},
		{"DialTimeout", &c.DialTimeout, 10 * time.Second},
		{"PortPatience", &c.PortPatience, 5 * time.Second},
		{"ProbeInterval", &c.ProbeInterval, 10 * time.Second},
	} {
		if *f.v == 0 {
			*f.v = f.initial
		}
		if *f.v < 0 {
			return fmt.Errorf("upstream: Config.%s is %v, must not be negative", f.name, *f.v)
		}
	}
	if c.WaitLimit == 0 {
		c.WaitLimit = 64 << 20
	}
	if c.MaxDetached == 0 {
		c.MaxDetached = 256
	}
	if c.Probe.Program == 0 {
		c.Probe.Program, c.Probe.Version = nfsProgram, 3
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Backend is what an export's calls are forwarded to.
type Backend struct {
	cfg      Config
	ctx      context.Context // until Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	ports    ports
	waiting  atomic.Int64 // bytes of the calls of lines that have no connection, and of those that wait elsewhere
	orphaned atomic.Int64 // bytes of the calls that a connection has in hand, and whose client has gone
	counts   counts
	health   health

	mu       sync.Mutex
	closed   bool
	conns    map[*backendConn]struct{}
	detached []*backendConn // the one parked first comes first
}

// counts are what a backend counts from its beginning.
type counts struct {
	connected                                       atomic.Int64
	dials, dialErrors, resends                      atomic.Uint64
	softTimeouts, superseded, overloads, otherPorts atomic.Uint64
}

// New makes a backend and begins to probe it.
func New(cfg Config) (*Backend, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, conns: map[*backendConn]struct{}{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.ports.denied = cfg.AnyPort
	b.health.init()
	b.running.Go(b.keepProbing)
	return b, nil
}

// Open returns the link for a client's connection. Nothing is dialled before the first call. back, which may be nil, gets the calls that the backend makes
// on the link's connection.
func (b *Backend) Open(client *oncrpc.Conn, back oncrpc.Handler) *Link {
	return &Link{b: b, client: client, back: back}
}

// Close closes all links and connections, and returns when nothing of the backend is left. A request's Finished must not call it.
func (b *Backend) Close() {
	b.mu.Lock()
	b.closed = true
	lines := make([]*backendConn, 0, len(b.conns))
	for bc := range b.conns {
		lines = append(lines, bc)
	}
	for _, bc := range b.detached {
		bc.detachTimer.Stop()
	}
	b.detached = nil
	b.mu.Unlock()
	for _, bc := range lines {
		bc.close()
	}
	b.stop()
	b.running.Wait()
}

// Admit reports whether a call of n bytes may wait for the backend elsewhere than on a link, and counts it among those that wait. If so, Dismiss follows.
func (b *Backend) Admit(n int) bool {
	size := int64(n + callCost)
	if !b.mayWait(size) {
		return false
	}
	b.waiting.Add(size)
	return true
}

// Dismiss tells that a call of n bytes, which Admit has counted, waits no longer.
func (b *Backend) Dismiss(n int) { b.waiting.Add(-int64(n + callCost)) }

// connFor returns the line for lk whose first call is r: one that was parked for the same client, if that may be of use, or a new one.
// It returns nil if the backend is closed.
func (b *Backend) connFor(lk *Link, r *Request) *backendConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if r.Replay == ReplayByXID {
		if bc := b.reattachLocked(lk, r.XID); bc != nil {
			return bc
		}
	}
	bc := newBackendConn(b, lk)
	b.conns[bc] = struct{}{}
	return bc
}

// reattachLocked returns a line that was parked for lk's client. If there are several (nconnect), the one on which the XID was seen is the right one; otherwise the
// one parked first. b is locked.
func (b *Backend) reattachLocked(lk *Link, xid uint32) *backendConn {
	found := -1
	for i, bc := range b.detached {
		if bc.address != lk.client.Remote.Addr().Unmap() {
			continue
		}
		if bc.sawXID(xid) {
			found = i
			break
		}
		if found < 0 {
			found = i
		}
	}
	if found < 0 {
		return nil
	}
	bc := b.detached[found]
	b.detached = slices.Delete(b.detached, found, found+1)
	bc.detachTimer.Stop()
	bc.mu.Lock()
	bc.owner.Store(lk)
	bc.mu.Unlock()
	return bc
}

// keepDetached keeps a line, which has no owner any more, for the client at its address.
func (b *Backend) keepDetached(bc *backendConn) {
	var goes *backendConn
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		bc.close()
		return
	}
	b.detached = append(b.detached, bc)
	if len(b.detached) > b.cfg.MaxDetached {
		goes = b.detached[0]
		goes.detachTimer.Stop()
		b.detached = slices.Delete(b.detached, 0, 1)
	}
	if goes != bc {
		bc.detachTimer = time.AfterFunc(b.cfg.ReattachTimeout, func() { b.expireDetached(bc) })
	}
	b.mu.Unlock()
	if goes != nil {
		goes.close()
	}
}

// expireDetached ends a line whose client has not returned in time.
func (b *Backend) expireDetached(bc *backendConn) {
	b.mu.Lock()
	i := slices.Index(b.detached, bc)
	if i >= 0 {
		b.detached = slices.Delete(b.detached, i, i+1)
	}
	b.mu.Unlock()
	if i >= 0 {
		bc.close()
	}
}

// forget drops a line that is closed.
func (b *Backend) forget(bc *backendConn) {
	b.mu.Lock()
	delete(b.conns, bc)
	b.mu.Unlock()
}
