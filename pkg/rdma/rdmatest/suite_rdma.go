package rdmatest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// at returns the place n bytes into r.
func at(r rdma.Remote, n int) rdma.Remote {
	return rdma.Remote{Handle: r.Handle, Offset: r.Offset + uint64(n)}
}

// testWriteSizes: Writes of all lengths, from and to unaligned addresses, gathered from many
// slices.
func testWriteSizes(x *exam) {
	a, b := x.connect(setup{}, setup{})
	const most = 1<<20 + 5
	source, sink := x.memory(most, 1), x.memory(most+64, 2)
	r := rand.New(rand.NewPCG(3, 4))
	remote := b.expose(sink, rdma.RemoteWrite)
	limit := min(40, a.ep.Attributes().MaxSegments)
	for _, n := range sizes(most) {
		skew := n % 13
		from := source[most-n:]
		copy(from, noise(n, n))
		clear(sink[:min(len(sink), n+64)])
		local := list(from)
		if n%2 == 1 {
			local = cutRandomly(r, from, limit)
		}
		a.post(rdma.WorkRequest{Op: rdma.Write, Local: local, Remote: at(remote, skew)},
			rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		b.receive()
		if !bytes.Equal(sink[skew:skew+n], noise(n, n)) {
			x.Fatalf("a Write of %d bytes came wrong", n)
		}
		if !isZero(sink[:skew]) || !isZero(sink[skew+n:n+64]) {
			x.Fatalf("a Write of %d bytes changed the memory beside it", n)
		}
		a.awaitSent(1)
	}
}

func isZero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

// testWriteThenSend: the data of Writes have arrived when the next message has, in one batch and in
// batches of their own.
func testWriteThenSend(x *exam) {
	const slot, slots, rounds = 3000, 7, 60
	a, b := x.connect(setup{}, setup{})
	sink := x.memory(slot*slots, 5)
	source := x.memory(slot*slots, 6)
	half := len(sink) / 2
	low, high := b.expose(sink[:half], rdma.RemoteWrite), b.expose(sink[half:], rdma.RemoteWrite|rdma.RemoteRead)
	checked := make(chan error, 1)
	round := 0
	b.on(func(m message) { // on Serve's goroutine: as early as possible
		var err error
		if want := noise(round, len(sink)); !bytes.Equal(sink, want) {
			i := 0
			for sink[i] == want[i] {
				i++
			}
			err = fmt.Errorf("round %d: byte %d was not there when the message was", round, i)
		}
		round++
		checked <- err
	}, nil)
	for i := range rounds {
		copy(source, noise(i, len(source)))
		var batch []rdma.WorkRequest
		for from := 0; from < len(source); {
			n := min(slot+i, len(source)-from)
			to := at(low, from)
			if from < half {
				n = min(n, half-from)
			} else {
				to = at(high, from-half)
			}
			batch = append(batch, rdma.WorkRequest{Op: rdma.Write, Signaled: i%3 == 0, Local: cut(source[from:from+n], 1+i%2), Remote: to})
			from += n
		}
		message := rdma.WorkRequest{Op: rdma.Send, Signaled: true}
		if i%2 == 0 {
			a.post(append(batch, message)...)
		} else {
			for _, wr := range append(batch, message) {
				a.post(wr)
			}
		}
		select {
		case err := <-checked:
			if err != nil {
				x.Fatal(err)
			}
		case <-b.served:
			x.Fatalf("the connection ended: %v", b.err)
		}
		n := 1
		if i%3 == 0 {
			n += len(batch)
		}
		a.awaitSent(n)
	}
}

// testWriteReused: the memory of an unsignaled Write is free when a later Send is complete, even if
// the network still holds the data.
func testWriteReused(x *exam) {
	const size, rounds = 100_000, 10
	a, b := x.connect(setup{}, setup{})
	source, sink := x.memory(size, 1), x.memory(size, 2)
	remote := b.expose(sink, rdma.RemoteWrite)
	for i := range rounds {
		copy(source, noise(i, size))
		a.post(rdma.WorkRequest{Op: rdma.Write, Local: list(source), Remote: remote},
			rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		a.awaitSent(1)
		clear(source)
		b.receive()
		if !bytes.Equal(sink, noise(i, size)) {
			x.Fatalf("round %d: a Write sent data that its memory had after its completion", i)
		}
	}
}

// testReadSizes: Reads of all lengths, from and to unaligned addresses, scattered over many slices.
func testReadSizes(x *exam) {
	a, b := x.connect(setup{}, setup{})
	const most = 1<<20 + 5
	source, sink := x.memory(most+64, 1), x.memory(most, 3)
	copy(source, noise(1, len(source)))
	r := rand.New(rand.NewPCG(5, 6))
	remote := b.expose(source, rdma.RemoteRead)
	limit := min(40, a.ep.Attributes().MaxReadSegments)
	for _, n := range sizes(most) {
		skew := n % 13
		into := sink[most-n:]
		clear(sink)
		local := list(into)
		if n%2 == 1 {
			local = cutRandomly(r, into, limit)
		}
		id := a.post(rdma.WorkRequest{Op: rdma.Read, Local: local, Remote: at(remote, skew)})
		if c := a.await(); c.ID != id || c.Op != rdma.Read {
			x.Fatalf("completion %+v, want Read %d", c, id)
		}
		if !bytes.Equal(into, source[skew:skew+n]) {
			x.Fatalf("a Read of %d bytes came wrong", n)
		}
		if !isZero(sink[:most-n]) {
			x.Fatalf("a Read of %d bytes changed the memory before its sink", n)
		}
	}
}

// testReadBeyondDepth: many more Reads than may be outstanding, with messages between them.
func testReadBeyondDepth(x *exam) {
	const reads = 60
	for _, depth := range []int{1, 3} {
		a, b := x.connect(setup{ord: depth, ird: depth}, setup{ord: depth, ird: depth, receives: reads})
		source, sink := x.memory(200*reads, 2), x.memory(200*reads, 1)
		copy(source, noise(depth, len(source)))
		remote := b.expose(source, rdma.RemoteRead)
		empty := x.memory(8, 0)
		var batch []rdma.WorkRequest
		for i := range reads {
			from, n := 200*i, 1+i*3
			batch = append(batch, rdma.WorkRequest{Op: rdma.Read, Local: list(sink[from : from+n]), Remote: at(remote, from)})
			if i%4 == 0 {
				batch = append(batch, rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(empty)})
			}
		}
		a.post(batch[:len(batch)/2]...)
		for _, wr := range batch[len(batch)/2:] {
			a.post(wr)
		}
		for range reads {
			a.await()
		}
		for i := range reads {
			from, n := 200*i, 1+i*3
			if !bytes.Equal(sink[from:from+n], source[from:from+n]) {
				x.Fatalf("depth %d: Read %d came wrong", depth, i)
			}
		}
		for i := 0; i < reads; i += 4 {
			b.receive()
		}
		a.awaitSent(reads / 4)
		exchange(a, b)
	}
}

// testZeroLength: an empty Write or Read is legal, and its handle and offset are not checked (RFC
// 5041 section 5.2, RFC 5040 section 5.2.1).
func testZeroLength(x *exam) {
	a, b := x.connect(setup{}, setup{})
	mem := x.memory(100, 0)
	copy(mem, noise(1, 100))
	r := b.expose(mem, rdma.RemoteRead|rdma.RemoteWrite)
	for _, remote := range []rdma.Remote{r, at(r, 100), {Handle: r.Handle ^ 0x55, Offset: r.Offset}, {Handle: 0, Offset: 1<<64 - 1}} {
		a.post(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Remote: remote},
			rdma.WorkRequest{Op: rdma.Read, Remote: remote},
			rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mem[:0]), Remote: remote},
			rdma.WorkRequest{Op: rdma.Read, Local: list(mem[:0]), Remote: remote},
		)
		a.awaitSent(2)
		a.await()
		a.await()
		exchange(a, b)
	}
	if !bytes.Equal(mem, noise(1, 100)) {
		x.Error("memory changed")
	}
}

// largeBlocks returns blocks of 8 MiB, each contiguous, from a pool of their own.
var largeBlocks = sync.OnceValues(func() (*bufpool.Pool, [][]byte) {
	p := bufpool.New(0)
	var arenas [][]byte
	detach, err := p.Attach(func(a *bufpool.Arena) error {
		arenas = append(arenas, a.Memory)
		return nil
	}, nil)
	if err != nil {
		panic(err)
	}
	defer detach()
	for len(arenas) < 2 || p.Stats().InUse < p.Stats().Mapped {
		if _, err := p.Get(bufpool.MaxSize); err != nil {
			panic(err)
		}
	}
	return p, arenas
})

// testLarge: 8 MiB in one Write, and in one Read.
func testLarge(x *exam) {
	pool, mem := largeBlocks()
	d := x.domain()
	if err := d.Register(pool); err != nil {
		x.Fatalf("Attach of a second pool: %v", err)
	}
	a, b := x.connect(setup{domain: d}, setup{domain: d})
	n := min(len(mem[0]), len(mem[1]), 8<<20)
	mine, theirs := mem[0][:n], mem[1][:n]
	copy(mine, noise(1, n))
	clear(theirs)
	r := b.expose(theirs, rdma.RemoteWrite|rdma.RemoteRead)
	a.post(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine), Remote: r}, rdma.WorkRequest{Op: rdma.Send, Signaled: true})
	b.receive()
	if !bytes.Equal(theirs, noise(1, n)) {
		x.Fatal("a Write of 8 MiB came wrong")
	}
	a.awaitSent(2)
	copy(theirs, noise(2, n))
	local := list(mine)
	if a.ep.Attributes().MaxReadSegments > 1 {
		local = list(mine[:n/3], mine[n/3:])
	}
	a.post(rdma.WorkRequest{Op: rdma.Read, Local: local, Remote: r})
	a.await()
	if !bytes.Equal(mine, noise(2, n)) {
		x.Fatal("a Read of 8 MiB came wrong")
	}
}

// testTrim: memory that the pool gave back to the system is no local memory any more, and memory
// mapped later is.
func testTrim(x *exam) {
	pool := bufpool.New(0)
	x.Cleanup(func() {
		if err := pool.Close(); err != nil {
			x.Error(err)
		}
	})
	d := x.domain()
	if err := d.Register(pool); err != nil {
		x.Fatalf("Attach of a second pool: %v", err)
	}
	a, b := x.connect(setup{domain: d}, setup{})
	use := func() []byte {
		buf, err := pool.Get(100)
		if err != nil {
			x.Fatal(err)
		}
		copy(buf.B, noise(1, 100))
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(buf.B)})
		if got := b.receive().data; !bytes.Equal(got, noise(1, 100)) {
			x.Fatalf("%x was received, want the sent bytes", got)
		}
		a.awaitSent(1)
		mem := buf.B
		buf.Release()
		return mem
	}
	gone := use()
	for range 2 {
		if err := pool.Trim(); err != nil {
			x.Fatalf("Trim: %v", err)
		}
	}
	if err := a.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: list(gone)}}); err == nil {
		x.Error("memory that was given back to the system could be posted")
	}
	use()
}

// testMixed: both ends write, read and send at once, in batches of everything.
func testMixed(x *exam) {
	const (
		rounds = 40
		area   = 256 << 10
		ops    = 12
	)
	s := setup{receives: 4 * ops, ord: 3, ird: 3}
	a, b := x.connect(s, s)
	var wg sync.WaitGroup
	for i, e := range []*end{a, b} {
		peer := []*end{b, a}[i]
		// The peer's memory: one part for our Writes, the other for our Reads.
		target := x.memory(2*area, 7*i)
		clear(target[:area])
		copy(target[area:], noise(i, area))
		remote := peer.expose(target, rdma.RemoteRead|rdma.RemoteWrite)
		source, sink := x.memory(area, i), x.memory(area, 3*i)
		copy(source, noise(9+i, area))
		wg.Go(func() {
			if err := e.mix(peer, rand.New(rand.NewPCG(uint64(i), 9)), rounds, ops, remote, source, sink, target); err != nil {
				x.Error(err)
			}
		})
	}
	wg.Wait()
}

func (e *end) mix(peer *end, r *rand.Rand, rounds, ops int, remote rdma.Remote, source, sink, target []byte) error {
	area := len(source)
	for round := range rounds {
		type piece struct{ at, n int }
		var writes, reads []piece
		var batch []rdma.WorkRequest
		clear(sink)
		step := area / ops
		sends, signaled := 0, 0
		for i := range ops {
			p := piece{i * step, 1 + r.IntN(step)}
			if r.IntN(2) == 0 {
				p.n = 1 + r.IntN(100)
			}
			wr := rdma.WorkRequest{Op: rdma.Send, Signaled: r.IntN(2) == 0}
			switch r.IntN(3) {
			case 0:
				wr.Op, wr.Local, wr.Remote = rdma.Write, list(source[p.at:p.at+p.n]), at(remote, p.at)
				writes = append(writes, p)
			case 1:
				wr.Op, wr.Local, wr.Remote = rdma.Read, list(sink[p.at:p.at+p.n]), at(remote, area+p.at)
				reads = append(reads, p)
			default:
				wr.Local = list(source[p.at : p.at+min(p.n, 4096)])
				sends++
			}
			if wr.Signaled && wr.Op != rdma.Read {
				signaled++
			}
			batch = append(batch, wr)
		}
		batch = append(batch, rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		if _, err := e.tryPost(batch...); err != nil {
			return err
		}
		e.nextSent += signaled + 1
		err := peer.tryWait("messages", func() bool { return len(peer.messages) > sends })
		if err != nil {
			return err
		}
		peer.mu.Lock()
		last := peer.messages[sends]
		peer.messages = peer.messages[sends+1:]
		peer.mu.Unlock()
		if last.Bytes != 0 {
			return fmt.Errorf("%s, round %d: the last message has %d bytes", e.name, round, last.Bytes)
		}
		for _, p := range writes {
			if !bytes.Equal(target[p.at:p.at+p.n], source[p.at:p.at+p.n]) {
				return fmt.Errorf("%s, round %d: a Write of %d bytes came wrong", e.name, round, p.n)
			}
			clear(target[p.at : p.at+p.n])
		}
		err = e.tryWait("completions", func() bool { return len(e.done) >= len(reads) && len(e.sent) >= e.nextSent })
		if err != nil {
			return err
		}
		e.mu.Lock()
		e.done = e.done[len(reads):]
		e.mu.Unlock()
		for _, p := range reads {
			if !bytes.Equal(sink[p.at:p.at+p.n], target[area+p.at:area+p.at+p.n]) {
				return fmt.Errorf("%s, round %d: a Read of %d bytes came wrong", e.name, round, p.n)
			}
		}
		if !isZero(target[:area]) {
			return fmt.Errorf("%s, round %d: a Write went to the wrong place", e.name, round)
		}
	}
	return nil
}
