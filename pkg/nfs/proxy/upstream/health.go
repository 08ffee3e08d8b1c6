package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxNullReply bounds the reply to a NULL call: its header with a verifier of any length.
const maxNullReply = oncrpc.MinReplyLen + oncrpc.MaxAuthLen + 8

// Status tells how a backend is and what it has done.
type Status struct {
	// Healthy: the backend answers. Since is from when on it does, or does not.
	Healthy bool
	Since   time.Time
	// Err is what went wrong last, even if all is well again; ErrAt is when.
	Err   error
	ErrAt time.Time

	Links         int   // links with a call or more, open or parked
	Detached      int   // those whose client has gone
	Connections   int   // of all links
	Calls         int   // unanswered
	WaitBytes     int64 // of the calls that wait for a connection, or were admitted to wait elsewhere
	OrphanedBytes int64 // of the calls whose client has gone, and which a connection has in hand
	Ports         int   // source ports below 1024 in use

	// Counts from the beginning.
	Dials, DialErrors uint64 // attempts to connect
	Resends           uint64 // calls sent again on another connection
	SoftTimeouts      uint64
	Superseded        uint64 // calls that the client sent again
	Overloads         uint64 // calls refused since too much waited
	OtherPorts        uint64 // connections for which no source port below 1024 was left
}

// Status returns the present state.
func (b *Backend) Status() Status {
	c := &b.counts
	s := Status{
		Connections: int(c.connected.Load()), WaitBytes: b.waiting.Load(), OrphanedBytes: b.orphaned.Load(), Ports: b.ports.inUse(),
		Dials: c.dials.Load(), DialErrors: c.dialErrors.Load(), Resends: c.resends.Load(), SoftTimeouts: c.softTimeouts.Load(),
		Superseded: c.superseded.Load(), Overloads: c.overloads.Load(), OtherPorts: c.otherPorts.Load(),
	}
	b.mu.Lock()
	s.Links, s.Detached = len(b.conns), len(b.detached)
	for bc := range b.conns {
		bc.mu.Lock()
		s.Calls += bc.queue.n
		bc.mu.Unlock()
	}
	b.mu.Unlock()
	h := &b.health
	h.mu.Lock()
	defer h.mu.Unlock()
	s.Healthy, s.Since, s.Err, s.ErrAt = h.healthy, h.since, h.err, h.errAt
	return s
}

// health is what is known of a backend's health.
type health struct {
	answered atomic.Bool   // there was an answer since the last probe
	recheck  atomic.Bool   // a connection was lost: the backend may be another one by now, even if it was never missed
	probeNow chan struct{} // probe at once; holds one

	mu      sync.Mutex
	known   bool
	healthy bool
	since   time.Time
	err     error
	errAt   time.Time
}

func (h *health) init() {
	h.probeNow = make(chan struct{}, 1)
	h.since = time.Now()
}

// onAnswer takes note of an answer to any call.
func (h *health) onAnswer() {
	if !h.answered.Load() {
		h.answered.Store(true)
	}
}

// onConnect takes note of a connection. Whether something answers there, a probe tells.
func (h *health) onConnect() {
	h.mu.Lock()
	healthy := h.healthy
	h.mu.Unlock()
	if !healthy || h.recheck.Load() {
		select {
		case h.probeNow <- struct{}{}:
		default:
		}
	}
}

// onLost takes note that a connection has ended, which this side did not end. The backend is probed when there is the next one.
func (h *health) onLost() { h.recheck.Store(true) }

// update takes note of what a probe, or an attempt to connect, has found. It reports whether that is news.
func (h *health) update(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if err != nil {
		h.err, h.errAt = err, now
	}
	news := !h.known || h.healthy != (err == nil)
	if news {
		h.known, h.healthy, h.since = true, err == nil, now
	}
	return news
}

// setUnreachable takes note that the backend is out of reach.
func (b *Backend) setUnreachable(err error) {
	if b.health.update(err) {
		b.cfg.Logger.Warn("backend: out of reach, calls wait", "cause", err)
		b.notify(false)
	}
}

func (b *Backend) notify(healthy bool) {
	if b.cfg.OnHealthChange != nil {
		b.cfg.OnHealthChange(healthy)
	}
}

// keepProbing is the goroutine that asks the backend how it is, unless answers to other calls tell that.
func (b *Backend) keepProbing() {
	t := time.NewTicker(b.cfg.ProbeInterval)
	defer t.Stop()
	for {
		var err error
		again := b.health.recheck.Swap(false)
		if !b.health.answered.Swap(false) || again {
			err = b.probeOnce()
		}
		switch {
		case b.ctx.Err() != nil:
			return
		case err != nil:
			b.setUnreachable(err)
		case b.health.update(nil):
			b.cfg.Logger.Info("backend: it answers")
			b.notify(true)
		case again:
			b.notify(true)
		}
		select {
		case <-t.C:
		case <-b.health.probeNow:
		case <-b.ctx.Done():
			return
		}
	}
}

// probeOnce calls the NULL procedure on a connection that is made for it, from any source port: those below 1024 are few, and NULL needs none.
func (b *Backend) probeOnce() error {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.DialTimeout)
	defer cancel()
	conn, err := b.cfg.Dialer.Dial(ctx, 0, noPeer{})
	if err != nil {
		return err
	}
	defer conn.Wait()
	defer func() { _ = conn.Close() }()
	return b.callNull(ctx, conn)
}

// callNull calls the NULL procedure on a connection.
func (b *Backend) callNull(ctx context.Context, conn Conn) error {
	buf, err := b.cfg.Pool.Get(oncrpc.MinCallLen)
	if err != nil {
		return err
	}
	p := b.cfg.Probe
	r := &oncrpc.Request{Program: p.Program, Version: p.Version, ArgsAt: oncrpc.MinCallLen}
	defer r.Call.Release()
	defer r.Reply.Release()
	r.Call.Own(buf)
	var e xdr.Encoder
	e.Reset(buf.B[:0], nil)
	oncrpc.EncodeCallHeader(&e, 0, r.Program, r.Version, 0, oncrpc.Auth{}, oncrpc.Auth{})
	r.Call.Stream = append(r.Call.Stream, e.Bytes())
	r.Plan.MaxReply = maxNullReply
	if err := oncrpc.Do(ctx, conn, r); err != nil {
		return err
	}
	var refused *oncrpc.StatusError
	if _, err := r.Results(); err != nil && !errors.As(err, &refused) {
		return err
	}
	return nil
}
