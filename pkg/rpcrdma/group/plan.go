package group

import (
	"fmt"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// Bulk is the placement of one bulk item of an outgoing message. Lists are in order of position.
type Bulk struct {
	// Position and Length locate the item in the unreduced stream; ignored for NoItem.
	Position, Length int
	// Placement is SendBased or Explicit, or in a reply TooShort or NoItem, which leave the stream
	// unchanged.
	Placement wire.Placement
	// Segments is for Explicit: the peer's memory, or memory exposed to the peer, at least Length
	// bytes. Planner.Expose may supply it later.
	Segments []wire.Segment
}

// Limits are the limits of a group.
type Limits struct {
	// Transmissions is the peer's maximum. Gather is the provider's maximum of slices per
	// transmission, at least 2.
	Transmissions, Gather int
}

// FitError reports a message that does not fit a group.
type FitError struct {
	// Needed is the required number of transmissions, 0 if none suffices. Limit is the permitted
	// number.
	Needed, Limit int
	reason        string
}

func (e *FitError) Error() string {
	if e.Needed > 0 {
		return fmt.Sprintf("group: the message needs %d transmissions, at most %d are allowed", e.Needed, e.Limit)
	}
	return "group: the message fits no group of transmissions: " + e.reason
}

// Transmission is one Send of a group.
type Transmission struct {
	// Payload is its part of the payload stream, in bytes.
	Payload int
	// Gather is the whole message: header, payload stream, zeros, bulk data. It refers to the
	// memory of the RPC message, to the zeros given to Split, and to the memory given to Write.
	Gather [][]byte

	at, n      int // its slices in Planner.gather
	first      int // first target with bulk data
	header     int // length
	join, many int // index and number of the slices to join
	copied     int // joined bytes, if many > 0
}

// ContinueSize is the length of the header of a continuation.
const ContinueSize = wire.OptionSize + 12

// Planner makes the group of transmissions for an RPC message. It is reusable, and keeps references
// until Reset. The order of calls is Split, Expose if needed, Lay once for each attempt, Write.
type Planner struct {
	bulk    []Bulk
	zeros   []byte
	split   split.Splitter
	out     [][]byte // the payload stream
	payload int      // its length, including its round-up
	data    [][]byte // of all removed items
	ends    []int    // end of each item of bulk in data
	items   []int    // the SendBased ones of bulk

	head    *wire.Transmit
	op      wire.Operation
	gather  [][]byte
	group   []Transmission
	memory  int
	numbers []uint32 // of all SendBased items
	counts  []int    // numbers of each item
	segs    []wire.Segment
	scratch []byte
	search
}

// Reset drops all references.
func (p *Planner) Reset() {
	clear(p.out)
	clear(p.data)
	clear(p.gather)
	clear(p.group)
	clear(p.bulk)
	p.out, p.data, p.gather, p.group, p.bulk = p.out[:0], p.data[:0], p.gather[:0], p.group[:0], p.bulk[:0]
	p.zeros, p.split, p.head = nil, split.Splitter{}, nil
}

// Split begins the group for m. bulk are the items that may leave the payload stream, whether or
// not m already holds them as items. zeros are at least 4 zero bytes in memory that can be sent;
// more of them need fewer slices for padding. Split fails if an item is not at the position in
// bulk.
func (p *Planner) Split(m *oncrpc.Message, zeros []byte, bulk []Bulk) error {
	p.Reset()
	p.zeros = zeros
	p.bulk = append(p.bulk, bulk...)
	p.ends, p.items = p.ends[:0], p.items[:0]
	p.split.Reset(m, zeros)
	for i := range p.bulk {
		b := &p.bulk[i]
		if b.Placement == wire.SendBased || b.Placement == wire.Explicit {
			var ok bool
			at := len(p.data)
			if p.out, ok = p.split.Until(p.out, b.Position); ok && b.Position%4 == 0 && b.Length > 0 {
				p.data, ok = p.split.Take(p.data, b.Length)
			} else {
				ok = false
			}
			if !ok || b.Placement == wire.SendBased && len(p.data) == at {
				return fmt.Errorf("group: a bulk item of %d bytes is not at position %d of the message", b.Length, b.Position)
			}
		}
		if b.Placement == wire.SendBased {
			p.items = append(p.items, i)
		}
		p.ends = append(p.ends, len(p.data))
	}
	var ok bool
	if p.out, ok = p.split.Rest(p.out); !ok {
		return fmt.Errorf("group: an item's position is beyond the end of the message, or its data are missing")
	}
	p.payload = split.Length(p.out)
	if pad := xdr.Pad(p.payload); pad > 0 { // the round-up of a last item is missing
		p.out = append(p.out, zeros[:pad])
		p.payload += pad
	}
	return nil
}

// Data returns the data of item i of bulk, if it left the stream and the message has it.
func (p *Planner) Data(i int) [][]byte {
	at := 0
	if i > 0 {
		at = p.ends[i-1]
	}
	return p.data[at:p.ends[i]:p.ends[i]]
}

// Expose sets the segments of an Explicit item. p keeps segs until Reset.
func (p *Planner) Expose(i int, segs []wire.Segment) { p.bulk[i].Segments = segs }

// Lay lays the message out for a peer with receives of layout to. op is XmtReq or XmtResp. head has
// the Sets and ReplyBuffers of the first header; Lay sets its Items, Count and PayloadLength, and
// keeps it until Write. If the message does not fit, the error is a *FitError and head is
// unchanged.
//
// The group is as short as possible for bulk items in order, each at the beginning of a target and
// continued in the following targets. With very many unequal targets it may be longer. The payload
// stream is sent as early as possible.
func (p *Planner) Lay(to *Layout, op wire.Operation, head *wire.Transmit, lim Limits) error {
	p.op, p.head = op, head
	if err := p.find(to, p.firstSize(op, head), lim.Transmissions); err != nil {
		return err
	}
	p.place(to)
	p.memory = 0
	for i := range p.group {
		x := &p.group[i]
		x.limit(p.gather[x.at:x.at+x.n], lim.Gather)
		p.memory += x.header + x.copied
	}
	p.describe()
	return nil
}

// firstSize returns the length of the first header without the buffer segment numbers of items.
func (p *Planner) firstSize(op wire.Operation, head *wire.Transmit) int {
	p.scratch = head.Append(p.scratch[:0], op)
	n := wire.OptionSize + len(p.scratch)
	for i := range p.bulk {
		b := &p.bulk[i]
		n += 12
		switch b.Placement {
		case wire.SendBased:
			n += 8
		case wire.Explicit:
			n += 4 + wire.SegmentSize*len(p.used(b))
		}
	}
	return n
}

// used returns the segments of an item that have data, with their used lengths.
func (p *Planner) used(b *Bulk) []wire.Segment {
	p.segs = p.segs[:0]
	left := uint32(b.Length)
	for _, s := range b.Segments {
		if left == 0 {
			break
		}
		s.Length = min(s.Length, left)
		left -= s.Length
		p.segs = append(p.segs, s)
	}
	return p.segs
}

// describe sets the items of the header.
func (p *Planner) describe() {
	numbers, k := p.numbers, 0
	for i := range p.bulk {
		b := &p.bulk[i]
		position, size := uint32(b.Position), uint32(b.Length)
		switch b.Placement {
		case wire.SendBased:
			p.head.AddSendBased(position, size, 0, numbers[:p.counts[k]]...)
			numbers, k = numbers[p.counts[k]:], k+1
		case wire.Explicit:
			p.head.AddExplicit(position, size, p.used(b))
		case wire.TooShort:
			p.head.AddAbsent(position, size, wire.TooShort)
		default:
			p.head.AddAbsent(0, 0, wire.NoItem)
		}
	}
	p.head.Count, p.head.PayloadLength = uint32(len(p.group)), uint32(p.group[0].Payload)
}

// Transmissions returns the number of transmissions, after Lay.
func (p *Planner) Transmissions() int { return len(p.group) }

// Memory returns the memory that Write needs, in bytes.
func (p *Planner) Memory() int { return p.memory }

// Write writes the headers to mem, which must be memory that can be sent, and returns the
// transmissions in order. They are valid until Reset, Split or Lay. Call it once per Lay.
func (p *Planner) Write(mem []byte, xid wire.XID, credits wire.Credits) []Transmission {
	d := wire.Call
	if p.op == wire.XmtResp {
		d = wire.Reply
	}
	mem = mem[:0]
	for i := range p.group {
		x := &p.group[i]
		t, op := p.head, p.op
		if i > 0 {
			p.next.Number, p.next.Initial, p.next.PayloadLength = uint32(i), p.op, uint32(x.Payload)
			t, op = &p.next, wire.XmtCont
		}
		at := len(mem)
		mem = wire.BeginOption(mem, xid, credits, d, op)
		mem = wire.EndOption(t.Append(mem, op), at)
		x.Gather = p.gather[x.at : x.at+x.n : x.at+x.n]
		x.Gather[0] = mem[at:len(mem):len(mem)]
		if x.many == 0 {
			continue
		}
		at = len(mem)
		for _, s := range x.Gather[x.join : x.join+x.many] {
			mem = append(mem, s...)
		}
		x.Gather[x.join] = mem[at:len(mem):len(mem)]
		x.Gather = append(x.Gather[:x.join+1], x.Gather[x.join+x.many:]...)
	}
	return p.group
}
