package group

import (
	"bytes"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

var zeros = make([]byte, 4096)

var limits = func() wire.Limits {
	l := wire.DefaultLimits
	l.Version2 = true
	return l
}()

// lay makes a layout from lengths; negative ones are targets.
func lay(t testing.TB, lengths ...int) *Layout {
	t.Helper()
	var segs []Segment
	for _, n := range lengths {
		segs = append(segs, Segment{Length: max(n, -n), Target: n < 0})
	}
	l, err := NewLayout(segs...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// typical is 4 KiB, and a target of 64 KiB.
func typical(t testing.TB) *Layout { return lay(t, 4096, -65536) }

// text returns n nonzero bytes that identify their positions.
func text(n, salt int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(1 + (i*7+i>>8+salt*31)%255)
	}
	return b
}

// rpc returns a message with payload bytes of stream and items of the given lengths inside it.
// taken selects whether the items have been removed from its stream.
func rpc(payload int, items []int, taken bool) (*oncrpc.Message, []Bulk) {
	m := &oncrpc.Message{}
	var bulk []Bulk
	var whole []byte
	part := payload / (len(items) + 1) &^ 3
	for i, n := range items {
		whole = append(whole, text(part, i)...)
		payload -= part
		bulk = append(bulk, Bulk{Position: len(whole), Length: n, Placement: wire.SendBased})
		whole = append(append(whole, text(n, 100+i)...), make([]byte, xdr.Pad(n))...)
	}
	whole = append(whole, text(payload, 99)...)
	m.Stream = [][]byte{whole}
	if taken {
		var found []oncrpc.Found
		for _, b := range bulk {
			found = append(found, oncrpc.Found{State: oncrpc.Inline, Position: b.Position, Length: b.Length})
		}
		if err := m.Cut(found); err != nil {
			panic(err)
		}
	}
	return m, bulk
}

func join(list [][]byte) []byte { return bytes.Join(list, nil) }

type receive struct {
	segs [][]byte
	n    int
	hdr  wire.Header
}

// arrive scatters a Send over a receive buffer.
func arrive(l *Layout, send []byte) (*receive, error) {
	r := &receive{n: len(send)}
	if len(send) > l.Size {
		return nil, fmt.Errorf("a Send has %d bytes, the receive %d", len(send), l.Size)
	}
	if err := r.hdr.Parse([][]byte{send}, &limits); err != nil {
		return nil, err
	}
	buf := bytes.Repeat([]byte{0xEE}, l.Size)
	copy(buf, send)
	for _, s := range l.Segments {
		r.segs = append(r.segs, bytes.Clone(buf[s.At:s.At+s.Length]))
	}
	var message [][]byte
	left := len(send)
	for _, s := range r.segs {
		k := min(left, len(s))
		message, left = append(message, s[:k]), left-k
	}
	return r, r.hdr.Parse(message, &limits)
}

// carry sends a group to an assembler and returns the received message. It checks the properties of
// all groups.
func carry(l *Layout, group []Transmission, most, gather int) (*oncrpc.Message, *Assembler, error) {
	if len(group) > most {
		return nil, nil, fmt.Errorf("%d transmissions, %d are allowed", len(group), most)
	}
	a := NewAssembler(l)
	var all []*receive
	for i, x := range group {
		if len(x.Gather) > gather {
			return nil, nil, fmt.Errorf("%d slices, %d are allowed", len(x.Gather), gather)
		}
		r, err := arrive(l, join(x.Gather))
		if err != nil {
			return nil, nil, err
		}
		all = append(all, r)
		want := More
		if i == len(group)-1 {
			want = Whole
		}
		if got := a.Add(&r.hdr, r.segs, r.n, nil, most); got != want {
			return nil, nil, fmt.Errorf("transmission %d of %d: outcome %d, %+v", i, len(group), got, *a.Report())
		}
	}
	if err := checkPadding(a, all); err != nil {
		return nil, nil, err
	}
	m := &oncrpc.Message{}
	a.Message(m)
	return m, a, nil
}

// checkPadding checks that every item begins at a target, and that all other bytes (neither header,
// payload nor data) are zero.
func checkPadding(a *Assembler, all []*receive) error {
	l := a.layout
	t := &a.lead.Transmit
	used := make([][]bool, len(all))
	for i, r := range all {
		used[i] = make([]bool, l.Size)
		for k := range r.hdr.Size + int(r.hdr.Transmit.PayloadLength) {
			used[i][k] = true
		}
	}
	for i := range t.Items {
		it := &t.Items[i]
		if it.Placement != wire.SendBased {
			continue
		}
		if it.Offset != 0 {
			return fmt.Errorf("item %d begins at %d in a target", i, it.Offset)
		}
		left := int(it.Length)
		for _, n := range t.Numbers(it) {
			seg, k := l.segment(n)
			for at := range min(left, seg.Length) {
				used[k][seg.At+at] = true
			}
			left -= min(left, seg.Length)
		}
	}
	for i, r := range all {
		whole := join(r.segs)
		for k := range r.n {
			if !used[i][k] && whole[k] != 0 {
				return fmt.Errorf("transmission %d has %#x at byte %d, which is padding", i, whole[k], k)
			}
		}
	}
	return nil
}

func same(sent, got *oncrpc.Message) error {
	a, b := join(sent.Gather(nil)), join(got.Gather(nil))
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	if !bytes.Equal(a, b) {
		return fmt.Errorf("another message arrives: %d bytes, %d were sent", len(b), len(a))
	}
	return nil
}

// transport lays a message out and carries it. It returns the number of transmissions.
func transport(p *Planner, l *Layout, m *oncrpc.Message, bulk []Bulk, lim Limits) (int, error) {
	if err := p.Split(m, zeros, bulk); err != nil {
		return 0, err
	}
	var head wire.Transmit
	if err := p.Lay(l, wire.XmtReq, &head, lim); err != nil {
		return 0, err
	}
	mem := make([]byte, p.Memory())
	group := p.Write(mem, 7, 1)
	if p.Transmissions() != len(group) {
		return 0, fmt.Errorf("%d transmissions of %d", len(group), p.Transmissions())
	}
	got, _, err := carry(l, group, lim.Transmissions, lim.Gather)
	if err != nil {
		return 0, err
	}
	return len(group), same(m, got)
}
