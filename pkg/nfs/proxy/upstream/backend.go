package upstream

import (
	"context"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Backend forwards one export's calls.
type Backend struct {
	cfg      Config
	ctx      context.Context // until Close
	stop     context.CancelFunc
	running  sync.WaitGroup
	ports    ports
	waiting  atomic.Int64 // bytes of calls that wait for a connection or elsewhere
	orphaned atomic.Int64 // bytes of calls in flight whose client has disconnected
	counts   counts
	health   health

	mu       sync.Mutex
	closed   bool
	conns    map[*backendConn]struct{}
	detached []*backendConn // oldest first
}

type counts struct {
	connected                                       atomic.Int64
	dials, dialErrors, resends                      atomic.Uint64
	softTimeouts, superseded, overloads, otherPorts atomic.Uint64
}

// New returns a backend and starts to probe its health.
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

// Open returns the link for a client's connection. The first call dials. back handles the calls
// that the backend makes on the link's connection; it may be nil.
func (b *Backend) Open(client *oncrpc.Conn, back oncrpc.Handler) *Link {
	return &Link{b: b, client: client, back: back}
}

// Close closes all links and connections and waits for their goroutines. Do not call it from a
// request's Finished.
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

// Admit reports whether a call of n bytes may wait for the backend without a link, and counts it as
// waiting if so. Dismiss must follow.
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

// Dismiss ends the wait of a call of n bytes that Admit has counted.
func (b *Backend) Dismiss(n int) { b.waiting.Add(-int64(n + callCost)) }

// connFor returns the connection for lk, whose first call is r: a detached one of the same client,
// or a new one. It returns nil if the backend is closed.
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

// forget removes a closed connection.
func (b *Backend) forget(bc *backendConn) {
	b.mu.Lock()
	delete(b.conns, bc)
	b.mu.Unlock()
}

// takePort takes a source port below 1024, or 0 for any port if none is free. tries is the number
// of ports that failed already, because other processes use them.
func (b *Backend) takePort(tries int) int {
	denied := false
	if tries <= lastPort-firstPort {
		var p int
		if p, denied = b.ports.take(); p != 0 {
			return p
		}
	}
	if !denied && b.counts.otherPorts.Add(1) == 1 {
		b.cfg.Logger.Warn("source ports below 1024 exhausted; use others, which some servers refuse")
	}
	return 0
}

// setPortsDenied records that this process may not use source ports below 1024.
func (b *Backend) setPortsDenied() {
	if b.ports.deny() {
		b.cfg.Logger.Info("source ports below 1024 not permitted; use others, which some servers refuse")
	}
}
