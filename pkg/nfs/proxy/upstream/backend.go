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
	// ParkTime is how long the connection of a client that went is kept for it. 0 means one minute.
	ParkTime time.Duration
	// MaxParked bounds the connections that are kept; the one that was kept longest goes first. 0 means 256.
	MaxParked int
	// BackoffMin and BackoffMax bound the time between two attempts to connect, which doubles from one to the next. 0 means 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// DialTimeout bounds one attempt to connect. 0 means 10 s.
	DialTimeout time.Duration
	// PortPatience is how long a connection's source port is tried again when it is not free, before another is taken. 0 means 5 s.
	PortPatience time.Duration
	// ProbeInterval is the time between two probes of the backend's health. 0 means 10 s.
	ProbeInterval time.Duration

	// Changed, if set, is told when the backend's health changes: that it answers, for the first time or again, or does not any more. That it answers is also
	// told after a connection was lost, since a restart may be over before anybody has missed the backend. It must not block.
	Changed func(healthy bool)
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
	if c.SoftTimeout < 0 || c.WaitLimit < 0 || c.MaxParked < 0 {
		return fmt.Errorf("upstream: Config.SoftTimeout is %v, WaitLimit %d and MaxParked %d, none may be negative", c.SoftTimeout, c.WaitLimit, c.MaxParked)
	}
	for _, f := range []struct {
		name    string
		v       *time.Duration
		initial time.Duration
	}{
		{"ParkTime", &c.ParkTime, time.Minute},
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
	if c.MaxParked == 0 {
		c.MaxParked = 256
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
	cfg     Config
	ctx     context.Context // until Close
	stop    context.CancelFunc
	running sync.WaitGroup
	ports   ports
	waiting atomic.Int64 // bytes of the calls of lines that have no connection, and of those that wait elsewhere
	left    atomic.Int64 // bytes of the calls that a connection has in hand, and whose client has gone
	counts  counts
	health  health

	mu     sync.Mutex
	closed bool
	lines  map[*line]struct{}
	parked []*line // the one parked first comes first
}

// counts are what a backend counts from its beginning.
type counts struct {
	connected                                      atomic.Int64
	dials, dialErrors, resends                     atomic.Uint64
	softTimeouts, superseded, overloads, otherPort atomic.Uint64
}

// New makes a backend and begins to probe it.
func New(cfg Config) (*Backend, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	b := &Backend{cfg: cfg, lines: map[*line]struct{}{}}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.ports.never = cfg.AnyPort
	b.health.init()
	b.running.Go(b.probe)
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
	lines := make([]*line, 0, len(b.lines))
	for l := range b.lines {
		lines = append(lines, l)
	}
	for _, l := range b.parked {
		l.parkTimer.Stop()
	}
	b.parked = nil
	b.mu.Unlock()
	for _, l := range lines {
		l.close()
	}
	b.stop()
	b.running.Wait()
}

// Admit reports whether a call of n bytes may wait for the backend elsewhere than on a link, and counts it among those that wait. If so, Dismiss follows.
func (b *Backend) Admit(n int) bool {
	size := int64(n + callCost)
	if !b.admit(size) {
		return false
	}
	b.waiting.Add(size)
	return true
}

// Dismiss tells that a call of n bytes, which Admit has counted, waits no longer.
func (b *Backend) Dismiss(n int) { b.waiting.Add(-int64(n + callCost)) }

// line returns the line for lk whose first call is r: one that was parked for the same client, if that may be of use, or a new one.
// It returns nil if the backend is closed.
func (b *Backend) line(lk *Link, r *Request) *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	if r.Replay == ReplayByXID {
		if l := b.unpark(lk, r.XID); l != nil {
			return l
		}
	}
	l := newLine(b, lk)
	b.lines[l] = struct{}{}
	return l
}

// unpark returns a line that was parked for lk's client. If there are several (nconnect), the one on which the XID was seen is the right one; otherwise the
// one parked first. b is locked.
func (b *Backend) unpark(lk *Link, xid uint32) *line {
	found := -1
	for i, l := range b.parked {
		if l.address != lk.client.Remote.Addr().Unmap() {
			continue
		}
		if l.knows(xid) {
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
	l := b.parked[found]
	b.parked = slices.Delete(b.parked, found, found+1)
	l.parkTimer.Stop()
	l.mu.Lock()
	l.owner.Store(lk)
	l.mu.Unlock()
	return l
}

// park keeps a line, which has no owner any more, for the client at its address.
func (b *Backend) park(l *line) {
	var goes *line
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		l.close()
		return
	}
	b.parked = append(b.parked, l)
	if len(b.parked) > b.cfg.MaxParked {
		goes = b.parked[0]
		goes.parkTimer.Stop()
		b.parked = slices.Delete(b.parked, 0, 1)
	}
	if goes != l {
		l.parkTimer = time.AfterFunc(b.cfg.ParkTime, func() { b.expire(l) })
	}
	b.mu.Unlock()
	if goes != nil {
		goes.close()
	}
}

// expire ends a line whose client has not returned in time.
func (b *Backend) expire(l *line) {
	b.mu.Lock()
	i := slices.Index(b.parked, l)
	if i >= 0 {
		b.parked = slices.Delete(b.parked, i, i+1)
	}
	b.mu.Unlock()
	if i >= 0 {
		l.close()
	}
}

// forget drops a line that is closed.
func (b *Backend) forget(l *line) {
	b.mu.Lock()
	delete(b.lines, l)
	b.mu.Unlock()
}
