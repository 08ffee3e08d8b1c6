package group

import (
	"fmt"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// Bulk says what becomes of one bulk item of a message that is to be sent. The items of a list are in order of position.
type Bulk struct {
	// Position and Length are the item's place in the unreduced stream; for NoItem they do not count.
	Position, Length int
	// Placement is SendBased or Explicit, or in a reply TooShort or NoItem. The last two leave the stream as it is.
	Placement wire.Placement
	// Segments are the peer's, or are open to the peer, for Explicit: Length bytes at least. They may be given later, by Planner.Expose.
	Segments []wire.Segment
}

// Limits are those of a group.
type Limits struct {
	// Transmissions is the most that the peer takes, Gather the most slices that the provider gathers for one, 2 at least.
	Transmissions, Gather int
}

// FitError says that a message does not fit a group.
type FitError struct {
	// Needed is how many transmissions it takes, 0 if no number is enough. Limit is how many were allowed.
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
	// Payload is how much of the payload stream it carries, in bytes.
	Payload int
	// Gather is the whole message: header, payload stream, zeros, bulk data. It refers to the memory of the RPC message, to the zeros given
	// to Split, and to the memory given to Write.
	Gather [][]byte

	at, n      int // its slices in Planner.gather
	first      int // the target that bulk data begin at
	header     int // length
	join, many int // so many of the slices from join on become one
	copied     int // what they have together, if many > 0
}

// ContinueSize is the length of the header of a continuation.
const ContinueSize = wire.OptionSize + 12

// Planner makes the group of transmissions that carries an RPC message. It is used again for the next one, and keeps what it refers to
// until Reset. The order of calls is Split, Expose where it is needed, Lay as often as there are ways to try, Write.
type Planner struct {
	bulk    []Bulk
	zeros   []byte
	split   split.Splitter
	out     [][]byte // the payload stream
	payload int      // its length, with its round-up
	data    [][]byte // of all items that are taken out
	ends    []int    // where in data each item of bulk ends
	items   []int    // those of bulk that are SendBased

	head    *wire.Transmit
	op      wire.Operation
	gather  [][]byte
	group   []Transmission
	memory  int
	numbers []uint32 // of all SendBased items
	counts  []int    // how many each of items has
	segs    []wire.Segment
	scratch []byte
	search
}

// Reset lets go of everything that p refers to.
func (p *Planner) Reset() {
	clear(p.out)
	clear(p.data)
	clear(p.gather)
	clear(p.group)
	clear(p.bulk)
	p.out, p.data, p.gather, p.group, p.bulk = p.out[:0], p.data[:0], p.gather[:0], p.group[:0], p.bulk[:0]
	p.zeros, p.split, p.head = nil, split.Splitter{}, nil
}

// Split begins the group for m, of which bulk are items that may leave the payload stream, whether m has them as items or not. zeros are
// zero bytes in memory that can be sent, 4 at least; the more there are, the fewer slices padding needs.
// It fails if an item is not where bulk says.
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

// Data returns the data of item i of the list given to Split, if it was taken out and the message has them.
func (p *Planner) Data(i int) [][]byte {
	at := 0
	if i > 0 {
		at = p.ends[i-1]
	}
	return p.data[at:p.ends[i]:p.ends[i]]
}

// Expose gives the segments of an Explicit item, which p keeps until Reset.
func (p *Planner) Expose(i int, segs []wire.Segment) { p.bulk[i].Segments = segs }

// Lay lays the message out for a peer whose receives are like to. op is XmtReq or XmtResp, and head has what the first header says
// besides: Sets and ReplyBuffers. Lay fills in its Items, Count and PayloadLength, and keeps it until Write. When the message does not
// fit, the error is a *FitError, and head stays as it was.
//
// The group is as short as can be, for bulk items that are laid in their order, each at the beginning of a target, and on through
// the targets that follow; a layout of very many unequal targets may cost it some more. The payload stream comes as early as there is room for it.
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

// firstSize is the length of the first header without the buffer segment numbers of items.
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

// used returns those of an item's segments that have data in them, with the lengths that they have.
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

// describe puts the items into the header.
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

// Transmissions returns how many transmissions the group has, after Lay.
func (p *Planner) Transmissions() int { return len(p.group) }

// Memory returns how much memory Write needs, in bytes.
func (p *Planner) Memory() int { return p.memory }

// Write writes the headers to mem, which is memory that can be sent, and returns the transmissions in order. They last until Reset, Split
// or Lay. It is called once for each Lay.
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
