package verbs

import (
	"errors"
	"log/slog"
	"time"
)

// Config are the settings of a provider. The zero value is valid.
type Config struct {
	// Device is the required RDMA device ("" means the device of the route): a connection over
	// another device fails.
	Device string
	// Inline is the longest payload in bytes that is copied into a work request instead of being
	// fetched from memory (0 means 60, negative means none). A device may have a lower limit. A
	// higher value makes each work request longer: see [Queues.Memory].
	Inline int
	// Spin is the most repeated polls of an empty completion queue before its connection sleeps.
	// There are fewer where polling fails. 0 means 256 on more than two processors, and none
	// otherwise. Negative means none.
	Spin int
	// KeepAlive is the idle time after which the peer is probed by an empty RDMA Write, so that a
	// connection to a dead peer ends when the retries are used up. 0 means a minute, negative
	// never. iWARP has TCP's, and is not probed.
	KeepAlive time.Duration
	// AckTimeout is the time for the peer's acknowledgement of a message before it is repeated,
	// rounded up to a power of two of 4.096 µs. 0 means the connection manager's value, computed
	// from the path.
	AckTimeout time.Duration
	// RetryCount is the number of repetitions of an unacknowledged message before the connection
	// ends, 1 to 7. 0 means 6. It applies to dialed connections: the dialing end chooses for both.
	RetryCount int
	// TOS is the type of service, or traffic class, of dialed connections over RoCE and iWARP, 0 to
	// 255. The accepting end answers with the same.
	TOS int
	// CompletionVectors are the vectors, each an interrupt of the device, that completion queues
	// use in turn. None means all of them.
	CompletionVectors []int
	// Moderation delays interrupts until there are more completions.
	Moderation Moderation
	// StrictOrdering makes the device write to memory in order, where it could do so out of order
	// until a completion (relaxed ordering of PCI Express).
	StrictOrdering bool
	// MaxPending bounds a listener's connections that are not accepted yet (0 means 1024). Beyond
	// it the next are rejected.
	MaxPending int
	// MaxRegions bounds the regions that a connection exposes at once (0 means 65536).
	MaxRegions int
	// ResolveTimeout bounds the wait for an address, and that for a route (0 means 5 s).
	ResolveTimeout time.Duration
	// Linger bounds the wait of Close for the delivery of earlier posts (0 means 5 s).
	Linger time.Duration
	// Logger logs unusable devices and lost events (nil means none).
	Logger *slog.Logger
}

// Moderation delays a completion queue's interrupt until there are Completions, or for Period after
// the first of them. The zero value is the device's default.
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

// Limits are a device's limits.
type Limits struct {
	// Connections bounds the queue pairs, Queue the requests in each queue of one, Completions
	// those in a completion queue.
	Connections int
	Queue       int
	Completions int
	// Segments bounds those of a request, ReadSegments those of a Read.
	Segments     int
	ReadSegments int
	// IRD and ORD bound the outstanding Reads of a connection, from the peer and to it.
	IRD int
	ORD int
	// Message is the longest message in bytes.
	Message uint64
	// Regions bounds the memory regions, Windows the memory windows of type 2: 0 if the device has
	// none.
	Regions int
	Windows int
}
