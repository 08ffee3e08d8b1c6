package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

func testFirst(x *exam) {
	a, b := x.connect(setup{}, setup{})
	exchange(a, b)
	for _, e := range []*end{a, b} {
		at := e.ep.Attributes()
		if at.Provider != x.Provider.Name() {
			x.Errorf("%s: Attributes.Provider is %q, the provider's name is %q", e.name, at.Provider, x.Provider.Name())
		}
		if at.MaxSegments < 2 || at.MaxReadSegments < 1 {
			x.Errorf("%s: MaxSegments %d, MaxReadSegments %d: at least 2 and 1 are needed", e.name, at.MaxSegments, at.MaxReadSegments)
		}
	}
	if got, want := a.ep.RemoteAddr().String(), x.listener.Addr().String(); got != want {
		x.Errorf("the dialer's RemoteAddr is %s, it dialed %s", got, want)
	}
	if got, want := b.ep.LocalAddr().String(), x.listener.Addr().String(); got != want {
		x.Errorf("the acceptor's LocalAddr is %s, it listens on %s", got, want)
	}
	if got, want := b.ep.RemoteAddr().String(), a.ep.LocalAddr().String(); got != want {
		x.Errorf("the acceptor's RemoteAddr is %s, the dialer's LocalAddr %s", got, want)
	}
}

func testPrivateData(x *exam) {
	for _, n := range []struct{ dialer, acceptor int }{{0, 0}, {1, 0}, {0, 1}, {8, 8}, {9, 7}, {195, 196}, {196, 195}} {
		d := noise(n.dialer, min(n.dialer, orDefault(x.MaxPrivate.Call, 196)))
		c := noise(n.acceptor+1, min(n.acceptor, orDefault(x.MaxPrivate.Answer, 196)))
		a, b := x.connect(setup{private: d}, setup{private: c})
		if got := a.ep.Attributes().PrivateData; !x.samePrivate(got, c) {
			x.Errorf("the dialer got %d bytes of private data %x, want %d: %x", len(got), got, len(c), c)
		}
		if got := b.ep.Attributes().PrivateData; !x.samePrivate(got, d) {
			x.Errorf("the acceptor got %d bytes of private data %x, want %d: %x", len(got), got, len(d), d)
		}
	}
}

// samePrivate compares received private data with the sent ones.
func (s *suite) samePrivate(got, sent []byte) bool {
	return bytes.HasPrefix(got, sent) && (len(got) == len(sent) || s.Padded && isZero(got[len(sent):]))
}

// incoming accepts requests until one has the right private data; a listener may also report
// abandoned ones.
func (x *exam) incoming(private []byte) <-chan rdma.ConnRequest {
	l := x.listen()
	c := make(chan rdma.ConnRequest, 1)
	go func() {
		defer close(c)
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			if x.samePrivate(in.PrivateData(), private) {
				c <- in
				return
			}
			_ = in.Reject(nil) // its dialer may be gone
		}
	}()
	return c
}

func testReject(x *exam) {
	l := x.listen()
	for _, n := range []int{0, 1, 8, 195, 196} {
		reason, hello := noise(n, min(n, orDefault(x.MaxPrivate.Reject, 196))), noise(7, 11)
		requests := x.incoming(hello)
		rejected := make(chan error, 1)
		go func() {
			in, ok := <-requests
			if !ok {
				rejected <- errors.New("the request did not arrive")
				return
			}
			rejected <- in.Reject(reason)
		}()
		_, o := x.newEnd("dialer", setup{private: hello}, false)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ep, err := x.Provider.Dial(ctx, l.Addr().String(), o)
		cancel()
		if err == nil {
			ep.Close()
			x.Fatal("Dial succeeded, though it was rejected")
		}
		if err := <-rejected; err != nil {
			x.Errorf("Reject: %v", err)
		}
		var why *rdma.RejectedError
		if !errors.As(err, &why) {
			x.Errorf("Dial: %v; want a *rdma.RejectedError", err)
		} else if !x.samePrivate(why.PrivateData, reason) {
			x.Errorf("rejected with %x, want %x", why.PrivateData, reason)
		}
	}
	exchange(x.connect(setup{}, setup{}))
}

func testRefused(x *exam) {
	l := x.listen()
	address := l.Addr().String()
	l.Close()
	x.listener = nil
	_, o := x.newEnd("dialer", setup{}, false)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if ep, err := x.Provider.Dial(ctx, address, o); err == nil {
		ep.Close()
		x.Errorf("Dial to %s succeeded, where nobody listens", address)
	} else if ctx.Err() != nil {
		x.Errorf("Dial to %s, where nobody listens, did not fail by itself", address)
	}
	for _, address := range []string{"", "127.0.0.1", "127.0.0.1:123456", "127.0.0.1:x"} {
		if ep, err := x.Provider.Dial(ctx, address, o); err == nil {
			ep.Close()
			x.Errorf("Dial to %q succeeded", address)
		}
		if address == "" {
			continue // where listening means any address
		}
		if l, err := x.Provider.Listen(ctx, address); err == nil {
			l.Close()
			x.Errorf("Listen on %q succeeded", address)
		}
	}
}

func testListenerClose(x *exam) {
	a, b := x.connect(setup{}, setup{})
	blocked := make(chan error, 1)
	l := x.listener
	go func() {
		_, err := l.Accept()
		blocked <- err
	}()
	time.Sleep(5 * time.Millisecond) // the more interesting order, though either must work
	if err := l.Close(); err != nil {
		x.Errorf("Close: %v", err)
	}
	if err := <-blocked; !errors.Is(err, net.ErrClosed) {
		x.Errorf("Accept returned %v when the listener was closed, want net.ErrClosed", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		x.Errorf("Accept after Close returned %v, want net.ErrClosed", err)
	}
	x.listener = nil
	exchange(a, b) // it survives
}

func testDialCancelled(x *exam) {
	l := x.listen()
	_, o := x.newEnd("dialer", setup{}, false)
	for _, wait := range []time.Duration{0, 20 * time.Millisecond} {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(wait, cancel)
		start := time.Now()
		ep, err := x.Provider.Dial(ctx, l.Addr().String(), o)
		if err == nil {
			ep.Close()
			x.Fatal("Dial succeeded, though nobody accepted")
		}
		if !errors.Is(err, context.Canceled) {
			x.Errorf("Dial returned %v when its context was cancelled, want context.Canceled", err)
		}
		if time.Since(start) > patience/2 {
			x.Errorf("Dial went on for %v after its context was cancelled", time.Since(start))
		}
	}
	// Abandoned requests do not harm the listener.
	hello := noise(3, 5)
	requests := x.incoming(hello)
	e, o := x.newEnd("dialer", setup{private: hello, receives: 1}, false)
	c, co := x.newEnd("acceptor", setup{receives: 1}, false)
	accepted := make(chan error, 1)
	go func() {
		in, ok := <-requests
		var err error
		if !ok {
			err = errors.New("the request did not arrive")
		} else {
			c.ep, err = in.Accept(co)
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ep, err := x.Provider.Dial(ctx, l.Addr().String(), o)
	if err != nil {
		l.Close()
		x.Errorf("Dial: %v", err)
	} else {
		e.ep = ep
		ep.Close()
	}
	if err := <-accepted; err != nil {
		x.Errorf("Accept: %v", err)
	} else {
		c.ep.Close()
	}
}

func testReadDepths(x *exam) {
	for _, d := range []struct{ aOut, aIn, bOut, bIn int }{{1, 1, 1, 1}, {8, 2, 3, 5}, {2, 7, 8, 1}, {4, 16, 16, 4}} {
		a, b := x.connect(setup{ord: d.aOut, ird: d.aIn}, setup{ord: d.bOut, ird: d.bIn})
		ga, gb := a.ep.Attributes(), b.ep.Attributes()
		if x.ReadsAsAsked {
			d.bIn = max(d.bIn, d.aOut)
		}
		if want := min(d.aOut, d.bIn); ga.ORD != want || gb.IRD != want {
			x.Errorf("%+v: dialer's ORD %d, acceptor's IRD %d, want %d", d, ga.ORD, gb.IRD, want)
		}
		if want := min(d.aIn, d.bOut); ga.IRD != want || gb.ORD != want {
			x.Errorf("%+v: dialer's IRD %d, acceptor's ORD %d, want %d", d, ga.IRD, gb.ORD, want)
		}
		exchange(a, b)
	}
	// None at all, as a client without Reads requests; the acceptor cannot read more than the
	// dialer allows.
	a, b := x.connect(setup{ord: -1, ird: 2}, setup{ord: 2, ird: -1})
	if at := a.ep.Attributes(); at.ORD != 0 || at.IRD != 2 {
		x.Errorf("dialer: ORD %d, IRD %d; want 0, 2", at.ORD, at.IRD)
	}
	mine, theirs := x.memory(10, 0), x.memory(10, 0)
	copy(mine, noise(1, 10))
	remote := a.expose(mine, rdma.RemoteRead)
	b.post(rdma.WorkRequest{Op: rdma.Read, Local: list(theirs), Remote: remote})
	if b.await(); !bytes.Equal(theirs, mine) {
		x.Error("the Read came wrong")
	}
	if _, err := a.tryPost(rdma.WorkRequest{Op: rdma.Read, Local: list(mine), Remote: b.expose(theirs, rdma.RemoteRead)}); err == nil {
		x.Error("Post of a Read succeeded where none may be outstanding (ORD 0)")
	}
	exchange(a, b)
}

func testBadOptions(x *exam) {
	l := x.listen()
	good := x.domain()
	foreign := rdma.Receive{Segments: list(make([]byte, 100))}
	mine := x.memory(100, 0)
	for name, o := range map[string]rdma.Options{
		"no domain":                    {},
		"197 bytes of private data":    {Domain: good, PrivateData: noise(1, 197)},
		"a receive outside the arenas": {Domain: good, Receives: []rdma.Receive{foreign}},
		"more receives than ReceiveQueue": {
			Domain: good, ReceiveQueue: 2, Receives: []rdma.Receive{{ID: 1, Segments: list(mine[:20])}, {ID: 2, Segments: list(mine[20:40])}, {ID: 3, Segments: list(mine[40:])}},
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		ep, err := x.Provider.Dial(ctx, l.Addr().String(), o)
		if err == nil {
			ep.Close()
			x.Errorf("%s: Dial succeeded", name)
		} else if ctx.Err() != nil {
			x.Errorf("%s: Dial did not fail by itself", name)
		}
		cancel()

		// The accepting end: its peer must not be left waiting.
		hello := []byte(name)[:8]
		requests := x.incoming(hello)
		accepted := make(chan error, 1)
		go func() {
			in, ok := <-requests
			if !ok {
				accepted <- errors.New("the request did not arrive")
				return
			}
			ep, err := in.Accept(o)
			if err == nil {
				ep.Close()
				accepted <- fmt.Errorf("%s: Accept succeeded", name)
				return
			}
			accepted <- nil
		}()
		_, do := x.newEnd("dialer", setup{private: hello, receives: 1}, false)
		ctx, cancel = context.WithTimeout(context.Background(), patience)
		if ep, err := x.Provider.Dial(ctx, l.Addr().String(), do); err == nil {
			ep.Close()
			x.Errorf("%s: Dial succeeded, though Accept must have failed", name)
		} else if ctx.Err() != nil {
			x.Errorf("%s: Dial was left waiting when Accept failed", name)
		}
		cancel()
		if err := <-accepted; err != nil {
			x.Error(err)
		}
	}
	exchange(x.connect(setup{}, setup{}))
}

func testAcceptorFirst(x *exam) {
	if !x.AcceptorFirst {
		x.Skip("this provider's acceptor may have to wait for the dialer")
	}
	l := x.listen()
	d, do := x.newEnd("dialer", setup{receives: 1}, false)
	c, co := x.newEnd("acceptor", setup{receives: 1}, false)
	accepted := make(chan error, 1)
	go func() {
		in, err := l.Accept()
		if err == nil {
			c.ep, err = in.Accept(co)
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if d.ep, err = x.Provider.Dial(ctx, l.Addr().String(), do); err != nil {
		l.Close()
		x.Fatalf("Dial: %v; Accept: %v", err, <-accepted)
	}
	if err := <-accepted; err != nil {
		d.ep.Close()
		x.Fatalf("Accept: %v", err)
	}
	x.ends = append(x.ends, d, c)
	go d.serve()
	go c.serve()
	exchange(c, d)
}

func testManyConnections(x *exam) {
	const n = 24
	var pairs [n][2]*end
	for i := range pairs {
		pairs[i][0], pairs[i][1] = x.connect(setup{receives: 4, size: 64}, setup{receives: 4, size: 64})
	}
	var wg sync.WaitGroup
	for i, p := range pairs {
		wg.Go(func() {
			for j := range 20 {
				if err := p[0].echo(p[1], noise(i*100+j, 33)); err != nil {
					x.Error(err)
					return
				}
			}
			if i%2 == 0 { // some end while others run
				p[i/2%2].close()
			}
		})
	}
	wg.Wait()
	for i, p := range pairs {
		if i%2 == 0 {
			p[0].join()
			p[1].join()
			continue
		}
		exchange(p[0], p[1])
	}
}
