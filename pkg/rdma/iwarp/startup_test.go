package iwarp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

func TestBadConfig(t *testing.T) {
	for _, cfg := range []Config{{CRC: 3}, {MaxFPDU: 255}, {MaxFPDU: 65536}, {MaxFPDU: -2}, {Revision: 3}, {RequestTimeout: -1}, {ReplyTimeout: -1}, {MaxPending: -1}, {MaxRegions: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v was taken", cfg)
		}
	}
}

// TestRespond: requests, our replies byte for byte, and the resulting parameters.
func TestRespond(t *testing.T) {
	const private = "f6ab0e1801010303"
	for _, c := range []struct {
		name, request, reply string
		cfg                  Config
		o                    rdma.Options
		want                 rdma.Attributes
	}{
		{name: "Linux NFS client", request: requestKeyHex + "10 02 000c 0080 0000" + private, reply: replyKeyHex + "50 02 000c 0000 0040" + private,
			o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 64, CRC: true}},
		{name: "more reads out than it takes", request: requestKeyHex + "10 02 000c 0080 0000" + private, reply: replyKeyHex + "50 02 000c 0000 0080" + private,
			o: rdma.Options{ORD: 500}, want: rdma.Attributes{ORD: 128, CRC: true}},
		{name: "mirrored: no CRC", request: requestKeyHex + "10 02 000c 0080 0010" + private, reply: replyKeyHex + "10 02 000c 0008 0040" + private,
			cfg: Config{CRC: CRCMirror}, o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 64, IRD: 8}},
		{name: "mirrored: CRC", request: requestKeyHex + "50 02 000c 0080 0004" + private, reply: replyKeyHex + "50 02 000c 0004 0040" + private,
			cfg: Config{CRC: CRCMirror}, o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 64, IRD: 4, CRC: true}},
		{name: "off, but the peer insists", request: requestKeyHex + "50 02 0004 0001 0001", reply: replyKeyHex + "10 02 000c 0001 0001" + private,
			cfg: Config{CRC: CRCOff}, o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 1, IRD: 1, CRC: true}},
		{name: "revision 1", request: requestKeyHex + "40 01 0002 4142", reply: replyKeyHex + "40 01 0008" + private,
			o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 1, IRD: 8, CRC: true}},
		{name: "revision 2 without enhanced data", request: requestKeyHex + "00 02 0002 4142", reply: replyKeyHex + "40 02 0008" + private,
			o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 1, IRD: 8, CRC: true}},
		{name: "depths are not negotiated", request: requestKeyHex + "10 02 0004 3fff 3fff", reply: replyKeyHex + "50 02 000c 3fff 3fff" + private,
			o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 64, IRD: 8, CRC: true}},
		{name: "peer to peer, any RTR", request: requestKeyHex + "10 02 0004 c004 c000", reply: replyKeyHex + "50 02 000c c001 c004" + private,
			o: rdma.Options{ORD: 64}, want: rdma.Attributes{ORD: 4, IRD: 1, CRC: true}},
		{name: "peer to peer, RTR by Write", request: requestKeyHex + "10 02 0004 8004 8000", reply: replyKeyHex + "50 02 000c 8000 8004" + private,
			o: rdma.Options{ORD: 64, IRD: 8}, want: rdma.Attributes{ORD: 4, CRC: true}},
		{name: "peer to peer, no RTR named", request: requestKeyHex + "10 02 0004 8004 0000", reply: replyKeyHex + "50 02 000c c001 c004" + private,
			o: rdma.Options{ORD: 64}, want: rdma.Attributes{ORD: 4, IRD: 1, CRC: true}},
		{name: "markers wanted", request: requestKeyHex + "90 02 0004 0001 0001", reply: replyKeyHex + "50 02 000c 0001 0001" + private,
			o: rdma.Options{ORD: 1, IRD: 1}, want: rdma.Attributes{ORD: 1, IRD: 1, CRC: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, _, err := parseMPA(unhex(t, c.request), false)
			if err != nil {
				t.Fatal(err)
			}
			c.o.PrivateData = unhex(t, private)
			p, e := dialRaw(t, c.cfg, req, c.o)
			if got, want := p.reply.append(nil), unhex(t, c.reply); !bytes.Equal(got, want) {
				t.Errorf("reply %x, want %x", got, want)
			}
			a := e.Attributes()
			if a.IRD != c.want.IRD || a.ORD != c.want.ORD || a.CRC != c.want.CRC || !bytes.Equal(a.PrivateData, req.private) || !a.RemoteInvalidation {
				t.Errorf("%+v, want %+v", a, c.want)
			}
		})
	}
}

// TestInitiate: our requests, replies to them, and the results.
func TestInitiate(t *testing.T) {
	const request2 = requestKeyHex + "50 02 0006 0008 0040 4142"
	for _, c := range []struct {
		name, request, reply string
		cfg                  Config
		want                 rdma.Attributes
		err                  func(error) bool
		terminate            string // the Terminate that the peer gets
	}{
		{name: "all granted", request: request2, reply: "50 02 0006 0040 0008 5859", want: rdma.Attributes{ORD: 64, IRD: 8, CRC: true}},
		{name: "less granted", request: request2, reply: "10 02 0006 0003 0002 5859", want: rdma.Attributes{ORD: 3, IRD: 2, CRC: true}},
		{name: "more than asked for", request: request2, reply: "10 02 0006 3000 0008 5859", want: rdma.Attributes{ORD: 64, IRD: 8, CRC: true}},
		{name: "depths left open", request: request2, reply: "10 02 0006 3fff 3fff 5859", want: rdma.Attributes{ORD: 64, IRD: 8, CRC: true}},
		{name: "no CRC", cfg: Config{CRC: CRCOff}, request: requestKeyHex + "10 02 0006 0008 0040 4142", reply: "10 02 0006 0040 0008 5859", want: rdma.Attributes{ORD: 64, IRD: 8}},
		{name: "CRC at the peer's wish", cfg: Config{CRC: CRCMirror}, request: requestKeyHex + "10 02 0006 0008 0040 4142", reply: "50 02 0006 0040 0008 5859", want: rdma.Attributes{ORD: 64, IRD: 8, CRC: true}},
		{name: "revision 1", cfg: Config{Revision: 1}, request: requestKeyHex + "40 01 0002 4142", reply: "40 01 0002 5859", want: rdma.Attributes{ORD: 1, IRD: 8, CRC: true}},
		{name: "the peer wants to read too much", request: request2, reply: "50 02 0006 0040 0009 5859", err: isTerminate(codeIRD),
			terminate: "0016 4147 00000000 00000002 00000001 00000000 20060000 6540fb1b"},
		{name: "the peer ignores the enhanced data", request: request2, reply: "40 01 0002 5859", err: isMPA},
		{name: "enhanced data that were not asked for", cfg: Config{Revision: 1}, request: requestKeyHex + "40 01 0002 4142", reply: "50 02 0006 0040 0008 5859", err: isMPA},
		{name: "revision 9", request: request2, reply: "50 09 0006 0040 0008 5859", err: isMPA},
		{name: "too much private data", request: request2, reply: "50 02 0201 0040 0008 5859", err: isMPA},
		{name: "short", request: request2, reply: "50 02 0007 0040 0008 5859", err: func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{name: "rejected", request: request2, reply: "70 02 0006 0040 0008 5859", err: isRejected},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProvider(t, c.cfg)
			o := rdma.Options{Domain: newDomain(t, p), IRD: 8, ORD: 64, PrivateData: []byte("AB")}
			conn, ep, err := acceptRaw(t, p, func(req mpaFrame, conn *net.TCPConn) {
				if got, want := req.append(nil), unhex(t, c.request); !bytes.Equal(got, want) {
					t.Errorf("request %x, want %x", got, want)
				}
				_, _ = conn.Write(unhex(t, replyKeyHex+c.reply))
				if c.name == "short" {
					_ = conn.CloseWrite()
				}
			}, o)
			if c.err != nil {
				if err == nil {
					_ = ep.Close()
				}
				if !c.err(err) {
					t.Errorf("Dial returned %v", err)
				}
				rest, _ := io.ReadAll(conn)
				if want := unhex(t, c.terminate); !bytes.Equal(rest, want) {
					t.Errorf("the peer got %x, want %x", rest, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer ep.Close()
			a := ep.Attributes()
			if a.IRD != c.want.IRD || a.ORD != c.want.ORD || a.CRC != c.want.CRC || string(a.PrivateData) != "XY" {
				t.Errorf("%+v, want %+v", a, c.want)
			}
		})
	}
}

func isMPA(err error) bool { return errors.Is(err, errMPA) }

func isRejected(err error) bool {
	var r *rdma.RejectedError
	return errors.As(err, &r) && string(r.PrivateData) == "XY"
}

func isTerminate(want termCode) func(error) bool {
	return func(err error) bool {
		t := asTerminate(err)
		return t != nil && !t.Remote && termCode{t.Layer, t.Type, t.Code} == want
	}
}

// listen starts a listener and returns it with a domain.
func listen(t *testing.T, cfg Config) (rdma.Listener, rdma.Domain) {
	t.Helper()
	p := newProvider(t, cfg)
	d := newDomain(t, p)
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, d
}

func dialTCP(t *testing.T, l rdma.Listener, b []byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	return c
}

// ended waits until the peer has closed c, and returns the bytes sent before.
func ended(t *testing.T, c net.Conn) []byte {
	t.Helper()
	b, err := io.ReadAll(c)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the connection was not closed")
	}
	return b
}

// TestBadRequests: they are closed without an answer, and Accept does not return them.
func TestBadRequests(t *testing.T) {
	l, _ := listen(t, Config{})
	for _, s := range []string{
		"GET / HTTP/1.1\r\n\r\n", "MPA ID Rep Frame\x00\x01\x00\x00", "MPA ID Req Frame\x00\x07\x00\x00", "MPA ID Req Frame\x00\x01\x02\x01", "MPA ID Req Frame\x10\x02\x00\x03abc",
	} {
		if b := ended(t, dialTCP(t, l, []byte(s))); len(b) > 0 {
			t.Errorf("%q was answered by %q", s, b)
		}
	}
	c := dialTCP(t, l, []byte("MPA ID Req Frame\x00\x01\x00\x04abc"))
	_ = c.(*net.TCPConn).CloseWrite()
	ended(t, c)
	dialTCP(t, l, []byte("MPA ID Req Frame\x00\x01\x00\x04good"))
	in, err := l.Accept()
	if err != nil || string(in.PrivateData()) != "good" {
		t.Fatalf("%v, %v", in, err)
	}
	if err := in.Reject([]byte("no")); err != nil {
		t.Error(err)
	}
	if err := in.Reject(nil); err == nil {
		t.Error("Reject twice")
	}
	if _, err := in.Accept(rdma.Options{}); err == nil {
		t.Error("Accept after Reject")
	}
}

// TestEarlyData: a peer that sends data before it has the reply is not accepted.
func TestEarlyData(t *testing.T) {
	l, d := listen(t, Config{})
	c := dialTCP(t, l, append((&mpaFrame{revision: 1}).append(nil), "FPDU"...))
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Accept(rdma.Options{Domain: d}); !errors.Is(err, errMPA) {
		t.Errorf("Accept returned %v", err)
	}
	if b := ended(t, c); len(b) > 0 {
		t.Errorf("the peer got %x", b)
	}
}

// TestSlowPeers: peers that do not finish their request neither delay others nor pile up.
func TestSlowPeers(t *testing.T) {
	l, _ := listen(t, Config{MaxPending: 4})
	var slow []net.Conn
	stall := func() {
		slow = append(slow, dialTCP(t, l, []byte("MPA ID")))
		pending(t, l, func(l *listener) bool { return len(l.reading) == 4 })
	}
	for range 3 {
		slow = append(slow, dialTCP(t, l, []byte("MPA ID")))
	}
	// A complete one takes the place of the oldest.
	for i := range 2 {
		stall()
		dialTCP(t, l, (&mpaFrame{revision: 1, private: []byte{byte(i)}}).append(nil))
		ended(t, slow[i])
		in, err := l.Accept()
		if err != nil || in.PrivateData()[0] != byte(i) {
			t.Fatal(in, err)
		}
		_ = in.Reject(nil)
	}
	// The others are still accepted.
	for _, c := range slow[2:] {
		if _, err := c.Write((&mpaFrame{revision: 1}).append(nil)[6:]); err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = in.Reject(nil)
	}
	// Complete ones that are not accepted: the newest is refused.
	for range 4 {
		dialTCP(t, l, (&mpaFrame{revision: 1}).append(nil))
	}
	pending(t, l, func(l *listener) bool { return len(l.ready) == 4 })
	ended(t, dialTCP(t, l, nil))
}

// pending waits until cond holds for the listener's pending connections.
func pending(t *testing.T, l rdma.Listener, cond func(l *listener) bool) {
	t.Helper()
	ln := l.(*listener)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		ln.mu.Lock()
		ok := cond(ln)
		ln.mu.Unlock()
		if ok {
			return
		}
	}
	t.Fatal("the listener does not get there")
}

func TestRequestTimeout(t *testing.T) {
	l, _ := listen(t, Config{RequestTimeout: 20 * time.Millisecond})
	ended(t, dialTCP(t, l, []byte("MPA ID Req Fram")))
	ended(t, dialTCP(t, l, nil))
}

func TestReplyTimeout(t *testing.T) {
	// long enough for sending the request, too
	p := newProvider(t, Config{ReplyTimeout: time.Second})
	for _, silent := range []string{"", "MPA ID Rep Frame"} {
		_, ep, err := acceptRaw(t, p, func(_ mpaFrame, c *net.TCPConn) { _, _ = c.Write([]byte(silent)) }, rdma.Options{Domain: newDomain(t, p)})
		var timeout net.Error
		if err == nil || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Dial returned %v, %v", ep, err)
		}
	}
}

// TestQuiet: a responder sends nothing before it has an FPDU.
func TestQuiet(t *testing.T) {
	p, e := dialRaw(t, Config{}, linuxRequest(), rdma.Options{Receives: receives(1, 10), ORD: 1})
	e.post(t, rdma.WorkRequest{ID: 1, Op: rdma.Send, Signaled: true, Local: [][]byte{memory(3)}})
	_ = p.c.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if b, err := p.tryNext(); err == nil {
		t.Fatalf("%x came too early", b)
	}
	_ = p.c.SetReadDeadline(time.Now().Add(patience))
	select {
	case <-e.sent:
		t.Error("reported as sent")
	default:
	}
	p.hello(e)
	if u := p.next(); len(u) != untaggedLen+3 {
		t.Errorf("%x", u)
	}
	await(t, "Sent", e.sent)
}

// TestRTR: each kind of ready-to-receive opens the connection, and is no message.
func TestRTR(t *testing.T) {
	for name, rtr := range map[string][]byte{
		"Send":  untaggedHeader{last: true, op: opSend, msn: 1}.append(nil),
		"Write": taggedHeader{last: true, op: opWrite, stag: 1}.append(nil),
		"Read":  readRequest{sinkSTag: 1}.append(untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: 1}.append(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			req := linuxRequest()
			req.peerToPeer, req.rtrSend, req.rtrWrite, req.rtrRead = true, true, true, true
			p, e := dialRaw(t, Config{}, req, rdma.Options{Receives: receives(1, 10), ORD: 1})
			e.post(t, rdma.WorkRequest{Op: rdma.Send, Local: [][]byte{memory(3)}})
			p.write(p.fpdus(rtr))
			want := []opcode{opSend}
			switch name {
			case "Read":
				want = append(want, opReadResponse) // in any order
			case "Send":
				p.sendMSN++
			}
			for range want {
				u := p.next()
				if i := slices.Index(want, opcode(u[1]&15)); i >= 0 {
					want[i] = 99
				} else {
					t.Errorf("%x", u)
				}
			}
			p.hello(e)
		})
	}
}

// TestMarkersWanted: a peer that wants markers gets them, in messages of all kinds and sizes.
func TestMarkersWanted(t *testing.T) {
	for _, cfg := range []Config{{}, {CRC: CRCOff, MaxFPDU: 1000}} {
		req := linuxRequest()
		req.markers, req.ord = true, 4
		p, e := dialRaw(t, cfg, req, rdma.Options{Receives: receives(1, 10), IRD: 4, ORD: 1})
		p.hello(e)
		data := noise(3, 100_000)
		r := e.expose(t, data, rdma.RemoteRead)
		for i := range 20 {
			e.post(t, rdma.WorkRequest{Op: rdma.Send, Local: [][]byte{data[:i*77], data[:i]}})
		}
		e.post(t, rdma.WorkRequest{Op: rdma.Write, Local: [][]byte{data[:100], data[100:]}, Remote: rdma.Remote{Handle: 3}},
			rdma.WorkRequest{Op: rdma.Read, Local: [][]byte{memory(10)}, Remote: rdma.Remote{Handle: 4}})
		p.write(p.fpdus(readRequest{sinkSTag: 9, size: 100_000, sourceSTag: r.Handle, sourceTO: r.Offset}.append(
			untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: 1}.append(nil))))
		var stream, written, read []byte
		var kinds [8]int
		var b [4096]byte
		for len(written) < len(data) || len(read) < len(data) || kinds[opReadRequest] == 0 {
			n, err := p.c.Read(b[:])
			if err != nil {
				t.Fatal(err)
			}
			stream = append(stream, b[:n]...)
			if len(stream) < 200_000 {
				continue
			}
			written, read, kinds = nil, nil, [8]int{}
			for s := unmarkWhole(t, stream); len(s) > 0; {
				n := int(binary.BigEndian.Uint16(s))
				u := s[2 : 2+n]
				op := opcode(u[1] & 15)
				if u[0]&flagLast != 0 {
					kinds[op]++
				}
				switch op {
				case opWrite:
					written = append(written, u[taggedLen:]...)
				case opReadResponse:
					read = append(read, u[taggedLen:]...)
				}
				s = s[fpduLen(n):]
			}
		}
		if !bytes.Equal(written, data) || !bytes.Equal(read, data) || kinds != [8]int{opWrite: 1, opReadRequest: 1, opReadResponse: 1, opSend: 20} {
			t.Errorf("wrong data between the markers: %v", kinds)
		}
	}
}

// unmarkWhole is unmark for a stream that may end inside of an FPDU, which is left out.
func unmarkWhole(t *testing.T, stream []byte) []byte {
	t.Helper()
	whole, left := 0, 0
	for i := 0; i+4 <= len(stream); {
		if i%markerInterval == 0 {
			i += 4
			continue
		}
		if left == 0 {
			left = fpduLen(int(binary.BigEndian.Uint16(stream[i:])))
		}
		k := min(left, markerInterval-i%markerInterval, len(stream)-i)
		i += k
		if left -= k; left == 0 {
			whole = i
		}
	}
	return unmark(t, stream[:whole])
}

func TestListenErrors(t *testing.T) {
	p := newProvider(t, Config{})
	if _, err := p.Listen(context.Background(), "127.0.0.1"); err == nil || !strings.Contains(err.Error(), "port") {
		t.Error(err)
	}
	if p.Name() != "iwarp" {
		t.Error(p.Name())
	}
}
