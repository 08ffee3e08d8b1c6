package group

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// Bound returns how many transmissions the longest reply takes that a plan allows, when results are wanted so, and our own receives are
// like own: what a requester reserves and puts into ReplyBuffers. Items that it may be told are too short count as part of the payload
// stream as well, unless a target that they leave free makes up for that. The error is a *FitError if there are more than limit, or no
// number is enough. It ends what p was at.
func (p *Planner) Bound(own *Layout, plan *oncrpc.Plan, wants []Want, limit int) (int, error) {
	p.Reset()
	p.items = p.items[:0]
	p.payload = plan.MaxReply
	header := wire.OptionSize + 12 // three words besides the items
	least := own.Size
	for k := range own.Targets {
		least = min(least, own.target(k).Length)
	}
	for i := range plan.Results {
		n, w := plan.Results[i].Max, &wants[i]
		if n == 0 || w.Placement == 0 {
			header += 12
			continue
		}
		short := min(int(w.MinLength)-1, n)
		p.payload -= xdr.Round(n)
		if w.Placement == wire.Explicit {
			header += 16 + wire.SegmentSize*len(w.Segments)
			p.payload += xdr.Round(max(short, 0))
			continue
		}
		if short > least {
			p.payload += xdr.Round(short)
		}
		header += 20
		p.items = append(p.items, len(p.bulk))
		p.bulk = append(p.bulk, Bulk{Length: n, Placement: wire.SendBased})
	}
	p.payload = max(p.payload, 0)
	if err := p.find(own, header, limit); err != nil {
		return 0, err
	}
	return len(p.group), nil
}

// Capacity bounds the unreduced reply to a request with header t, in bytes, when the requester's receives are like to, and a reply may have
// so many transmissions. A reply of that length fits only if it wastes nothing.
func Capacity(to *Layout, t *wire.Transmit, transmissions int) int {
	n := max(transmissions, 1) * max(to.Size-ContinueSize, 0)
	for i := range t.Sets {
		results := t.Results(&t.Sets[i])
		for j := range results {
			n += int(min(wire.Length(t.ResultSegments(&results[j])), wire.MaxBufferSize))
		}
	}
	return n
}

// Restrict lowers the longest that results of a plan may be to what the directions in t have memory for. Like Answer it lets the directions of a set
// belong in order to the results of its range.
func Restrict(t *wire.Transmit, results []oncrpc.Result) {
	k := 0
	for i := range t.Sets {
		set := &t.Sets[i]
		items := t.Results(set)
		for k < len(results) && int64(results[k].Begin) < int64(set.Begin) {
			k++
		}
		for j := range items {
			if k == len(results) || int64(results[k].Begin) >= int64(set.End) {
				break
			}
			it, r := &items[j], &results[k]
			room := int64(min(wire.Length(t.ResultSegments(it)), wire.MaxBufferSize))
			switch it.Placement {
			case wire.Explicit:
				room = max(room, int64(it.MinLength)-1)
			case wire.BySize:
				room = max(room, int64(it.MinLength)-1, int64(it.Threshold)-1)
			default:
				room = int64(r.Max)
			}
			r.Max = int(min(int64(r.Max), room))
			k++
		}
	}
}
