package rpcrdma

import (
	"log/slog"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

const (
	// SharedDepth is how many receives a shared queue holds at most. A connection that finds it
	// full gets one of its own.
	SharedDepth = 16384
	// sharedMargin is the number of receives posted beyond the promised ones. A provider reports
	// about as many at once.
	sharedMargin = 64
)

// srqSet holds the receive queues that connections of a server share, one for each key. A queue
// lasts as long as its connections.
type srqSet struct {
	cfg *Config // of the connections that share

	mu     sync.Mutex
	own    int // connections that have queues of their own
	queues map[any]*srq
}

type srq struct {
	*recvQueue
	rdma        rdma.SRQ
	key         any
	connections int
}

func newSRQSet(cfg *Config) *srqSet {
	c := *cfg
	c.InlineCall = min(c.InlineCall, wire.DefaultReceiveSize)
	c.Extensions &= TransportProperties
	c.layout = nil
	return &srqSet{cfg: &c, queues: map[any]*srq{}}
}

// attach counts a connection, and returns its shared queue: nil if it has a queue of its own.
func (s *srqSet) attach(in rdma.ConnRequest) *srq {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := in.SRQKey()
	if n := s.cfg.OwnReceives; key == nil || n == 0 || s.own < n {
		s.own++
		return nil
	}
	q := s.queues[key]
	if q == nil {
		posts, err := in.NewSRQ(s.cfg.Domain, SharedDepth)
		if err != nil {
			s.cfg.Logger.Warn("connections cannot share receives, and have their own", slog.String("reason", err.Error()))
			s.own++
			return nil
		}
		q = &srq{recvQueue: newRecvQueue(s.cfg.Pool, [][]int{{s.receiveSize()}}), rdma: posts, key: key}
		q.to, q.shared, q.depth, q.margin, q.onPosted = posts, true, posts.Depth(), min(sharedMargin, posts.Depth()/2), s.cfg.Observer.SRQPosted
		s.queues[key] = q
	}
	q.connections++
	return q
}

// alone counts a connection with a queue of its own, since the shared one is full.
func (s *srqSet) alone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own++
}

// receiveSize is the size of shared receives in bytes.
func (s *srqSet) receiveSize() int {
	if s.cfg.offers(wire.Version2) {
		return wire.DefaultReceiveSize
	}
	return s.cfg.InlineCall
}

// detach uncounts a connection that has ended: of q, or with a queue of its own.
func (s *srqSet) detach(q *srq) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q == nil {
		s.own--
		return
	}
	if q.connections--; q.connections > 0 {
		return
	}
	delete(s.queues, q.key)
	if err := q.rdma.Close(); err != nil { // the memory stays the provider's
		s.cfg.Logger.Error("a shared queue of receives is not closed", slog.String("reason", err.Error()))
		return
	}
	q.close()
}
