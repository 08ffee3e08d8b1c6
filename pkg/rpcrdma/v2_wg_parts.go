package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// middles is how many Middles precede the last part of a stream of n bytes, whose header has size
// bytes, with messages of at most limit bytes.
func middles(n, size, limit int) int {
	left, each := n-max(0, limit-size), middleRoom(limit)
	if left <= 0 {
		return 0
	}
	return (left + each - 1) / each
}

// middleRoom is how many bytes of a stream a Middle of limit bytes has.
func middleRoom(limit int) int { return (limit - wire.MiddleSize) &^ 3 }

// parts makes Middles of a stream: all that the last message has no room for.
type parts struct {
	xid       wire.XID
	direction wire.Direction
	limit     int
	heads     []byte // memory for their headers
}

// appendSends appends the Sends of n Middles to wrs, with their lists in lists, and returns the
// stream that is left for the last message. It changes stream.
func (p *parts) appendSends(wrs []rdma.WorkRequest, lists, stream [][]byte, n, length int) ([]rdma.WorkRequest, [][]byte, [][]byte) {
	each := middleRoom(p.limit)
	for range n {
		length -= each
		at, from := len(p.heads), len(lists)
		p.heads = wire.AppendMiddle(p.heads, p.xid, p.direction, length)
		lists = append(lists, p.heads[at:])
		for left := each; left > 0; {
			k := min(left, len(stream[0]))
			lists = append(lists, stream[0][:k:k])
			left -= k
			if stream[0] = stream[0][k:]; len(stream[0]) == 0 {
				stream = stream[1:]
			}
		}
		wrs = append(wrs, rdma.WorkRequest{Op: rdma.Send, Local: lists[from:len(lists):len(lists)]})
	}
	return wrs, lists, stream
}
