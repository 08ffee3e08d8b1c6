package group

import (
	"fmt"
	"math"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Allowed is table 2 of rtrext (section 7.4): whether a reply may say got of a result for which the request asked, and whether memory that
// was exposed for it must be revoked. After got SendBased there is none that the peer has used; what was exposed has to be revoked
// nevertheless.
func Allowed(asked, got wire.Placement) (valid, deregister bool) {
	switch asked {
	case wire.Explicit:
		return got == wire.Explicit || got == wire.TooShort || got == wire.NoItem, true
	case wire.SendBased:
		return got == wire.SendBased || got == wire.TooShort || got == wire.NoItem, false
	case wire.Choice, wire.BySize:
		return got == wire.Explicit || got == wire.SendBased || got == wire.TooShort || got == wire.NoItem, got != wire.SendBased
	}
	return false, false
}

// Want is how a requester wants a result.
type Want struct {
	// Placement is one of Explicit, SendBased, Choice and BySize; 0 means inline.
	Placement wire.Placement
	// MinLength is the length in bytes of the shortest result that is to be placed. Threshold is that of BySize.
	MinLength, Threshold uint32
	// Segments is the memory exposed for it, for all but SendBased.
	Segments []wire.Segment
}

// Direct adds to t, a request's header, directions for all results of a plan: wants[i] is what is wanted of results[i]. So the items of the
// reply's header belong to results one by one. Results of the same range of the request make a set. It adds nothing if everything is wanted inline, and
// fails if ranges overlap or are not in order.
func Direct(t *wire.Transmit, results []oncrpc.Result, wants []Want) error {
	for i := range results {
		r := &results[i]
		if r.Begin < 0 || r.End < r.Begin || int64(r.End) > math.MaxUint32 || i > 0 && !together(r, &results[i-1]) && r.Begin < results[i-1].End {
			return fmt.Errorf("group: result %d is of bytes %d to %d of the call, must begin behind those of the one before", i, r.Begin, r.End)
		}
	}
	directed := false
	for i := range results {
		directed = directed || wants[i].Placement != 0
	}
	for i := 0; directed && i < len(results); i++ {
		r, w := &results[i], wants[i]
		if i == 0 || !together(r, &results[i-1]) {
			t.AddSet(uint32(r.Begin), uint32(r.End))
		}
		if w.Placement == 0 {
			w = Want{Placement: wire.SendBased, MinLength: math.MaxUint32} // whatever comes is too short
		}
		t.AddResult(w.MinLength, w.Placement, w.Threshold, w.Segments)
	}
	return nil
}

func together(a, b *oncrpc.Result) bool { return a.Begin == b.Begin && a.End == b.End }

// Check holds the items of a reply's header against what the request directed: as many, each of a kind that table 2 allows, and Explicit
// ones in the beginning of the memory that was offered for them.
func Check(asked, reply *wire.Transmit) error {
	k := 0
	for i := range asked.Sets {
		results := asked.Results(&asked.Sets[i])
		for j := range results {
			if k == len(reply.Items) {
				return fmt.Errorf("group: the reply tells of %d results, the request directs more", k)
			}
			if err := checkResult(asked, &results[j], reply, &reply.Items[k]); err != nil {
				return fmt.Errorf("group: result %d: %w", k, err)
			}
			k++
		}
	}
	if k < len(reply.Items) {
		return fmt.Errorf("group: the reply tells of %d results, the request directs %d", len(reply.Items), k)
	}
	return nil
}

func checkResult(asked *wire.Transmit, r *wire.ResultItem, reply *wire.Transmit, it *wire.Item) error {
	if valid, _ := Allowed(r.Placement, it.Placement); !valid {
		return fmt.Errorf("%v was directed, the reply says %v", r.Placement, it.Placement)
	}
	if it.Placement != wire.Explicit {
		return nil
	}
	offered, used := asked.ResultSegments(r), reply.Segments(it)
	left, full := it.Length, true
	for i, s := range used {
		switch {
		case i == len(offered):
			return fmt.Errorf("it is in %d segments, %d were offered", len(used), len(offered))
		case s.Handle != offered[i].Handle || s.Offset != offered[i].Offset:
			return fmt.Errorf("segment %d is another one than was offered", i)
		case s.Length > offered[i].Length || s.Length > left:
			return fmt.Errorf("segment %d has %d bytes, %d were offered, and the item has %d more", i, s.Length, offered[i].Length, left)
		case s.Length > 0 && !full:
			return fmt.Errorf("segment %d has data, the one before is not full", i)
		}
		full = s.Length == offered[i].Length
		left -= s.Length
	}
	if left > 0 {
		return fmt.Errorf("it has %d bytes, its segments %d", it.Length, it.Length-left)
	}
	return nil
}

// RoomError says that a result is longer than the memory in which the request wants it.
type RoomError struct {
	// Index is that of the result among those that the request directs, from 0. Needed is its length in bytes, Room the memory's.
	Index, Needed, Room int
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("group: result %d has %d bytes, the memory that the request offers for it %d", e.Index, e.Needed, e.Room)
}

// Answer says what becomes of the results of a reply to a request with header t: it appends to dst one Bulk for each
// direction, in order. results are those of the call's plan, found says of each where it is in the reply. prefer is what is chosen where the request leaves
// the choice, SendBased or Explicit.
//
// The directions of a set belong in order to those results of its range that the reply has; empty ones count as missing. A result
// for which there is no direction stays in the stream. The error is a *RoomError.
func Answer(dst []Bulk, t *wire.Transmit, results []oncrpc.Result, found []oncrpc.Found, prefer wire.Placement) ([]Bulk, error) {
	k, index := 0, 0
	for i := range t.Sets {
		set := &t.Sets[i]
		items := t.Results(set)
		for k < len(found) && int64(results[k].Begin) < int64(set.Begin) {
			k++
		}
		for j := range items {
			for k < len(found) && found[k].Length == 0 {
				k++
			}
			b := Bulk{Placement: wire.NoItem}
			if k < len(found) && int64(results[k].Begin) >= int64(set.Begin) && int64(results[k].Begin) < int64(set.End) {
				f := &found[k]
				k++
				b = Bulk{Position: f.Position, Length: f.Length, Segments: t.ResultSegments(&items[j])}
				room := int(min(wire.Length(b.Segments), math.MaxInt32))
				b.Placement = choose(&items[j], f.Length, room, prefer)
				if b.Placement == wire.Explicit && f.Length > room {
					return dst, &RoomError{Index: index, Needed: f.Length, Room: room}
				}
			}
			dst = append(dst, b)
			index++
		}
	}
	return dst, nil
}

// choose decides how a result of n bytes is placed.
func choose(r *wire.ResultItem, n, room int, prefer wire.Placement) wire.Placement {
	if int64(n) < int64(r.MinLength) {
		return wire.TooShort
	}
	switch r.Placement {
	case wire.Choice:
		if n > room {
			return wire.SendBased
		}
		return prefer
	case wire.BySize:
		if int64(n) < int64(r.Threshold) {
			return wire.SendBased
		}
		return wire.Explicit
	}
	return r.Placement
}
