package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"

	"sluice.dev/sluice/pkg/rdma"
)

// offline is an endpoint without a socket: the test is the network, and everything happens on its
// goroutine.
type offline struct {
	*endpoint
	in     []byte     // from the peer, not received yet
	ended  bool       // the peer will send no more
	chunk  func() int // limit of a read
	done   []rdma.Completion
	sentID []uint64
}

func (o *offline) Completed(batch []rdma.Completion) { o.done = append(o.done, batch...) }
func (o *offline) Sent(ids []uint64)                 { o.sentID = append(o.sentID, ids...) }

// It is its own socket.
func (o *offline) block(int, time.Duration)    {}
func (o *offline) deadline(time.Time)          {}
func (o *offline) interrupt()                  {}
func (o *offline) closeWrite()                 {}
func (o *offline) close()                      {}
func (o *offline) control(func(uintptr))       {}
func (o *offline) write(*endpoint, bool) error { panic("an offline endpoint does not write") }

var offlineDomain = sync.OnceValue(func() *domain {
	d := &domain{}
	if err := d.Register(testPool); err != nil {
		panic(err)
	}
	return d
})

func newOffline(s mpaParams, maxFPDU int, chunk func() int) *offline {
	d := offlineDomain()
	o := &offline{chunk: chunk}
	e := &endpoint{sock: o, mpaParams: s, domain: d, stags: newSTagTable(1000), gathering: true, flushing: true, awaitingFirstFPDU: s.responder, sendFree: 1000, rqFree: 1000, served: true, h: o}
	e.changed.L = &e.mu
	e.rx.init()
	e.tx.init(e, maxFPDU)
	o.endpoint = e
	return o
}

func (o *offline) read(rx *receiver) error {
	rx.prepare()
	left := min(len(o.in), max(1, o.chunk()))
	rx.n = left
	for _, v := range rx.into {
		k := copy(unsafe.Slice(v.Base, v.Len), o.in[:left])
		o.in, left = o.in[k:], left-k
	}
	rx.n -= left
	return nil
}

// receive handles all input. It returns io.EOF at the end of the stream.
func (o *offline) receive() error {
	for {
		err := o.handle()
		o.complete()
		if err != nil {
			return err
		}
		if len(o.in) == 0 && !o.ended {
			return nil
		}
		if err := o.rx.read(o.endpoint); err != nil {
			if errors.Is(err, io.EOF) && !o.rx.between() {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

// flushTo sends everything that may be sent.
func (o *offline) flushTo(peer *offline) {
	for {
		if o.tx.fill(o.endpoint); o.tx.left == 0 {
			return
		}
		for _, v := range o.tx.iov {
			peer.in = append(peer.in, unsafe.Slice(v.Base, v.Len)...)
		}
		o.tx.left = 0
		o.tx.unpin(o.endpoint)
		o.retire()
	}
}

// TestRandomTraffic: two endpoints do everything at once, over a network that delivers in pieces of
// any size, and all data arrive as posted.
func TestRandomTraffic(t *testing.T) {
	for seed := range 12 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		chunks := []func() int{
			func() int { return 1 + r.IntN(40) },
			func() int { return 1 + r.IntN(3000) },
			func() int { return 1 + r.IntN(100_000) },
			func() int { return 1 << 30 },
		}
		ord := 1 + r.IntN(5)
		s := mpaParams{crc: seed%3 > 0, ord: ord, ird: ord}
		sizes := []int{256, 1460, 9000, 40_000, maxULPDU}
		a := newOffline(s, sizes[r.IntN(len(sizes))], chunks[r.IntN(len(chunks))])
		b := newOffline(s, sizes[r.IntN(len(sizes))], chunks[r.IntN(len(chunks))])
		a.awaitingFirstFPDU, b.awaitingFirstFPDU = false, false
		x, y := newTraffic(t, a, b, r), newTraffic(t, b, a, r)
		for range 8 {
			x.post()
			y.post()
			for a.canSendLocked() || b.canSendLocked() || len(a.in) > 0 || len(b.in) > 0 {
				a.flushTo(b)
				if err := b.receive(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				b.flushTo(a)
				if err := a.receive(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			x.check(seed)
			y.check(seed)
		}
		if a.sendFree != 1000 || b.sendFree != 1000 || a.inFlight.Load() != 0 || b.inFlight.Load() != 0 {
			t.Fatalf("seed %d: the queues are not empty", seed)
		}
	}
}

// traffic is one end's work on the other.
type traffic struct {
	t        *testing.T
	o, peer  *offline
	r        *rand.Rand
	source   []byte
	target   []byte // the peer's
	expected []byte // the expected target
	remote   rdma.Remote
	sink     []byte
	fetched  []byte // the expected sink
	sends    [][]byte
	signaled []uint64
	reads    []uint64
	bufs     [][][]byte // the peer's receives
	id       uint64
}

const trafficArea = 200_000

func newTraffic(t *testing.T, o, peer *offline, r *rand.Rand) *traffic {
	f := &traffic{t: t, o: o, peer: peer, r: r, source: noise(r.IntN(100), trafficArea), target: noise(1, trafficArea), sink: memory(trafficArea), fetched: make([]byte, trafficArea)}
	f.expected = bytes.Clone(f.target)
	var err error
	if f.remote, err = peer.Expose(f.target, rdma.RemoteRead|rdma.RemoteWrite); err != nil {
		t.Fatal(err)
	}
	return f
}

// pieces cuts b at random.
func (f *traffic) pieces(b []byte) (list [][]byte) {
	for range f.r.IntN(4) {
		k := f.r.IntN(len(b) + 1)
		list = append(list, b[:k:k])
		b = b[k:]
	}
	return append(list, b)
}

// post posts a batch. Writes go to the lower half of the target, Reads come from the upper.
func (f *traffic) post() {
	var wrs []rdma.WorkRequest
	for range 1 + f.r.IntN(12) {
		n := f.r.IntN([]int{1, 100, 2000, 90_000}[f.r.IntN(4)])
		from := f.r.IntN(trafficArea/2 - n)
		f.id++
		wr := rdma.WorkRequest{ID: f.id, Signaled: f.r.IntN(2) == 0}
		switch f.r.IntN(3) {
		case 0:
			wr.Op, wr.Local, wr.Remote = rdma.Write, f.pieces(f.source[from:from+n]), rdma.Remote{Handle: f.remote.Handle, Offset: f.remote.Offset + uint64(from)}
			copy(f.expected[from:], f.source[from:from+n])
		case 1:
			from += trafficArea / 2
			wr.Op, wr.Local, wr.Remote = rdma.Read, f.pieces(f.sink[from:from+n]), rdma.Remote{Handle: f.remote.Handle, Offset: f.remote.Offset + uint64(from)}
			copy(f.fetched[from:], f.target[from:from+n])
			f.reads = append(f.reads, f.id)
		default:
			wr.Local = f.pieces(f.source[from : from+n])
			f.sends = append(f.sends, f.source[from:from+n])
			f.bufs = append(f.bufs, f.pieces(memory(n+f.r.IntN(2)*f.r.IntN(50))))
			if err := f.peer.PostReceives([]rdma.Receive{{ID: uint64(len(f.bufs) - 1), Segments: f.bufs[len(f.bufs)-1]}}); err != nil {
				f.t.Fatal(err)
			}
		}
		if wr.Signaled && wr.Op != rdma.Read {
			f.signaled = append(f.signaled, f.id)
		}
		wrs = append(wrs, wr)
	}
	if err := f.o.Post(wrs); err != nil {
		f.t.Fatal(err)
	}
}

func (f *traffic) check(seed int) {
	f.t.Helper()
	var reads []uint64
	for _, c := range f.o.done {
		if c.Op == rdma.Read {
			reads = append(reads, c.ID)
		}
	}
	received := 0
	for _, c := range f.peer.done {
		if c.Op != rdma.Recv {
			continue
		}
		if int(c.ID) != received || received >= len(f.sends) || !bytes.Equal(bytes.Join(f.bufs[received], nil)[:c.Bytes], f.sends[received]) {
			f.t.Fatalf("seed %d: message %d of %d is wrong: %+v", seed, received, len(f.sends), c)
		}
		received++
	}
	if received != len(f.sends) || !reflect.DeepEqual(reads, f.reads) || !reflect.DeepEqual(f.o.sentID, f.signaled) {
		f.t.Fatalf("seed %d: %d of %d messages, Reads %v of %v, sent %v of %v", seed, received, len(f.sends), reads, f.reads, f.o.sentID, f.signaled)
	}
	if !bytes.Equal(f.target, f.expected) || !bytes.Equal(f.sink, f.fetched) {
		f.t.Fatalf("seed %d: wrong data", seed)
	}
}

// TestContiguous: messages are not interleaved, and Read Responses come in the order of their
// requests, while both Read Responses and Writes are to be sent.
func TestContiguous(t *testing.T) {
	o := newOffline(mpaParams{ird: 20}, 1000, func() int { return 1 << 30 })
	peer := newOffline(mpaParams{}, 1000, nil)
	src := noise(1, 50_000)
	r, err := o.Expose(src, rdma.RemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	tx := sender{}
	for i := range 20 {
		o.in = append(o.in, tx.asFPDU(readRequest{sinkSTag: uint32(i), size: uint32(i * 1000), sourceSTag: r.Handle, sourceTO: r.Offset}.append(
			untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: uint32(1 + i)}.append(nil)))...)
	}
	for range 20 {
		if err := o.Post([]rdma.WorkRequest{{Op: rdma.Write, Local: [][]byte{src[:9000]}}, {Op: rdma.Send, Local: [][]byte{src[:5000]}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.receive(); err != nil {
		t.Fatal(err)
	}
	o.flushTo(peer)
	var kinds [8]int
	open := -1
	for b := peer.in; len(b) > 0; {
		n := int(binary.BigEndian.Uint16(b))
		op := int(b[3] & 15)
		if open >= 0 && op != open {
			t.Fatalf("%v inside of %v", opcode(op), opcode(open))
		}
		if op == int(opReadResponse) {
			if stag := binary.BigEndian.Uint32(b[4:]); stag != uint32(kinds[op]) {
				t.Fatalf("response to %d, want %d", stag, kinds[op])
			}
		}
		open = op
		if b[2]&flagLast != 0 {
			open = -1
			kinds[op]++
		}
		b = b[fpduLen(n):]
	}
	if kinds != [8]int{opWrite: 20, opReadResponse: 20, opSend: 20} {
		t.Error(kinds)
	}
}

// TestMostSegments: a large segment whose place has as many pieces as one read can fill, or more,
// arrives in order.
func TestMostSegments(t *testing.T) {
	for _, pieces := range []int{maxSegments - 2, maxSegments - 1, maxSegments} {
		for _, crc := range []bool{false, true} {
			brings := 20 // the header alone, then all the rest
			b := newOffline(mpaParams{crc: crc}, maxULPDU, func() (n int) {
				n, brings = brings, 1<<30
				return n
			})
			a := newOffline(mpaParams{crc: crc}, maxULPDU, nil)
			mem, src := memory(pieces*60), noise(pieces, pieces*60)
			clear(mem)
			r := rdma.Receive{ID: 1}
			for p := mem; len(p) > 0; p = p[60:] {
				r.Segments = append(r.Segments, p[:60])
			}
			if err := b.PostReceives([]rdma.Receive{r, {ID: 2}}); err != nil {
				t.Fatal(err)
			}
			if err := a.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{src}}, {Op: rdma.Send}}); err != nil {
				t.Fatal(err)
			}
			a.flushTo(b)
			if err := b.receive(); err != nil {
				t.Errorf("%d pieces, CRC %v: %v", pieces, crc, err)
			} else if len(b.done) != 2 || !bytes.Equal(mem, src) {
				t.Errorf("%d pieces, CRC %v: %d completions, and the data are right: %v", pieces, crc, len(b.done), bytes.Equal(mem, src))
			}
		}
	}
}

// TestMostRegions: at the limit of exposed regions the error is temporary.
func TestMostRegions(t *testing.T) {
	table := newSTagTable(2)
	mem := memory(8)
	var last rdma.Remote
	for range 2 {
		var err error
		if last, err = table.expose(mem, rdma.RemoteRead); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := table.expose(mem, rdma.RemoteRead); !errors.Is(err, rdma.ErrExposed) {
		t.Errorf("a third region: %v, want ErrExposed", err)
	}
	table.invalidateLocal(last.Handle, 1)
	if _, err := table.expose(mem, rdma.RemoteRead); err != nil {
		t.Errorf("after one was invalidated: %v", err)
	}
	table.clear()
	if _, err := table.expose(mem, rdma.RemoteRead); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v, want net.ErrClosed", err)
	}
}

var fuzzMemory = sync.OnceValue(func() []byte { return memory(512 << 10) })

// fuzzTarget is an endpoint with known STags, receives and Reads. The next one uses the same
// memory.
func fuzzTarget(crc bool, chunk func() int) *offline {
	free := fuzzMemory()
	clear(free)
	memory := func(n int) []byte {
		m := free[:n:n]
		free = free[n:]
		return m
	}
	o := newOffline(mpaParams{crc: crc, ird: 4, ord: 4}, maxULPDU, chunk)
	for i, access := range []rdma.Access{rdma.RemoteWrite, rdma.RemoteRead, rdma.RemoteRead | rdma.RemoteWrite, 0} {
		stag := uint32(0x100 * (i + 1))
		o.stags.regions[stag] = &region{stag: stag, base: 0x1000, mem: memory(30_000), access: access, valid: access != 0}
		o.stags.valid++
	}
	for i := range 6 {
		m := memory(20_000)
		if i >= 4 {
			m = memory(40_000)
		}
		if err := o.PostReceives([]rdma.Receive{{ID: uint64(i), Segments: [][]byte{m[:10], m[10:10], m[10:5000], m[5000:]}}}); err != nil {
			panic(err)
		}
	}
	for i := range 4 {
		m := memory(i * 20_000)
		o.reads.push(pendingRead{id: uint64(i), local: [][]byte{m[:len(m)/2], m[len(m)/2:]}, size: uint32(len(m)), stag: uint32(0x1000 + i), to: 0x2000})
	}
	o.reads.sent = 3
	o.sendFree -= 4
	return o
}

// outcome describes all visible effects of a stream.
func (o *offline) outcome(err error) string {
	s := fmt.Sprintf("%v\n%+v\n%d answers", err, o.done, o.answers.len())
	for i := range o.answers.len() {
		s += fmt.Sprintf("%+v", *o.answers.at(i))
	}
	if errors.Is(err, io.EOF) { // otherwise a part of a large segment may have been placed, or not
		for i := range 4 {
			s += fmt.Sprintf(" %08x", crc32.ChecksumIEEE(o.stags.regions[uint32(0x100*(i+1))].mem))
		}
	}
	return s
}

// script encodes a stream in few bytes, for the fuzzer: for each ULPDU its length, the number of
// given bytes, and these; the rest is filled up. Framing adds correct CRCs, or no input would get
// past them.
func script(ulpdus ...[]byte) (b []byte) {
	for _, u := range ulpdus {
		given := min(len(u), untaggedLen+readRequestLen)
		b = binary.BigEndian.AppendUint16(b, uint16(len(u)))
		b = append(append(b, byte(given)), u[:given]...)
	}
	return b
}

func play(script []byte) (stream []byte) {
	tx := sender{crc: true}
	for len(script) > 3 {
		n, given := int(binary.BigEndian.Uint16(script)), int(script[2])
		script = script[3:]
		u := bytes.Repeat([]byte{7}, n)
		script = script[min(copy(u, script[:min(given, len(script))]), len(script)):]
		stream = append(stream, tx.asFPDU(u)...)
	}
	return append(stream, script...)
}

// FuzzStream: a stream in pieces of any size has the same outcome as in one piece.
func FuzzStream(f *testing.F) {
	send := func(msn, mo uint32, last bool, n int) []byte {
		return append(untaggedHeader{last: last, op: opSend, msn: msn, mo: mo}.append(nil), make([]byte, n)...)
	}
	write := func(stag uint32, to uint64, n int) []byte {
		return append(taggedHeader{true, opWrite, stag, to}.append(nil), make([]byte, n)...)
	}
	response := func(stag uint32, to uint64, n int, last bool) []byte {
		return append(taggedHeader{last, opReadResponse, stag, to}.append(nil), make([]byte, n)...)
	}
	request := func(stag, size, msn uint32) []byte {
		return readRequest{sinkSTag: 5, size: size, sourceSTag: stag, sourceTO: 0x1000}.append(untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: msn}.append(nil))
	}
	invalidate := func(msn, stag uint32) []byte {
		return untaggedHeader{last: true, op: opSendInv, stag: stag, msn: msn}.append(nil)
	}
	for _, s := range [][][]byte{
		{send(1, 0, true, 100), send(2, 0, false, 18_000), send(2, 18_000, true, 300), invalidate(3, 0x100), write(0x100, 0x1000, 1)},
		{write(0x100, 0x1000, 20_000), write(0x300, 0x1000, 30_000), write(0x100, 0x1001, 3), write(0x100, 0, 0), send(1, 0, true, 0)},
		{response(0x1000, 0x2000, 0, true), response(0x1001, 0x2000, 17_000, false), response(0x1001, 0x2000+17_000, 3000, true), response(0x1002, 0x2000, 40_000, true)},
		{request(0x200, 100, 1), request(0x300, 0, 2), request(0x200, 30_000, 3), request(0x300, 1, 4), request(0x300, 1, 5)},
		{send(1, 0, true, 20_001)},
		{append(untaggedHeader{last: true, op: opTerminate, qn: 2, msn: 1}.append(nil), 0x12, 2, 0, 0)},
	} {
		f.Add(script(s...), uint64(len(s)), true)
	}
	for _, l := range captured(f) {
		if l.kind == "fpdu" {
			f.Add(l.bytes, uint64(3), false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, crc bool) {
		stream := b
		if crc {
			if len(b) > 1000 {
				return
			}
			stream = play(b)
		}
		run := func(chunk func() int) string {
			o := fuzzTarget(crc, chunk)
			o.in, o.ended = bytes.Clone(stream), true
			err := o.receive()
			if err == nil {
				t.Fatal("no end")
			}
			return o.outcome(err)
		}
		want := run(func() int { return 1 << 30 })
		r := rand.New(rand.NewPCG(seed, 5))
		least := 1 + len(stream)/3000
		most := least + r.IntN(1<<r.IntN(18))
		if got := run(func() int { return least + r.IntN(most) }); got != want {
			t.Fatalf("in pieces of %d to %d bytes:\n%s\nin one piece:\n%s", least, least+most, got, want)
		}
	})
}
