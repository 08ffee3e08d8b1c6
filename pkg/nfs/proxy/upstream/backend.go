package upstream

import (
	"context"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Backend is what an export's calls are forwarded to.
type Backend struct {
	cfg      Config
	ctx      context.Context // until Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	ports    ports
	waiting  atomic.Int64 // bytes of the calls of conns that have no connection, and of those that wait elsewhere
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
	conns := make([]*backendConn, 0, len(b.conns))
	for bc := range b.conns {
		conns = append(conns, bc)
	}
	for _, bc := range b.detached {
		bc.detachTimer.Stop()
	}
	b.detached = nil
	b.mu.Unlock()
	for _, bc := range conns {
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

// mayWait reports whether a call of the size may wait. A call always may while no other waits.
func (b *Backend) mayWait(size int64) bool {
	if w := b.waiting.Load(); w == 0 || w+size <= b.cfg.WaitLimit {
		return true
	}
	b.counts.overloads.Add(1)
	return false
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

// forget drops a line that is closed.
func (b *Backend) forget(bc *backendConn) {
	b.mu.Lock()
	delete(b.conns, bc)
	b.mu.Unlock()
}
