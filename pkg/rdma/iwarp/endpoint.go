package iwarp

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// mpaParams are the parameters negotiated by the start-up frames.
type mpaParams struct {
	private      []byte
	crc, markers bool // markers in sent FPDUs
	responder    bool
	// the first FPDU may be an empty Send that is no message (RFC 6581 section 9.2)
	absorbRTR bool
	ord, ird  int
}

// endpoint is one end of a connection.
//
// It has a receiver (recv.go), owned by the Serve goroutine, a sender (send.go), owned by the
// holder of the flush token, and here, under mu, the state that both and the callers share.
type endpoint struct {
	sock          socket
	local, remote net.Addr
	mpaParams
	roundTrip time.Duration
	domain    *domain
	stags     *stagTable
	stats     counters

	rx receiver
	tx sender

	mu      sync.Mutex
	changed sync.Cond // on mu: the token came back, the writer has work, or it ended
	// served: Serve was called. done: nothing may be posted any more.
	served, done bool
	closing      bool
	freed        bool // all is freed
	// gathering: the receive loop will flush, so that no other goroutine needs to. True until Serve
	// begins.
	gathering bool
	// corks counts Corks without Uncork; ending: they do not count any more.
	corks  int
	ending bool
	// gathered counts the bytes posted since the last flush. A large amount does not wait for the
	// end of the batch: sent at once, it is still in the cache, and so is its memory when it is
	// reused.
	gathered int
	// flushing is the writer lock: a goroutine is filling and writing.
	flushing bool
	// awaitingFirstFPDU: a responder may not send before it got an FPDU (RFC 5044 section 7.1.2).
	awaitingFirstFPDU bool
	// awake: the receive loop was interrupted, to check the state. trimming: it is to trim.
	awake, trimming bool
	// broken is the reason for the receive loop to end; unwritable means that the socket takes
	// nothing more.
	broken     error
	unwritable bool
	sendFree   int // free entries of the send queue
	sq         ring[rdma.WorkRequest]
	reads      readQueue
	answers    ring[answer] // incoming Read Requests that wait for their response
	revoked    []revocation // those that are complete but not reported
	term       []byte       // Terminate to send, once, without its FPDU; nothing follows
	writer     writer

	// failed: term is set.
	failed atomic.Bool
	// inFlight counts answers and the response being sent.
	inFlight atomic.Int32

	rqMu   sync.Mutex
	rq     receiveQueue
	rqFree int

	h       rdma.Handler
	threads int           // Config.Threads
	spin    time.Duration // Config.Spin
	posted  atomic.Uint32 // counts work requests, to be compared within a batch
}

func newEndpoint(conn *net.TCPConn, cfg *Config, o *rdma.Options, s mpaParams) (*endpoint, error) {
	e := &endpoint{local: conn.LocalAddr(), remote: conn.RemoteAddr(), mpaParams: s, domain: o.Domain.(*domain), stags: newSTagTable(cfg.MaxRegions),
		gathering: true, awaitingFirstFPDU: s.responder, sendFree: o.SendQueue, rqFree: o.ReceiveQueue, threads: cfg.Threads,
		spin: cfg.Spin}
	sock, err := newSocket(e, conn)
	if err != nil {
		return nil, fmt.Errorf("iwarp: %w", err)
	}
	e.sock = sock
	e.roundTrip = roundTrip(sock)
	e.changed.L = &e.mu
	e.rx.init()
	e.rq.reuse = o.ReuseReceives
	maxFPDU, err := e.maxFPDU(cfg.MaxFPDU)
	if err != nil {
		return nil, err
	}
	e.tx.init(e, maxFPDU)
	if err := e.PostReceives(o.Receives); err != nil {
		return nil, err
	}
	return e, e.domain.join()
}

// Attributes implements [rdma.Endpoint].
func (e *endpoint) Attributes() rdma.Attributes {
	return rdma.Attributes{Provider: "iwarp", PrivateData: e.private, ORD: e.ord, IRD: e.ird,
		MaxSegments: maxSegments, MaxReadSegments: maxSegments, RemoteInvalidation: true, Redirects: true, RoundTrip: e.roundTrip, CRC: e.crc}
}

func (e *endpoint) Written() uint64      { return e.stats.bytesOut.Load() }
func (e *endpoint) Stats() rdma.Stats    { return e.stats.snapshot() }
func (e *endpoint) LocalAddr() net.Addr  { return e.local }
func (e *endpoint) RemoteAddr() net.Addr { return e.remote }

// Expose implements [rdma.Endpoint].
func (e *endpoint) Expose(mem []byte, access rdma.Access) (rdma.Remote, error) {
	if len(mem) > 0 && !e.domain.holds(spanOf(mem)) {
		return rdma.Remote{}, fmt.Errorf("iwarp: %d bytes to expose lie in no arena that is attached to the domain", len(mem))
	}
	return e.stags.expose(mem, access)
}

// PostReceives implements [rdma.Endpoint].
func (e *endpoint) PostReceives(rs []rdma.Receive) error {
	for i := range rs {
		if _, err := e.domain.check(rs[i].Segments); err != nil {
			return fmt.Errorf("iwarp: receive %d: %w", rs[i].ID, err)
		}
	}
	e.rqMu.Lock()
	defer e.rqMu.Unlock()
	if e.rqFree < 0 {
		return net.ErrClosed
	}
	if len(rs) > e.rqFree {
		return fmt.Errorf("iwarp: %d receives for a queue with room for %d", len(rs), e.rqFree)
	}
	e.rqFree -= len(rs)
	for i := range rs {
		e.rq.push(&rs[i])
	}
	return nil
}

// takeReceive removes the next receive from the queue.
func (e *endpoint) takeReceive() (rdma.Receive, bool) {
	e.rqMu.Lock()
	defer e.rqMu.Unlock()
	r, ok := e.rq.pop()
	if ok {
		e.rqFree++
	}
	return r, ok
}

// checkWork validates a work request, and returns the bytes of memory that it sends.
func (e *endpoint) checkWork(w *rdma.WorkRequest) (send int, err error) {
	switch w.Op {
	case rdma.Send, rdma.SendWithInvalidate, rdma.Write, rdma.Read:
	case rdma.LocalInvalidate:
		return 0, nil
	case rdma.Redirect:
		if n := e.stags.size(w.Invalidate); len(w.Local) != 1 || n >= 0 && len(w.Local[0]) != n {
			return 0, fmt.Errorf("iwarp: work request %d redirects STag %08x: want one slice as long as the exposed memory", w.ID, w.Invalidate)
		}
		_, err = e.domain.check(w.Local)
		return 0, err
	default:
		return 0, fmt.Errorf("iwarp: work request %d has opcode %d, which nobody can post", w.ID, w.Op)
	}
	n, err := e.domain.check(w.Local)
	if err != nil {
		return 0, fmt.Errorf("iwarp: work request %d: %w", w.ID, err)
	}
	if n > math.MaxUint32 {
		return 0, fmt.Errorf("iwarp: work request %d moves %d bytes, at most %d are possible", w.ID, n, uint32(math.MaxUint32))
	}
	if w.Op != rdma.Read {
		return int(n), nil
	}
	if e.ord == 0 {
		return 0, fmt.Errorf("iwarp: work request %d is a Read, but the connection was set up for none (ORD 0)", w.ID)
	}
	return 0, nil
}

func length(list [][]byte) (n uint64) {
	for _, s := range list {
		n += uint64(len(s))
	}
	return n
}

// Post implements [rdma.Endpoint].
func (e *endpoint) Post(wrs []rdma.WorkRequest) error {
	bytes := 0
	for i := range wrs {
		n, err := e.checkWork(&wrs[i])
		if err != nil {
			return err
		}
		bytes += n
	}
	e.mu.Lock()
	if e.done || e.closing || e.term != nil {
		e.mu.Unlock()
		return net.ErrClosed
	}
	if len(wrs) > e.sendFree {
		e.mu.Unlock()
		return fmt.Errorf("iwarp: %d work requests for a send queue with room for %d", len(wrs), e.sendFree)
	}
	e.sendFree -= len(wrs)
	e.posted.Add(uint32(len(wrs)))
	wake := false
	for i := range wrs {
		w, complete := &wrs[i], false
		switch w.Op {
		case rdma.LocalInvalidate:
			complete = e.stags.invalidateLocal(w.Invalidate, w.ID)
		case rdma.Redirect:
			complete = e.stags.redirect(w.Invalidate, w.Local[0], w.ID)
		default:
			e.sq.push(*w)
		}
		if complete {
			e.revoked = append(e.revoked, revocation{w.ID, w.Op})
			wake = true
		}
	}
	wake = wake && e.wantWakeLocked()
	e.gathered += bytes
	flush := e.startFlushLocked()
	e.mu.Unlock()
	if wake {
		e.sock.interrupt()
	}
	if flush {
		e.flush(false)
	}
	return nil
}

// Cork implements [rdma.Endpoint].
func (e *endpoint) Cork() {
	e.mu.Lock()
	e.corks++
	e.mu.Unlock()
}

// Uncork implements [rdma.Endpoint].
func (e *endpoint) Uncork() {
	e.mu.Lock()
	e.corks--
	flush := e.startFlushLocked()
	e.mu.Unlock()
	if flush {
		e.flush(false)
	}
}

// wantWakeLocked decides whether to wake the receive loop. The caller holds mu, and then calls wake
// without it.
func (e *endpoint) wantWakeLocked() bool {
	if e.gathering || e.awake {
		return false
	}
	e.awake = true
	return true
}

// startFlushLocked takes the writer lock if there is work and no other goroutine sends or will. The
// caller holds mu.
func (e *endpoint) startFlushLocked() bool {
	gathers := e.gathering || e.corks > 0 && !e.ending
	if gathers && (!e.served || e.gathered < gatherMax) || e.flushing || !e.canSendLocked() {
		return false
	}
	e.flushing = true
	e.gathered = 0
	return true
}

// canSendLocked reports whether the sender could build an FPDU now. The caller holds mu.
func (e *endpoint) canSendLocked() bool {
	if e.done || e.unwritable {
		return false
	}
	if e.term != nil {
		return !e.tx.terminated
	}
	if e.awaitingFirstFPDU {
		return false
	}
	return e.sq.len() > 0 || e.answers.len() > 0 || e.reads.sendable(e.ord)
}

// Close implements [rdma.Endpoint].
func (e *endpoint) Close() error {
	e.mu.Lock()
	if e.closing || e.done {
		e.mu.Unlock()
		return nil
	}
	e.closing = true
	if e.served {
		wake := e.wantWakeLocked()
		e.mu.Unlock()
		if wake {
			e.sock.interrupt()
		}
		return nil
	}
	e.mu.Unlock()
	e.finish(nil)
	return nil
}

// Serve implements [rdma.Endpoint].
func (e *endpoint) Serve(h rdma.Handler) error {
	e.mu.Lock()
	if e.served {
		e.mu.Unlock()
		return errors.New("iwarp: Serve was called twice")
	}
	if e.closing {
		defer e.mu.Unlock()
		for !e.freed { // Close may be running
			e.changed.Wait()
		}
		return net.ErrClosed
	}
	e.served = true
	e.h = h
	e.sock.block(e.threads, e.spin) // nothing is sent before Serve
	e.mu.Unlock()

	err := e.loop()
	e.finish(err)
	return err
}

// loop receives until the connection ends.
func (e *endpoint) loop() error {
	for {
		err := e.handle()
		if err := e.endBatch(err); err != nil {
			return err
		}
		err = e.rx.read(e)
		e.mu.Lock()
		e.gathering = true
		closing, broken, trimming := e.closing, e.broken, e.trimming
		e.trimming = false
		if errors.Is(err, errInterrupted) {
			e.awake, err = false, nil
		}
		e.mu.Unlock()
		switch {
		case closing:
			return net.ErrClosed
		// the peer may have disconnected because of that
		case broken != nil && asTerminate(broken) != nil:
			return broken
		case errors.Is(err, io.EOF) && !e.rx.between():
			return fmt.Errorf("iwarp: the connection ended inside of an FPDU: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return e.endBatch(err)
		case broken != nil:
			return e.afterBreak(broken)
		case trimming:
			e.trim()
		}
	}
}

// Trim implements [rdma.Trimmer].
func (e *endpoint) Trim() {
	e.mu.Lock()
	e.trimming = e.served && !e.done
	wake := e.trimming && e.wantWakeLocked()
	e.mu.Unlock()
	if wake {
		e.sock.interrupt()
	}
}

// trim frees the queues and lists that have grown and are empty. The receive loop calls it.
func (e *endpoint) trim() {
	e.rx.trim()
	e.mu.Lock()
	if e.sq.len() == 0 {
		e.sq = ring[rdma.WorkRequest]{}
	}
	if e.answers.len() == 0 {
		e.answers = ring[answer]{}
	}
	if !e.flushing {
		e.tx.trim()
	}
	e.mu.Unlock()
	e.rqMu.Lock()
	e.rq.trim()
	e.rqMu.Unlock()
}

// afterBreak finds the cause of a failed send: a peer that disconnected, in order or with a
// Terminate, explains it better than the socket.
func (e *endpoint) afterBreak(broken error) error {
	if asTerminate(broken) != nil {
		return broken
	}
	e.sock.deadline(time.Now().Add(lingerTime))
	for {
		if err := e.handle(); err != nil {
			return err
		}
		e.complete()
		if err := e.rx.read(e); errors.Is(err, io.EOF) && e.rx.between() {
			return io.EOF
		} else if err != nil {
			return fmt.Errorf("iwarp: sending: %w", broken)
		}
	}
}

// handle processes the buffer.
func (e *endpoint) handle() error {
	err := e.rx.parse(e)
	if err == nil || asTerminate(err) != nil {
		return err
	}
	return codeRDMAPLocal.errorf("%v", err)
}

// endBatch reports the completions, and then sends all posted work. cause is set if the connection
// ends; a bad message of the peer becomes a Terminate.
func (e *endpoint) endBatch(cause error) error {
	for {
		e.complete()
		e.mu.Lock()
		if len(e.revoked) == 0 {
			break
		}
		e.mu.Unlock()
	}
	if cause == nil && e.closing {
		cause = net.ErrClosed
	}
	broken := e.broken
	e.gathering = false
	e.terminateLocked(cause)
	flush := e.startFlushLocked()
	e.mu.Unlock()
	if flush {
		e.flush(false)
	}
	if cause == nil && broken != nil {
		return e.afterBreak(broken)
	}
	return cause
}

// complete gives completions to the handler until there are none.
func (e *endpoint) complete() {
	e.mu.Lock()
	if n := len(e.revoked); n > 0 {
		for _, r := range e.revoked {
			e.rx.completions = append(e.rx.completions, rdma.Completion{ID: r.id, Op: r.op})
		}
		e.revoked = e.revoked[:0]
		e.sendFree += n
	}
	e.mu.Unlock()
	e.rx.report(e)
}

// lingerTime bounds the wait for the peer's end of a failed connection, closeTime that of one
// closed in order.
const (
	lingerTime = time.Second
	closeTime  = 250 * time.Millisecond
)

// terminateLocked queues the Terminate for err, unless the peer sent one. The caller holds mu.
func (e *endpoint) terminateLocked(err error) {
	if err == nil {
		return // before a variable escapes to the heap
	}
	if t := asTerminate(err); t != nil && !t.Remote && e.term == nil {
		e.term = t.payload()
		e.failed.Store(true)
	}
}

// fail ends the connection with a Terminate, from the sending side.
func (e *endpoint) fail(err error) {
	e.mu.Lock()
	if e.broken == nil {
		e.broken = err
	}
	e.terminateLocked(err)
	wake := e.wantWakeLocked()
	e.mu.Unlock()
	if wake {
		e.sock.interrupt()
	}
}

// finish ends everything. The caller is Serve, with its cause, or Close if Serve was never called,
// with nil.
func (e *endpoint) finish(cause error) {
	e.mu.Lock()
	e.gathering, e.ending = false, true
	if e.startFlushLocked() { // queued work leaves as far as the socket takes it
		e.mu.Unlock()
		e.flush(false)
		e.mu.Lock()
	}
	e.mu.Unlock()
	if t := asTerminate(cause); t != nil && !t.Remote {
		e.linger(lingerTime) // the writer may still run, and shuts down after the Terminate
	} else if e.sock.closeWrite(); errors.Is(cause, net.ErrClosed) {
		e.linger(closeTime)
	}
	e.mu.Lock()
	e.done = true
	e.mu.Unlock()
	e.sock.close()
	e.mu.Lock()
	e.writer.stopped = true
	e.changed.Broadcast()
	for e.flushing || e.writer.running {
		e.changed.Wait()
	}
	e.sq, e.answers, e.reads, e.revoked = ring[rdma.WorkRequest]{}, ring[answer]{}, readQueue{}, nil
	e.mu.Unlock()
	e.rqMu.Lock()
	e.rq, e.rqFree = receiveQueue{}, -1
	e.rqMu.Unlock()
	e.stags.clear()
	e.rx.free()
	e.tx.free()
	e.domain.leave()
	e.mu.Lock()
	e.freed = true
	e.changed.Broadcast()
	e.mu.Unlock()
}

// linger waits for the peer to disconnect too. Closing a socket while data arrive would reset the
// connection, and the peer could lose the last bytes sent.
func (e *endpoint) linger(limit time.Duration) {
	e.sock.deadline(time.Now().Add(limit))
	e.rx.r, e.rx.w = 0, 0
	e.rx.limit = bufferLen
	for {
		if err := e.sock.read(&e.rx); err != nil || e.rx.n == 0 {
			return
		}
	}
}
