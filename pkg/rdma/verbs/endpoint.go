//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// endpoint is one end of a connection. It posts in post.go, serves in serve.go, and exposes memory
// in region.go.
type endpoint struct {
	*ident
	dev    *device
	domain *domain
	space  *space
	connParams
	q             *C.struct_sv_queues
	local, remote net.Addr
	queuePair     *rdma.QueuePair
	stats         counters
	regions       regions
	exposed       exposed // where there are windows
	events        *watcher
	// closed by LAST_WQE_REACHED: no receive of a shared queue is taken any more
	last     chan struct{}
	lastOnce sync.Once
	reported atomic.Pointer[string] // the asynchronous event that made the queue pair fail

	// Serve's wait for completions.
	file  *os.File
	raw   syscall.RawConn
	event func(fd uintptr) bool // polls the queue
	seen  int                   // its result

	mu sync.Mutex
	// served: Serve was called. closing: Close was. done: nothing may be posted any more.
	served, closing, done bool
	freed                 chan struct{} // closed when the device touches no memory any more
	// gathering: Serve will flush, so that no other goroutine needs to. corks counts Corks without
	// Uncork.
	gathering atomic.Bool
	corks     atomic.Int32
	// awake: Serve was interrupted, to check the state. stale: the deadline of its wait is not
	// limit.
	awake, stale bool
	// broken is the reason why the queues take nothing more.
	broken  error
	sq      []slot // incomplete requests, by their numbers modulo the length
	sqHead  uint64 // number of the oldest
	sqSent  uint64 // number of the first incomplete Send or Write, or of a Read before it
	sqTail  uint64 // the next number
	binds   int    // requests from sqHead on that bind windows
	probing int    // and those that probe the peer
	idle    *time.Timer
	traffic uint64 // at the last run of idle
	rq      []uint64
	rqHead  uint64
	rqTail  uint64
	shared  *receiveQueue // instead of rq, if not nil
	revoked []uint64      // LocalInvalidates that are complete but not reported
	// bell is ring, on the thread that may notify a software device of requests: poll is its
	// argument, found its result.
	bell  *call
	poll  C.int
	found int
	// Gathered in q: requests and receives, and their segments; covering is the request that is
	// signaled for those before it, or -1.
	sends, sendList, covering int
	receives, receiveList     int

	h rdma.Handler
	// Owned by Serve.
	batch   []rdma.Completion
	sent    []uint64
	sinks   []*C.struct_ibv_mr
	failure failure
	limit   time.Time // end of Serve's wait
	spin    int       // repeated polls of an empty queue
}

// slot is a request of the send queue.
type slot struct {
	id       uint64
	op       rdma.Opcode
	signaled bool
	handle   uint32
	complete bool
	bytes    uint32
	sink     *C.struct_ibv_mr
	window   *window // to be invalidated
}

// newEndpoint makes the queues and posts the first receives.
func newEndpoint(i *ident, dev *device, o *rdma.Options, s connParams) (*endpoint, error) {
	e := &endpoint{ident: i, dev: dev, domain: o.Domain.(*domain), connParams: s, covering: -1,
		sq: make([]slot, s.sends+s.windows+s.probes), freed: make(chan struct{}), last: make(chan struct{}), events: watcherOf(dev.context)}
	var err error
	if e.space, err = e.domain.join(dev); err != nil {
		return nil, err
	}
	e.bell = newCall(e.ring)
	e.regions.init(i.p.cfg.MaxRegions)
	e.openWindows()
	e.q = (*C.struct_sv_queues)(C.calloc(1, C.sizeof_struct_sv_queues))
	if q, ok := o.SRQ.(*receiveQueue); ok {
		if err := q.join(dev); err != nil {
			e.free()
			return nil, err
		}
		e.shared = q
	} else {
		e.rq = make([]uint64, s.receives)
	}
	if err := e.open(); err != nil {
		e.free()
		return nil, err
	}
	if e.shared != nil {
		return e, nil
	}
	if err := e.PostReceives(o.Receives); err != nil {
		e.free()
		return nil, err
	}
	return e, nil
}

func (e *endpoint) open() error {
	errno := e.openQueues()
	if errno != 0 && e.windows > 0 {
		e.forgoWindows(syscall.Errno(errno))
		errno = e.openQueues()
	}
	if errno != 0 {
		return fmt.Errorf("verbs: %s: %s: %w%s", e.dev.name, C.GoString(e.q.failed), syscall.Errno(errno), memlockHint(syscall.Errno(errno)))
	}
	e.events.join(e, e.objects()...)
	var err error
	if e.file, err = pollable(int(e.q.channel.fd)); err != nil {
		return err
	}
	if e.raw, err = e.file.SyscallConn(); err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	e.event = func(uintptr) bool {
		e.seen = e.look()
		return e.seen != 0
	}
	return nil
}

func (e *endpoint) openQueues() C.int {
	if refuses := e.p.refuses; refuses != nil && refuses(len(e.sq)) {
		return C.int(syscall.ENOMEM)
	}
	var shared *C.struct_sv_shared
	if e.shared != nil {
		shared = e.shared.q
	}
	cfg := &e.p.cfg
	n := e.dev.queues.Add(1) - 1
	return onHelper(func() C.int {
		return C.sv_open(e.q, e.id, e.space.pd, shared, &C.struct_sv_settings{
			sends: C.int(len(e.sq)), receives: C.int(e.connParams.receives), segments: C.int(e.segments), max_inline: C.int(cfg.Inline),
			vector:         C.int(vector(cfg.CompletionVectors, int(e.id.verbs.num_comp_vectors), n)),
			moderate_count: C.int(cfg.Moderation.Completions), moderate_period: C.int(cfg.Moderation.Period / time.Microsecond),
		})
	})
}

// objects are the device's objects whose events concern e.
func (e *endpoint) objects() []uintptr {
	return []uintptr{uintptr(ptr(e.q.qp)), uintptr(ptr(e.q.cq))}
}

// rnrTimer is the peer's delay before it repeats a message that found no shared receive: 0.64 ms
// (InfiniBand Architecture Specification, volume 1, table 45). The connection manager's own is 655
// ms.
const rnrTimer = 12

// established records the connection's attributes, and watches for its end.
func (e *endpoint) established() {
	if e.shared != nil && e.dev.limits.iwarp == 0 {
		if errno := onHelper(func() C.int { return C.sv_rnr_timer(e.q, rnrTimer) }); errno != 0 {
			e.p.cfg.Logger.Debug("the RDMA device keeps its own RNR timer", "device", e.dev.name, "error", syscall.Errno(errno))
		}
	}
	if e.probes > 0 {
		e.mu.Lock()
		e.idle = time.AfterFunc(e.p.cfg.KeepAlive, e.keepAlive)
		e.mu.Unlock()
	}
	e.local, e.remote = e.localAddr(), e.remoteAddr()
	e.queuePair = e.path()
	if !e.watch(e.wake) {
		e.wake()
	}
}

// free destroys the queues; the device touches no memory any more when it returns. The id stays.
func (e *endpoint) free() {
	e.exposed.free(e.q)
	e.giveBack()
	e.events.leave(e.objects()...)
	onHelper(func() struct{} { C.sv_destroy_qp(e.q); return struct{}{} })
	e.giveBack()
	for n := e.sqHead; n < e.sqTail; n++ {
		if mr := e.slot(n).sink; mr != nil {
			C.ibv_dereg_mr(mr)
		}
	}
	e.regions.free()
	if e.file != nil {
		_ = e.file.Close()
	}
	C.sv_destroy_rest(e.q)
	C.free(ptr(e.q))
	e.q = nil
	if e.shared != nil {
		e.shared.leave()
	}
	e.domain.leave(e.dev)
}

// destroy frees everything.
func (e *endpoint) destroy() {
	e.free()
	e.ident.free()
}

// finish ends the connection and frees everything. The queues are unused afterwards.
func (e *endpoint) finish() {
	e.mu.Lock()
	e.done = true
	if e.idle != nil {
		e.idle.Stop()
	}
	e.mu.Unlock()
	onHelper(func() C.int { return C.rdma_disconnect(e.id) })
	e.mu.Lock() // after any post in progress
	e.free()
	e.mu.Unlock()
	close(e.freed)
	e.linger()
}

// Close implements [rdma.Endpoint].
func (e *endpoint) Close() error {
	e.mu.Lock()
	if e.closing || e.done {
		e.mu.Unlock()
		return nil
	}
	e.closing = true
	e.flushLocked()
	served := e.served
	e.mu.Unlock()
	if served {
		e.wake()
		return nil
	}
	e.finish()
	return nil
}

// wake makes Serve check the state.
func (e *endpoint) wake() {
	e.mu.Lock()
	e.interrupt()
	e.mu.Unlock()
}

// interrupt is wake for a caller that holds mu.
func (e *endpoint) interrupt() {
	if e.served && !e.awake && !e.done {
		e.awake, e.stale = true, true
		_ = e.file.SetReadDeadline(longAgo)
	}
}

// longAgo as a deadline ends a wait at once.
var longAgo = time.Unix(1, 0)

// Attributes implements [rdma.Endpoint].
func (e *endpoint) Attributes() rdma.Attributes {
	return rdma.Attributes{Provider: "verbs", Device: e.dev.name, PrivateData: e.private, ORD: e.ord, IRD: e.ird,
		MaxSegments: e.segments, MaxReadSegments: e.readSegments, RemoteInvalidation: e.windows > 0, QueuePair: e.queuePair}
}

func (e *endpoint) Stats() rdma.Stats    { return e.stats.snapshot() }
func (e *endpoint) LocalAddr() net.Addr  { return e.local }
func (e *endpoint) RemoteAddr() net.Addr { return e.remote }

// kill destroys the queue pair as the death of this host would: without notice to the peer. It is
// for tests.
func (e *endpoint) kill() { C.sv_destroy_qp(e.q) }
