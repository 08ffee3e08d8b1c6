package upstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/xdr"
)

// maxNullReply bounds the reply to NULL, with a verifier of any length.
const maxNullReply = oncrpc.MinReplyLen + oncrpc.MaxAuthLen + 8

// Status is the state and the counters of a backend.
type Status struct {
	// Healthy reports whether the backend answers. Since is the time of the last change.
	Healthy bool
	Since   time.Time
	// Err is the latest error, even if the backend has recovered; ErrAt is its time.
	Err   error
	ErrAt time.Time

	Links         int   // backend connections of clients, including detached ones
	Detached      int   // without a client
	Connections   int   // live
	Calls         int   // unanswered
	WaitBytes     int64 // of calls that wait for a connection, or elsewhere after Admit
	OrphanedBytes int64 // of unanswered calls whose client has disconnected
	Ports         int   // source ports below 1024 in use

	// RDMA are the values agreed for the latest connection on RPC-over-RDMA, otherwise nil.
	RDMA *rpcrdma.Negotiated

	// Counters since New.
	Dials, DialErrors uint64 // attempts to connect
	Resends           uint64 // calls sent again on another connection
	SoftTimeouts      uint64
	Superseded        uint64 // calls that their client sent again
	Overloads         uint64 // calls refused because of WaitLimit
	OtherPorts        uint64 // connections without a source port below 1024 for lack of one
}

// Status returns the current state.
func (b *Backend) Status() Status {
	c := &b.counts
	s := Status{
		Connections: int(c.connected.Load()), WaitBytes: b.waiting.Load(), OrphanedBytes: b.orphaned.Load(), Ports: b.ports.inUse(),
		Dials: c.dials.Load(), DialErrors: c.dialErrors.Load(), Resends: c.resends.Load(), SoftTimeouts: c.softTimeouts.Load(),
		Superseded: c.superseded.Load(), Overloads: c.overloads.Load(), OtherPorts: c.otherPorts.Load(),
	}
	if d, ok := b.cfg.Dialer.(*RDMA); ok {
		s.RDMA = d.Negotiated()
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

// health tracks a backend's health.
type health struct {
	answered atomic.Bool   // since the last probe
	recheck  atomic.Bool   // a connection was lost: the backend may have restarted unnoticed
	probeNow chan struct{} // capacity 1

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

// onAnswer notes an answer to any call.
func (h *health) onAnswer() {
	if !h.answered.Load() {
		h.answered.Store(true)
	}
}

// onConnect starts a probe: a connection alone does not prove health.
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

// onLost notes that a connection has ended. The next one is probed.
func (h *health) onLost() { h.recheck.Store(true) }

// update records the result of a probe or a dial. It reports whether the health changed.
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

// setUnreachable records that the backend cannot be reached.
func (b *Backend) setUnreachable(err error) {
	if b.health.update(err) {
		b.cfg.Logger.Warn("backend unreachable; calls wait", "cause", err)
		b.notify(false)
	}
}

func (b *Backend) notify(healthy bool) {
	if b.cfg.OnHealthChange != nil {
		b.cfg.OnHealthChange(healthy)
	}
}

// keepProbing checks the backend's health unless answers to other calls show it.
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
			b.cfg.Logger.Info("backend answers")
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

// probeOnce calls NULL on a connection of its own. It uses any source port: NULL needs none below
// 1024, and these are few.
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
