package rpcstats

import (
	"sync/atomic"

	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

var (
	bytesDesc = metric.Desc("bytes_total",
		"Bytes of RPC messages, by network, direction (in: from clients) and path: inline, read_chunk, long_call, write_chunk, reply_chunk, placed (in Sends); stream on TCP.",
		"network", "direction", "path")
	faultsDesc = metric.Desc("protocol_errors_total", "Messages and connections that broke the protocol, by network and kind.", "network", "kind")
)

// Transport has the counters of messages.
type Transport struct {
	moved         [rpcrdma.Paths]atomic.Uint64
	faults        [rpcrdma.ErrorKinds]atomic.Uint64
	tcpIn, tcpOut atomic.Uint64
	badRecords    atomic.Uint64
}

// Transferred counts bytes of RPC messages on RDMA.
func (t *Transport) Transferred(p rpcrdma.Path, bytes int) { t.moved[p].Add(uint64(bytes)) }

// ProtocolError counts an error of the RPC-over-RDMA protocol.
func (t *Transport) ProtocolError(f rpcrdma.ErrorKind) { t.faults[f].Add(1) }

// Received counts bytes of calls on TCP.
func (t *Transport) Received(b oncrpc.Bytes) { t.tcpIn.Add(uint64(b.Inline)) }

// Sent counts bytes of replies on TCP.
func (t *Transport) Sent(b oncrpc.Bytes) { t.tcpOut.Add(uint64(b.Inline)) }

// BadRecord counts an unreadable message on TCP.
func (t *Transport) BadRecord() { t.badRecords.Add(1) }

// Bytes returns the bytes of RPC messages from and to clients.
func (t *Transport) Bytes() (in, out uint64) {
	in, out = t.tcpIn.Load(), t.tcpOut.Load()
	for p := range t.moved {
		n := t.moved[p].Load()
		if fromClient(rpcrdma.Path(p)) {
			in += n
		} else {
			out += n
		}
	}
	return in, out
}

func (t *Transport) collectTransport(s metric.Sink) {
	for p := range t.moved {
		path, direction := pathLabels(rpcrdma.Path(p))
		s.Counter(bytesDesc, t.moved[p].Load(), "rdma", direction, path)
	}
	s.Counter(bytesDesc, t.tcpIn.Load(), "tcp", "in", "stream")
	s.Counter(bytesDesc, t.tcpOut.Load(), "tcp", "out", "stream")
	for f := range t.faults {
		s.Counter(faultsDesc, t.faults[f].Load(), "rdma", rpcrdma.ErrorKind(f).String())
	}
	s.Counter(faultsDesc, t.badRecords.Load(), "tcp", "bad_message")
}

func fromClient(p rpcrdma.Path) bool {
	return p == rpcrdma.InlineCall || p == rpcrdma.ReadChunk || p == rpcrdma.LongCall || p == rpcrdma.PlacedCall
}

// pathLabels returns the labels of a path.
func pathLabels(p rpcrdma.Path) (path, direction string) {
	direction = "out"
	if fromClient(p) {
		direction = "in"
	}
	switch p {
	case rpcrdma.InlineCall, rpcrdma.InlineReply:
		return "inline", direction
	case rpcrdma.PlacedCall, rpcrdma.PlacedReply:
		return "placed", direction
	}
	return p.String(), direction
}
