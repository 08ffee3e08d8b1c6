package rpcrdma

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// TestUnsortedReads sends calls whose Read chunks are in any order: RFC 8166 has none. The
// arguments come out right, also with a Position Zero Read chunk that is not the first.
func TestUnsortedReads(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, nil)
	p := w.rawDial(rawPrivate(4096))
	p.null(1)
	random := rand.New(rand.NewPCG(5, 6))
	lengths := []int{100, 7, 300, 1}
	for xid := 10; xid < 50; xid++ {
		long := xid%2 == 0
		stream := rpcCall(xid, procMove, moveArgs(lengths))
		type chunk struct{ at, n, k int }
		chunks, at := []chunk(nil), 48
		for k, n := range lengths {
			chunks = append(chunks, chunk{at, n, k})
			at += xdr.Round(n) + 4
		}
		var lists [][]byte
		for _, c := range chunks {
			mem := p.mem(c.n)
			fill([][]byte{mem}, c.k)
			s := p.expose(mem, rdma.RemoteRead)
			if c.n < 8 {
				lists = append(lists, words(1, c.at, s))
				continue
			}
			first, second := s, s // a chunk of two segments, whose order counts
			first.Length, second.Length, second.Offset = 5, s.Length-5, s.Offset+5
			lists = append(lists, words(1, c.at, first, 1, c.at, second))
		}
		proc := 0
		if long {
			mem := p.mem(len(stream))
			copy(mem, stream)
			lists = append(lists, words(1, 0, p.expose(mem, rdma.RemoteRead)))
			proc, stream = 1, nil
		}
		random.Shuffle(len(lists), func(i, j int) { lists[i], lists[j] = lists[j], lists[i] })
		msg := words(xid, 1, 32, proc)
		for _, l := range lists {
			msg = append(msg, l...)
		}
		p.send(append(append(msg, words(0, 0, 0)...), stream...))
		h, payload := p.parse(p.get().b)
		if h.Procedure != wire.Msg {
			t.Fatalf("call %d answered %v", xid, h.Procedure)
		}
		var all []byte
		for k, n := range lengths {
			all = append(all, pattern(n, k)...)
		}
		if sum, n := binary.BigEndian.Uint32(payload[24:]), binary.BigEndian.Uint32(payload[28:]); sum != checksumOf(all) || int(n) != len(all) {
			t.Errorf("call %d: the server saw %d bytes with sum %#x, want %d with %#x", xid, n, sum, len(all), checksumOf(all))
		}
	}
	w.waitIdle()
	p.close()
	w.close()
}
