//go:build verbs

package verbs

import (
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
)

// counters are the endpoint's statistics. Only the device sees the peer's operations on our memory.
type counters struct {
	readCalls, writeCalls atomic.Uint64
	bytesIn, bytesOut     atomic.Uint64
	sends, writes, reads  atomic.Uint64
	receives              atomic.Uint64
}

// post counts a work request of so many bytes.
func (c *counters) post(op rdma.Opcode, bytes int) {
	switch op {
	case rdma.Read:
		c.reads.Add(1)
		return
	case rdma.Write:
		c.writes.Add(1)
	case rdma.LocalInvalidate:
		return
	default:
		c.sends.Add(1)
	}
	c.bytesOut.Add(uint64(bytes))
}

func (c *counters) snapshot() rdma.Stats {
	return rdma.Stats{
		ReadCalls: c.readCalls.Load(), WriteCalls: c.writeCalls.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
		Sends: c.sends.Load(), Writes: c.writes.Load(), Reads: c.reads.Load(),
		Receives: c.receives.Load(),
	}
}
