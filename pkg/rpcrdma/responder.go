package rpcrdma

import (
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// responder is the role that answers the peer's calls.
//
// A call goes through these steps, the first ones on the receive loop:
//
//	call → plan → acquire → fetch → serve → Respond → sent
//
// It may wait for memory in acquire, for RDMA Reads in fetch, and for its handler in serve; it blocks nobody meanwhile.
type responder struct {
	*link
	share   *bufpool.Share
	account credit.Account // nil in the reverse direction

	table      atomic.Pointer[[]*inCall] // all calls, by id; replaced with the loop held
	local      *inCall                   // free calls of whoever has the loop
	active     atomic.Int32              // calls that are not free
	closed     atomic.Bool
	draining   atomic.Bool
	idle       chan struct{} // closed when draining and nothing is active
	quarantine *quarantine   // a server's

	messages atomic.Int64 // bytes of the messages that have arrived
	readLook readLook

	recent   recentWrites
	retained retainedReplies

	unsentFree atomic.Int32 // answers to messages that cost no credit, posted and not sent

	mu        sync.Mutex
	free      *inCall
	ready     *inCall // calls that got their memory while nobody had the loop, oldest first
	readyLast *inCall
	running   bool           // somebody runs them
	run       func()         // runReady, made once
	orphans   sync.WaitGroup // calls that got their memory while the connection ended
}

func (in *responder) init(l *link) {
	in.link = l
	in.retained.budget = in.cfg.Budget
	in.idle = make(chan struct{})
	in.run = in.runReady
	in.table.Store(new([]*inCall))
	if in.server {
		in.account = in.cfg.Credits.Open()
	}
}

// Progress implements [bufpool.Peer]. What has come in beside messages are Read chunks. A provider that does not know what is on its way out leaves it at
// replies that have left.
func (in *responder) Progress() (fetched, written int64) {
	fetched = int64(in.ep.Stats().BytesIn) - in.messages.Load()
	if w, ok := in.ep.(rdma.Writer); ok {
		written = int64(w.Written())
	}
	return fetched, written
}

// Stalled implements [bufpool.Peer].
func (in *responder) Stalled(err error) { in.fail(err) }

func (in *responder) signalIdle() {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.idle:
	default:
		close(in.idle)
	}
}

// drain makes idle be closed when no call is in flight any more. Calls that come from now on are not answered: the client will
// send them again on another connection.
func (in *responder) drain() <-chan struct{} {
	in.draining.Store(true)
	in.retained.close()
	if in.active.Load() == 0 {
		in.signalIdle()
	}
	return in.idle
}

func (in *responder) runReady() {
	for {
		in.recvMu.Lock()
		in.mu.Lock()
		ic := in.ready
		if ic == nil {
			in.running = false
			in.mu.Unlock()
			in.recvMu.Unlock()
			return
		}
		if in.ready = ic.next; in.ready == nil {
			in.readyLast = nil
		}
		ic.next = nil
		in.mu.Unlock()
		ic.state = stateReceived
		if in.closed.Load() {
			ic.recycle()
			in.orphans.Done()
		} else {
			ic.fetch()
		}
		in.recvMu.Unlock()
	}
}

// close frees the calls that are in nobody's hands. Those at the handler are freed when it answers. The loop is held.
func (in *responder) close() {
	in.closed.Store(true)
	in.mu.Lock()
	free := in.free
	in.free = nil
	in.mu.Unlock()
	for _, list := range []*inCall{in.local, free} {
		for ic := list; ic != nil; ic = ic.next {
			ic.freeHead()
		}
	}
	in.local = nil
	in.readLook.stop()
	for _, ic := range *in.table.Load() {
		switch ic.state {
		case stateWaiting:
			if ic.grant.Cancel() {
				ic.recycle()
			} else {
				in.orphans.Add(1) // memoryReady has it, or is about to
			}
		case stateReading:
			ic.recycle()
		case stateServing:
			if ic.unsent.CompareAndSwap(true, false) {
				ic.letGo()
			}
		}
	}
	in.retained.close()
	if in.account != nil {
		in.account.Close()
	}
}
