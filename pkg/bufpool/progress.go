package bufpool

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrNoProgress ends a connection that held memory for its peer too long while others waited.
var ErrNoProgress = errors.New("bufpool: the peer makes too little progress while others wait for memory")

const (
	// tick is the monitor's interval; window is the number of ticks that progress is measured over.
	// It counts ticks, not time, so that a pause of the process is no stall.
	tick   = time.Second
	window = 5
)

// Lane is a direction in which a connection moves bytes in order. So progress in a lane is progress
// of its oldest call, and a peer cannot hide a stalled call behind others.
type Lane uint8

const (
	noLane Lane = iota
	// In is data from the peer: the rest of a record, or the data of RDMA Reads.
	In
	// Out is data to the peer: replies.
	Out
	lanes = iota - 1
)

func (l Lane) String() string { return [...]string{"none", "received", "sent"}[l] }

// lane counts the bytes of calls that wait for the peer.
type lane struct {
	held  atomic.Int64
	moved atomic.Int64 // bytes of calls that have their answer from the peer
}

func (l *lane) settle(n int64) {
	l.held.Add(-n)
	l.moved.Add(n)
}

// Peer is the other end of a connection with a [Share].
type Peer interface {
	// Progress returns the bytes that came in and went out, also of incomplete messages. It returns
	// 0 for unknown counts: then only calls that leave a lane count.
	Progress() (in, out int64)
	// Stalled ends the connection. It is called without locks and does not block.
	Stalled(err error)
}

// AwaitPeer records that the call waits for its peer, in a lane, until PeerDone or Release. It does
// nothing if g holds nothing. Time spent in a backend, a disk or the gateway itself must not be
// included.
func (g *Grant) AwaitPeer(l Lane) {
	if g.state.Load() == grantHeld && g.lane == noLane {
		g.lane = l
		g.share.lanes[l-1].held.Add(g.n)
	}
}

// PeerDone ends AwaitPeer.
func (g *Grant) PeerDone() {
	if g.lane != noLane {
		g.share.lanes[g.lane-1].settle(g.n)
		g.lane = noLane
	}
}

// monitor ends connections without progress while others wait. It runs only while a need waits for
// the total of a budget, or for the ceiling.
type monitor struct {
	ceiling *Ceiling // may be nil
	armed   atomic.Bool

	mu      sync.Mutex
	budgets map[*Budget]struct{}
	ticks   uint64
	looked  []*Share // reused by run
}

// watch is the monitor's record of a share. Samples are of the last ticks, at ticks % window.
type watch struct {
	tick    uint64 // the last one
	count   [lanes]int
	samples [lanes][window]int64
}

func newMonitor(c *Ceiling, budgets ...*Budget) *monitor {
	m := &monitor{ceiling: c, budgets: map[*Budget]struct{}{}}
	for _, b := range budgets {
		m.add(b)
	}
	return m
}

func (m *monitor) add(b *Budget) {
	m.mu.Lock()
	m.budgets[b] = struct{}{}
	m.mu.Unlock()
}

func (m *monitor) remove(b *Budget) {
	m.mu.Lock()
	delete(m.budgets, b)
	m.mu.Unlock()
}

// arm makes the monitor run after a tick. The caller may hold the locks of budgets and ceilings.
func (m *monitor) arm() {
	if !m.armed.Swap(true) {
		time.AfterFunc(tick, m.run)
	}
}

// run checks all connections once.
func (m *monitor) run() {
	m.armed.Store(false) // later waiters arm it again
	type end struct {
		peer Peer
		err  error
	}
	var ends []end
	m.mu.Lock()
	m.ticks++
	again, ceilingWaits := false, m.ceiling != nil && m.ceiling.waits()
	for b := range m.budgets {
		least, wanted := b.wants(ceilingWaits, m)
		if !wanted {
			continue
		}
		again = true
		for _, s := range m.looked {
			if err := s.check(m.ticks, window*least); err != nil {
				ends = append(ends, end{s.peer, err})
			}
		}
		clear(m.looked)
		m.looked = m.looked[:0]
	}
	if again {
		m.arm()
	} else {
		m.ticks++ // the next measurement starts anew
	}
	m.mu.Unlock()
	for _, e := range ends {
		e.peer.Stalled(e.err)
	}
}

// wants reports whether a need has waited for the total since the last tick, or waits for the
// ceiling. It appends to m.looked the shares that hold memory for their peers, which must move
// least bytes per second.
func (b *Budget) wants(ceilingWaits bool, m *monitor) (least int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ok = b.limits.MinProgress > 0 && (b.contended || b.starved != nobody || ceilingWaits)
	b.contended = false
	if !ok {
		return 0, false
	}
	for s := b.holding; s != nil; s = s.nextHolding {
		if s.peer != nil && (s.lanes[In-1].held.Load() > 0 || s.lanes[Out-1].held.Load() > 0) {
			m.looked = append(m.looked, s)
		}
	}
	return b.limits.MinProgress, true
}

// check takes a sample. It returns an error if a lane in which calls have waited for the whole
// window moved fewer than least bytes. Bytes that calls gave back count, and bytes that the peer
// moved for waiting calls.
func (s *Share) check(tick uint64, least int64) (err error) {
	w := &s.watch
	if w.tick != tick-1 {
		w.count = [lanes]int{}
	}
	w.tick = tick
	var moved [lanes]int64
	moved[In-1], moved[Out-1] = s.peer.Progress()
	for i := range s.lanes {
		held := s.lanes[i].held.Load()
		if held <= 0 {
			w.count[i] = 0
			continue
		}
		at, sample := moved[i]+s.lanes[i].moved.Load(), &w.samples[i][tick%window]
		if n := at - *sample; w.count[i] >= window && n < least {
			err = fmt.Errorf("%w: %d bytes are held for it, %d were %v in %d s, the least is %d",
				ErrNoProgress, held, n, Lane(i+1), window, least)
		}
		*sample = at
		w.count[i]++
	}
	return err
}
