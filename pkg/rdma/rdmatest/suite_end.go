package rdmatest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
)

// testClose checks Serve's error at both ends, and that every method fails afterwards.
func testClose(x *exam) {
	a, b := x.connect(setup{}, setup{})
	exchange(a, b)
	a.close()
	if err := a.why(); !errors.Is(err, net.ErrClosed) {
		x.Errorf("the closing end's Serve returned %v, want net.ErrClosed", err)
	}
	if err := b.why(); !errors.Is(err, io.EOF) {
		x.Errorf("the other end's Serve returned %v, want io.EOF", err)
	}
	mem := x.memory(10, 0)
	for _, e := range []*end{a, b} {
		if _, err := e.tryPost(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(mem)}); err == nil {
			x.Errorf("%s: Post succeeded after the end", e.name)
		}
		if err := e.ep.PostReceives([]rdma.Receive{{ID: 1 << 40, Segments: list(mem)}}); err == nil {
			x.Errorf("%s: PostReceives succeeded after the end", e.name)
		}
		if _, err := e.ep.Expose(mem, rdma.RemoteRead); err == nil {
			x.Errorf("%s: Expose succeeded after the end", e.name)
		}
		if s := e.ep.Stats(); s.Sends == 0 || s.Receives == 0 {
			x.Errorf("%s: Stats are gone: %+v", e.name, s)
		}
		e.close()
		e.close()
	}
	// Both at once, from several goroutines.
	for range 20 {
		a, b := x.connect(setup{receives: 1}, setup{receives: 1})
		var wg sync.WaitGroup
		for _, e := range []*end{a, b, a, b} {
			wg.Go(e.close)
		}
		wg.Wait()
		a.join()
		b.join()
	}
}

// testCloseFlushes: Close sends earlier posts, and the peer gets all of them.
func testCloseFlushes(x *exam) {
	const messages = 20
	for _, posts := range []int{1, messages} {
		a, b := x.connect(setup{}, setup{receives: messages})
		region := x.memory(1000, 1)
		remote := b.expose(region, rdma.RemoteWrite)
		m := x.memory(1000, 2)
		copy(m, noise(1, 1000))
		batch := []rdma.WorkRequest{{Op: rdma.Write, Local: list(m), Remote: remote}}
		for i := range messages {
			batch = append(batch, rdma.WorkRequest{Op: rdma.Send, Signaled: i%2 == 0, Local: list(m[i : i+500])})
		}
		n := len(batch) / posts
		for i := 0; i < len(batch); i += n {
			a.post(batch[i:min(i+n, len(batch))]...)
		}
		a.close()
		if err := b.why(); !errors.Is(err, io.EOF) {
			x.Errorf("Serve returned %v, want io.EOF", err)
		}
		if len(b.messages) != messages {
			x.Fatalf("%d messages came, want %d", len(b.messages), messages)
		}
		for i, got := range b.messages {
			if !bytes.Equal(got.data, noise(1, 1000)[i:i+500]) {
				x.Errorf("message %d came wrong", i)
			}
		}
		if !bytes.Equal(region, m) {
			x.Error("the Write came wrong")
		}
		if err := a.why(); !errors.Is(err, net.ErrClosed) {
			x.Errorf("Serve returned %v, want net.ErrClosed", err)
		}
	}
}

// testCloseInHandlers: the handler may call Close after a post.
func testCloseInHandlers(x *exam) {
	a, b := x.connect(setup{}, setup{})
	reply := x.memory(30, 0)
	copy(reply, noise(5, 30))
	b.on(func(message) {
		b.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(reply)})
		b.close()
	}, nil)
	a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true})
	if err := b.why(); !errors.Is(err, net.ErrClosed) {
		x.Errorf("Serve returned %v after Close in Completed, want net.ErrClosed", err)
	}
	if err := a.why(); !errors.Is(err, io.EOF) {
		x.Errorf("Serve returned %v, want io.EOF", err)
	}
	if len(a.messages) != 1 || !bytes.Equal(a.messages[0].data, reply) {
		x.Errorf("posts before Close are missing: %d messages", len(a.messages))
	}

	a, b = x.connect(setup{}, setup{})
	a.on(nil, func(uint64) { a.close() })
	a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true})
	if err := a.why(); !errors.Is(err, net.ErrClosed) {
		x.Errorf("Serve returned %v after Close in Sent, want net.ErrClosed", err)
	}
	if err := b.why(); !errors.Is(err, io.EOF) {
		x.Errorf("Serve returned %v, want io.EOF", err)
	}
	if len(b.messages) != 1 {
		x.Errorf("%d messages came, want 1", len(b.messages))
	}
}

// testCloseUnserved: Close frees an endpoint that is never served, and its peer learns of the end.
func testCloseUnserved(x *exam) {
	a, b := x.connect(setup{idle: true}, setup{idle: true})
	a.close()
	b.close()
	a, b = x.connect(setup{idle: true}, setup{idle: true})
	b.served = make(chan struct{})
	go b.serve()
	a.close()
	if err := b.why(); errors.Is(err, net.ErrClosed) {
		x.Errorf("Serve returned %v, though it was the peer that closed", err)
	}
	b.close()
	if err := a.ep.Serve(a); err == nil {
		x.Error("Serve after Close returned nil")
	}
}

// testCloseAsServed: Serve returns when everything is freed, even during an earlier Close.
func testCloseAsServed(x *exam) {
	for range 20 {
		d, err := x.Provider.NewDomain()
		if err != nil {
			x.Fatalf("NewDomain: %v", err)
		}
		if err := d.Register(x.pool); err != nil {
			x.Fatalf("Attach: %v", err)
		}
		a, b := x.connect(setup{idle: true, domain: d}, setup{idle: true})
		b.close()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			a.close()
		}()
		runtime.Gosched()
		if err := a.ep.Serve(a); err == nil {
			x.Error("Serve returned nil")
		}
		a.close()
		if err := d.Close(); err != nil {
			x.Errorf("closing the domain when Serve has returned: %v", err)
		}
		<-closed
	}
}

// load is traffic of all kinds from one end to the other, until the connection ends.
type load struct {
	from, to     *end
	credits      chan struct{} // one for each receive at to
	remote       rdma.Remote
	source, sink []byte
	region       []byte // at to
	posted       func() // called for each batch
}

func newLoad(x *exam, from, to *end, receives int, posted func()) *load {
	const area = 100_000
	l := &load{from: from, to: to, credits: make(chan struct{}, receives), source: x.memory(area, 1), sink: x.memory(area, 2), region: x.memory(area, 3), posted: posted}
	for range receives {
		l.credits <- struct{}{}
	}
	copy(l.source, noise(3, area))
	l.remote = to.expose(l.region, rdma.RemoteRead|rdma.RemoteWrite)
	to.on(func(message) {
		select {
		case l.credits <- struct{}{}:
		default:
			x.Errorf("%s: more messages than were sent", to.name)
		}
	}, nil)
	return l
}

func (l *load) run(seed uint64) {
	e := l.from
	r := rand.New(rand.NewPCG(seed, 77))
	sent, read := e.nextSent, 0
	for {
		batch := make([]rdma.WorkRequest, 1+r.IntN(8))
		for i := range batch {
			n := 1 + r.IntN(20_000)
			if r.IntN(2) == 0 {
				n = r.IntN(200)
			}
			from := r.IntN(len(l.source) - n)
			wr := rdma.WorkRequest{Signaled: r.IntN(3) == 0 || i == len(batch)-1}
			switch op := r.IntN(4); {
			case op == 0 && i < len(batch)-1:
				wr.Op, wr.Local, wr.Remote = rdma.Read, list(l.sink[from:from+n]), at(l.remote, r.IntN(len(l.region)-n))
				read++
			case op == 1:
				wr.Op, wr.Local, wr.Remote = rdma.Write, cutRandomly(r, l.source[from:from+n], 3), at(l.remote, r.IntN(len(l.region)-n))
			default:
				wr.Local = list(l.source[from : from+min(n, 4096)])
				select {
				case <-l.credits:
				case <-e.served:
					return
				case <-l.to.served:
					return
				}
			}
			if wr.Signaled && wr.Op != rdma.Read {
				sent++
			}
			batch[i] = wr
		}
		if _, err := e.tryPost(batch...); err != nil {
			return
		}
		l.posted()
		if r.IntN(4) == 0 { // otherwise let it pile up a little
			if e.tryWait("completions", func() bool { return len(e.sent) >= sent && len(e.done) >= read }) != nil {
				return
			}
		}
	}
}

// testCloseUnderLoad: either end, or both, close at an arbitrary moment of heavy traffic both ways.
// Both Serves return, and memory does not change from then on.
func testCloseUnderLoad(x *exam) { underLoad(x, func(e *end) { e.close() }) }

// testCut: the connection breaks without notice.
func testCut(x *exam) {
	if x.Cut == nil {
		x.Skip("the provider's test does not say how to cut a connection")
	}
	a, b := x.connect(setup{}, setup{})
	x.Cut(a.ep)
	violated(a, b)
	underLoad(x, func(e *end) { x.Cut(e.ep) })
}

func underLoad(x *exam, stop func(*end)) {
	const receives = 32
	r := rand.New(rand.NewPCG(11, 12))
	for round := range 16 {
		s := setup{receives: receives, ord: 2, ird: 2}
		a, b := x.connect(s, s)
		var batches atomic.Int32
		moment, when := make(chan struct{}), int32(1+r.IntN(60))
		posted := func() {
			if batches.Add(1) == when {
				close(moment)
			}
		}
		loads := []*load{newLoad(x, a, b, receives, posted), newLoad(x, b, a, receives, posted)}
		var wg sync.WaitGroup
		for i, l := range loads {
			wg.Go(func() { l.run(uint64(2*round + i)) })
		}
		wg.Go(func() {
			select {
			case <-moment:
			case <-a.served:
			case <-b.served:
			}
			if round%3 != 1 {
				stop(a)
			}
			if round%3 != 0 {
				stop(b)
			}
		})
		var given sync.WaitGroup
		for i, l := range loads {
			// as soon as an end's Serve has returned, its memory is overwritten, and must stay so
			given.Go(func() {
				<-l.from.served
				fill(l.sink, 0x77)
				fill(loads[1-i].region, 0x77)
				for _, segments := range l.from.receives {
					fill(segments[0], 0x77)
				}
			})
		}
		a.join()
		b.join()
		wg.Wait()
		given.Wait()
		for i, l := range loads {
			if !filled(l.sink) {
				x.Errorf("round %d: the %s's sink of Reads was written to after Serve returned", round, l.from.name)
			}
			if !filled(loads[1-i].region) {
				x.Errorf("round %d: the %s's exposed memory was written to after Serve returned", round, l.from.name)
			}
		}
		for _, e := range []*end{a, b} {
			for id, segments := range e.receives {
				if !filled(segments[0]) {
					x.Errorf("round %d: the %s's receive %d was written to after Serve returned", round, e.name, id)
				}
			}
		}
		if x.Failed() {
			x.FailNow()
		}
	}
}

func filled(b []byte) bool { return bytes.Count(b, []byte{0x77}) == len(b) }

// testStats: the counters are exact where package rdma defines them, and a batch is sent as a
// batch.
func testStats(x *exam) {
	a, b := x.connect(setup{}, setup{receives: 64})
	region, mine, sink := x.memory(10_000, 1), x.memory(10_000, 2), x.memory(10_000, 3)
	remote := b.expose(region, rdma.RemoteRead|rdma.RemoteWrite)
	exchange(a, b)
	beforeA, beforeB := a.ep.Stats(), b.ep.Stats()
	var batch []rdma.WorkRequest
	for range 40 {
		batch = append(batch, rdma.WorkRequest{Op: rdma.Send, Local: list(mine[:60], mine[100:140])})
	}
	for range 3 {
		batch = append(batch, rdma.WorkRequest{Op: rdma.Write, Local: list(mine[:1000]), Remote: remote})
	}
	for i := range 2 {
		batch = append(batch, rdma.WorkRequest{Op: rdma.Read, Local: list(sink[5000*i : 5000*i+5000]), Remote: remote})
	}
	batch = append(batch, rdma.WorkRequest{Op: rdma.Send, Signaled: true})
	a.post(batch...)
	for range 41 {
		b.receive()
	}
	a.await()
	a.await()
	a.awaitSent(1)
	for range 4 {
		b.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(mine[:50])})
		a.receive()
	}
	b.awaitSent(4)
	sa, sb := a.ep.Stats(), b.ep.Stats()
	seen := uint64(1)
	if x.Unseen {
		seen = 0
	}
	for _, c := range []struct {
		name      string
		got, want uint64
	}{
		{"a's Sends", sa.Sends - beforeA.Sends, 41},
		{"a's Writes", sa.Writes - beforeA.Writes, 3},
		{"a's Reads", sa.Reads - beforeA.Reads, 2},
		{"a's Receives", sa.Receives - beforeA.Receives, 4},
		{"a's RemoteWrites", sa.RemoteWrites - beforeA.RemoteWrites, 0},
		{"a's RemoteReads", sa.RemoteReads - beforeA.RemoteReads, 0},
		{"a's BytesOut", sa.BytesOut - beforeA.BytesOut, 40*100 + 3*1000},
		{"a's BytesIn", sa.BytesIn - beforeA.BytesIn, 2*5000 + 4*50},
		{"b's Sends", sb.Sends - beforeB.Sends, 4},
		{"b's Writes", sb.Writes - beforeB.Writes, 0},
		{"b's Reads", sb.Reads - beforeB.Reads, 0},
		{"b's Receives", sb.Receives - beforeB.Receives, 41},
		{"b's RemoteWrites", sb.RemoteWrites - beforeB.RemoteWrites, 3 * seen},
		{"b's RemoteReads", sb.RemoteReads - beforeB.RemoteReads, 2 * seen},
		{"b's BytesOut", sb.BytesOut - beforeB.BytesOut, 2*5000*seen + 4*50},
		{"b's BytesIn", sb.BytesIn - beforeB.BytesIn, 40*100 + 3*1000*seen},
	} {
		if c.got != c.want {
			x.Errorf("%s: %d, want %d", c.name, c.got, c.want)
		}
	}
	if n := sa.WriteCalls - beforeA.WriteCalls; n < 1 || n > 8 {
		x.Errorf("a's WriteCalls: %d, for one batch of %d small requests", n, len(batch))
	}
	for _, s := range []rdma.Stats{sa, sb} {
		if s.ReadCalls == 0 || s.CopiedIn > s.BytesIn {
			x.Errorf("ReadCalls %d, CopiedIn %d of BytesIn %d", s.ReadCalls, s.CopiedIn, s.BytesIn)
		}
	}
	// The handler's posts for a batch of completions leave after it, together.
	a, b = x.connect(setup{receives: 64}, setup{receives: 64})
	exchange(a, b)
	b.on(func(m message) {
		b.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(mine[:m.Bytes])})
	}, nil)
	before := b.ep.Stats()
	b.mu.Lock()
	batches := b.batches
	b.mu.Unlock()
	batch = batch[:0]
	for range 50 {
		batch = append(batch, rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(mine[:100])})
	}
	a.post(batch...)
	for range batch {
		a.receive()
	}
	b.awaitSent(len(batch))
	b.mu.Lock()
	batches = b.batches - batches
	b.mu.Unlock()
	if n := b.ep.Stats().WriteCalls - before.WriteCalls; n > 2*batches {
		x.Errorf("%d WriteCalls for the replies to %d batches", n, batches)
	}
}
