package rdmatest

import (
	"fmt"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
)

// shared is an SRQ of accepting ends. It is made with the first connection.
type shared struct {
	*exam
	domain rdma.Domain
	depth  int
	queue  rdma.SRQ

	mu     sync.Mutex
	nextID uint64
	posted map[uint64][][]byte
}

func (x *exam) share(depth int) *shared {
	s := &shared{exam: x, domain: x.domain(), depth: depth, posted: map[uint64][][]byte{}}
	x.queues = append(x.queues, s)
	return s
}

// open makes the queue with n receives of size bytes.
func (s *shared) open(in rdma.ConnRequest, n, size int) (err error) {
	if s.queue != nil {
		return nil
	}
	if in.SRQKey() == nil || in.SRQKey() != in.SRQKey() {
		return fmt.Errorf("SRQKey returned %v, want the same for all connections over a device", in.SRQKey())
	}
	if s.queue, err = in.NewSRQ(s.domain, s.depth); err != nil {
		return err
	}
	if got := s.queue.Depth(); got != s.depth {
		return fmt.Errorf("a queue of %d receives, %d were asked for", got, s.depth)
	}
	return s.post(n, size)
}

// post adds n receives of size bytes.
func (s *shared) post(n, size int) error {
	var rs []rdma.Receive
	for range n {
		rs = append(rs, s.receive(cut(s.memory(size, 4), 2)))
	}
	return s.queue.PostReceives(rs)
}

func (s *shared) receive(segments [][]byte) rdma.Receive {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextID++
	s.posted[s.nextID] = segments
	return rdma.Receive{ID: s.nextID, Segments: segments}
}

// take returns the memory of a receive that has completed at an endpoint.
func (s *shared) take(id uint64) (segments [][]byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	segments, ok = s.posted[id]
	delete(s.posted, id)
	return segments, ok
}

// left is the number of incomplete receives.
func (s *shared) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.posted)
}

func (s *shared) close() {
	if s.queue != nil {
		if err := s.queue.Close(); err != nil {
			s.Errorf("closing a queue of receives whose endpoints are closed: %v", err)
		}
	}
}

// send sends n messages from a to b.
func send(a, b *end, n int) {
	a.Helper()
	for i := range n {
		m := a.memory(20, 0)
		copy(m, noise(i, 20))
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
		if got := b.receive(); string(got.data) != string(m) {
			a.Fatalf("%s received %q, want %q", b.name, got.data, m)
		}
		a.awaitSent(1)
	}
}

// testShared: messages of several connections take receives of one queue, and reach their own
// connection.
func testShared(x *exam) {
	const n, rounds = 6, 30
	s := x.share(16)
	var pairs [n][2]*end
	for i := range pairs {
		pairs[i][0], pairs[i][1] = x.connect(setup{}, setup{shared: s, receives: n, size: 64})
	}
	var wg sync.WaitGroup
	for i, p := range pairs {
		wg.Go(func() {
			for j := range rounds {
				if err := p[0].echo(p[1], noise(i*100+j, 33)); err != nil {
					x.Error(err)
					return
				}
			}
			if i < 2 { // they end while others run
				p[i].close()
			}
		})
	}
	wg.Wait()
	for i, p := range pairs {
		if i < 2 {
			p[0].join()
			p[1].join()
		}
	}
	for _, p := range pairs[2:] {
		send(p[0], p[1], 2*n)
	}
}

// testSharedLeft: the unused receives of an ended connection are there for the others, neither more
// nor fewer.
func testSharedLeft(x *exam) {
	s := x.share(32)
	share := setup{shared: s, receives: 16, size: 64, hold: true}
	a, b := x.connect(setup{}, share)
	c, d := x.connect(setup{}, share)
	e, f := x.connect(setup{}, share)
	send(a, b, 2)
	send(c, d, 2)
	a.close()
	b.join()

	// One that ends with messages that were not reported.
	sent := make(chan struct{})
	d.on(func(message) {
		<-sent
		d.close()
	}, nil)
	for range 4 {
		c.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(x.memory(20, 0))})
	}
	c.awaitSent(4)
	close(sent)
	d.join()

	// One that ends because of a message that is too long.
	g, h := x.connect(setup{}, share)
	g.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(x.memory(65, 0))})
	g.violated(x.SilentEnd)
	h.violated(x.SilentEnd)

	left := s.left()
	// greetings, messages, and those that were reported before the end
	if most := 16 - 4 - 4 - 1; left > most || left < most-3 {
		x.Errorf("%d receives are left, want at most %d", left, most)
	}
	send(e, f, left)
	e.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(x.memory(20, 0))})
	if x.SharedWaits {
		return
	}
	e.violated(x.SilentEnd)
	f.violated(x.SilentEnd || x.SilentOverrun)
}

// testSharedOverrun: a message without a receive ends its own connection, or waits for one; the
// others continue after the next post.
func testSharedOverrun(x *exam) {
	s := x.share(8)
	share := setup{shared: s, receives: 4, size: 64, hold: true}
	a, b := x.connect(setup{}, share)
	c, d := x.connect(setup{}, share)
	send(a, b, 2)
	a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(x.memory(20, 0))})
	if !x.SharedWaits {
		a.violated(x.SilentEnd)
		b.violated(x.SilentEnd || x.SilentOverrun)
	}
	if err := s.post(8, 64); err != nil {
		x.Fatalf("PostReceives: %v", err)
	}
	if x.SharedWaits {
		b.receive()
		send(c, d, 7)
		return
	}
	send(c, d, 8)
}

// testSharedRules: the errors of an SRQ.
func testSharedRules(x *exam) {
	s := x.share(8)
	a, b := x.connect(setup{}, setup{shared: s, receives: 4, size: 64})
	if err := b.ep.PostReceives([]rdma.Receive{{ID: 1, Segments: list(x.memory(8, 0))}}); err == nil {
		x.Error("an endpoint whose receives are shared took one of its own")
	}
	if err := s.queue.PostReceives([]rdma.Receive{{ID: 1, Segments: list(make([]byte, 8))}}); err == nil {
		x.Error("a receive whose memory lies in no arena was taken")
	}
	if err := s.queue.PostReceives(make([]rdma.Receive, 5)); err == nil {
		x.Error("9 receives were taken by a queue of 8")
	}
	if err := s.queue.Close(); err == nil {
		x.Error("a queue was closed that has an endpoint")
	}
	if err := s.domain.Close(); err == nil {
		x.Error("a domain was closed that has a queue of receives")
	}
	exchange(a, b)
	for _, o := range []setup{{shared: s, own: true}, {shared: s, domain: x.domain()}} {
		if err := x.refuse(o); err == nil {
			x.Errorf("Accept took %+v", o)
		}
	}
	a.close()
	b.join()
	b.close()
	s.close()
	if err := s.queue.PostReceives([]rdma.Receive{s.receive(list(x.memory(8, 0)))}); err == nil {
		x.Error("a closed queue took a receive")
	}
}

// refuse returns the error of an accepting end with wrong options.
func (x *exam) refuse(o setup) error {
	x.Helper()
	l := x.listen()
	_, options := x.newEnd("acceptor", o, false)
	done := make(chan error, 1)
	go func() {
		in, err := l.Accept()
		if err != nil {
			x.Errorf("Accept of a request: %v", err)
		}
		options.SRQ = o.shared.queue
		ep, err := in.Accept(options)
		if err == nil {
			_ = ep.Close()
		}
		done <- err
	}()
	_, do := x.newEnd("dialer", setup{idle: true}, false)
	ep, err := x.Provider.Dial(x.Context(), l.Addr().String(), do)
	if err == nil {
		_ = ep.Close()
	}
	return <-done
}
