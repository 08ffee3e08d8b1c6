package rdmatest

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// end is one endpoint and its handler.
type end struct {
	*exam
	name   string
	ep     rdma.Endpoint
	domain rdma.Domain
	shared *shared       // its SRQ; nil if the receives are its own
	served chan struct{} // closed when Serve has returned
	err    error         // Serve's result

	hold bool // do not post a message's memory again
	// posts come from several goroutines, so that the order of Sent is unknown; set before the
	// first post
	unordered bool

	postMu sync.Mutex // posts are in the order of their IDs; the handler does not take it

	mu         sync.Mutex
	changed    sync.Cond
	onMessage  func(m message) // on Serve's goroutine, instead of queueing it
	onSent     func(id uint64)
	nextID     uint64
	posted     map[uint64]rdma.WorkRequest // not completed
	fences     map[uint64]bool             // Writes of expose, not completed
	receives   map[uint64][][]byte         // posted
	greeting   uint64                      // ID of its receive
	receiveErr error
	lastRecv   uint64
	lastRead   uint64
	messages   []message
	done       []rdma.Completion // Reads, LocalInvalidates and Redirects
	sent       []uint64
	nextSent   int // IDs of sent already awaited
	returned   bool
	batches    uint64 // calls of Completed
}

type message struct {
	rdma.Completion
	data []byte // a copy
}

func (e *end) serve() {
	err := e.ep.Serve(e)
	e.mu.Lock()
	e.returned, e.err = true, err
	e.changed.Broadcast()
	e.mu.Unlock()
	defer close(e.served)
	if err == nil {
		e.Errorf("%s: Serve returned nil, it must say why the connection ended", e.name)
	}
}

// on sets further actions of the handler; nil for none.
func (e *end) on(message func(message), sent func(uint64)) {
	e.mu.Lock()
	e.onMessage, e.onSent = message, sent
	e.mu.Unlock()
}

func (e *end) close() {
	if err := e.ep.Close(); err != nil {
		e.Errorf("%s: Close: %v", e.name, err)
	}
}

// why waits until Serve has returned, and returns its error.
func (e *end) why() error {
	e.Helper()
	e.join()
	return e.err
}

// join waits until Serve has returned.
func (e *end) join() {
	e.Helper()
	select {
	case <-e.served:
	case <-time.After(patience):
		e.Fatalf("%s: Serve did not return", e.name)
	}
}

func (e *end) newReceive(segments [][]byte) rdma.Receive {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nextID++
	e.receives[e.nextID] = segments
	return rdma.Receive{ID: e.nextID, Segments: segments}
}

// Completed records completions.
func (e *end) Completed(batch []rdma.Completion) {
	if len(batch) == 0 {
		e.Errorf("%s: Completed with an empty batch", e.name)
	}
	e.mu.Lock()
	e.batches++
	e.mu.Unlock()
	for _, c := range batch {
		e.completed(c)
	}
}

func (e *end) completed(c rdma.Completion) {
	e.mu.Lock()
	if e.returned {
		e.Errorf("%s: Completed after Serve returned", e.name)
	}
	if c.Op != rdma.Recv {
		defer e.mu.Unlock()
		defer e.changed.Broadcast()
		wr, ok := e.posted[c.ID]
		if !ok || wr.Op != c.Op {
			e.Errorf("%s: completion of %s %d, which is not outstanding", e.name, opName(c.Op), c.ID)
			return
		}
		delete(e.posted, c.ID)
		if c.Op == rdma.Read {
			if c.ID < e.lastRead && !e.unordered {
				e.Errorf("%s: Read %d completed after Read %d", e.name, c.ID, e.lastRead)
			}
			e.lastRead = c.ID
		}
		e.done = append(e.done, c)
		return
	}
	segments, ok := e.take(c.ID)
	if !ok {
		e.Errorf("%s: completion of receive %d, which is not posted", e.name, c.ID)
	}
	if c.ID < e.lastRecv && e.shared == nil {
		e.Errorf("%s: receive %d completed after %d", e.name, c.ID, e.lastRecv)
	}
	e.lastRecv = c.ID
	m := message{c, bytes.Join(segments, nil)}
	onMessage := e.onMessage
	e.mu.Unlock()
	if c.Bytes < 0 || c.Bytes > len(m.data) {
		e.Errorf("%s: a message of %d bytes in a receive of %d", e.name, c.Bytes, len(m.data))
		return
	}
	m.data = m.data[:c.Bytes]
	if !e.hold && c.ID != e.greeting {
		if err := e.repost(segments); err != nil {
			e.mu.Lock()
			e.receiveErr = err // not a failure by itself: the connection may have ended
			e.mu.Unlock()
		}
	}
	if onMessage != nil {
		onMessage(m)
		return
	}
	e.mu.Lock()
	e.messages = append(e.messages, m)
	e.changed.Broadcast()
	e.mu.Unlock()
}

// take returns the memory of a completed receive.
func (e *end) take(id uint64) (segments [][]byte, ok bool) {
	if e.shared != nil {
		return e.shared.take(id)
	}
	segments, ok = e.receives[id]
	delete(e.receives, id)
	return segments, ok
}

// repost posts a receive in place of a completed one.
func (e *end) repost(segments [][]byte) error {
	if e.shared != nil {
		return e.shared.queue.PostReceives([]rdma.Receive{e.shared.receive(segments)})
	}
	return e.ep.PostReceives([]rdma.Receive{e.newReceive(segments)})
}

// Sent records IDs.
func (e *end) Sent(ids []uint64) {
	for _, id := range ids {
		e.mu.Lock()
		if e.returned {
			e.Errorf("%s: Sent after Serve returned", e.name)
		}
		if e.fences[id] {
			delete(e.fences, id)
			e.changed.Broadcast()
			e.mu.Unlock()
			continue
		}
		wr, ok := e.posted[id]
		switch {
		case !ok:
			e.Errorf("%s: Sent of %d, which is not outstanding", e.name, id)
		case !wr.Signaled || wr.Op == rdma.Read || wr.Op == rdma.LocalInvalidate || wr.Op == rdma.Redirect:
			e.Errorf("%s: Sent of %d, which is no signaled Send or Write", e.name, id)
		}
		delete(e.posted, id)
		if n := len(e.sent); n > 0 && e.sent[n-1] > id && !e.unordered {
			e.Errorf("%s: Sent of %d after %d", e.name, id, e.sent[n-1])
		}
		e.sent = append(e.sent, id)
		e.changed.Broadcast()
		onSent := e.onSent
		e.mu.Unlock()
		if onSent != nil {
			onSent(id)
		}
	}
}

// tryPost gives wrs IDs and posts them. It returns the last ID.
func (e *end) tryPost(wrs ...rdma.WorkRequest) (uint64, error) {
	if !e.unordered {
		e.postMu.Lock()
		defer e.postMu.Unlock()
	}
	e.mu.Lock()
	for i := range wrs {
		e.nextID++
		wrs[i].ID = e.nextID
		e.posted[e.nextID] = wrs[i]
	}
	id := e.nextID
	e.mu.Unlock()
	err := e.ep.Post(wrs)
	if err != nil {
		e.mu.Lock()
		for i := range wrs {
			if _, ok := e.posted[wrs[i].ID]; !ok {
				e.Errorf("%s: work request %d completed, though Post failed", e.name, wrs[i].ID)
			}
			delete(e.posted, wrs[i].ID)
		}
		e.mu.Unlock()
	}
	return id, err
}

// post is tryPost that must succeed.
func (e *end) post(wrs ...rdma.WorkRequest) uint64 {
	e.Helper()
	id, err := e.tryPost(wrs...)
	if err != nil {
		e.Errorf("%s: Post: %v", e.name, err)
	}
	return id
}

// tryWait waits until cond holds, which is called with the lock held. It fails when Serve returns
// before.
func (e *end) tryWait(what string, cond func() bool) error {
	late := false
	t := time.AfterFunc(patience, func() {
		e.mu.Lock()
		late = true
		e.changed.Broadcast()
		e.mu.Unlock()
	})
	defer t.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	for !cond() && !late && !e.returned {
		e.changed.Wait()
	}
	switch {
	case cond():
		return nil
	case e.returned:
		return fmt.Errorf("%s: Serve returned before %s: %w", e.name, what, e.err)
	case e.receiveErr != nil:
		return fmt.Errorf("%s: no %s, after PostReceives failed: %w", e.name, what, e.receiveErr)
	default:
		return fmt.Errorf("%s: no %s", e.name, what)
	}
}

func (e *end) wait(what string, cond func() bool) {
	e.Helper()
	if err := e.tryWait(what, cond); err != nil {
		e.Fatal(err)
	}
}

// receive waits for the next message.
func (e *end) receive() (m message) {
	e.Helper()
	e.wait("a message", func() bool { return len(e.messages) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	m, e.messages = e.messages[0], e.messages[1:]
	return m
}

// await waits for the next completion of a Read, LocalInvalidate or Redirect.
func (e *end) await() (c rdma.Completion) {
	e.Helper()
	e.wait("a completion", func() bool { return len(e.done) > 0 })
	e.mu.Lock()
	defer e.mu.Unlock()
	c, e.done = e.done[0], e.done[1:]
	return c
}

// awaitSent waits until n more IDs were given to Sent.
func (e *end) awaitSent(n int) {
	e.Helper()
	e.nextSent += n
	e.wait(fmt.Sprintf("Sent for %d", n), func() bool { return len(e.sent) >= e.nextSent })
}

// expose makes mem accessible to the peer. Where that needs the completion of later work, an empty
// Write stands for the Send that would advertise it.
func (e *end) expose(mem []byte, access rdma.Access) rdma.Remote {
	e.Helper()
	r, err := e.ep.Expose(mem, access)
	if err != nil {
		e.Fatalf("%s: Expose: %v", e.name, err)
	}
	if !e.LateExpose {
		return r
	}
	select {
	case <-e.served: // the Write would not complete
		return r
	default:
	}
	e.mu.Lock()
	e.nextID++
	id := e.nextID
	e.fences[id] = true
	e.mu.Unlock()
	if err := e.ep.Post([]rdma.WorkRequest{{ID: id, Op: rdma.Write, Signaled: true}}); err != nil {
		e.Fatalf("%s: Post: %v", e.name, err)
	}
	e.wait("Sent for a Write of nothing", func() bool { return !e.fences[id] })
	return r
}
