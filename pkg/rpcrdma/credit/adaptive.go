package credit

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Adaptive is a server's Policy that divides a memory budget among connections by use.
//
//   - Each connection has Min credits, unless its client requests fewer.
//   - A connection that uses its whole grant within a short time gets twice as many, up to Max and
//     its client's request. A connection that uses little of it gets fewer (use.go).
//   - If the budget does not suffice, connections that want more than their fair part share the
//     rest equally (shares.go).
//   - All connections get fewer while the backend is slower than lately (latency.go).
//
// A posted receive cannot be recalled: after a lower grant its memory becomes free only as receives
// are used up. So memory exceeds the budget by at most Min per connection. Only receives for
// credits count. A Memory bounds several policies together, Min included.
//
// Calls drive the policy; it has no goroutine. On the data path it neither allocates nor waits:
// work that would wait for another connection is left to the next reply.
type Adaptive struct {
	clock     func() time.Duration
	epoch     atomic.Uint32 // changes when all accounts must look again
	fixed     atomic.Bool   // Min is Max: latency changes nothing
	latencies latencies

	mu     sync.Mutex // the data path only tries it
	shares shares
}

// Limits are the limits of an Adaptive policy.
type Limits struct {
	// Min and Max are the fewest and the most credits of a connection, 1 to 4096. With the same
	// number for both, and Memory for it, the policy acts like Static.
	Min, Max int
	// Memory is the budget for the receives of all connections, in bytes: at least Min ×
	// ReceiveSize.
	Memory int64
	// ReceiveSize is the size of a receive in bytes, until a connection reports another one.
	ReceiveSize int
}

func (l *Limits) check() error {
	switch {
	case l.Min < 1 || l.Max > Max || l.Min > l.Max:
		return fmt.Errorf("credit: Limits have Min %d and Max %d, must be 1 to %d, Min not above Max", l.Min, l.Max, Max)
	case l.ReceiveSize < 1:
		return fmt.Errorf("credit: Limits.ReceiveSize is %d, must be at least 1", l.ReceiveSize)
	case l.Memory < int64(l.Min)*int64(l.ReceiveSize):
		return fmt.Errorf("credit: Limits.Memory is %d, must be at least %d: %d receives of %d bytes", l.Memory,
			int64(l.Min)*int64(l.ReceiveSize), l.Min, l.ReceiveSize)
	}
	return nil
}

// NewAdaptive makes a policy. clock returns the time since a fixed moment; nil means a monotonic
// clock.
func NewAdaptive(l Limits, clock func() time.Duration) (*Adaptive, error) {
	if clock == nil {
		start := time.Now()
		clock = func() time.Duration { return time.Since(start) }
	}
	p := &Adaptive{clock: clock}
	p.shares.ceiling = l.Max
	return p, p.SetLimits(l)
}

// SetLimits changes the limits, from the next reply on each connection. An error leaves them
// unchanged. No connection gets more than the Max at its start, since its queues have that size.
func (p *Adaptive) SetLimits(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shares.limits != l {
		p.shares.setLimits(l)
		p.fixed.Store(l.Min == l.Max)
		p.epoch.Add(1)
	}
	return nil
}

// Open implements Policy. The account's methods except Close must not be called concurrently.
func (p *Adaptive) Open() Account {
	a := &account{p: p}
	p.mu.Lock()
	defer p.mu.Unlock()
	a.max, a.grant, a.since = p.shares.limits.Max, p.shares.first(), p.clock()
	p.shares.open(&a.member, a.since)
	return a
}

// Latency reports that the backend took d for a call of a kind, 0 to Kinds-1. Only times of the
// same kind are compared. It is called for each call, concurrently, and does not block or allocate.
func (p *Adaptive) Latency(kind int, d time.Duration) {
	if p.fixed.Load() {
		return
	}
	now := p.clock()
	if !p.latencies.add(kind, d, now) || !p.mu.TryLock() {
		return
	}
	defer p.mu.Unlock()
	slow, ok := p.latencies.aggregate(now)
	if ok && p.shares.adjustCeiling(slow) {
		p.epoch.Add(1)
	}
}

// Stats describe the state of an Adaptive policy.
type Stats struct {
	Limits
	// Connections is the number of connections, Granted the number of their credits.
	Connections, Granted int
	// Promised is the memory in bytes for granted credits, and for receives still posted for
	// earlier grants.
	Promised int64
	// Ceiling is the per-connection credit ceiling at the current backend latency, Min to Max.
	Ceiling int
	// Raised and Lowered count the changes of connections' grants.
	Raised, Lowered [Reasons]uint64
}

// Stats returns the state of the policy. It may be called from any goroutine.
func (p *Adaptive) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.shares
	return Stats{
		Limits: s.limits, Connections: len(s.members), Granted: s.granted, Promised: s.used, Ceiling: s.top(),
		Raised: s.raised, Lowered: s.lowered,
	}
}

// account is the state of a connection. The holder of the connection's lock owns it; the policy
// owns member.
type account struct {
	p         *Adaptive
	max       int // Limits.Max at its opening; its queues have that size
	grant     int // the first credits, later member.grant
	requested int
	epoch     uint32
	again     bool // look again with the next reply
	since     time.Duration
	calls     int // since then
	posted    int // receives that stand for credits
	size      int // of each
	member    member
}

// Credits implements Account.
func (a *account) Credits(requested, _ int) int {
	p := a.p
	requested = min(requested, a.max)
	a.calls++
	epoch := p.epoch.Load()
	steady := !a.again && requested == a.requested && epoch == a.epoch
	if steady && p.fixed.Load() {
		return a.grant
	}
	now := p.clock()
	if steady && a.calls < a.grant && now-a.since < roundTrip || !p.mu.TryLock() {
		return a.grant
	}
	defer p.mu.Unlock()
	m := &a.member
	if m.closed {
		return a.grant
	}
	if a.calls >= a.grant || now-a.since >= roundTrip {
		m.use.observe(a.calls, now-a.since, now, m.grant, p.shares.limits)
		a.calls, a.since = 0, now
	}
	a.again = p.shares.settle(m, requested, a.posted, a.size, now)
	a.grant, a.requested, a.epoch = m.grant, requested, epoch
	return a.grant
}

// Posted implements ReceiveAccount.
func (a *account) Posted(n, size int) { a.posted, a.size = n, size }

// Max implements Account.
func (a *account) Max() int { return a.max }

// Close implements Account.
func (a *account) Close() {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.p.shares.close(&a.member)
}
