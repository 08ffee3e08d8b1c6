package iwarp

import (
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
)

// counters are the endpoint's statistics, written by the receive loop and by the flusher, read by
// any goroutine.
type counters struct {
	readCalls, writeCalls     atomic.Uint64
	bytesIn, bytesOut         atomic.Uint64
	sends, writes, reads      atomic.Uint64
	receives                  atomic.Uint64
	remoteWrites, remoteReads atomic.Uint64
	copiedIn                  atomic.Uint64
}

func (c *counters) snapshot() rdma.Stats {
	return rdma.Stats{
		ReadCalls: c.readCalls.Load(), WriteCalls: c.writeCalls.Load(),
		BytesIn: c.bytesIn.Load(), BytesOut: c.bytesOut.Load(),
		Sends: c.sends.Load(), Writes: c.writes.Load(), Reads: c.reads.Load(),
		Receives:     c.receives.Load(),
		RemoteWrites: c.remoteWrites.Load(), RemoteReads: c.remoteReads.Load(),
		CopiedIn: c.copiedIn.Load(),
	}
}
