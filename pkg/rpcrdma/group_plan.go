package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// groupPlan holds the state for sending a message as a group.
type groupPlan struct {
	planner group.Planner
	head    wire.Transmit
	bulk    []group.Bulk
	wants   []group.Want
}

// appendSends adds the Sends of the group to wrs, of which the last one is signaled.
func (g *groupPlan) appendSends(wrs []rdma.WorkRequest, id uint64, mem []byte, xid wire.XID, credits wire.Credits) []rdma.WorkRequest {
	for _, x := range g.planner.Write(mem, xid, credits) {
		wrs = append(wrs, rdma.WorkRequest{Op: rdma.Send, Local: x.Gather})
	}
	last := &wrs[len(wrs)-1]
	last.ID, last.Signaled = id, true
	return wrs
}

// unplace turns send-based placement into RDMA Writes where the request offers memory, otherwise
// into inline data.
func (g *groupPlan) unplace() {
	for i := range g.bulk {
		b := &g.bulk[i]
		switch {
		case b.Placement != wire.SendBased:
		case len(b.Segments) > 0 && uint64(b.Length) <= wire.Length(b.Segments):
			b.Placement = wire.Explicit
		default:
			b.Placement = wire.TooShort
		}
	}
}

// zeroBytes is the number of zeros to pad messages with: enough for the header segment of a
// receive.
const zeroBytes = 4096

func appendReport(dst []byte, xid wire.XID, credits wire.Credits, d wire.Direction, r *wire.Report) []byte {
	t := wire.Transmit{Report: *r}
	at := len(dst)
	dst = wire.BeginOption(dst, xid, credits, d, wire.ReptErr)
	return wire.EndOption(t.Append(dst, wire.ReptErr), at)
}
