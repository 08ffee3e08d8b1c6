package rdmatest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
)

// sizes are critical lengths: all small ones, and those around powers of two, up to limit.
func sizes(limit int) (s []int) {
	for n := 0; n <= 70; n++ {
		s = append(s, n)
	}
	for _, k := range []int{1 << 12, 1 << 16, 1 << 20} {
		for n := k - 5; n <= k+5; n++ {
			s = append(s, n)
		}
	}
	for i, n := range s {
		if n > limit {
			return s[:i]
		}
	}
	return s
}

// testSendSizes: messages of all lengths, into receives that are exactly as long.
func testSendSizes(x *exam) {
	a, b := x.connect(setup{}, setup{receives: -1, hold: true})
	for _, n := range sizes(1<<20 + 5) {
		into := x.memory(n, n%7)
		if err := b.ep.PostReceives([]rdma.Receive{b.newReceive(list(into))}); err != nil {
			x.Fatalf("PostReceives of %d bytes: %v", n, err)
		}
		m := x.memory(n, n%5)
		copy(m, noise(n, n))
		wr := rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)}
		if n == 0 {
			wr.Local = nil
		}
		a.post(wr)
		if got := b.receive(); !bytes.Equal(got.data, m) {
			x.Fatalf("a message of %d bytes came wrong (%d bytes)", n, len(got.data))
		}
		a.awaitSent(1)
	}
}

// testSendSegments: messages gathered from many slices of uneven length, and scattered over many
// others.
func testSendSegments(x *exam) {
	a, b := x.connect(setup{}, setup{receives: -1, hold: true})
	r := rand.New(rand.NewPCG(1, 2))
	out, in := a.ep.Attributes().MaxSegments, b.ep.Attributes().MaxSegments
	const n = 40000
	source, sink := x.memory(n, 3), x.memory(n, 1)
	for i := range 100 {
		size := r.IntN(n + 1)
		if i%2 == 0 {
			size = r.IntN(200)
		}
		room := min(n, size+r.IntN(3)*r.IntN(100)) // often exactly as long
		if err := b.ep.PostReceives([]rdma.Receive{b.newReceive(cutRandomly(r, sink[:room], min(in, 40)))}); err != nil {
			x.Fatalf("PostReceives: %v", err)
		}
		copy(source, noise(i, n))
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: cutRandomly(r, source[:size], min(out, 40))})
		got := b.receive()
		if !bytes.Equal(got.data, source[:size]) {
			x.Fatalf("message %d of %d bytes came wrong (%d bytes)", i, size, len(got.data))
		}
		a.awaitSent(1)
	}
}

// testSendOrder: many goroutines send batches of different sizes; each one's messages arrive in its
// order. A batch is small enough for the posted receives.
func testSendOrder(x *exam) {
	const (
		goroutines = 4
		messages   = 400 // of each
		receives   = 64
	)
	a, b := x.connect(setup{}, setup{receives: receives, size: 300, segments: 2})
	credits := make(chan struct{}, receives)
	for range receives {
		credits <- struct{}{}
	}
	a.unordered = true
	next := [goroutines]uint32{}
	all := make(chan struct{})
	total := 0
	b.on(func(m message) {
		g, n := binary.BigEndian.Uint32(m.data), binary.BigEndian.Uint32(m.data[4:])
		if n != next[g] {
			x.Errorf("message %d of goroutine %d came when %d was next", n, g, next[g])
		}
		if want := noise(int(n), len(m.data)-8); !bytes.Equal(m.data[8:], want) {
			x.Errorf("message %d of goroutine %d has wrong data", n, g)
		}
		next[g] = n + 1
		if total++; total == goroutines*messages {
			close(all)
		}
		credits <- struct{}{}
	}, nil)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for n := 0; n < messages; {
				batch := make([]rdma.WorkRequest, 1+r.IntN(min(8, messages-n)))
				for i := range batch {
					m := x.memory(8+r.IntN(290), n%4)
					binary.BigEndian.PutUint32(m, uint32(g))
					binary.BigEndian.PutUint32(m[4:], uint32(n))
					copy(m[8:], noise(n, len(m)-8))
					batch[i] = rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)}
					n++
				}
				for range batch {
					select {
					case <-credits:
					case <-b.served:
						return
					}
				}
				if _, err := a.tryPost(batch...); err != nil {
					x.Errorf("Post: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-all:
	case <-b.served:
		x.Fatalf("the connection ended: %v", b.err)
	}
	a.wait("Sent for all", func() bool { return len(a.posted) == 0 })
}

// testSendHeld: batches posted to a corked endpoint arrive in order, after as few calls as those of
// one batch; the peer's messages arrive meanwhile.
func testSendHeld(x *exam) {
	a, b := x.connect(setup{}, setup{receives: 40, size: 100})
	// the dialer's, so that both may send
	a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(x.memory(4, 0))})
	b.receive()
	calls := a.ep.Stats().WriteCalls
	a.ep.Cork()
	a.ep.Cork()
	for n := range 20 {
		m := x.memory(100, n%4)
		copy(m, noise(n, 100))
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
	}
	a.ep.Uncork()
	a.ep.Uncork()
	for n := range 20 {
		if got := b.receive(); !bytes.Equal(got.data, noise(n, 100)) {
			x.Fatalf("message %d came wrong", n)
		}
	}
	a.awaitSent(21)
	if n := a.ep.Stats().WriteCalls - calls; n > 2 {
		x.Errorf("20 messages that were held left in %d calls", n)
	}
	a.ep.Cork()
	m := x.memory(100, 0)
	copy(m, noise(99, 100))
	a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
	if err := a.ep.Close(); err != nil {
		x.Errorf("Close while held: %v", err)
	}
	if got := b.receive(); !bytes.Equal(got.data, noise(99, 100)) {
		x.Errorf("posts corked at Close arrived wrong")
	}
	a.ep.Uncork()
}

// testSendUnsignaled: unsignaled requests are never reported, and are complete with a later
// signaled one.
func testSendUnsignaled(x *exam) {
	const queue = 8
	a, b := x.connect(setup{sendQueue: queue}, setup{receives: 64, size: 32})
	for round := range 50 {
		n := 1 + round%queue
		batch := make([]rdma.WorkRequest, n)
		for i := range batch {
			m := x.memory(32, 0)
			copy(m, noise(round+i, 32))
			batch[i] = rdma.WorkRequest{Op: rdma.Send, Signaled: i == n-1, Local: list(m)}
		}
		if round%2 == 0 {
			a.post(batch...)
		} else {
			for _, wr := range batch {
				a.post(wr)
			}
		}
		for i := range batch {
			if got := b.receive(); !bytes.Equal(got.data, noise(round+i, 32)) {
				x.Fatalf("round %d, message %d is wrong", round, i)
			}
		}
		a.awaitSent(1) // now the whole queue is free again: the next round may need all of it
	}
}

// testBadPosts: an invalid batch is refused as a whole, without effect.
func testBadPosts(x *exam) {
	const queue = 16
	a, b := x.connect(setup{sendQueue: queue, receiveQueue: 2 * queue}, setup{})
	mine := x.memory(100, 0)
	region := x.memory(100, 0)
	copy(region, noise(1, 100))
	remote := b.expose(region, rdma.RemoteRead|rdma.RemoteWrite)
	foreign := make([]byte, 100)
	send := func(b ...[]byte) rdma.WorkRequest {
		return rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: b}
	}
	many := make([][]byte, a.ep.Attributes().MaxSegments+1)
	manyRead := make([][]byte, a.ep.Attributes().MaxReadSegments+1)
	for i := range many {
		many[i] = mine[i%100 : i%100+1]
	}
	for i := range manyRead {
		manyRead[i] = mine[i%100 : i%100+1]
	}
	full := make([]rdma.WorkRequest, queue+1)
	for i := range full {
		full[i] = send(mine)
	}
	for name, batch := range map[string][]rdma.WorkRequest{
		"Send from outside the arenas":      {send(foreign)},
		"second slice outside the arenas":   {send(mine, foreign)},
		"slice that sticks out":             {send(mine), send(mine, foreign[:1])},
		"second request outside the arenas": {send(mine), send(foreign)},
		"Write from outside the arenas":     {{Op: rdma.Write, Signaled: true, Local: list(foreign), Remote: remote}},
		"Read to outside the arenas":        {{Op: rdma.Read, Local: list(foreign), Remote: remote}},
		"more segments than MaxSegments":    {send(many...)},
		"more than MaxReadSegments":         {{Op: rdma.Read, Local: manyRead, Remote: remote}},
		"more than SendQueue":               full,
		"opcode of a completion":            {send(mine), {Op: rdma.Recv, Signaled: true}},
		"unknown opcode":                    {{Op: 77, Signaled: true, Local: list(mine)}},
	} {
		if _, err := a.tryPost(batch...); err == nil {
			x.Fatalf("%s: Post succeeded", name)
		}
	}
	receives := make([]rdma.Receive, 2*queue+1)
	for i := range receives {
		receives[i] = rdma.Receive{ID: 1 << 40, Segments: list(mine)}
	}
	for name, rs := range map[string][]rdma.Receive{
		"receive outside the arenas":        {{ID: 1 << 40, Segments: list(foreign)}},
		"second receive outside the arenas": {{ID: 1 << 40, Segments: list(mine)}, {ID: 1 << 40, Segments: list(mine, foreign)}},
		"more segments than MaxSegments":    {{ID: 1 << 40, Segments: many}},
		"more than ReceiveQueue":            receives,
	} {
		if err := a.ep.PostReceives(rs); err == nil {
			x.Fatalf("%s: PostReceives succeeded", name)
		}
	}
	if _, err := b.ep.Expose(mine, 0); err == nil {
		x.Error("Expose with no access succeeded")
	}
	if _, err := b.ep.Expose(mine, 0x80|rdma.RemoteRead); err == nil {
		x.Error("Expose with unknown access succeeded")
	}
	if _, err := b.ep.Expose(foreign, rdma.RemoteRead); err == nil {
		x.Error("Expose of memory outside the arenas succeeded")
	}
	for range queue {
		exchange(a, b) // neither queue has lost an entry, and no stray message arrives
	}
	if !bytes.Equal(region, noise(1, 100)) {
		x.Error("a Write that was refused took effect")
	}
}

// testPostInHandlers: requests posted by Completed leave after the batch, those posted by Sent
// leave too, and a handler may post while other goroutines do.
func testPostInHandlers(x *exam) {
	const rounds, width = 50, 4
	a, b := x.connect(setup{receives: 2*width + rounds}, setup{receives: 2 * width})
	a.unordered, b.unordered = true, true
	send := func(e *end, data []byte) {
		m := x.memory(len(data), 0)
		copy(m, data)
		if _, err := e.tryPost(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)}); err != nil {
			x.Errorf("%s: Post: %v", e.name, err)
		}
	}
	finished := make(chan struct{})
	left := width * rounds
	b.on(func(m message) { send(b, m.data) }, nil)
	a.on(func(m message) {
		if left--; left == 0 {
			close(finished)
		}
		if left >= width {
			send(a, m.data)
		}
	}, nil)
	for i := range width {
		send(a, noise(i, 10*i))
	}
	select {
	case <-finished:
	case <-a.served:
		x.Fatalf("the connection ended: %v", a.err)
	case <-b.served:
		x.Fatalf("the connection ended: %v", b.err)
	}
	for _, e := range []*end{a, b} {
		e.wait("Sent for all", func() bool { return len(e.posted) == 0 })
	}
	// From inside Sent: each one causes the next.
	exhausted := make(chan struct{})
	a.on(nil, nil)
	var sent atomic.Int32
	b.on(nil, func(uint64) {
		n := int(sent.Add(1))
		if n <= rounds {
			send(b, noise(n, 20))
		} else {
			close(exhausted)
		}
	})
	send(b, noise(0, 20))
	for i := range rounds + 1 {
		if got := a.receive(); !bytes.Equal(got.data, noise(i, 20)) {
			x.Fatalf("message %d from Sent is wrong", i)
		}
	}
	<-exhausted
}

// testPostBeforeServe: posts before Serve are sent and reported like later ones.
func testPostBeforeServe(x *exam) {
	a, b := x.connect(setup{idle: true}, setup{idle: true})
	const messages = 5
	for i := range messages {
		for _, e := range []*end{a, b} {
			m := x.memory(50, 0)
			copy(m, noise(i, 50))
			e.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
		}
	}
	for _, e := range []*end{a, b} {
		e.served = make(chan struct{})
		go e.serve()
	}
	for _, e := range []*end{a, b} {
		for i := range messages {
			if got := e.receive(); !bytes.Equal(got.data, noise(i, 50)) {
				x.Errorf("%s: message %d came wrong", e.name, i)
			}
		}
		e.awaitSent(messages)
	}
	exchange(a, b)
}
