// Package wireshark has a dissector of RPC-over-RDMA version 2, in both dialects, for Wireshark,
// and its tests.
package wireshark

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/test/prereq"
)

type vector struct {
	name string
	size int
	msg  []byte
}

// vectors returns the codec's test messages.
func vectors(t *testing.T) []vector {
	t.Helper()
	return vectorsOf(t, "v2-headers.txt", 30)
}

func vectorsOf(t *testing.T, file string, least int) (all []vector) {
	t.Helper()
	b, err := os.ReadFile("../../pkg/rpcrdma/wire/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var v vector
		if n, _ := fmt.Sscanf(line, "= %s %d", &v.name, &v.size); n == 2 {
			all = append(all, v)
			continue
		}
		text, _, _ := strings.Cut(line, "  ")
		words, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if len(all) > 0 {
			all[len(all)-1].msg = append(all[len(all)-1].msg, words...)
		}
	}
	if len(all) < least {
		t.Fatalf("only %d vectors", len(all))
	}
	return all
}

// pcap is a capture of one iWARP connection.
type pcap struct {
	bytes.Buffer
	seq [2]uint32
	msn [2]uint32
}

const (
	client = 0
	server = 1
)

// newPcap begins a capture with the exchange of MPA frames (RFC 5044 section 7.1), with CRCs.
func newPcap() *pcap {
	c := &pcap{seq: [2]uint32{1000, 2000}}
	for _, v := range []uint32{0xa1b2c3d4, 2 | 4<<16, 0, 0, 1 << 16, 101} { // version 2.4, raw IP
		c.le(v)
	}
	c.segment(client, []byte("MPA ID Req Frame\x40\x01\x00\x00"))
	c.segment(server, []byte("MPA ID Rep Frame\x40\x01\x00\x00"))
	return c
}

func (c *pcap) le(v uint32) { c.Write(binary.LittleEndian.AppendUint32(nil, v)) }

// segment adds a TCP segment from a side.
func (c *pcap) segment(from int, data []byte) {
	be16, be32 := binary.BigEndian.AppendUint16, binary.BigEndian.AppendUint32
	ports, hosts := [2]uint16{40000, 20049}, [2]uint32{0x0a000001, 0x0a000002}
	to := 1 - from
	b := be16([]byte{0x45, 0}, uint16(40+len(data)))
	b = append(b, 0, 0, 0x40, 0, 64, 6, 0, 0)
	b = be32(be32(b, hosts[from]), hosts[to])
	b = be16(be16(b, ports[from]), ports[to])
	b = be32(be32(b, c.seq[from]), c.seq[to])
	b = append(b, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0)
	b = append(b, data...)
	c.seq[from] += uint32(len(data))
	for _, v := range []uint32{0, 0, uint32(len(b)), uint32(len(b))} {
		c.le(v)
	}
	c.Write(b)
}

// send adds a Send, in FPDUs of at most most bytes (RFC 5041 section 4, RFC 5040 section 4).
func (c *pcap) send(from int, msg []byte, most int) {
	be32 := binary.BigEndian.AppendUint32
	c.msn[from]++
	for at := 0; at == 0 || at < len(msg); at += most {
		part := msg[at:min(at+most, len(msg))]
		control := byte(0x01)
		if at+most >= len(msg) {
			control = 0x41
		}
		b := append(binary.BigEndian.AppendUint16(nil, uint16(18+len(part))), control, 0x43)
		b = be32(be32(be32(be32(b, 0), 0), c.msn[from]), uint32(at))
		b = append(b, part...)
		b = append(b, make([]byte, -len(b)&3)...)
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
		c.segment(from, b)
	}
}

// write adds an RDMA Write.
func (c *pcap) write(from int, data []byte) {
	b := append(binary.BigEndian.AppendUint16(nil, uint16(14+len(data))), 0xc1, 0x40)
	b = append(b, make([]byte, 12)...)
	b = append(b, data...)
	b = append(b, make([]byte, -len(b)&3)...)
	c.segment(from, binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
}

// tshark prints fields of the messages in a capture, a line for each.
func tshark(t *testing.T, c *pcap, fields ...string) [][]string {
	t.Helper()
	path, err := exec.LookPath("tshark")
	if err != nil {
		prereq.Missing(t, "the dissector is tested by tshark: %v", err)
	}
	file := filepath.Join(t.TempDir(), "v2.pcap")
	if err := os.WriteFile(file, c.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("rpcrdma2.lua")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-n", "-X", "lua_script:" + script, "-r", file, "-Y", "rpcrdma2", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,", "-E", "separator=|"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "LC_ALL=C")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || bytes.Contains(stderr.Bytes(), []byte("Lua")) {
		t.Fatalf("tshark: %v\n%s", err, stderr.String())
	}
	var lines [][]string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Split(strings.TrimSuffix(line, "\n"), "|"))
	}
	return lines
}

// shown is the expected output of the dissector: values of fields, in order.
type shown map[string][]string

func (s shown) dec(name string, v ...uint32) {
	for _, v := range v {
		s[name] = append(s[name], fmt.Sprint(v))
	}
}

func (s shown) hex(name string, v ...uint32) {
	for _, v := range v {
		s[name] = append(s[name], fmt.Sprintf("0x%08x", v))
	}
}

func (s shown) bytes(name string, b []byte) {
	if len(b) > 0 {
		s[name] = append(s[name], hex.EncodeToString(b))
	}
}

func (s shown) segments(segs []wire.Segment) {
	for _, g := range segs {
		s.hex("handle", uint32(g.Handle))
		s.dec("length", g.Length)
		s["offset"] = append(s["offset"], fmt.Sprintf("0x%016x", g.Offset))
	}
}

// show returns the expected output for a message.
func show(t *testing.T, msg []byte) shown {
	t.Helper()
	lim := wire.DefaultLimits
	lim.Version2 = true
	var h wire.Header
	if err := h.Parse([][]byte{msg}, &lim); err != nil {
		t.Fatal(err)
	}
	s := shown{}
	s.hex("xid", uint32(h.XID))
	s.dec("version", h.Version)
	s.dec("credit", uint32(h.Credits))
	s.dec("proc", binary.BigEndian.Uint32(msg[12:]))
	if h.Operation != 0 {
		s.dec("direction", uint32(h.Direction))
		s.dec("operation", uint32(h.Operation))
		s.dec("optinfo.length", uint32(h.Size-wire.OptionSize))
	}
	rest := msg[h.Size:]
	switch h.Procedure {
	case wire.Msg, wire.NoMsg:
		s.dec("direction", uint32(h.Direction))
		s.hex("inv_handle", uint32(h.Invalidate))
		for _, r := range h.Reads {
			s.dec("read.position", uint32(r.Position))
			s.segments([]wire.Segment{r.Segment})
		}
		for i := range h.Writes() {
			s.dec("write.segments", uint32(len(h.Write(i))))
			s.segments(h.Write(i))
		}
		if h.HasReply {
			s.dec("reply.segments", uint32(len(h.Reply())))
			s.segments(h.Reply())
		}
		if h.Chunks() {
			s.bytes("payload", rest)
		}
	case wire.Error:
		s.fault(&h)
	case wire.Optional:
		s.transmit(&h, rest)
	default:
		s.properties(t, &h)
	}
	return s
}

func (s shown) fault(h *wire.Header) {
	s.dec("error", uint32(h.Code))
	switch h.Code {
	case wire.ErrVers:
		s.dec("error.low", h.Low)
		s.dec("error.high", h.High)
	case wire.ReadChunks, wire.WriteChunks, wire.Segments:
		s.dec("error.most", h.Max)
	case wire.WriteResource:
		s.dec("error.index", h.Index)
		s.dec("error.needed", h.Needed)
	case wire.ReplyResource:
		s.dec("error.needed", h.Needed)
	}
}

func (s shown) properties(t *testing.T, h *wire.Header) {
	t.Helper()
	s.hex("property.fixed", h.Props.Fixed...)
	s.hex("property.done", h.Props.Done...)
	s.hex("property.rejected", h.Props.Rejected...)
	s.dec("properties", uint32(len(h.Props.Set)))
	for _, v := range h.Props.Set {
		s.dec("property", uint32(v.ID))
		s.dec("property.length", uint32(len(v.Value)))
		n, number := v.Uint32()
		switch {
		case v.ID == wire.ReceiveBufferStructure && len(v.Value) > 0:
			var b wire.BufferStructure
			if err := b.Parse(v.Value); err != nil {
				t.Fatal(err)
			}
			s.dec("buffer.length", b.Length)
			for _, g := range b.Groups {
				s.dec("buffer.count", g.Count)
				s.dec("buffer.segment", g.Length)
				s.dec("buffer.align", g.Align)
				s.hex("buffer.flags", g.Flags)
			}
		case number && v.ID.Known():
			s.dec("property.number", n)
		default:
			s.bytes("property.value", v.Value)
		}
	}
}

func (s shown) transmit(h *wire.Header, rest []byte) {
	x := &h.Transmit
	for i := range x.Items {
		it := &x.Items[i]
		s.dec("item.position", it.Position)
		s.dec("item.length", it.Length)
		s.dec("item.placement", uint32(it.Placement))
		s.segments(x.Segments(it))
		if it.Placement == wire.SendBased {
			s.dec("item.offset", it.Offset)
			s.dec("item.number", x.Numbers(it)...)
		}
	}
	for i := range x.Sets {
		s.dec("set.begin", x.Sets[i].Begin)
		s.dec("set.end", x.Sets[i].End)
		results := x.Results(&x.Sets[i])
		for k := range results {
			it := &results[k]
			s.dec("result.least", it.MinLength)
			s.dec("result.placement", uint32(it.Placement))
			if it.Placement == wire.BySize {
				s.dec("result.threshold", it.Threshold)
			}
			s.segments(x.ResultSegments(it))
		}
	}
	switch h.Operation {
	case wire.ReptErr:
		s.report(&x.Report)
		return
	case wire.XmtCont:
		s.dec("number", x.Number)
		s.dec("initial", uint32(x.Initial))
		s.bytes("payload", rest)
	case wire.XmtReq:
		s.dec("count", x.Count)
		s.dec("rsbuf", x.ReplyBuffers)
	default:
		s.dec("count", x.Count)
	}
	s.dec("pslen", x.PayloadLength)
}

func (s shown) report(r *wire.Report) {
	id := func(name string, m wire.MessageID) {
		s.hex("report."+name+".xid", uint32(m.XID))
		s.dec("report."+name+".direction", uint32(m.Direction))
		s.dec("report."+name+".number", m.Sequence)
	}
	id("bad", r.Bad)
	if r.HasLead {
		id("lead", r.Lead)
	}
	s.dec("report", uint32(r.Code))
	switch r.Code {
	case wire.BadContinuation:
	case wire.BadOffset, wire.BadBuffer, wire.BadPayload:
		s.dec("report.found", r.Current)
		s.dec("report.min", r.Min)
		s.dec("report.max", r.Max)
	default:
		s.dec("report.expected", r.Expected)
		s.dec("report.found", r.Current)
	}
}

// names returns all fields of the dissector.
func names(t *testing.T) (all []string) {
	t.Helper()
	b, err := os.ReadFile("rpcrdma2.lua")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		for _, kind := range []string{"dec(", "hex(", "bytes("} {
			if after, ok := strings.CutPrefix(line, kind+`"`); ok {
				name, _, _ := strings.Cut(after, `"`)
				all = append(all, name)
			}
		}
	}
	return append(all, "offset")
}

// dissected has tshark dissect the messages of vectors in a capture, and returns the fields that it
// shows of each. A complaint of tshark fails the test.
func dissected(t *testing.T, c *pcap, all []vector) []shown {
	t.Helper()
	complaints, own := []string{"_ws.malformed", "_ws.lua.text", "rpcrdma2.malformed"}, names(t)
	fields := complaints
	for _, n := range own {
		fields = append(fields, "rpcrdma2."+n)
	}
	lines := tshark(t, c, fields...)
	if len(lines) != len(all) {
		t.Fatalf("%d messages are shown, %d sent", len(lines), len(all))
	}
	result := make([]shown, len(lines))
	for i, line := range lines {
		if said := line[:len(complaints)]; strings.Join(said, "") != "" {
			t.Errorf("%s: tshark complains: %q", all[i].name, said)
		}
		result[i] = shown{}
		for k, n := range own {
			if text := line[len(complaints)+k]; text != "" {
				result[i][n] = strings.Split(text, ",")
			}
		}
	}
	return result
}

// whole adds the payload that a header announces and the vectors leave out.
func whole(v vector) []byte {
	msg := slices.Clone(v.msg)
	if n := len(msg); n == v.size && binary.BigEndian.Uint32(msg[12:]) == uint32(wire.Optional) {
		if op := wire.Operation(binary.BigEndian.Uint32(msg[20:])); op == wire.XmtReq || op == wire.XmtResp {
			msg = append(msg, bytes.Repeat([]byte{0xab}, int(binary.BigEndian.Uint32(msg[n-4:])))...)
		}
	}
	return msg
}

// TestFields has tshark dissect all vectors, each in one FPDU and in several, and compares every
// field with the codec's result.
func TestFields(t *testing.T) {
	seen := shown{}
	for _, most := range []int{1 << 15, 20} {
		c := newPcap()
		for i, v := range vectors(t) {
			c.send(i%2, whole(v), most)
		}
		for i, got := range dissected(t, c, vectors(t)) {
			v := vectors(t)[i]
			want := show(t, v.msg)
			if msg := whole(v); len(msg) > len(v.msg) {
				delete(want, "payload")
				want.bytes("payload", msg[v.size:])
			}
			maps.Copy(seen, got)
			if v.name == "xmtreq-smallest" {
				delete(want, "payload")
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", v.name, diff)
			}
		}
	}
	for _, n := range names(t) {
		if seen[n] == nil && n != "optinfo.rest" && n != "data" && !slices.Contains(groupFields, n) {
			t.Errorf("no message has %s", n)
		}
	}
}

// TestCut cuts a message's header short at every byte: tshark reports each.
func TestCut(t *testing.T) {
	c := newPcap()
	var want []string
	for _, v := range vectors(t) {
		for n := 20; n < v.size; n += 3 {
			c.send(client, v.msg[:n], 1<<15)
			want = append(want, fmt.Sprintf("%s cut to %d bytes", v.name, n))
		}
	}
	lines := tshark(t, c, "rpcrdma2.malformed", "_ws.lua.text", "_ws.expert.message")
	if len(lines) != len(want) {
		t.Fatalf("%d messages are shown, %d sent", len(lines), len(want))
	}
	for i, line := range lines {
		if line[0] == "" || line[1] != "" || !strings.Contains(line[2], "bytes are needed") {
			t.Errorf("%s: %q", want[i], line)
		}
	}
}

// TestPayload checks the bytes behind headers: whole RPC messages are dissected, other bytes are
// shown.
func TestPayload(t *testing.T) {
	all := map[string][]byte{}
	for _, v := range vectors(t) {
		all[v.name] = v.msg
	}
	c := newPcap()
	for i, name := range []string{"msg-call", "msg-reply", "xmtreq-smallest"} {
		c.send(i%2, all[name], 1<<15)
	}
	// A WRITE of 64 KiB into a target at byte 4096.
	write := slices.Concat(all["xmtreq-write"], bytes.Repeat([]byte{0xcd}, 96))
	write = append(write, make([]byte, 4096-len(write))...)
	c.send(client, append(write, bytes.Repeat([]byte{0xef}, 65536)...), 16384)
	// optinfo with unknown entries.
	tail := slices.Clone(all["xmtcont"][:40])
	tail[27] += 5
	c.send(client, append(append(tail, "later\x00\x00\x00"...), all["xmtcont"][40:]...), 1<<15)

	lines := tshark(t, c, "_ws.col.Protocol", "rpc.msgtyp", "rpc.program", "rpcrdma2.payload", "rpcrdma2.data", "rpcrdma2.optinfo.rest", "rpcrdma2.malformed", "_ws.malformed")
	none := ""
	want := [][]string{
		{"NFS", "0", "100003", none, none, none, none, none},
		{"NFS", "1", "100003", none, none, none, none, none},
		{"NFS", "0", "100003", none, none, none, none, none},
		{"RPC/RDMA 2", none, none, strings.Repeat("cd", 96), strings.Repeat("00", 4096-168) + strings.Repeat("ef", 65536), none, none, none},
		{"RPC/RDMA 2", none, none, "0011223344556677", none, hex.EncodeToString([]byte("later")), none, none},
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

// TestOthers has messages that are not of version 2: they stay with Wireshark's own dissectors.
func TestOthers(t *testing.T) {
	v := vectors(t)[0]
	one := slices.Clone(v.msg)
	one[7] = 1
	c := newPcap()
	c.send(client, one, 1<<15)
	c.write(client, v.msg) // data that look like a message
	c.send(client, v.msg[:19], 1<<15)
	other := slices.Clone(v.msg)
	other[15] = 14 // no procedure
	c.send(client, other, 1<<15)
	if lines := tshark(t, c, "frame.number"); lines != nil {
		t.Errorf("frames %v are shown as version 2", lines)
	}
	c.send(client, v.msg, 1<<15)
	if lines := tshark(t, c, "rpcrdma2.xid"); len(lines) != 1 || lines[0][0] != "0x00000011" {
		t.Errorf("%v", lines)
	}
}
