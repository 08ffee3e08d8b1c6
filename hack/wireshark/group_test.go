package wireshark

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// groupFields are the fields of the working group's dialect alone.
var groupFields = []string{"limit", "type", "remaining", "wg_error", "wg_property"}

func groupVectors(t *testing.T) []vector {
	t.Helper()
	return vectorsOf(t, "v2-wg-headers.txt", 20)
}

// roce adds a Send as a packet of RoCE version 2: UDP, the base transport header of "RC SEND Only",
// and an invariant CRC that nobody checks.
func (c *pcap) roce(from int, msg []byte) {
	be16, be32 := binary.BigEndian.AppendUint16, binary.BigEndian.AppendUint32
	hosts := [2]uint32{0x0a000003, 0x0a000004}
	n := 12 + len(msg) + 4
	b := be16([]byte{0x45, 0}, uint16(20+8+n))
	b = append(b, 0, 0, 0x40, 0, 64, 17, 0, 0)
	b = be32(be32(b, hosts[from]), hosts[1-from])
	b = be16(be16(be16(be16(b, uint16(50000+from)), 4791), uint16(8+n)), 0)
	b = append(b, 0x04, 0x40, 0xff, 0xff)
	c.msn[from]++
	b = be32(be32(b, uint32(17+from)), c.msn[from])
	b = append(b, msg...)
	b = append(b, 0, 0, 0, 0)
	for _, v := range []uint32{0, 0, uint32(len(b)), uint32(len(b))} {
		c.le(v)
	}
	c.Write(b)
}

// showGroup returns the expected output for a message of the working group's dialect.
func showGroup(t *testing.T, msg []byte) shown {
	t.Helper()
	lim := wire.DefaultLimits
	lim.Version2, lim.V2 = true, wire.V2WorkingGroup
	var h wire.Header
	if err := h.Parse([][]byte{msg}, &lim); err != nil {
		t.Fatal(err)
	}
	s := shown{}
	s.hex("xid", uint32(h.XID))
	s.dec("version", h.Version)
	s.dec("limit", h.Limit)
	s.dec("type", binary.BigEndian.Uint32(msg[12:]))
	switch h.Procedure {
	case wire.Error:
		s.fault(&h)
		delete(s, "error")
		s.dec("wg_error", binary.BigEndian.Uint32(msg[16:]))
	case wire.Grant:
	case wire.Middle:
		s.dec("remaining", h.Remaining)
		s.bytes("payload", msg[h.Size:])
	case wire.ConnProp, wire.PropMiddle:
		s.dec("properties", uint32(len(h.Props.Set)))
		for _, v := range h.Props.Set {
			s.dec("wg_property", uint32(v.ID))
			s.dec("property.length", uint32(len(v.Value)))
			if n, ok := v.Uint32(); ok {
				s.dec("property.number", n)
			} else {
				s.bytes("property.value", v.Value)
			}
		}
	default:
		if h.Direction == wire.Call {
			s.hex("inv_handle", uint32(h.Invalidate))
		}
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
		if h.Chunks() && h.Procedure == wire.Msg {
			s.bytes("payload", msg[h.Size:])
		}
	}
	return s
}

// TestGroupFields has tshark dissect all vectors of the working group's dialect, over iWARP and
// over RoCE, and compares every field with the codec's result.
func TestGroupFields(t *testing.T) {
	carriers := map[string]func(c *pcap, from int, msg []byte){
		"iWARP": func(c *pcap, from int, msg []byte) { c.send(from, msg, 20) },
		"RoCE":  (*pcap).roce,
	}
	for name, send := range carriers {
		c := newPcap()
		for i, v := range groupVectors(t) {
			send(c, i%2, v.msg)
		}
		for i, got := range dissected(t, c, groupVectors(t)) {
			v := groupVectors(t)[i]
			if diff := cmp.Diff(showGroup(t, v.msg), got); diff != "" {
				t.Errorf("%s: %s: %s", name, v.name, diff)
			}
		}
	}
}

// TestGroupParts shows the last part of a message as bytes, since it is no whole RPC message, and
// the next message as such.
func TestGroupParts(t *testing.T) {
	call := groupVectors(t)[0].msg
	head, payload := call[:32], call[32:]
	first := append(wire.AppendMiddle(nil, 0x11, wire.Call, 20), payload[:20]...)
	c := newPcap()
	c.send(client, wire.AppendConnProp(nil, 1, 1, new(wire.Properties), false), 1<<15)
	c.send(client, first, 1<<15)
	c.send(client, bytes.Join([][]byte{head, payload[20:]}, nil), 1<<15)
	c.send(client, call, 1<<15)
	want := [][]string{{"RPC/RDMA 2", ""}, {"RPC/RDMA 2", ""}, {"RPC/RDMA 2", ""}, {"NFS", "100003"}}
	if diff := cmp.Diff(want, tshark(t, c, "_ws.col.Protocol", "rpc.program")); diff != "" {
		t.Error(diff)
	}
}

// TestRoundTripOverRoCE has the vectors of the round-trip dialect over RoCE.
func TestRoundTripOverRoCE(t *testing.T) {
	c := newPcap()
	for i, v := range vectors(t) {
		c.roce(i%2, whole(v))
	}
	lines := tshark(t, c, "rpcrdma2.proc", "rpcrdma2.malformed", "_ws.lua.text", "_ws.malformed")
	if len(lines) != len(vectors(t)) {
		t.Fatalf("%d messages are shown, %d sent", len(lines), len(vectors(t)))
	}
	for i, line := range lines {
		if line[0] == "" || line[1]+line[2]+line[3] != "" {
			t.Errorf("%s: %q", vectors(t)[i].name, line)
		}
	}
}
