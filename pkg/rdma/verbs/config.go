package verbs

import (
	"errors"
	"log/slog"
	"time"
)

// Config are the settings of a provider. The zero value is a good one.
type Config struct {
	// Device is the RDMA device that has to be used ("" means whichever leads to the address): a
	// connection over another one fails.
	Device string
	// Inline is the most payload in bytes that is copied into a work request instead of being
	// fetched from memory (0 means 60, negative means none). A device may take less. More makes
	// each work request longer: see [Queues.Memory].
	Inline int
	// Spin is how often an empty completion queue is polled again before its connection sleeps, at
	// most; it is done less where that finds nothing. 0 means 256 where there are more than two
	// processors, and none otherwise: they have better to do. Negative means none.
	Spin int
	// KeepAlive is how long a connection is quiet before its peer is probed by an RDMA Write of no
	// bytes, so that one whose peer is dead ends when the retries are used up. 0 means a minute,
	// negative never. iWARP has TCP's, and is not probed.
	KeepAlive time.Duration
	// AckTimeout is how long the peer may take to acknowledge a message before it is repeated: up
	// to the next power of two of 4.096 µs. 0 means what the connection manager computes from the
	// path.
	AckTimeout time.Duration
	// RetryCount is how often a message is repeated without an acknowledgement before the
	// connection ends, 1 to 7. 0 means 6. It is for connections that are dialed: the dialing end
	// chooses for both.
	RetryCount int
	// TOS is the type of service, or traffic class, of connections over RoCE and iWARP that are
	// dialed, 0 to 255. The accepting end answers with the same.
	TOS int
	// CompletionVectors are those over which completion queues are spread, one after the other;
	// each is an interrupt of the device. None means all of them.
	CompletionVectors []int
	// Moderation has interrupts wait for more completions.
	Moderation Moderation
	// StrictOrdering has the device write to memory in order, where it could do so out of order
	// until a completion (relaxed ordering of PCI Express).
	StrictOrdering bool
	// MaxPending is the most connections of a listener that have not been accepted yet (0 means
	// 1024). Beyond it the next are rejected.
	MaxPending int
	// MaxRegions is the most regions that a connection exposes at once (0 means 65536).
	MaxRegions int
	// ResolveTimeout bounds the wait for an address, and that for a route (0 means 5 s).
	ResolveTimeout time.Duration
	// Linger is how long Close waits until the peer has what was posted before (0 means 5 s).
	Linger time.Duration
	// Logger hears of devices that cannot work as they are, and of events that were lost (nil means
	// no one).
	Logger *slog.Logger
}

// Moderation says when a completion queue interrupts: after so many completions, or so long after
// the first of them. The zero value is the device's own.
type Moderation struct {
	Completions int           // up to 65535
	Period      time.Duration // in whole microseconds, up to 65.535 ms
}

// ErrNotBuilt is the error of a program that was built without rdma-core.
var ErrNotBuilt = errors.New("verbs: this program was built without rdma-core: build it with cgo and the tag \"verbs\"")

// PortMTU is the MTU of a port, in bytes of payload of an RDMA packet: 256 to 4096.
type PortMTU struct {
	Port        int // from 1
	Active, Max int
}

// Limits are what a device has at most.
type Limits struct {
	// Connections is how many queue pairs there may be, Queue how many requests each queue of one
	// has, Completions how many a completion queue reports.
	Connections int
	Queue       int
	Completions int
	// Segments are those of a request, ReadSegments those of a Read.
	Segments     int
	ReadSegments int
	// ReadsIn and ReadsOut are the Reads under way on a connection at once, from the peer and to
	// it.
	ReadsIn  int
	ReadsOut int
	// Message is the longest message in bytes.
	Message uint64
	// Regions is how many there may be, Windows how many memory windows of type 2: 0 if the device
	// has none.
	Regions int
	Windows int
}
