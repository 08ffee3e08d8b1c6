package rpcrdma

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// quarantine remembers calls whose chunks cost a connection. The client connects anew and sends
// them again; without an answer that would go on for ever. Such a call is answered ERR_CHUNK (RFC
// 8166 section 4.5.3).
type quarantine struct {
	n atomic.Int32 // number of calls, to look without the lock

	mu   sync.Mutex
	list []quarantinedCall
}

type quarantinedCall struct {
	client netip.Addr
	xid    uint32
	until  time.Time
}

const (
	maxQuarantined = 256
	quarantineTime = 5 * time.Minute
)

func (s *quarantine) add(client netip.Addr, xid uint32, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	if len(s.list) == maxQuarantined {
		s.list = append(s.list[:0], s.list[1:]...)
	}
	s.list = append(s.list, quarantinedCall{client, xid, now.Add(quarantineTime)})
	s.n.Store(int32(len(s.list)))
}

// readmit reports whether a call is in quarantine, and removes it.
func (s *quarantine) readmit(client netip.Addr, xid uint32, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	for i, x := range s.list {
		if x.client == client && x.xid == xid {
			s.list = append(s.list[:i], s.list[i+1:]...)
			s.n.Store(int32(len(s.list)))
			return true
		}
	}
	return false
}

func (s *quarantine) expire(now time.Time) {
	for len(s.list) > 0 && now.After(s.list[0].until) {
		s.list = append(s.list[:0], s.list[1:]...)
	}
	s.n.Store(int32(len(s.list)))
}

// recentWrites remembers the calls that were answered last with RDMA Writes: the refusal of a Write
// comes after its Send has completed.
type recentWrites struct {
	mu    sync.Mutex
	calls []recentWrite // a ring; nil before the first Write
	next  int
}

type recentWrite struct {
	xid    uint32
	handle [4]wire.Handle
}

// mostRecent is the length of the ring.
const mostRecent = 64

// record remembers the first handles that a call's answer writes to.
func (r *recentWrites) record(xid wire.XID, wrs []rdma.WorkRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = make([]recentWrite, mostRecent)
	}
	c := &r.calls[r.next%len(r.calls)]
	r.next++
	c.xid, c.handle = uint32(xid), [4]wire.Handle{}
	n := 0
	for i := range wrs {
		if h := wire.Handle(wrs[i].Remote.Handle); n < len(c.handle) && (n == 0 || c.handle[n-1] != h) {
			c.handle[n] = h
			n++
		}
	}
}
