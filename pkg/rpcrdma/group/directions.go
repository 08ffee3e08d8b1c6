package group

import (
	"fmt"
	"math"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Allowed implements table 2 of rtrext (section 7.4): whether a reply may use placement got for a
// result requested as asked, and whether memory exposed for the result must be deregistered. After
// SendBased the peer has not used that memory, but it must be deregistered all the same.
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

// Want is a requester's wish for a result.
type Want struct {
	// Placement is one of Explicit, SendBased, Choice and BySize; 0 means inline.
	Placement wire.Placement
	// MinLength is the minimum length of a placed result, in bytes. Threshold is the threshold of
	// BySize.
	MinLength, Threshold uint32
	// Segments is the memory exposed for the result; none for SendBased.
	Segments []wire.Segment
}

// Direct adds directions for all results of a plan to a request's header t: wants[i] is for
// results[i]. So the items of the reply's header match the results one by one. Results of one range
// of the request form a set. Direct adds nothing if all results are wanted inline. It fails if
// ranges overlap or are out of order.
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
			// every result is too short
			w = Want{Placement: wire.SendBased, MinLength: math.MaxUint32}
		}
		t.AddResult(w.MinLength, w.Placement, w.Threshold, w.Segments)
	}
	return nil
}

func together(a, b *oncrpc.Result) bool { return a.Begin == b.Begin && a.End == b.End }

// Check compares a reply's items with the request's directions: equal number, placements that table
// 2 allows, and Explicit items at the beginning of the memory offered for them.
func Check(asked, reply *wire.Transmit) error {
	k := 0
	for i := range asked.Sets {
		results := asked.Results(&asked.Sets[i])
		for j := range results {
			if k == len(reply.Items) {
				return fmt.Errorf("group: the reply has %d results, the request directs more", k)
			}
			if err := checkResult(asked, &results[j], reply, &reply.Items[k]); err != nil {
				return fmt.Errorf("group: result %d: %w", k, err)
			}
			k++
		}
	}
	if k < len(reply.Items) {
		return fmt.Errorf("group: the reply has %d results, the request directs %d", len(reply.Items), k)
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

// RoomError reports a result that is longer than its memory.
type RoomError struct {
	// Index is the result's index among the directed results, from 0. Needed is its length, Room
	// the memory's, in bytes.
	Index, Needed, Room int
}

func (e *RoomError) Error() string {
	return fmt.Sprintf("group: result %d has %d bytes, the memory that the request offers for it %d", e.Index, e.Needed, e.Room)
}

// Answer decides the placement of the results in a reply to a request with header t. It appends one
// Bulk per direction to dst, in order. results are those of the call's plan; found locates each in
// the reply. prefer, SendBased or Explicit, applies where the request leaves the choice.
//
// The directions of a set apply in order to the results of its range in the reply; empty results
// count as missing. A result without a direction stays in the stream. The error is a *RoomError.
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

// choose returns the placement of a result of n bytes.
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
