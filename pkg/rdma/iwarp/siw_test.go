package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// strict is an initiator as strict as Linux siw: its queue of incoming Reads has the size of our
// reply's ORD, it needs messages whole and in order, and it ends the connection at the first
// violation.
type strict struct {
	*rawPeer
	segment int // payload of its segments
	dribble bool
	irq     int

	writeMu sync.Mutex
	msn     uint32

	mu       sync.Mutex
	regions  map[uint32]*strictRegion // by index, the upper 24 bits of the STag
	receives []int
	inFlight int
	fpdus    int
	largest  int

	messages chan strictMessage
	requests chan strictRead
	err      chan error

	// Being received: siw keeps one context for tagged and one for untagged messages.
	tagged struct {
		open bool
		op   opcode
		stag uint32
		to   uint64
	}
	untagged struct {
		open bool
		h    untaggedHeader
		data []byte
		room int
	}
	nextSend, nextRead uint32
}

type strictRegion struct {
	stag   uint32
	base   uint64
	mem    []byte
	access rdma.Access
	valid  bool
}

type strictMessage struct {
	data        []byte
	invalidated uint32
}

type strictRead struct {
	readRequest
	mem []byte
}

func newStrict(t *testing.T, p *rawPeer, segment int, dribble bool) *strict {
	s := &strict{rawPeer: p, segment: segment, dribble: dribble, irq: int(p.reply.ord), msn: 1, nextSend: 1, nextRead: 1,
		regions: map[uint32]*strictRegion{}, messages: make(chan strictMessage, 64), requests: make(chan strictRead, 200), err: make(chan error, 1)}
	// siw checks for up to 4 bytes after the reply and fails if there are any.
	_ = p.c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	var b [4]byte
	if n, err := p.c.Read(b[:]); err == nil {
		t.Fatalf("%x came right behind the MPA reply", b[:n])
	}
	_ = p.c.SetReadDeadline(time.Now().Add(patience))
	go s.receive()
	go s.respond()
	return s
}

// expose makes memory accessible, under a key that changes with every use of the index.
func (s *strict) expose(index uint32, base uint64, mem []byte, access rdma.Access) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := uint32(1)
	if r := s.regions[index]; r != nil {
		key = r.stag + 1
	}
	stag := index<<8 | key&0xff
	s.regions[index] = &strictRegion{stag, base, mem, access, true}
	return stag
}

func (s *strict) find(stag uint32, to uint64, n int, access rdma.Access) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.regions[stag>>8]
	if r == nil || r.stag != stag || !r.valid {
		return nil, fmt.Errorf("STag %08x is not valid", stag)
	}
	if r.access&access == 0 {
		return nil, fmt.Errorf("STag %08x: access %d, wanted %d", stag, r.access, access)
	}
	if to < r.base || to-r.base+uint64(n) > uint64(len(r.mem)) {
		return nil, fmt.Errorf("STag %08x: %d bytes at %#x are outside of %d at %#x", stag, n, to, len(r.mem), r.base)
	}
	return r.mem[to-r.base:][:n], nil
}

func (s *strict) post(size int) {
	s.mu.Lock()
	s.receives = append(s.receives, size)
	s.mu.Unlock()
}

// receive reads FPDUs until a violation or the end of the stream.
func (s *strict) receive() {
	defer close(s.requests)
	for {
		u, err := s.tryNext()
		if err == nil {
			err = s.take(u)
		}
		if err != nil {
			s.err <- err
			return
		}
	}
}

func (s *strict) take(u []byte) error {
	s.mu.Lock()
	s.fpdus++
	s.largest = max(s.largest, fpduLen(len(u)))
	s.mu.Unlock()
	if err := parseULPDU(u); err != nil {
		return err
	}
	if u[0]&0x3c != 0 || u[1]&0x30 != 0 {
		return fmt.Errorf("reserved bits are set: %x", u[:2])
	}
	if u[0]&flagTagged != 0 {
		h, n, _ := parseTagged(u)
		return s.takeTagged(h, u[n:])
	}
	h, n, _ := parseUntagged(u)
	if h.op != opSendInv && h.stag != 0 {
		return fmt.Errorf("%v with %08x where zero belongs", h.op, h.stag)
	}
	switch h.op {
	case opReadRequest:
		return s.takeReadRequest(h, u[n:])
	case opTerminate:
		t, _, _ := parseTerminate(u[n:])
		return fmt.Errorf("Terminate %v", t.termCode)
	}
	return s.takeSend(h, u[n:])
}

func (s *strict) takeTagged(h taggedHeader, data []byte) error {
	m := &s.tagged
	if m.open && (h.op != m.op || h.stag != m.stag || h.to != m.to) {
		return fmt.Errorf("packet intersection: %v to %08x at %#x inside of %v to %08x, which is at %#x", h.op, h.stag, h.to, m.op, m.stag, m.to)
	}
	m.open, m.op, m.stag, m.to = !h.last, h.op, h.stag, h.to+uint64(len(data))
	if h.op != opWrite {
		return errors.New("Read Response, but nothing was read")
	}
	if len(data) == 0 {
		return nil
	}
	mem, err := s.find(h.stag, h.to, len(data), rdma.RemoteWrite)
	copy(mem, data)
	return err
}

func (s *strict) takeReadRequest(h untaggedHeader, b []byte) error {
	if !h.last || h.mo != 0 || h.qn != queueRead || h.msn != s.nextRead {
		return fmt.Errorf("Read Request %+v, want sequence number %d", h, s.nextRead)
	}
	s.nextRead++
	r, _, _ := parseReadRequest(b)
	s.mu.Lock()
	s.inFlight++
	n := s.inFlight
	s.mu.Unlock()
	if n > s.irq {
		return fmt.Errorf("%d Read Requests at once, our queue has %d", n, s.irq)
	}
	var mem []byte
	if r.size > 0 {
		var err error
		if mem, err = s.find(r.sourceSTag, r.sourceTO, int(r.size), rdma.RemoteRead); err != nil {
			return err
		}
	}
	s.requests <- strictRead{r, mem}
	return nil
}

func (s *strict) takeSend(h untaggedHeader, data []byte) error {
	m := &s.untagged
	if h.qn != queueSend || h.msn != s.nextSend {
		return fmt.Errorf("%+v, want sequence number %d", h, s.nextSend)
	}
	if !m.open {
		if h.mo != 0 {
			return fmt.Errorf("%+v at the start of a message", h)
		}
		s.mu.Lock()
		ok := len(s.receives) > 0
		if ok {
			m.room, s.receives = s.receives[0], s.receives[1:]
		}
		s.mu.Unlock()
		if !ok {
			return fmt.Errorf("%+v, but no receive is posted", h)
		}
		m.data = nil
	} else if h.op != m.h.op || h.stag != m.h.stag || int(h.mo) != len(m.data) {
		return fmt.Errorf("packet intersection: %+v inside of %+v", h, m.h)
	}
	m.open, m.h = !h.last, h
	if m.data = append(m.data, data...); len(m.data) > m.room {
		return fmt.Errorf("message of %d bytes for a receive of %d", len(m.data), m.room)
	}
	if !h.last {
		return nil
	}
	s.nextSend++
	got := strictMessage{data: m.data}
	if h.op == opSendInv {
		s.mu.Lock()
		r := s.regions[h.stag>>8]
		if r != nil && r.stag == h.stag {
			r.valid = false
		}
		s.mu.Unlock()
		if r == nil {
			return fmt.Errorf("invalidation of the unknown STag %08x", h.stag)
		}
		got.invalidated = h.stag
	}
	s.messages <- got
	return nil
}

// respond answers Read Requests in order.
func (s *strict) respond() {
	for r := range s.requests {
		for off := 0; ; {
			n := min(s.segment, len(r.mem)-off)
			last := off+n == len(r.mem)
			u := append(taggedHeader{last, opReadResponse, r.sinkSTag, r.sinkTO + uint64(off)}.append(nil), r.mem[off:off+n]...)
			if last {
				s.mu.Lock()
				s.inFlight-- // before the last byte leaves
				s.mu.Unlock()
			}
			s.put(u)
			if off += n; last {
				break
			}
		}
	}
}

// put sends a ULPDU.
func (s *strict) put(u []byte) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.putLocked(u)
}

func (s *strict) putLocked(u []byte) {
	b := s.fpduOf(u)
	if s.dribble {
		for len(b) > 100 {
			_, _ = s.c.Write(b[:1])
			_, _ = s.c.Write(b[1:37])
			b = b[37:]
		}
		for i := range b {
			_, _ = s.c.Write(b[i : i+1])
		}
		return
	}
	_, _ = s.c.Write(b) // a broken connection shows in receive
}

func (s *strict) fpduOf(u []byte) []byte {
	tx := sender{crc: s.tx.crc}
	return tx.asFPDU(u)
}

// call sends a message, in segments.
func (s *strict) call(data []byte) {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	for off := 0; ; {
		n := min(s.segment, len(data)-off)
		last := off+n == len(data)
		s.putLocked(append(untaggedHeader{last: last, op: opSend, msn: s.msn, mo: uint32(off)}.append(nil), data[off:off+n]...))
		if off += n; last {
			break
		}
	}
	s.msn++
}

// reply waits for the next message.
func (s *strict) reply() strictMessage {
	s.Helper()
	select {
	case m := <-s.messages:
		return m
	case err := <-s.err:
		s.Fatal(err)
	case <-time.After(patience):
		s.Fatal("no reply")
	}
	panic("not reached")
}

// gateway answers calls as a storage server would. A call is a letter and its arguments: 'R', size,
// STag, offset: Writes that many bytes there, and replies with Send with Invalidate; 'W', size,
// STag, offset, pieces: Reads them, and replies with their sum; any other message is sent back.
type gateway struct {
	ep    rdma.Endpoint
	t     testing.TB
	bufs  [][]byte
	data  []byte
	sinks map[uint64]*gatewayRead
	next  uint64
}

type gatewayRead struct {
	mem  []byte
	left int
}

func (g *gateway) Sent([]uint64) {}

func (g *gateway) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		var err error
		if c.Op == rdma.Read {
			err = g.readDone(c.ID >> 8)
		} else {
			call := bytes.Clone(g.bufs[c.ID][:c.Bytes])
			err = g.ep.PostReceives([]rdma.Receive{{ID: c.ID, Segments: [][]byte{g.bufs[c.ID][:7], g.bufs[c.ID][7:]}}})
			if err == nil {
				err = g.called(call)
			}
		}
		if err != nil {
			g.t.Error(err)
		}
	}
}

func (g *gateway) called(call []byte) error {
	if len(call) == 0 || call[0] != 'R' && call[0] != 'W' {
		m := memory(len(call))
		copy(m, call)
		return g.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{m}}})
	}
	n := int(binary.BigEndian.Uint32(call[1:]))
	r := rdma.Remote{Handle: binary.BigEndian.Uint32(call[5:]), Offset: binary.BigEndian.Uint64(call[9:])}
	if call[0] == 'R' {
		k := min(n, n/3+1)
		return g.ep.Post([]rdma.WorkRequest{
			{Op: rdma.Write, Local: [][]byte{g.data[:k/2], g.data[k/2 : k]}, Remote: r},
			{Op: rdma.Write, Local: [][]byte{g.data[k:n]}, Remote: rdma.Remote{Handle: r.Handle, Offset: r.Offset + uint64(k)}},
			{Op: rdma.SendWithInvalidate, Local: [][]byte{g.data[:4]}, Invalidate: r.Handle},
		})
	}
	pieces := int(call[17])
	g.next++
	g.sinks[g.next] = &gatewayRead{memory(n), pieces}
	var wrs []rdma.WorkRequest
	for i := range pieces {
		from, to := n*i/pieces, n*(i+1)/pieces
		mid := (from + to) / 2
		wrs = append(wrs, rdma.WorkRequest{ID: g.next<<8 | uint64(i), Op: rdma.Read,
			Local:  [][]byte{g.sinks[g.next].mem[from:mid], g.sinks[g.next].mem[mid:to]},
			Remote: rdma.Remote{Handle: r.Handle, Offset: r.Offset + uint64(from)}})
	}
	return g.ep.Post(wrs)
}

func (g *gateway) readDone(id uint64) error {
	r := g.sinks[id]
	if r.left--; r.left > 0 {
		return nil
	}
	delete(g.sinks, id)
	m := memory(4)
	binary.BigEndian.PutUint32(m, sum(r.mem))
	return g.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{m}}})
}

func sum(b []byte) uint32 {
	h := uint32(2166136261)
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	return h
}

func TestStrictInitiator(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     Config
		segment int
		dribble bool
		ord     int
	}{
		{name: "1 MSS both ways, CRC", cfg: Config{MaxFPDU: 1460}, segment: 1428, ord: 16},
		{name: "1 MSS both ways, no CRC", cfg: Config{MaxFPDU: 1460, CRC: CRCMirror}, segment: 1428, ord: 1},
		{name: "60 KiB out, 1 MSS in", cfg: Config{MaxFPDU: 60 << 10}, segment: 1428, ord: 128},
		{name: "1 MSS out, 60 KiB in", cfg: Config{MaxFPDU: 1460}, segment: 60 << 10, ord: 4},
		{name: "60 KiB both ways, CRC", cfg: Config{MaxFPDU: 60 << 10}, segment: 60 << 10, ord: 16},
		{name: "60 KiB both ways, no CRC", cfg: Config{MaxFPDU: 60 << 10, CRC: CRCMirror}, segment: 60 << 10, ord: 3},
		{name: "the largest FPDUs", cfg: Config{}, segment: maxULPDU - untaggedLen, ord: 16},
		{name: "loopback's own segments", cfg: Config{MaxFPDU: FPDUSegment}, segment: 65_000, ord: 16},
		{name: "in drops, small", cfg: Config{MaxFPDU: 256}, segment: 100, dribble: true, ord: 2},
		{name: "in drops, large", cfg: Config{}, segment: 30_001, dribble: true, ord: 2},
	} {
		t.Run(c.name, func(t *testing.T) { testStrict(t, c.cfg, c.segment, c.dribble, c.ord) })
	}
}

func testStrict(t *testing.T, cfg Config, segment int, dribble bool, ord int) {
	const receives, most = 32, 1<<20 + 5
	g := &gateway{t: t, data: noise(1, most), sinks: map[uint64]*gatewayRead{}}
	var rs []rdma.Receive
	for i := range receives {
		g.bufs = append(g.bufs, memory(4096))
		rs = append(rs, rdma.Receive{ID: uint64(i), Segments: [][]byte{g.bufs[i][:7], g.bufs[i][7:]}})
	}
	p, ep, served := dialGateway(t, cfg, rdma.Options{Receives: rs, ORD: ord, PrivateData: []byte("\xf6\xab\x0e\x18\x01\x01\x03\x03")}, g)
	s := newStrict(t, p, segment, dribble)

	// One receive and one call at first, as with the Linux client.
	s.post(4096)
	s.call([]byte("NULL"))
	if m := s.reply(); string(m.data) != "NULL" {
		t.Fatalf("%q", m.data)
	}
	for range receives {
		s.post(4096)
	}
	rounds := 10
	sizes := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 1427, 1428, 1429, 4093, 4094, 4095, 4096, 4097, 4098, 4099, 65535, 65536, 65537, 1 << 20, most}
	if dribble {
		sizes, rounds = []int{0, 1, 3, 99, 100, 101, 4097, 40_000}, 1
	}
	index := uint32(1)
	call := func(letter byte, n int, stag uint32, to uint64, more ...byte) {
		b := binary.BigEndian.AppendUint32([]byte{letter}, uint32(n))
		b = binary.BigEndian.AppendUint32(b, stag)
		s.call(append(binary.BigEndian.AppendUint64(b, to), more...))
		s.post(4096)
	}
	for _, n := range sizes {
		// like a kernel address, with the XID in the upper half
		base := uint64(0xffff_8881_0000_0000) + uint64(n)
		mem := make([]byte, n)
		stag := s.expose(index, base, mem, rdma.RemoteWrite)
		call('R', n, stag, base)
		if m := s.reply(); m.invalidated != stag || !bytes.Equal(mem, g.data[:n]) {
			t.Fatalf("READ of %d: wrong data, or invalidated %08x and not %08x", n, m.invalidated, stag)
		}
		stag = s.expose(index, base, g.data[:n], rdma.RemoteRead)
		call('W', n, stag, base, byte(1+n%7))
		if m := s.reply(); binary.BigEndian.Uint32(m.data) != sum(g.data[:n]) {
			t.Fatalf("WRITE of %d: wrong data", n)
		}
	}
	// Many calls at once.
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		want := map[int]func(strictMessage) bool{}
		for i := range 16 {
			index++
			n := r.IntN(20_000)
			switch i % 3 {
			case 0:
				mem := make([]byte, n)
				stag := s.expose(index, 5, mem, rdma.RemoteWrite)
				want[i] = func(m strictMessage) bool { return m.invalidated == stag && bytes.Equal(mem, g.data[:n]) }
				call('R', n, stag, 5)
			case 1:
				stag := s.expose(index, 7, g.data[:n], rdma.RemoteRead)
				want[i] = func(m strictMessage) bool {
					return len(m.data) == 4 && binary.BigEndian.Uint32(m.data) == sum(g.data[:n])
				}
				call('W', n, stag, 7, byte(1+n%20))
			case 2:
				text := fmt.Sprint("echo ", i, n)
				want[i] = func(m strictMessage) bool { return string(m.data) == text }
				s.call([]byte(text))
				s.post(4096)
			}
		}
		for range 16 { // replies overtake each other
			m := s.reply()
			found := false
			for i, ok := range want {
				if ok(m) {
					found = true
					delete(want, i)
					break
				}
			}
			if !found {
				t.Fatalf("unexpected reply %x (invalidated %08x)", m.data, m.invalidated)
			}
		}
	}
	if cfg.MaxFPDU > 0 && s.largest > cfg.MaxFPDU {
		t.Errorf("an FPDU of %d bytes came, the limit is %d", s.largest, cfg.MaxFPDU)
	}
	if st := ep.Stats(); st.CopiedIn > st.BytesIn || st.Receives == 0 || st.Reads == 0 || st.Writes == 0 {
		t.Errorf("%+v", st)
	}
	_ = p.c.CloseWrite()
	if err := await(t, "end of Serve", served); !errors.Is(err, io.EOF) {
		t.Errorf("Serve returned %v", err)
	}
	served <- nil
	if err := await(t, "end of the stream", s.err); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
}
