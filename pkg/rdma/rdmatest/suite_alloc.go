package rdmatest

import (
	"encoding/binary"
	"testing"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/rdma"
)

// caller and server are the two ends of a call that uses every operation without allocating: the
// caller exposes memory and sends a request that names it; the server fetches from it, writes to
// it, and replies; the caller invalidates.
type caller struct {
	ep       rdma.Endpoint
	mem      []byte
	request  [][]byte
	requests [1]rdma.WorkRequest
	revoke   [1]rdma.WorkRequest
	receives [1]rdma.Receive
	done     chan struct{}
	remote   rdma.Remote
	err      error
}

func (c *caller) call() error {
	r, err := c.ep.Expose(c.mem, rdma.RemoteRead|rdma.RemoteWrite)
	if err != nil {
		return err
	}
	c.remote = r
	binary.BigEndian.PutUint32(c.request[0], r.Handle)
	binary.BigEndian.PutUint64(c.request[0][4:], r.Offset)
	c.requests[0] = rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: c.request}
	return c.ep.Post(c.requests[:])
}

func (c *caller) Sent([]uint64) {}

func (c *caller) Completed(batch []rdma.Completion) {
	for _, d := range batch {
		switch d.Op {
		case rdma.Recv:
			if err := c.ep.PostReceives(c.receives[:]); err != nil {
				c.err = err
			}
			c.revoke[0] = rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: c.remote.Handle}
			if err := c.ep.Post(c.revoke[:]); err != nil {
				c.err = err
			}
		case rdma.LocalInvalidate:
			c.done <- struct{}{}
		}
	}
}

type server struct {
	ep       rdma.Endpoint
	receives [1]rdma.Receive
	remote   rdma.Remote
	sink     [][]byte
	reply    [][]byte
	read     [1]rdma.WorkRequest
	answer   [2]rdma.WorkRequest
	err      error
}

func (s *server) Sent([]uint64) {}

func (s *server) Completed(batch []rdma.Completion) {
	for _, d := range batch {
		var err error
		switch d.Op {
		case rdma.Recv:
			request := s.receives[0].Segments[0]
			s.remote = rdma.Remote{Handle: binary.BigEndian.Uint32(request), Offset: binary.BigEndian.Uint64(request[4:])}
			if err = s.ep.PostReceives(s.receives[:]); err == nil {
				s.read[0] = rdma.WorkRequest{Op: rdma.Read, Local: s.sink, Remote: s.remote}
				err = s.ep.Post(s.read[:])
			}
		case rdma.Read:
			s.answer[0] = rdma.WorkRequest{Op: rdma.Write, Local: s.sink, Remote: s.remote}
			s.answer[1] = rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: s.reply}
			err = s.ep.Post(s.answer[:])
		}
		if err != nil {
			s.err = err
		}
	}
}

// testAllocations: a call of Send, Read, Write, Send, and the handle's exposure and invalidation,
// allocates nothing after enough repetitions.
func testAllocations(x *exam) {
	if race.Enabled || x.bubble {
		x.Skip("the race detector and timers allocate")
	}
	a, b := x.connect(setup{idle: true, receives: -1}, setup{idle: true, receives: -1})
	c := &caller{
		ep: a.ep, mem: x.memory(8192, 1), request: list(x.memory(64, 0)), done: make(chan struct{}, 1),
		receives: [1]rdma.Receive{{Segments: list(x.memory(64, 0))}},
	}
	s := &server{
		ep: b.ep, sink: list(x.memory(8192, 3)), reply: list(x.memory(64, 0)),
		receives: [1]rdma.Receive{{Segments: list(x.memory(64, 0))}},
	}
	for _, post := range []error{a.ep.PostReceives(c.receives[:]), b.ep.PostReceives(s.receives[:])} {
		if post != nil {
			x.Fatalf("PostReceives: %v", post)
		}
	}
	ended := make(chan error, 2)
	go func() { ended <- a.ep.Serve(c) }()
	go func() { ended <- b.ep.Serve(s) }()
	run := func() {
		if err := c.call(); err != nil {
			x.Fatalf("call: %v", err)
		}
		select {
		case <-c.done:
		case err := <-ended:
			x.Fatalf("the connection ended: %v (%v, %v)", err, c.err, s.err)
		}
	}
	for range 1200 { // software providers remember the last 1,024 handles
		run()
	}
	if n := testing.AllocsPerRun(300, run); n != 0 {
		x.Errorf("%v allocations for a call of Expose, Send, Read, Write, Send and Local Invalidate; want 0", n)
	}
	a.close()
	for range 2 {
		if err := <-ended; err == nil {
			x.Error("Serve returned nil")
		}
	}
	b.close()
	if c.err != nil || s.err != nil {
		x.Errorf("errors on the way: %v, %v", c.err, s.err)
	}
}
