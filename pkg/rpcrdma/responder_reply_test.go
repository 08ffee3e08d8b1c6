package rpcrdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// segsOf exposes n segments of size bytes each.
func (p *rawPeer) segsOf(n, size int, a rdma.Access) (segs []wire.Segment, mem [][]byte) {
	for range n {
		m := p.mem(size)
		segs = append(segs, p.expose(m, a))
		mem = append(mem, m)
	}
	return segs, mem
}

func chunkBytes(segs []wire.Segment) []byte {
	b := words(1, len(segs))
	for _, s := range segs {
		b = append(b, words(s)...)
	}
	return b
}

// TestReplyThreshold makes replies that are just below, at, and above the inline threshold, with
// chunk lists of 0 to 16 segments in their headers; with a Reply chunk and without.
func TestReplyThreshold(t *testing.T) {
	for _, limit := range []int{1024, 4096} {
		w := newEnv(t, rdmatest.Options{}, nil)
		p := w.rawDial(rawPrivate(limit))
		p.null(1)
		xid := 100
		for n := 0; n <= 16; n++ {
			for _, long := range []bool{false, true} {
				for _, d := range []int{-8, -4, 0, 4, 8} {
					xid++
					h := wire.MinSize
					msg := words(xid, 1, 32, 0, 0)
					if n > 0 {
						segs, _ := p.segsOf(n, 8, rdma.RemoteWrite)
						msg = append(msg, chunkBytes(segs)...)
						h += wire.ChunkSize + n*wire.SegmentSize
					}
					msg = append(msg, words(0)...)
					var mem [][]byte
					if long {
						var segs []wire.Segment
						segs, mem = p.segsOf(1, 8192, rdma.RemoteWrite)
						msg = append(msg, chunkBytes(segs)...)
						h += wire.ReplySize + wire.SegmentSize
					} else {
						msg = append(msg, words(0)...)
					}
					payload := limit + d - h
					result := payload - oncrpc.MinReplyLen - 8
					p.send(append(msg, rpcCall(xid, procPlain, 0, result)...))
					b := p.get().b
					got, rest := p.parse(b)
					name := fmt.Sprintf("limit %d%+d, %d segments, Reply chunk %v", limit, d, n, long)
					switch {
					case d <= 0:
						if got.Procedure != wire.Msg || len(b) != limit+d {
							t.Errorf("%s: %v of %d bytes", name, got.Procedure, len(b))
						}
						if long && wire.Length(got.Reply()) != 0 {
							t.Errorf("%s: %d bytes in the unused Reply chunk", name, wire.Length(got.Reply()))
						}
					case !long:
						if got.Procedure != wire.Error || got.Code != wire.ErrChunk {
							t.Errorf("%s: %v", name, got.Procedure)
						}
						continue
					default:
						if got.Procedure != wire.NoMsg || int(wire.Length(got.Reply())) != payload || len(rest) > 0 {
							t.Fatalf("%s: %v with %d bytes in the Reply chunk", name, got.Procedure, wire.Length(got.Reply()))
						}
						rest = mem[0][:payload]
					}
					if got.Writes() != min(n, 1) || n > 0 && (len(got.Write(0)) != n || wire.Length(got.Write(0)) != 0) {
						t.Errorf("%s: the unused Write chunk came back as %v", name, got.Write(0))
					}
					if !bytes.Equal(rest[len(rest)-(result+3)/4*4:][:result], pattern(result, 0)) {
						t.Errorf("%s: wrong result", name)
					}
				}
			}
		}
		p.close()
		w.close()
	}
}

// TestCallThreshold sends the responder calls that just fit its receives.
func TestCallThreshold(t *testing.T) {
	for _, limit := range []int{1024, 4096, 65536} {
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) { cfg.InlineCall = limit })
		p := w.rawDial(rawPrivate(limit))
		p.null(1)
		for n := 0; n <= 16; n++ {
			segs, _ := p.segsOf(n, 8, rdma.RemoteWrite)
			msg := append(words(100+n, 1, 32, 0, 0), chunkBytes(segs)...)
			msg = append(msg, words(0, 0)...)
			arg := limit - len(msg) - oncrpc.MinCallLen - 8
			msg = append(msg, rpcCall(100+n, procPlain, arg, pattern(arg, 1), 4)...)
			if len(msg) != limit {
				t.Fatalf("%d bytes", len(msg))
			}
			p.send(msg)
			h, _ := p.parse(p.get().b)
			if h.Procedure != wire.Msg {
				t.Errorf("call of %d bytes with %d segments: %v", limit, n, h.Procedure)
			}
		}
		p.close()
		w.close()
	}
}

// newRequesterEnv returns the engine's requester against a raw server.
func newRequesterEnv(t *testing.T, private []byte, change func(*Config), f *rdmatest.Fabric) (*Client, *rawPeer, *env) {
	t.Helper()
	if f == nil {
		f = rdmatest.NewFabric(rdmatest.Options{ScribbleReceives: true})
	}
	w := newEnvOn(t, f, nil)
	w.fabric = f
	address, accept := rawServer(t, f, private)
	got := make(chan *rawPeer, 1)
	go func() { got <- accept() }()
	cfg := w.clientConfig()
	if change != nil {
		change(&cfg)
	}
	c, err := Dial(context.Background(), f, address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, <-got, w
}

// answerNull answers a NULL call with a number of credits.
func (p *rawPeer) answerNull(credits int) *wire.Header {
	p.t.Helper()
	h, _ := p.parse(p.get().b)
	p.send(append(words(uint32(h.XID), 1, credits, 0, 0, 0, 0), words(uint32(h.XID), 1, 0, 0, 0, 0)...))
	return h
}

func submit(c oncrpc.Requester, r *oncrpc.Request) chan struct{} {
	done := make(chan struct{})
	r.Done = func(*oncrpc.Request) { close(done) }
	oncrpc.Submit(c, r)
	return done
}

// TestRequesterThreshold checks the forms of calls and reply bounds around the thresholds.
func TestRequesterThreshold(t *testing.T) {
	const limit = 4096
	c, p, w := newRequesterEnv(t, rawPrivate(limit), nil, nil)
	first := make(chan error, 1)
	go func() { first <- null(c, w.cpool, procNull) }()
	p.answerNull(8)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	type want struct {
		proc          wire.Procedure
		reads, writes int
		reply         bool
	}
	check := func(name string, r *oncrpc.Request, wanted want) {
		t.Helper()
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		done := submit(c, r)
		b := p.get().b
		h, _ := p.parse(b)
		got := want{h.Procedure, len(h.Reads), h.Writes(), h.HasReply}
		if got != wanted {
			t.Errorf("%s: got %+v, want %+v", name, got, wanted)
		}
		if len(b) > limit {
			t.Errorf("%s: message of %d bytes", name, len(b))
		}
		p.send(words(uint32(h.XID), 1, 8, 4, 2)) // ERR_CHUNK
		<-done
		r.Free()
	}
	for n := 0; n <= 16; n++ { // segments of a Write chunk
		for _, d := range []int{-4, 0, 4} {
			head := wire.MinSize
			if n > 0 {
				head += wire.ChunkSize + n*wire.SegmentSize
			}
			writes := min(n, 1)
			// an argument that is not eligible
			m := move{}
			if n > 0 {
				m = move{results: []int{160000}, memory: n}
			}
			fixed := 40 + 4 + 4 + 4 + 8*len(m.results) // the call without the argument
			r, e, err := oncrpc.NewRequest(w.cpool, testProgram, testVersion, procPlain, oncrpc.Auth{}, 8192)
			if err != nil {
				t.Fatal(err)
			}
			_ = e.Grow(limit + d - head - 40)
			r.Plan.MaxReply = 32
			var mem *oncrpc.Request
			if n > 0 {
				if mem, err = m.build(w.cpool); err != nil {
					t.Fatal(err)
				}
				r.Plan.Results, r.Plan.MaxReply = append(r.Plan.Results, mem.Plan.Results...), mem.Plan.MaxReply
			}
			wanted := want{proc: wire.Msg, writes: writes}
			if d > 0 {
				wanted.proc, wanted.reads = wire.NoMsg, 1
			}
			check(fmt.Sprintf("plain call, %+d, %d segments", d, n), r, wanted)
			if mem != nil {
				mem.Free()
			}

			// an eligible argument in the stream
			m.args, m.inline = []int{limit + d - head - fixed - 4}, true
			if r, err = m.build(w.cpool); err != nil {
				t.Fatal(err)
			}
			if d > 0 {
				wanted.proc = wire.Msg
			}
			check(fmt.Sprintf("eligible argument, %+d, %d segments", d, n), r, wanted)
		}
	}
	for _, d := range []int{-4, 0, 4} { // the bound of the reply
		r, e, err := oncrpc.NewRequest(w.cpool, testProgram, testVersion, procPlain, oncrpc.Auth{}, 100)
		if err != nil {
			t.Fatal(err)
		}
		e.Uint32(0)
		r.Plan.MaxReply = limit - wire.MinSize + d
		check(fmt.Sprintf("plain reply, %+d", d), r, want{proc: wire.Msg, reply: d > 0})
		for n := 1; n <= 16; n++ {
			// length of the reply beside its placed result
			rest := limit + d - wire.MinSize - wire.ChunkSize - n*wire.SegmentSize
			m := move{results: []int{100000}, memory: n}
			if r, err = m.build(w.cpool); err != nil {
				t.Fatal(err)
			}
			r.Plan.MaxReply = rest + 100000
			wanted := want{proc: wire.Msg, writes: 1}
			if d > 0 {
				wanted = want{proc: wire.Msg, reply: true}
			}
			check(fmt.Sprintf("placed reply, %+d, %d segments", d, n), r, wanted)
		}
		for n := 99997; n <= 100000; n++ { // in memory of the requester, with and without round-up
			rest := limit + d - wire.MinSize - wire.ChunkSize - wire.SegmentSize
			if r, err = (&move{results: []int{n}}).build(w.cpool); err != nil {
				t.Fatal(err)
			}
			r.Plan.MaxReply = rest + xdr.Round(n)
			wanted := want{proc: wire.Msg, writes: 1}
			if d > 0 {
				wanted = want{proc: wire.Msg, reply: true}
			}
			check(fmt.Sprintf("placed reply of %d bytes, %+d", n, d), r, wanted)
		}
	}
	p.close()
	w.close(c)
}

// TestFirstCall holds the first call of a connection to 1024 bytes, and to being alone.
func TestFirstCall(t *testing.T) {
	c, p, w := newRequesterEnv(t, rawPrivate(4096), nil, nil)
	m := move{args: []int{1500}, inline: true, results: []int{1500}}
	var done []chan struct{}
	var rs []*oncrpc.Request
	for range 3 {
		r, err := m.build(w.cpool)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
		done = append(done, submit(c, r))
	}
	b := p.get().b
	h, _ := p.parse(b)
	if len(b) > 1024 || len(h.Reads) != 1 || h.Writes() != 1 {
		t.Errorf("first call has %d bytes, %d Read and %d Write chunks", len(b), len(h.Reads), h.Writes())
	}
	if h.Credits != 128 {
		t.Errorf("%d credits requested", h.Credits)
	}
	p.none()
	p.send(words(uint32(h.XID), 1, 1, 4, 2))
	<-done[0]
	for range 2 { // one credit: one at a time
		b := p.get().b
		h, _ := p.parse(b)
		if len(h.Reads) != 0 || h.Writes() != 0 || len(b) < 1500 {
			t.Errorf("later call has %d bytes, %d Read and %d Write chunks", len(b), len(h.Reads), h.Writes())
		}
		p.none()
		p.send(words(uint32(h.XID), 1, 0, 4, 2)) // a grant of 0 counts as 1
	}
	<-done[1]
	<-done[2]
	for _, r := range rs {
		var e *RemoteError
		if !errors.As(r.Err, &e) || e.Code != wire.ErrChunk {
			t.Errorf("error %v", r.Err)
		}
		r.Free()
	}
	p.close()
	w.close(c)
}

func checksum(n int) uint32 { return checksumOf(pattern(n, 0)) }

func checksumOf(b []byte) uint32 { return crc32.ChecksumIEEE(b) }

// TestRoundUp moves lengths of 0 to 8 through chunks both ways, with the pad of Read chunks left
// out and included.
func TestRoundUp(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, nil)
	p := w.rawDial(rawPrivate(4096))
	p.null(1)
	xid := 10
	for n := 0; n <= 8; n++ {
		for _, padded := range []bool{false, true} {
			for room := n; room <= n+3; room++ {
				xid++
				name := fmt.Sprintf("length %d, padded %v, room %d", n, padded, room)
				arg := p.mem(12)
				fill([][]byte{arg[:n]}, 0)
				size := n
				if padded {
					size = (n + 3) &^ 3
				}
				s := p.expose(arg, rdma.RemoteRead)
				s.Length = uint32(size)
				res := p.mem(16)
				for i := range res {
					res[i] = 0xee
				}
				d := p.expose(res, rdma.RemoteWrite)
				d.Length = uint32(room)
				p.send(append(words(xid, 1, 32, 0, 1, 48, s, 0, 1, 1, d, 0, 0), rpcCall(xid, procMove, moveArgs([]int{n}, n))...))
				h, rest := p.parse(p.get().b)
				if h.Procedure != wire.Msg || h.Writes() != 1 || len(h.Write(0)) != 1 {
					t.Fatalf("%s: answer %+v", name, h)
				}
				if got := int(h.Write(0)[0].Length); got != n {
					t.Errorf("%s: returned length %d", name, got)
				}
				if !bytes.Equal(res[:n], pattern(n, 0)) || !bytes.Equal(res[n:], bytes.Repeat([]byte{0xee}, 16-n)) {
					t.Errorf("%s: result memory is %x", name, res)
				}
				sum, total := binary.BigEndian.Uint32(rest[24:]), binary.BigEndian.Uint32(rest[28:])
				if want := checksum(n); int(total) != n || sum != want {
					t.Errorf("%s: the server saw %d bytes with sum %#x, want %#x", name, total, sum, want)
				}
				if want := 24 + 12 + 8 + 4; len(rest) != want {
					t.Errorf("%s: %d bytes inline, want %d", name, len(rest), want)
				}
			}
		}
	}
	p.close()
	c := w.dial(nil)
	for n := range 9 { // and the requester's side, around the threshold
		for _, base := range []int{0, 4090, 5000, 65536} {
			m := move{args: []int{base + n}, results: []int{base + n, base + n}}
			if err := m.do(c, w.cpool); err != nil {
				t.Errorf("length %d: %v", base+n, err)
			}
		}
	}
	w.close(c)
}
