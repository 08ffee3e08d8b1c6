package rpcrdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// fuzzMark stands in a fuzzed message for a segment of memory that the peer really exposes: 64 KiB
// for reading and writing.
var fuzzMark = []byte("SEGMENT!")

// FuzzResponder sends arbitrary messages to a server: each is a length of two bytes and that many
// bytes. However bad they are, the server stays, and all memory comes back.
func FuzzResponder(f *testing.F) {
	pack := packMessages
	null := plainMsg(1, rpcCall(1, procNull))
	f.Add(pack(null, null))
	seg := append([]byte(nil), fuzzMark...)
	segment := words(5, 100, seg) // handle and length, then the mark in the place of the offset
	f.Add(pack(null, head(1, 0, 1, 48, segment, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{100})))))
	f.Add(pack(null, head(1, 0, 0, 1, 1, segment, 0, 0, rpcCall(badXID, procMove, moveArgs(nil, 100)))))
	f.Add(pack(null, head(1, 0, 0, 0, 1, 1, segment, rpcCall(badXID, procPlain, 0, 50))))
	f.Add(pack(null, head(1, 1, 1, 0, segment, 0, 0, 0)))
	f.Add(pack(null, head(1, 0, 1, 48+104, segment, 1, 48, segment, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{100, 100})))))
	for _, c := range badCases() {
		f.Add(pack(null, c.msg))
	}
	f.Add(pack(null, head(2, 128, 1000, 0, 0, 0, rpcCall(badXID, procMove, 1, 1001, make([]byte, 44+1004), tail, 0)), null))
	f.Add(pack(null, head(2, 128, 400, 1, 48, segment, 0, 0, 0, rpcCall(badXID, procMove, 2, 100, 1000, make([]byte, 16+1000), tail, 0)), null))
	f.Add(pack(null, head(2, 3, 0, 0, 0, 0, rpcCall(badXID, procNull)), head(2, 1<<30, 0, 0, 0, 0, rpcCall(badXID, procMove, 1, 4, 5, tail, 0)), null))
	f.Add(pack(null, plainMsg(7, rpcCall(7, procMove, moveArgs(nil, 5000, 6000))), words(7, 1, 8, 3), words(7, 1, 8, 3), null))
	f.Add(pack(null, plainMsg(7, rpcCall(7, procPlain, 0, 5000)), plainMsg(8, rpcCall(8, procPlain, 0, 5000)), words(8, 1, 8, 3), null))
	first := words(1, 2, 8, 6, 1, 1, 4, 4096, 0)
	for _, b := range [][]byte{
		words(2, 2, 8, 0, 0, 5, 1, 48, segment, 0, 0, 0, rpcCall(badXID, procMove, moveArgs([]int{100}))),
		words(2, 2, 8, 0, 0, 5, 0, 1, 1, segment, 0, 0, rpcCall(2, procMove, moveArgs(nil, 100))),
		words(2, 2, 8, 0, 0, 0, 0, 0, 0, rpcCall(2, procPlain, 0, 5000)),
		words(2, 2, 8, 7, 1, 1, 4, 2048), words(2, 2, 8, 8, 1, 1, 1, 2, 0), words(2, 2, 8, 9, 1, 1, 4, 2048), words(2, 2, 8, 5, 0, 2, 4, 0),
	} {
		f.Add(pack(first, b, b, null))
	}
	first = words(1, 2, 8, 6, 3, 1, 4, 4096, 3, 4, 6, 4, 40, words(4096, 2, 1, 2048, 1, 0, 1, 2048, 1, 1), 0)
	for _, b := range [][]byte{
		words(2, 2, 8, 5, 0, 5, 20, 0, 0, 1, 1, 40, rpcCall(2, procNull)),
		words(2, 2, 8, 5, 0, 5, 40, 0, 1, 0, 0xffffffff, 1, 0, 2, 1, 4, 60, rpcCall(2, procMove, moveArgs(nil, 9000))),
		words(2, 2, 8, 5, 0, 5, 60, 0, 1, 0, 0xffffffff, 1, 0, 3, 1, segment, 1, 1, 60, rpcCall(2, procMove, moveArgs(nil, 100))),
		words(2, 2, 8, 5, 0, 5, 56, 1, 48, 100, 1, 1, segment, 0, 1, 1, 56, rpcCall(2, procMove, moveArgs([]int{100}))),
		words(2, 2, 8, 5, 0, 5, 20, 0, 0, 2, 1, 40, rpcCall(2, procNull)),
		words(2, 2, 8, 5, 0, 7, 12, 1, 5, 0),
		words(2, 2, 8, 5, 0, 7, 12, 2, 5, 0),
		words(2, 2, 8, 5, 1, 6, 12, 0, 1, 0), words(2, 2, 8, 5, 1, 8, 20, 2, 0, 1, 0, 3),
	} {
		f.Add(pack(first, b, words(2, 2, 8, 5, 0, 7, 12, 1, 5, 0), null, b))
	}
	fuzzResponder(f, nil)
}

// packMessages is a seed of messages for fuzzResponder.
func packMessages(msgs ...[]byte) (b []byte) {
	for _, m := range msgs {
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(m))), m...)
	}
	return b
}

// fuzzResponder sends the messages to a server with a dialect of version 2.
func fuzzResponder(f *testing.F, dialect wire.Dialect) {
	f.Helper()
	fabric := rdmatest.NewFabric(rdmatest.Options{})
	pool, budget := bufpool.New(256<<20), bufpool.NewBudget(8<<20, 4<<20)
	d, err := fabric.NewDomain()
	if err != nil {
		f.Fatal(err)
	}
	if err := d.Register(pool); err != nil {
		f.Fatal(err)
	}
	l, err := fabric.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	s, err := NewServer(Config{
		Pool: pool, Domain: d, Handler: &testHandler{}, Bindings: testBindings, Budget: budget,
		Credits: credit.Static(8), RemoteInvalidation: true, Logger: slog.New(slog.DiscardHandler),
		Versions: []int{1, 2}, Extensions: allExtensions, RFC5666: allRFC5666, Dialect: dialect,
	}, l)
	if err != nil {
		f.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	f.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
	peers := bufpool.New(0)
	pd, err := fabric.NewDomain()
	if err != nil {
		f.Fatal(err)
	}
	if err := pd.Register(peers); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newRawPeer(t, 4096)
		putPool(p.pool)
		p.pool, p.shared = peers, true
		if p.ep, err = fabric.Dial(context.Background(), s.Addr().String(), p.options(pd, rawPrivate(4096))); err != nil {
			t.Fatal(err)
		}
		p.serve()
		region := p.expose(p.mem(65536), rdma.RemoteRead|rdma.RemoteWrite)
		for n := 0; len(data) >= 2 && n < 32; n++ {
			size := min(int(binary.BigEndian.Uint16(data)), len(data)-2, 4096)
			msg := bytes.Clone(data[2 : 2+size])
			data = data[2+size:]
			for at := bytes.Index(msg, fuzzMark); at >= 8; at = bytes.Index(msg, fuzzMark) {
				binary.BigEndian.PutUint32(msg[at-8:], uint32(region.Handle))
				binary.BigEndian.PutUint64(msg[at:], region.Offset)
			}
			m := p.mem(len(msg))
			copy(m, msg)
			if p.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: [][]byte{m}}}) != nil {
				break // the connection ended, as it may
			}
			select { // one credit: wait for an answer, but not for long
			case r := <-p.in:
				h := new(wire.Header)
				lim := wire.DefaultLimits
				lim.Version2, lim.V2, lim.Padded = true, dialect, true
				if dialect != nil && bytes.HasSuffix(r.b, words(4, 11)) {
					continue // VERS_MISMATCH, in the version of the message that it answers
				}
				if err := h.Parse([][]byte{r.b}, &lim); err != nil {
					t.Fatalf("the server sent %x: %v", r.b, err)
				}
				if h.Credits == 0 {
					t.Fatalf("the server granted 0 credits: %x", r.b)
				}
			case <-time.After(200 * time.Microsecond):
			}
		}
		p.close()
		for start := time.Now(); s.Connections() > 0 || pool.Stats().Bufs > 0; time.Sleep(50 * time.Microsecond) {
			if time.Since(start) > time.Minute {
				t.Fatalf("%d connections and %d buffers remain", s.Connections(), pool.Stats().Bufs)
			}
		}
		if budget.Used() != 0 || budget.Waiting() != 0 {
			t.Fatalf("%d bytes of the budget are in use, %d calls wait", budget.Used(), budget.Waiting())
		}
	})
}

// FuzzRequester answers calls of every shape with arbitrary messages, in which "XID!" stands for
// the call's XID, and the mark of FuzzResponder for its first segment. Whatever comes, the call
// ends once, and all memory comes back.
func FuzzRequester(f *testing.F) {
	xid := []byte("XID!")
	good := words(xid, 1, 0, 0, 0, 0)
	segment := words(5, 100, fuzzMark)
	for shape := range uint8(4) {
		f.Add(shape|4, words(xid, 2, 8, 0, 1, 0, 0, 0, 0, good, 0, 0, 0, tail))
		f.Add(shape|4, words(xid, 2, 8, 0, 1, 0, 0, 1, 1, segment, 0, 0, good, 0, 0, 1, 0, 100, tail))
		for code := range 11 {
			f.Add(shape|4, words(xid, 2, 8, 4, code, 1, 2000))
		}
		f.Add(shape|12, words(xid, 2, 8, 5, 1, 6, 12, 0, 1, 40, good, 0, 6000, 0, tail))
		f.Add(shape|12, words(xid, 2, 8, 5, 1, 6, 24, 1, 0, 0, 6, 2, 24, good))
		f.Add(shape|12, words(xid, 2, 8, 5, 1, 6, 36, 1, 44, 100, 2, 0, 1, 0, 1, 48, good, 0, 0, 1, 0, 100, tail, make([]byte, 3984), make([]byte, 100)))
		f.Add(shape|12, words(xid, 2, 8, 5, 1, 8, 20, xid, 0, 0, 0, 3))
		f.Add(shape|12, words(xid, 2, 8, 4, 3))
		for _, results := range []uint8{1 << 4, 2 << 4, 3 << 4} {
			f.Add(shape|12|results, words(xid, 2, 8, 5, 1, 6, 44, 1, 44, 100, 1, 1, segment, 1, 48, good, 0, 0, 1, 0, 100, tail))
			f.Add(shape|12|results, words(xid, 2, 8, 5, 1, 6, 24, 1, 44, 100, 5, 1, 148, good, 0, 0, 1, 0, 100, make([]byte, 100), tail))
			f.Add(shape|12|results, words(xid, 2, 8, 0, 1, 0, 0, 0, 0, good, 0, 0, 0, tail))
			f.Add(shape|12|results, words(xid, 2, 8, 4, 8, 6100))
		}
		f.Add(shape|76, words(7, 2, 4, 5, 0, 5, 20, 0, 0, 1, 1, 40, rpcCall(7, procNull)))
		f.Add(shape|76, words(7, 2, 4, 5, 0, 5, 20, 0, 0, 2, 1, 40, rpcCall(7, procNull)))
		f.Add(shape|76, words(7, 2, 4, 5, 0, 5, 40, 0, 1, 52, 60, 1, 100, 2, 1, 2, 60, rpcCall(7, procMove), 0, tail, 1, 5000, 0))
		f.Add(shape|76, words(7, 2, 4, 5, 0, 5, 52, 1, 48, 100, 1, 1, segment, 0, 1, 1, 56, rpcCall(7, procMove), 1, 100, tail, 0))
		f.Add(shape|76, words(7, 2, 4, 5, 0, 8, 32, 7, 1, 0, 0, 6, 1, 2, 3))
		f.Add(shape|4, words(xid, 2, 8, 7, 0))
		f.Add(shape|4, words(xid, 2, 8, 9, 1, 1, 4, 2048))
		f.Add(shape, words(xid, 1, 8, 0, 0, 0, 0, good, 0, 0, 0, tail))
		f.Add(shape, words(xid, 1, 8, 0, 0, 1, 1, segment, 0, 0, good, 0, 0, 1, 0, 100, tail))
		f.Add(shape, words(xid, 1, 8, 0, 0, 1, 1, segment, 1, 1, segment, 0, 0, good, 0, 0, 2, 0, 100, 1, tail))
		f.Add(shape, words(xid, 1, 8, 1, 0, 0, 1, 1, segment))
		f.Add(shape, words(xid, 1, 8, 4, 2))
		f.Add(shape, words(xid, 1, 8, 4, 1, 1, 1))
		f.Add(shape|8, words(xid, 1, 8, 2, 128, 1000, 0, 0, 0, good, 0, 0, 1, 0, 2000, make([]byte, 52+2000), tail))
		f.Add(shape|8, words(xid, 1, 8, 2, 4096, 8, 0, 0, 0, good, 0, 0, 1, 0, 2000, make([]byte, 52+2000), tail))
		f.Add(shape|8, words(xid, 1, 8, 2, 3, 8, 0, 0, 0, good))
		f.Add(shape|8, words(xid, 1, 8, 0, 1, 44, segment, 0, 0, 0, good, 0, 0, 1, 0, 100, tail))
		f.Add(shape|8, words(xid, 1, 8, 0, 1, 48, segment, 1, 44, segment, 0, 0, 0, good, 0, 0, 1, 0, 100, tail))
		f.Add(shape|8, words(xid, 1, 8, 1, 1, 0, segment, 1, 0, segment, 0, 0, 0))
		f.Add(shape, words(xid, 2, 8, 0, 0, 0, 0))
		f.Add(shape, plainMsg(5, rpcCall(5, procNull)))
	}
	moves := []move{{args: []int{3}}, {results: []int{2000}}, {args: []int{2000}, results: []int{2000, 2000}}, {results: []int{8}},
		{args: []int{6000}}, {results: []int{6000}}, {args: []int{200000}}, {args: []int{70000}, results: []int{200000}}}
	fabric := rdmatest.NewFabric(rdmatest.Options{})
	pool, peers := bufpool.New(0), bufpool.New(0)
	pd, err := fabric.NewDomain()
	if err != nil {
		f.Fatal(err)
	}
	if err := pd.Register(peers); err != nil {
		f.Fatal(err)
	}
	l, err := fabric.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { l.Close() })
	f.Fuzz(func(t *testing.T, shape uint8, msg []byte) {
		p := newRawPeer(t, 69632)
		putPool(p.pool)
		p.pool, p.shared = peers, true
		v2 := shape&4 != 0
		accepted := make(chan error, 1)
		go func() {
			in, err := l.Accept()
			if err == nil {
				p.ep, err = in.Accept(p.options(pd, rawPrivate(4096)))
			}
			if err == nil {
				p.serve()
				if v2 {
					h := p.parse2(p.get().b)
					p.send(words(uint32(h.XID), 2, 4, 6, 5, 1, 4, 8192, 3, 4, 5, 4, 40, smallStructure, 5, 4, 4, 6, 4, 4, 0))
				}
			}
			accepted <- err
		}()
		cfg := Config{Pool: pool, Bindings: testBindings, RemoteInvalidation: true, Credits: credit.Static(4)}
		if !v2 && shape&8 != 0 {
			cfg.RFC5666 = Padding | ReadRead
		}
		if v2 {
			cfg.Versions, cfg.Extensions = []int{2}, allExtensions
			if shape&64 != 0 { // calls of the reverse direction are taken
				cfg.Handler = new(testHandler)
			}
			if cfg.Placement.Results = []wire.Placement{0, wire.Explicit, wire.Choice, wire.BySize}[shape>>4&3]; cfg.Placement.Results != 0 {
				cfg.Placement.Threshold = 5000
			}
		}
		c, err := Dial(context.Background(), fabric, l.Addr().String(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := <-accepted; err != nil {
			t.Fatal(err)
		}
		r, err := moves[shape&3+shape>>1&4].build(pool)
		if err != nil {
			t.Fatal(err)
		}
		if shape&3 == 3 {
			r.Plan.MaxReply = 4000
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		ends := make(chan struct{}, 8)
		r.Done = func(*oncrpc.Request) { ends <- struct{}{} }
		oncrpc.Submit(c, r)
		h := p.parse2(p.get().b)
		var s wire.Segment
		if h.Writes() > 0 {
			s = h.Write(0)[0]
		} else if h.HasReply {
			s = h.Reply()[0]
		}
		for i := range h.Transmit.Sets {
			for _, r := range h.Transmit.Results(&h.Transmit.Sets[i]) {
				if segs := h.Transmit.ResultSegments(&r); len(segs) > 0 {
					s = segs[0]
				}
			}
		}
		msg = bytes.ReplaceAll(msg, xid, words(uint32(h.XID)))
		for at := bytes.Index(msg, fuzzMark); at >= 8; at = bytes.Index(msg, fuzzMark) {
			binary.BigEndian.PutUint32(msg[at-8:], uint32(s.Handle))
			binary.BigEndian.PutUint64(msg[at:], s.Offset)
		}
		if len(msg) <= 4096 {
			p.send(msg)
		}
		select {
		case <-ends:
		case <-time.After(200 * time.Microsecond):
			// if the message was no answer, or one that had the call sent again, this is
			for n := 0; ; n++ {
				m := p.mem(20)
				copy(m, words(uint32(h.XID), h.Version, 1, 4, 2))
				_ = p.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: [][]byte{m}}})
				select {
				case <-ends:
				case <-time.After(10 * time.Millisecond):
					if n < 1000 {
						continue
					}
					t.Fatal("the request did not end")
				}
				break
			}
		}
		r.Free()
		c.Close()
		<-c.Done()
		p.close()
		if len(ends) > 0 {
			t.Fatal("the request ended twice")
		}
		if n := pool.Stats().Bufs; n != 0 {
			t.Fatalf("%d buffers remain", n)
		}
	})
}
