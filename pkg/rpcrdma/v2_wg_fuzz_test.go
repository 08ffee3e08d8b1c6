package rpcrdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// FuzzResponderWG is FuzzResponder with a server of the working group's dialect.
func FuzzResponderWG(f *testing.F) {
	const (
		final, external, middle, inline = 7, 8, 9, 10

		limit = 1 << 20
	)
	segment := words(5, 100, append([]byte(nil), fuzzMark...))
	first := words(1, 2, limit, final, 2, 1, 4, 4096, 2, 4, 4096)
	null := words(9, 2, limit, inline, 0, 0, 0, 0, rpcCall(9, procNull))
	whole := rpcCall(2, procPlain, 0, 5000)
	f.Add(packMessages(first, null))
	f.Add(packMessages(words(1, 2, limit, 6, 1, 6, 4, 0), first, null))
	f.Add(packMessages(null, null))
	f.Add(packMessages(first, words(2, 2, limit, middle, len(whole)-4, whole[:4]), words(0, 2, limit, 5),
		words(2, 2, limit, middle, len(whole)-12, whole[4:12]), words(2, 2, limit, inline, 0, 0, 0, 0, whole[12:]), null))
	f.Add(packMessages(first, words(2, 2, limit, middle, len(whole)-4, whole[:4]), null, words(2, 2, limit, inline, 0, 0, 0, 0, whole[4:])))
	f.Add(packMessages(first, words(2, 2, limit, external, 5, 1, 0, segment, 0, 0, 0, 1, 1, segment), null))
	f.Add(packMessages(first, words(2, 2, limit, inline, 5, 1, 48, segment, 0, 0, 0, rpcCall(2, procMove, moveArgs([]int{100}))), null))
	f.Add(packMessages(first, words(2, 2, limit, inline, 0, 0, 1, 1, segment, 0, 0, rpcCall(2, procMove, moveArgs(nil, 100))), null))
	f.Add(packMessages(first, words(2, 2, 3, 11, 0, 1, 1, segment), words(2, 2, 3, 12, 4, 2), words(2, 2, 3, 13, 0), words(2, 2, 2, 4, 6, 1), null))
	fuzzResponder(f, wire.V2WorkingGroup)
}

// FuzzRequesterWG answers calls of every shape in the working group's dialect with arbitrary
// messages, packed as in FuzzResponder. "XID!" in them stands for the call's XID, and the mark for
// its first segment. Whatever comes, the call ends once, and all memory comes back.
func FuzzRequesterWG(f *testing.F) {
	const (
		final, middle, call, external, part, inline = 7, 9, 10, 11, 12, 13

		limit = 1 << 20
	)
	xid := []byte("XID!")
	good := words(xid, 1, 0, 0, 0, 0)
	segment := words(5, 100, fuzzMark)
	moves := []move{{args: []int{3}}, {results: []int{2000}}, {args: []int{5001}}, {results: []int{5001}}, {args: []int{200_000}}, {args: []int{70_000}, results: []int{200_000}}}
	for shape := range uint8(2 * len(moves)) {
		whole := words(good, 0, 0, 0, tail)
		f.Add(shape, packMessages(words(xid, 2, limit, inline, 0, whole)))
		f.Add(shape, packMessages(words(xid, 2, limit, part, len(whole)-8, whole[:8]), words(0, 2, limit, 5), words(xid, 2, limit, inline, 0, whole[8:])))
		f.Add(shape, packMessages(words(xid, 2, limit, part, 1<<31, whole[:8]), words(xid, 2, limit, part, 4, whole[8:])))
		f.Add(shape, packMessages(words(xid, 2, limit, part, 8, whole[:8]), words(xid, 2, limit, 4, 100)))
		f.Add(shape, packMessages(words(xid, 2, limit, inline, 1, 1, segment, 0, good, 0, 0, 1, 0, 100, tail)))
		f.Add(shape, packMessages(words(xid, 2, limit, external, 0, 1, 1, segment)))
		f.Add(shape, packMessages(words(xid, 2, 0, inline, 0, whole), words(xid, 2, 1, inline, 0, whole)))
		f.Add(shape, packMessages(words(0, 2, limit, 5), words(0, 2, 3, 5), words(0, 2, limit, 6, 0), words(xid, 2, limit, final, 0)))
		f.Add(shape, packMessages(words(7, 2, limit, call, 0, 0, 0, 0, rpcCall(7, procNull)), words(7, 2, limit, middle, 4, xid), words(xid, 2, limit, inline, 0, whole)))
		f.Add(shape, packMessages(words(xid, 1, 8, 0, 0, 0, 0, whole)))
		for code := range 12 {
			f.Add(shape, packMessages(words(xid, 2, limit, 4, code, 1, 6000), words(xid, 2, limit, 4, code, 4, 9000)))
		}
	}
	fabric := rdmatest.NewFabric(rdmatest.Options{})
	pool, peers := bufpool.New(0), bufpool.New(0)
	domain, err := fabric.NewDomain()
	if err != nil {
		f.Fatal(err)
	}
	if err := domain.Register(peers); err != nil {
		f.Fatal(err)
	}
	l, err := fabric.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	lim := wire.Limits{ReadSegments: 256, WriteChunks: 256, SegmentsPerChunk: 256, WriteSegments: 1024, Version2: true, V2: wire.V2WorkingGroup}
	f.Fuzz(func(t *testing.T, shape uint8, packed []byte) {
		p := newRawPeer(t, 69632)
		putPool(p.pool)
		p.pool, p.shared = peers, true
		accepted := make(chan error, 1)
		go func() {
			in, err := l.Accept()
			if err == nil {
				p.ep, err = in.Accept(p.options(domain, rawPrivate(8192)))
			}
			if err == nil {
				p.serve()
				first := p.get().b
				p.send(words(binary.BigEndian.Uint32(first), 2, limit, final, 3, 1, 4, 4096, 2, 4, 4096, 4, 4, 32))
			}
			accepted <- err
		}()
		cfg := Config{Pool: pool, Bindings: testBindings, Credits: credit.Static(4)}
		workingGroup(&cfg)
		if shape&1 != 0 { // calls of the reverse direction are taken
			cfg.Handler = new(testHandler)
		}
		c, err := Dial(context.Background(), fabric, l.Addr().String(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		r, err := moves[int(shape>>1)%len(moves)].build(pool)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		ends := make(chan struct{}, 8)
		r.Done = func(*oncrpc.Request) { ends <- struct{}{} }
		oncrpc.Submit(c, r)
		b := p.get().b
		for len(b) > 16 && binary.BigEndian.Uint32(b[12:]) == middle {
			b = p.get().b
		}
		h := new(wire.Header)
		if err := h.Parse([][]byte{b}, &lim); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		var s wire.Segment
		if h.Writes() > 0 {
			s = h.Write(0)[0]
		} else if h.HasReply {
			s = h.Reply()[0]
		}
		packed = bytes.ReplaceAll(packed, xid, words(uint32(h.XID)))
		for at := bytes.Index(packed, fuzzMark); at >= 8; at = bytes.Index(packed, fuzzMark) {
			binary.BigEndian.PutUint32(packed[at-8:], uint32(s.Handle))
			binary.BigEndian.PutUint64(packed[at:], s.Offset)
		}
		post := func(b []byte) {
			m := p.mem(len(b))
			copy(m, b)
			_ = p.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: [][]byte{m}}})
		}
		for n := 0; len(packed) >= 2 && n < 16; n++ {
			size := min(int(binary.BigEndian.Uint16(packed)), len(packed)-2, 4096)
			post(packed[2 : 2+size])
			packed = packed[2+size:]
		}
		// if none of them was an answer, or one had the call sent again, this is
		for n := 0; ; n++ {
			wait := time.Millisecond
			if n > 0 {
				post(words(uint32(h.XID), 2, limit, 4, 100))
				wait = 10 * time.Millisecond
			}
			select {
			case <-ends:
			case <-time.After(wait):
				if n < 6000 {
					continue
				}
				t.Fatal("the request did not end")
			}
			break
		}
		r.Free()
		c.Close()
		<-c.Done()
		p.close()
		if len(ends) > 0 {
			t.Fatal("the request ended twice")
		}
		if n := pool.Stats().Bufs; n != 0 {
			t.Fatalf("%d buffers are still in use", n)
		}
	})
}
