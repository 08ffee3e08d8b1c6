package iwarp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// victim is the endpoint under attack, with its memory.
type victim struct {
	*rawPeer
	e                                  *end
	mem                                []byte // the regions' memory
	writable, readable, dead, deadPeer rdma.Remote
	readSink                           []byte
	read                               readRequest // of the victim's outstanding Read
	readMSN                            uint32
}

const victimRegion = 40_000

func newVictim(t testing.TB, cfg Config) *victim {
	req := linuxRequest()
	req.ord = 2
	o := rdma.Options{Receives: append(receives(3, 100), rdma.Receive{ID: 3, Segments: [][]byte{memory(30_000)}}), IRD: 2, ORD: 1}
	p, e := dialRaw(t, cfg, req, o)
	v := &victim{rawPeer: p, e: e, mem: noise(1, 2*victimRegion), readMSN: 1}
	v.writable = e.expose(t, v.mem[:victimRegion], rdma.RemoteWrite)
	v.readable = e.expose(t, v.mem[victimRegion:], rdma.RemoteRead)
	v.dead = e.expose(t, v.mem, rdma.RemoteRead|rdma.RemoteWrite)
	v.deadPeer = e.expose(t, v.mem, rdma.RemoteRead|rdma.RemoteWrite)
	e.post(t, rdma.WorkRequest{ID: 9, Op: rdma.LocalInvalidate, Invalidate: v.dead.Handle})
	if c := await(t, "invalidation", e.done); c.ID != 9 {
		t.Fatalf("%+v", c)
	}
	// The first of the receives of 100 bytes; the Read goes out afterwards.
	v.readSink = noise(7, 20_000)
	e.post(t, rdma.WorkRequest{ID: 10, Op: rdma.Read, Local: [][]byte{v.readSink[:50], v.readSink[50:]}, Remote: rdma.Remote{Handle: 5, Offset: 6}})
	u := append(untaggedHeader{last: true, op: opSendInv, stag: v.deadPeer.Handle, msn: 1}.append(nil), "hello"...)
	v.sendMSN++
	v.write(v.fpdus(u))
	if c := await(t, "message", e.done); c.Bytes != 5 || c.Invalidated != v.deadPeer.Handle || !c.HasInvalidated {
		t.Fatalf("%+v", c)
	}
	u = v.next()
	if h, n, err := parseUntagged(u); err != nil || h.op != opReadRequest {
		t.Fatalf("%x, %v", u, err)
	} else if v.read, _, err = parseReadRequest(u[n:]); err != nil || v.read.size != 20_000 || v.read.sourceSTag != 5 || v.read.sourceTO != 6 {
		t.Fatalf("%x, %v", u, err)
	}
	return v
}

func writeTo(r rdma.Remote, off, n int) []byte {
	return append(taggedHeader{true, opWrite, r.Handle, r.Offset + uint64(off)}.append(nil), make([]byte, n)...)
}

func (v *victim) response(last bool, stag uint32, to uint64, n int) []byte {
	return append(taggedHeader{last, opReadResponse, stag, to}.append(nil), make([]byte, n)...)
}

func (v *victim) request(r rdma.Remote, off int, size uint32) []byte {
	h := untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: v.readMSN}
	v.readMSN++
	return readRequest{sinkSTag: 77, sinkTO: 88, size: size, sourceSTag: r.Handle, sourceTO: r.Offset + uint64(off)}.append(h.append(nil))
}

// edit sets a byte.
func edit(b []byte, at int, v byte) []byte { b[at] = v; return b }

// attacks are a peer's violations. The answer is to the last ULPDU.
var attacks = []struct {
	name  string
	want  termCode
	make  func(v *victim) [][]byte
	spoil func(b []byte) // changes the stream, after framing
}{
	{name: "empty ULPDU", want: codeFPDUStart, make: func(v *victim) [][]byte { return [][]byte{{}} }},
	{name: "ULPDU of one byte", want: codeFPDUStart, make: func(v *victim) [][]byte { return [][]byte{{0xc1}} }},
	{name: "ULPDU shorter than a tagged header", want: codeFPDUStart, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.writable, 0, 0)[:13]} }},
	{name: "ULPDU shorter than an untagged header", want: codeFPDUStart, make: func(v *victim) [][]byte { return [][]byte{v.send(nil)[:17]} }},
	{name: "CRC of a small FPDU", want: codeCRC, make: func(v *victim) [][]byte { return [][]byte{v.send([]byte("hi"))} }, spoil: func(b []byte) { b[20] ^= 1 }},
	{name: "CRC of an FPDU of 29,000 bytes", want: codeCRC, make: func(v *victim) [][]byte {
		return [][]byte{v.send(make([]byte, 100)), v.send(nil), v.send(make([]byte, 29_000))}
	}, spoil: func(b []byte) { b[len(b)-1] ^= 0x80 }},
	{name: "length field", want: codeCRC, make: func(v *victim) [][]byte { return [][]byte{v.send(make([]byte, 80))} }, spoil: func(b []byte) { b[1] -= 8 }},

	{name: "DDP version of a Write", want: codeTaggedVersion, make: func(v *victim) [][]byte { return [][]byte{edit(writeTo(v.writable, 0, 10), 0, 0xc2)} }},
	{name: "DDP version of a Send", want: codeUntaggedVersion, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 0, 0x40)} }},
	{name: "RDMAP version", want: codeRDMAPVersion, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 1, 0x83)} }},
	{name: "opcode 8", want: codeOpcode, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 1, 0x48)} }},
	{name: "tagged Send", want: codeOpcode, make: func(v *victim) [][]byte { return [][]byte{edit(writeTo(v.writable, 0, 10), 1, 0x43)} }},
	{name: "untagged Write", want: codeOpcode, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 1, 0x40)} }},

	{name: "Write to an unknown STag", want: codeSTag, make: func(v *victim) [][]byte {
		return [][]byte{writeTo(rdma.Remote{Handle: v.writable.Handle ^ 1, Offset: v.writable.Offset}, 0, 10)}
	}},
	{name: "large Write to an unknown STag", want: codeSTag, make: func(v *victim) [][]byte {
		return [][]byte{writeTo(rdma.Remote{Handle: v.writable.Handle ^ 1, Offset: v.writable.Offset}, 0, 30_000)}
	}},
	{name: "Write to what may be read", want: codeSTag, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.readable, 0, 10)} }},
	{name: "Write to what was invalidated here", want: codeSTag, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.dead, 0, 10)} }},
	{name: "Write to what was invalidated by the peer", want: codeSTag, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.deadPeer, 0, 10)} }},
	{name: "Write to the sink of a Read", want: codeSTag, make: func(v *victim) [][]byte {
		return [][]byte{writeTo(rdma.Remote{Handle: v.read.sinkSTag, Offset: v.read.sinkTO}, 0, 10)}
	}},
	{name: "Write one byte past the end", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.writable, victimRegion-9, 10)} }},
	{name: "large Write past the end", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.writable, 20_000, 20_001)} }},
	{name: "Write one byte before the start", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{writeTo(v.writable, -1, 10)} }},
	{name: "Write past 2^64", want: codeWrap, make: func(v *victim) [][]byte {
		return [][]byte{writeTo(rdma.Remote{Handle: v.writable.Handle, Offset: 1<<64 - 5}, 0, 6)}
	}},

	{name: "Send on queue 1", want: codeQueue, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 9, 1)} }},
	{name: "Send on queue 3", want: codeQueue, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 9, 3)} }},
	{name: "Send that repeats a sequence number", want: codeMSN, make: func(v *victim) [][]byte { v.sendMSN--; return [][]byte{v.send(nil)} }},
	{name: "Send that skips a sequence number", want: codeMSN, make: func(v *victim) [][]byte { v.sendMSN++; return [][]byte{v.send(nil)} }},
	{name: "Send with an offset", want: codeMO, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 17, 4)} }},
	{name: "Send of 101 bytes for 100", want: codeTooLong, make: func(v *victim) [][]byte { return [][]byte{v.send(make([]byte, 101))} }},
	{name: "large Send for 100 bytes", want: codeTooLong, make: func(v *victim) [][]byte { return [][]byte{v.send(make([]byte, 40_000))} }},
	{name: "second segment too long", want: codeTooLong, make: func(v *victim) [][]byte { return [][]byte{v.segment(0, 60, false), v.segment(60, 41, true)} }},
	{name: "second segment skips", want: codeMO, make: func(v *victim) [][]byte { return [][]byte{v.segment(0, 60, false), v.segment(61, 10, true)} }},
	{name: "second segment repeats", want: codeMO, make: func(v *victim) [][]byte { return [][]byte{v.segment(0, 60, false), v.segment(0, 10, true)} }},
	{name: "second segment of another message", want: codeMSN, make: func(v *victim) [][]byte {
		return [][]byte{v.segment(0, 60, false), edit(v.segment(60, 10, true), 13, 99)}
	}},
	{name: "second segment with another opcode", want: codeOpcode, make: func(v *victim) [][]byte {
		return [][]byte{v.segment(0, 60, false), edit(v.segment(60, 10, true), 1, 0x45)}
	}},
	{name: "second segment with an STag", want: codeOpcode, make: func(v *victim) [][]byte {
		return [][]byte{v.segment(0, 60, false), edit(v.segment(60, 10, true), 5, 7)}
	}},
	{name: "more Sends than receives", want: codeNoBuffer, make: func(v *victim) [][]byte { return [][]byte{v.send(nil), v.send(nil), v.send(nil), v.send(nil)} }},
	{name: "invalidation of an unknown STag", want: codeInvalidate, make: func(v *victim) [][]byte { return [][]byte{edit(v.send(nil), 1, 0x44)} }},

	{name: "Read of an unknown STag", want: codeReadSTag, make: func(v *victim) [][]byte { return [][]byte{v.request(rdma.Remote{Handle: 1}, 0, 10)} }},
	{name: "Read of what was invalidated here", want: codeReadSTag, make: func(v *victim) [][]byte { return [][]byte{v.request(v.dead, 0, 10)} }},
	{name: "Read of what may be written", want: codeReadAccess, make: func(v *victim) [][]byte { return [][]byte{v.request(v.writable, 0, 10)} }},
	{name: "Read one byte past the end", want: codeReadBounds, make: func(v *victim) [][]byte { return [][]byte{v.request(v.readable, victimRegion-9, 10)} }},
	{name: "Read one byte before the start", want: codeReadBounds, make: func(v *victim) [][]byte { return [][]byte{v.request(v.readable, -1, 10)} }},
	{name: "Read of 4 GiB", want: codeReadBounds, make: func(v *victim) [][]byte { return [][]byte{v.request(v.readable, 0, 1<<32-1)} }},
	{name: "Read past 2^64", want: codeReadWrap, make: func(v *victim) [][]byte {
		return [][]byte{v.request(rdma.Remote{Handle: v.readable.Handle, Offset: 1<<64 - 5}, 0, 6)}
	}},
	{name: "Read whose sink passes 2^64", want: codeReadWrap, make: func(v *victim) [][]byte {
		b := v.request(v.readable, 0, 10)
		binary.BigEndian.PutUint64(b[untaggedLen+4:], 1<<64-9)
		return [][]byte{b}
	}},
	{name: "Reads beyond the depth", want: codeNoBuffer, make: func(v *victim) [][]byte {
		return [][]byte{v.request(v.readable, 0, 10), v.request(v.readable, 0, 0), v.request(v.readable, 0, 10)}
	}},
	{name: "Read that repeats a sequence number", want: codeMSN, make: func(v *victim) [][]byte {
		u := [][]byte{v.request(v.readable, 0, 10)}
		v.readMSN--
		return append(u, v.request(v.readable, 0, 10))
	}},
	{name: "Read with an offset", want: codeMO, make: func(v *victim) [][]byte { return [][]byte{edit(v.request(v.readable, 0, 10), 17, 1)} }},
	{name: "Read that goes on", want: codeTooLong, make: func(v *victim) [][]byte { return [][]byte{edit(v.request(v.readable, 0, 10), 0, 0x01)} }},
	{name: "Read Request too long", want: codeTooLong, make: func(v *victim) [][]byte { return [][]byte{append(v.request(v.readable, 0, 10), 0)} }},
	{name: "Read Request much too long", want: codeTooLong, make: func(v *victim) [][]byte {
		return [][]byte{append(v.request(v.readable, 0, 10), make([]byte, 65_000)...)}
	}},
	{name: "Read Request too short", want: codeOperation, make: func(v *victim) [][]byte { return [][]byte{v.request(v.readable, 0, 10)[:untaggedLen+27]} }},
	{name: "Read Request on queue 0", want: codeQueue, make: func(v *victim) [][]byte { return [][]byte{edit(v.request(v.readable, 0, 10), 9, 0)} }},

	{name: "response with another STag", want: codeSTag, make: func(v *victim) [][]byte { return [][]byte{v.response(true, v.read.sinkSTag^1, v.read.sinkTO, 20_000)} }},
	{name: "response to an exposed STag", want: codeSTag, make: func(v *victim) [][]byte { return [][]byte{v.response(true, v.writable.Handle, v.writable.Offset, 20)} }},
	{name: "response behind its place", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{v.response(false, v.read.sinkSTag, v.read.sinkTO+1, 20)} }},
	{name: "response before its place", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{v.response(false, v.read.sinkSTag, v.read.sinkTO-1, 20)} }},
	{name: "response with a gap", want: codeBounds, make: func(v *victim) [][]byte {
		return [][]byte{v.response(false, v.read.sinkSTag, v.read.sinkTO, 20), v.response(false, v.read.sinkSTag, v.read.sinkTO+21, 20)}
	}},
	{name: "response too long", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{v.response(true, v.read.sinkSTag, v.read.sinkTO, 20_001)} }},
	{name: "response too long in its second segment", want: codeBounds, make: func(v *victim) [][]byte {
		return [][]byte{v.response(false, v.read.sinkSTag, v.read.sinkTO, 19_999), v.response(true, v.read.sinkSTag, v.read.sinkTO+19_999, 2)}
	}},
	{name: "response too short", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{v.response(true, v.read.sinkSTag, v.read.sinkTO, 19_999)} }},
	{name: "empty response to a Read that is not", want: codeBounds, make: func(v *victim) [][]byte { return [][]byte{v.response(true, v.read.sinkSTag, v.read.sinkTO, 0)} }},
	{name: "second response", want: codeSTag, make: func(v *victim) [][]byte {
		r := v.response(true, v.read.sinkSTag, v.read.sinkTO, 20_000)
		return [][]byte{r, r}
	}},
}

// segment makes a segment of the next Send.
func (v *victim) segment(mo, n int, last bool) []byte {
	return append(untaggedHeader{last: last, op: opSend, msn: v.sendMSN, mo: uint32(mo)}.append(nil), make([]byte, n)...)
}

// TestAttacks: each attack is answered by the RFCs' Terminate, and memory is unchanged.
func TestAttacks(t *testing.T) {
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			v := newVictim(t, Config{})
			ulpdus := a.make(v)
			stream := v.fpdus(ulpdus...)
			if a.spoil != nil {
				a.spoil(stream)
			}
			v.write(stream)
			want := terminate{termCode: a.want}
			if last := ulpdus[len(ulpdus)-1]; a.want.layer != layerMPA {
				want.ddp, want.segmentLen = last[:headerLen(last[0])], uint16(len(last))
				if a.want.layer == layerRDMAP && a.want.etype == 1 && a.want != codeInvalidate {
					want.readRequest = last[untaggedLen:]
				}
			}
			v.expectTerminate(want)
			_ = v.c.CloseWrite()
			err := await(t, "end of Serve", v.e.err)
			v.e.err <- err
			var term *TerminateError
			if !errors.As(err, &term) || term.Remote || (termCode{term.Layer, term.Type, term.Code}) != a.want || term.Reason == "" {
				t.Errorf("Serve returned %v, want %v", err, a.want)
			}
			if !bytes.Equal(v.mem, noise(1, len(v.mem))) {
				t.Error("exposed memory was changed")
			}
			if err := v.e.Post([]rdma.WorkRequest{{Op: rdma.Send}}); err == nil {
				t.Error("Post works after the end")
			}
		})
	}
}

// TestLargeCRC has a segment whose payload is read straight to its place: the CRC at its end
// decides whether the message is delivered.
func TestLargeCRC(t *testing.T) {
	const size = 29_000
	for _, x := range []struct {
		name  string
		spoil int // offset of the wrong byte from the end of the FPDU; 0 for none
	}{{"right", 0}, {"field", 1}, {"last byte of the payload", 1 + fpduCRCLen + fpduPad(untaggedLen+size)}, {"payload", 10_000}} {
		for _, cut := range []int{50, 10_000, size} {
			t.Run(fmt.Sprintf("%s/%d", x.name, cut), func(t *testing.T) {
				v := newVictim(t, Config{})
				for range 2 { // the receives of 100 bytes
					v.write(v.fpdus(v.send(nil)))
					await(t, "message", v.e.done)
				}
				stream := v.fpdus(v.send(noise(3, size)))
				if x.spoil > 0 {
					stream[len(stream)-x.spoil] ^= 0x40
				}
				copied := v.e.Stats().CopiedIn
				v.write(stream[:cut])
				for began := time.Now(); v.e.Stats().CopiedIn == copied; time.Sleep(time.Millisecond) {
					if time.Since(began) > patience {
						t.Fatal("the first part of the segment was not placed")
					}
				}
				v.write(stream[cut:])
				if x.spoil == 0 {
					if c := await(t, "message", v.e.done); c.Bytes != size {
						t.Errorf("%+v, want a message of %d bytes", c, size)
					}
					return
				}
				v.expectTerminate(terminate{termCode: codeCRC})
				_ = v.c.CloseWrite()
				v.e.err <- await(t, "end of Serve", v.e.err)
				select {
				case c := <-v.e.done:
					t.Errorf("%+v was delivered though its CRC was wrong", c)
				default:
				}
			})
		}
	}
}

// TestCut ends the stream at every place, in a message of each kind.
func TestCut(t *testing.T) {
	full := func(v *victim) []byte {
		return v.fpdus(v.send([]byte("hello")), writeTo(v.writable, 0, 17), v.request(v.readable, 0, 4),
			v.response(false, v.read.sinkSTag, v.read.sinkTO, 3))
	}
	n := len(full(newVictim(t, Config{})))
	for k := 0; k <= n; k += 3 {
		v := newVictim(t, Config{})
		stream := full(v)
		v.write(stream[:k])
		_ = v.c.CloseWrite()
		boundary := false
		for at := 0; at <= k; {
			if at == k {
				boundary = true
				break
			}
			at += fpduLen(int(binary.BigEndian.Uint16(stream[at:])))
		}
		err := await(t, "end of Serve", v.e.err)
		v.e.err <- err
		if boundary && !errors.Is(err, io.EOF) || !boundary && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d of %d bytes: %v", k, n, err)
		}
	}
}

// TestCutLarge is TestCut inside of a segment that is read straight to its place.
func TestCutLarge(t *testing.T) {
	for _, k := range []int{2, 16, 20, 5000, 30_015, 30_016, 30_018, 30_019} {
		v := newVictim(t, Config{})
		v.write(v.fpdus(writeTo(v.writable, 0, 30_000))[:k])
		_ = v.c.CloseWrite()
		err := await(t, "end of Serve", v.e.err)
		v.e.err <- err
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut after %d bytes: %v", k, err)
		}
	}
}

// TestPeerTerminates: the peer's Terminate is the error of Serve, and is not answered by another.
func TestPeerTerminates(t *testing.T) {
	v := newVictim(t, Config{})
	payload := unhex(t, "21 02 03 00")
	v.write(v.fpdus(append(untaggedHeader{last: true, op: opTerminate, qn: 2, msn: 1}.append(nil), payload...)))
	if b, err := v.tryNext(); !errors.Is(err, io.EOF) {
		t.Errorf("%x, %v", b, err)
	}
	err := await(t, "end of Serve", v.e.err)
	v.e.err <- err
	var term *TerminateError
	if !errors.As(err, &term) || !term.Remote {
		t.Errorf("Serve returned %v", err)
	}
}

// TestInvalidatedWhileRead: the peer slowly reads memory that is invalidated meanwhile. The
// invalidation completes when the socket has taken the bytes in progress, and the rest is refused.
func TestInvalidatedWhileRead(t *testing.T) {
	const size = 32 << 20
	big := make([][]byte, 0, 8)
	for range 8 {
		big = append(big, memory(4<<20))
	}
	req := linuxRequest()
	req.ord = 8
	p, e := dialRaw(t, Config{}, req, rdma.Options{Receives: receives(2, 10), IRD: 8, ORD: 1})
	p.hello(e)
	var regions []rdma.Remote
	for _, b := range big {
		regions = append(regions, e.expose(t, b, rdma.RemoteRead))
	}
	var requests [][]byte
	for i, r := range regions {
		requests = append(requests, readRequest{sinkSTag: 77, sinkTO: 88, size: 4 << 20, sourceSTag: r.Handle, sourceTO: r.Offset}.append(
			untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: uint32(1 + i)}.append(nil)))
	}
	p.write(p.fpdus(requests...))
	first := p.next() // the responses have begun
	// All in one post: after the first of them the Terminate may be sent, and the connection
	// closed, at any time.
	var invalidate []rdma.WorkRequest
	for i, r := range regions {
		invalidate = append(invalidate, rdma.WorkRequest{ID: uint64(100 + i), Op: rdma.LocalInvalidate, Invalidate: r.Handle})
	}
	e.post(t, invalidate...)
	got := len(first) - taggedLen
	last := first
	for {
		u := p.next()
		if opcode(u[1]&15) == opTerminate {
			last = u
			break
		}
		got += len(u) - taggedLen
	}
	tm, _, err := parseTerminate(last[untaggedLen:])
	if err != nil || tm.termCode != codeReadSTag || tm.ddp == nil || tm.readRequest == nil {
		t.Fatalf("%x, %v", last, err)
	}
	// The Terminate has the progress of the Read in error.
	h, _, _ := parseUntagged(tm.ddp)
	r, _, _ := parseReadRequest(tm.readRequest)
	if done := int(h.msn-1)*4<<20 + (4<<20 - int(r.size)); done != got || got >= size || r.sinkTO != 88+uint64(got%(4<<20)) {
		t.Errorf("%d bytes came, the Terminate speaks of %d (%+v, %+v)", got, done, h, r)
	}
	_ = p.c.CloseWrite()
	err = await(t, "end of Serve", e.err)
	e.err <- err
	if term := asTerminate(err); term == nil || term.Remote {
		t.Error(err)
	}
}

// TestInvalidateWhileReading: a peer that invalidates memory that it still reads is disconnected.
func TestInvalidateWhileReading(t *testing.T) {
	req := linuxRequest()
	req.ord = 16
	p, e := dialRaw(t, Config{}, req, rdma.Options{Receives: receives(2, 10), IRD: 16, ORD: 1})
	p.hello(e)
	r := e.expose(t, memory(4<<20), rdma.RemoteRead)
	var requests [][]byte
	for i := range 16 {
		requests = append(requests, readRequest{sinkSTag: 77, sinkTO: 88, size: 4 << 20, sourceSTag: r.Handle, sourceTO: r.Offset}.append(
			untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: uint32(1 + i)}.append(nil)))
	}
	p.write(p.fpdus(requests...))
	p.next()
	u := untaggedHeader{last: true, op: opSendInv, stag: r.Handle, msn: 2}.append(nil)
	p.write(p.fpdus(u))
	for {
		b := p.next()
		if opcode(b[1]&15) != opTerminate {
			continue
		}
		tm, _, err := parseTerminate(b[untaggedLen:])
		// The order of the goroutines decides which of the two is found first.
		if err != nil || tm.termCode != codeInvalidate && tm.termCode != codeReadSTag {
			t.Errorf("%x, %v", b, err)
		}
		break
	}
	_ = p.c.CloseWrite()
	err := await(t, "end of Serve", e.err)
	e.err <- err
	if term := asTerminate(err); term == nil || term.Remote {
		t.Error(err)
	}
}
