package rdmatest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"

	"sluice.dev/sluice/pkg/rdma"
)

// violated checks that the connection of a and b ended by itself, for a reason other than an
// orderly end.
func violated(a, b *end) {
	a.Helper()
	a.violated(a.SilentEnd)
	b.violated(b.SilentEnd)
}

// violated checks one end; with silent it may see an orderly end by the peer.
func (e *end) violated(silent bool) {
	e.Helper()
	err := e.why()
	if orderly := errors.Is(err, io.EOF); err == nil || orderly && !silent || errors.Is(err, net.ErrClosed) {
		e.Errorf("%s: Serve returned %v, want an error that names the violation", e.name, err)
	}
	if _, err := e.tryPost(rdma.WorkRequest{Op: rdma.Send, Signaled: true}); err == nil {
		e.Errorf("%s: Post succeeded after the connection ended", e.name)
	}
	if err := e.ep.PostReceives([]rdma.Receive{{ID: 1 << 40}}); err == nil {
		e.Errorf("%s: PostReceives succeeded after the connection ended", e.name)
	}
}

// refused checks the handle in Serve's error.
func (e *end) refused(handle uint32) {
	e.Helper()
	var access *rdma.AccessError
	switch {
	case errors.As(e.err, &access):
		if access.Handle != handle {
			e.Errorf("%s: Serve's error names handle %#x, want %#x", e.name, access.Handle, handle)
		}
	case e.TellsHandle:
		e.Errorf("%s: Serve returned %v, want a *rdma.AccessError", e.name, e.err)
	}
}

// testViolations: a request for memory that is not exposed for it ends its connection, changes
// nothing, and does not affect others.
func testViolations(x *exam) {
	const size = 100
	both := rdma.RemoteRead | rdma.RemoteWrite
	type target struct {
		a, b   *end
		region []byte
		remote rdma.Remote
	}
	inside := func(n, length int) func(target) (rdma.Remote, int) {
		return func(t target) (rdma.Remote, int) { return at(t.remote, n), length }
	}
	handle := func(f func(target) uint32) func(target) (rdma.Remote, int) {
		return func(t target) (rdma.Remote, int) {
			return rdma.Remote{Handle: f(t), Offset: t.remote.Offset}, 10
		}
	}
	bystanderA, bystanderB := x.connect(setup{}, setup{})
	elsewhere := x.memory(size, 0)
	foreign := bystanderB.expose(elsewhere, both)
	cases := []struct {
		name   string
		access rdma.Access // of the region
		only   []rdma.Opcode
		where  func(target) (rdma.Remote, int)
	}{
		{name: "one byte past the end", where: inside(1, size)},
		{name: "one byte too long", where: inside(0, size+1)},
		{name: "just behind the end", where: inside(size, 1)},
		{name: "just before the beginning", where: inside(-1, 1)},
		{name: "one byte too early", where: inside(-1, size)},
		{name: "one byte more at both ends", where: inside(-1, size+2)},
		{name: "far behind", where: inside(1<<40, 1)},
		{name: "much longer", where: inside(0, 300_000)},
		{name: "half an address space away", where: func(t target) (rdma.Remote, int) {
			return rdma.Remote{Handle: t.remote.Handle, Offset: t.remote.Offset ^ 1<<63}, 1
		}},
		{name: "past 2^64", where: func(t target) (rdma.Remote, int) {
			return rdma.Remote{Handle: t.remote.Handle, Offset: 1<<64 - 1}, 2
		}},
		{name: "up to 2^64", where: func(t target) (rdma.Remote, int) {
			return rdma.Remote{Handle: t.remote.Handle, Offset: 1<<64 - 16}, 16
		}},
		{name: "far past 2^64", where: func(t target) (rdma.Remote, int) {
			return rdma.Remote{Handle: t.remote.Handle, Offset: 1<<64 - 5}, 100_000
		}},
		{name: "exposed for reading only", access: rdma.RemoteRead, only: []rdma.Opcode{rdma.Write}, where: inside(0, 1)},
		{name: "exposed for writing only", access: rdma.RemoteWrite, only: []rdma.Opcode{rdma.Read}, where: inside(0, 1)},
		{name: "unknown handle, last bit", where: handle(func(t target) uint32 { return t.remote.Handle ^ 1 })},
		{name: "unknown handle, first bit", where: handle(func(t target) uint32 { return t.remote.Handle ^ 1<<31 })},
		{name: "unknown handle, middle bit", where: handle(func(t target) uint32 { return t.remote.Handle ^ 1<<12 })},
		{name: "handle 0", where: handle(func(t target) uint32 { return 0 })},
		{name: "handle of another connection", where: func(t target) (rdma.Remote, int) { return foreign, 10 }},
		{name: "handle of the violator's own", where: func(t target) (rdma.Remote, int) {
			return t.a.expose(x.memory(size, 0), both), 10
		}},
		{name: "handle invalidated here", where: func(t target) (rdma.Remote, int) {
			t.b.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: t.remote.Handle})
			t.b.await()
			return t.remote, 1
		}},
		{name: "handle invalidated by the peer", where: func(t target) (rdma.Remote, int) {
			if !t.b.ep.Attributes().RemoteInvalidation {
				return at(t.remote, size), 1
			}
			t.a.post(rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Invalidate: t.remote.Handle})
			t.b.receive()
			return t.remote, 1
		}},
	}
	scratch := x.memory(300_000, 0)
	for _, c := range cases {
		ops := c.only
		if ops == nil {
			ops = []rdma.Opcode{rdma.Write, rdma.Read}
		}
		access := c.access
		if access == 0 {
			access = both
		}
		for _, op := range ops {
			if op == rdma.Read && c.access == rdma.RemoteWrite && x.ReadsUnchecked {
				continue
			}
			a, b := x.connect(setup{receives: 2}, setup{receives: 2})
			mem := x.memory(3*size, 3)
			copy(mem, noise(1, len(mem)))
			region := mem[size : 2*size]
			where, n := c.where(target{a, b, region, b.expose(region, access)})
			clear(scratch)
			_, err := a.tryPost(
				rdma.WorkRequest{Op: op, Local: list(scratch[:n]), Remote: where},
				rdma.WorkRequest{Op: rdma.Send, Signaled: true}, // must not be delivered
			)
			switch {
			case err == nil:
				violated(a, b)
				a.refused(where.Handle)
				if errors.As(b.err, new(*rdma.AccessError)) {
					x.Errorf("%s: Serve returned %v, though it was the peer that erred", b.name, b.err)
				}
			case where.Offset+uint64(n) < where.Offset:
				exchange(a, b) // the error could be seen before
			default:
				x.Errorf("Post: %v", err)
			}
			if !bytes.Equal(mem, noise(1, len(mem))) {
				x.Errorf("%s, %s: memory was overwritten", opName(op), c.name)
			}
			if op == rdma.Read && bytes.Contains(scratch, region[:8]) {
				x.Errorf("%s, %s: data came back", opName(op), c.name)
			}
			if n := len(b.messages); op == rdma.Write && n > 0 {
				x.Errorf("%s, %s: the message behind it was delivered", opName(op), c.name)
			}
			if x.Failed() {
				x.Fatalf("%s, %s: see above", opName(op), c.name)
			}
		}
	}
	exchange(bystanderA, bystanderB)
	if !bystanderB.ep.Attributes().RemoteInvalidation {
		return
	}
	strange := []func(rdma.Remote) uint32{
		func(r rdma.Remote) uint32 { return r.Handle ^ 1<<12 },
		func(rdma.Remote) uint32 { return 0 },
	}
	if !x.InvalidatesUnchecked {
		strange = append(strange, func(rdma.Remote) uint32 { return foreign.Handle })
	}
	for _, h := range strange {
		a, b := x.connect(setup{}, setup{})
		r := b.expose(x.memory(size, 0), both)
		a.post(rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Invalidate: h(r)})
		a.violated(x.SilentEnd || x.InvalidatesUnchecked)
		b.violated(x.SilentEnd)
		if len(b.messages) > 0 {
			x.Error("a Send with Invalidate of a handle that is not exposed here was delivered")
		}
	}
	exchange(bystanderA, bystanderB)
	mine := x.memory(size, 1)
	copy(mine, noise(4, size))
	bystanderA.post(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine), Remote: foreign})
	exchange(bystanderA, bystanderB)
	if !bytes.Equal(elsewhere, mine) {
		x.Error("the region of the undisturbed connection is not writable any more")
	}
}

// testSendWithInvalidate: it ends access by exactly its handle, after the Writes before it, and its
// completion has the handle.
func testSendWithInvalidate(x *exam) {
	a, b := x.connect(setup{}, setup{})
	if !b.ep.Attributes().RemoteInvalidation {
		x.Skip("the provider does not offer remote invalidation")
	}
	const size = 5000
	mem, mine := x.memory(3*size, 1), x.memory(size, 2)
	low, high := b.expose(mem[:size], rdma.RemoteWrite), b.expose(mem[2*size:], rdma.RemoteWrite)
	for i := range 50 {
		middle := b.expose(mem[size:2*size], rdma.RemoteWrite|rdma.RemoteRead)
		copy(mine, noise(i, size))
		length := i * 7
		a.post(
			rdma.WorkRequest{Op: rdma.Write, Local: list(mine[:100]), Remote: low},
			rdma.WorkRequest{Op: rdma.Write, Local: list(mine), Remote: middle},
			rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Local: list(mine[:length]), Invalidate: middle.Handle},
			rdma.WorkRequest{Op: rdma.Write, Local: list(mine[:200]), Remote: high},
			rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(mine[:1])},
		)
		m := b.receive()
		if !m.HasInvalidated || m.Invalidated != middle.Handle {
			x.Fatalf("message %d reports invalidated %v, handle %#x; want handle %#x", i, m.HasInvalidated, m.Invalidated, middle.Handle)
		}
		if !bytes.Equal(m.data, noise(i, length)) {
			x.Fatalf("message %d of %d bytes came wrong", i, length)
		}
		if !bytes.Equal(mem[size:2*size], noise(i, size)) {
			x.Fatalf("the Write before message %d was not done", i)
		}
		if m := b.receive(); m.HasInvalidated {
			x.Fatalf("a plain Send reports that handle %#x was invalidated", m.Invalidated)
		}
		if !bytes.Equal(mem[:100], noise(i, 100)) || !bytes.Equal(mem[2*size:2*size+200], noise(i, 200)) {
			x.Fatalf("round %d: Writes to the other regions were not done", i)
		}
		a.awaitSent(2)
	}
	a.post(rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Invalidate: low.Handle})
	b.receive()
	copy(mem, noise(100, len(mem)))
	a.post(rdma.WorkRequest{Op: rdma.Write, Local: list(mine[:1]), Remote: low})
	violated(a, b)
	if !bytes.Equal(mem, noise(100, len(mem))) {
		x.Error("an invalidated region was written to")
	}
}

// testLocalInvalidate: when it is complete, the peer's access has ended, even in the middle of a
// stream of Writes.
func testLocalInvalidate(x *exam) {
	for round := range 10 {
		a, b := x.connect(setup{}, setup{})
		const size = 64 << 10
		mem := x.memory(size, 1)
		kept := x.memory(10, 0)
		remote, other := b.expose(mem, rdma.RemoteWrite), b.expose(kept, rdma.RemoteWrite|rdma.RemoteRead)
		mine, sink := x.memory(size, 2), x.memory(10, 0)
		started := make(chan struct{})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				n := size
				if i%2 == 0 {
					n = 1 + i%1000
				}
				if i == round {
					close(started)
				}
				copy(mine, noise(i, n))
				if _, err := a.tryPost(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine[:n]), Remote: remote},
					rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine[:10]), Remote: other}); err != nil {
					return
				}
				a.mu.Lock()
				a.nextSent += 2
				a.mu.Unlock()
				reads := 1 + i/8 // few enough that they do not pile up
				if i%8 == 0 {
					if _, err := a.tryPost(rdma.WorkRequest{Op: rdma.Read, Local: list(sink), Remote: other}); err != nil {
						return
					}
				}
				if a.tryWait("completions", func() bool { return len(a.sent) >= a.nextSent && len(a.done) >= reads }) != nil {
					return
				}
			}
		}()
		<-started
		id := b.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: remote.Handle})
		if c := b.await(); c.ID != id || c.Op != rdma.LocalInvalidate {
			x.Errorf("completion %+v, want Local Invalidate %d", c, id)
		}
		copy(mem, noise(1000, size))
		violated(a, b)
		<-stopped
		if !x.LateSegment && !bytes.Equal(mem, noise(1000, size)) {
			x.Fatal("memory was written to after Local Invalidate was complete")
		}
	}
	// Without a writer it does no harm, and other handles stay valid.
	a, b := x.connect(setup{}, setup{})
	mem, mine := x.memory(100, 0), x.memory(50, 0)
	kept := b.expose(mem[:50], rdma.RemoteWrite)
	for i := range 100 {
		r := b.expose(mem[50:], rdma.RemoteWrite)
		copy(mine, noise(i, 50))
		a.post(rdma.WorkRequest{Op: rdma.Write, Local: list(mine), Remote: kept},
			rdma.WorkRequest{Op: rdma.Write, Local: list(mine), Remote: r},
			rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		b.receive()
		if !bytes.Equal(mem[:50], mine) || !bytes.Equal(mem[50:], mine) {
			x.Fatal("a Write came wrong")
		}
		b.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: r.Handle})
		b.await()
		a.awaitSent(1)
	}
}

// testRedirect: when it is complete, even in the middle of a stream of Writes and Reads, these
// reach the new memory alone, and the connection goes on.
func testRedirect(x *exam) {
	const size = 64 << 10
	for round := range 10 {
		a, b := x.connect(setup{}, setup{})
		if !b.ep.Attributes().Redirects {
			x.Skip("the provider has no Redirect")
		}
		mem, next := x.memory(size, 1), x.memory(size, 3)
		copy(next, noise(1, size))
		remote := b.expose(mem, rdma.RemoteWrite|rdma.RemoteRead)
		mine, sink := x.memory(size, 2), x.memory(size, 0)
		copy(mine, noise(2, size))
		started, stop, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ; i++ {
				a.post(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine[:size/2]), Remote: remote},
					rdma.WorkRequest{Op: rdma.Read, Local: list(sink[size/2:]), Remote: at(remote, size/2)})
				if i == round {
					close(started)
				}
				a.awaitSent(1)
				a.await()
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
		<-started
		id := b.post(rdma.WorkRequest{Op: rdma.Redirect, Invalidate: remote.Handle, Local: list(next)})
		if c := b.await(); c.ID != id || c.Op != rdma.Redirect {
			x.Errorf("completion %+v, want Redirect %d", c, id)
		}
		copy(mem, noise(3, size))
		close(stop)
		<-stopped
		a.post(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine[:size/2]), Remote: remote},
			rdma.WorkRequest{Op: rdma.Read, Local: list(sink), Remote: remote})
		a.awaitSent(1)
		a.await()
		want := slices.Concat(noise(2, size)[:size/2], noise(1, size)[size/2:])
		switch {
		case !bytes.Equal(mem, noise(3, size)):
			x.Fatal("the old memory was written to after Redirect was complete")
		case !bytes.Equal(next, want) || !bytes.Equal(sink, want):
			x.Fatal("Writes and Reads after Redirect do not reach the new memory")
		}
		b.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: remote.Handle},
			rdma.WorkRequest{Op: rdma.Redirect, Invalidate: remote.Handle, Local: list(mem)})
		b.await()
		b.await()
		exchange(a, b)
		if _, err := b.tryPost(rdma.WorkRequest{Op: rdma.Redirect, Invalidate: b.expose(mem, rdma.RemoteWrite).Handle, Local: list(next[1:])}); err == nil {
			x.Error("Post redirected a handle to shorter memory")
		}
		a.post(rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: list(mine[:1]), Remote: remote})
		violated(a, b)
	}
}

// testHandles: a handle does not reveal the next one.
func testHandles(x *exam) {
	a, b := x.connect(setup{}, setup{})
	mem := x.memory(10, 0)
	seen := map[uint32]bool{}
	steps := map[uint32]int{}
	last := uint32(0)
	const n = 300
	for range n {
		for _, e := range []*end{a, b} {
			h := e.expose(mem, rdma.RemoteRead).Handle
			if e == a && seen[h] {
				x.Fatalf("handle %#x was given out twice", h)
			}
			if e == a {
				seen[h] = true
				steps[h-last]++
				last = h
			}
		}
	}
	for step, times := range steps {
		if times > n/20 {
			x.Errorf("%d of %d handles are the one before plus %#x", times, n, step)
		}
	}
}

// testOverrun: a Send without a receive, or with one that is too short, ends the connection.
func testOverrun(x *exam) {
	bystanderA, bystanderB := x.connect(setup{}, setup{})
	for _, c := range []struct {
		name    string
		send    int
		receive []int // sizes of the posted ones
	}{
		{"none posted", 10, nil},
		{"none posted for nothing", 0, nil},
		{"one byte too short", 101, []int{100}},
		{"no room", 1, []int{0}},
		{"much too short", 200_000, []int{4096}},
		{"too short, with a longer one behind", 101, []int{100, 200}},
	} {
		a, b := x.connect(setup{}, setup{receives: -1, hold: true})
		for _, n := range c.receive {
			if err := b.ep.PostReceives([]rdma.Receive{b.newReceive(cut(x.memory(n, 1), 2))}); err != nil {
				x.Fatalf("PostReceives: %v", err)
			}
		}
		m := x.memory(c.send, 0)
		copy(m, noise(1, c.send))
		a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true, Local: list(m)})
		a.violated(x.SilentEnd)
		b.violated(x.SilentEnd || x.SilentOverrun && len(c.receive) == 0)
		if len(b.messages) > 0 {
			x.Errorf("%s: a message was delivered", c.name)
		}
	}
	exchange(bystanderA, bystanderB)
}
