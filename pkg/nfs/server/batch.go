package server

import (
	"sync"

	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
)

// batch keeps the last attributes that a connection's receive loop queried in a batch. All calls of
// a batch arrived before it began, so the calls that read attributes of one object may share a
// query: each has them as they were at a moment while the call was outstanding.
//
// It is the [oncrpc.Conn]'s Batch, which the transport corks during a batch.
type batch struct {
	s *Server

	mu     sync.Mutex // transports may uncork while calls that waited for memory run
	active bool
	node   *vfs.Node // not for use: it may be closed
	attrs  vfs.Stat
}

// batchOf returns a connection's batch. Only ServeRPC may call it.
func (s *Server) batchOf(c *oncrpc.Conn) *batch {
	b, ok := c.Batch.(*batch)
	if !ok || b.s != s {
		b = &batch{s: s}
		c.Batch = b
	}
	return b
}

// Cork begins a batch.
func (b *batch) Cork() { b.set(true) }

// Uncork ends it.
func (b *batch) Uncork() { b.set(false) }

func (b *batch) set(active bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.active, b.node = active, nil
}

// stat fills in st, and reports whether that was possible.
func (b *batch) stat(n *vfs.Node, st *vfs.Stat) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.node == n {
		*st = b.attrs
		return true
	}
	if n.Stat(st) != nil {
		return false
	}
	if b.active {
		b.node, b.attrs = n, *st
	}
	return true
}

// changed drops attributes after a change by a call of the batch. The others need not see it, but
// the client's own view stays in order.
func (b *batch) changed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.node = nil
}
