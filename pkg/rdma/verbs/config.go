package verbs

import (
	"errors"
	"log/slog"
	"time"
)

// Config are the settings of a provider. The zero value is a good one.
type Config struct {
	// Device is the RDMA device that has to be used ("" means whichever leads to the address): a connection over another one fails.
	Device string
	// Inline is the most payload in bytes that is copied into a work request instead of being fetched from memory (0 means 256, negative
	// means none). A device may take less.
	Inline int
	// Spin is how often an empty completion queue is polled again before its connection sleeps, at most; it is done less where that
	// finds nothing. 0 means 256 where there are more than two processors, and none otherwise: they have better to do. Negative means none.
	Spin int
	// MaxPending is the most connections of a listener that have not been accepted yet (0 means 256). Beyond it the next are rejected.
	MaxPending int
	// MaxRegions is the most regions that a connection exposes at once (0 means 65536).
	MaxRegions int
	// ResolveTimeout bounds the wait for an address, and that for a route (0 means 5 s).
	ResolveTimeout time.Duration
	// Linger is how long Close waits until the peer has what was posted before (0 means 5 s).
	Linger time.Duration
	// Logger hears of devices that cannot work as they are, and of events that were lost (nil means no one).
	Logger *slog.Logger
}

// ErrNotBuilt is the error of a program that was built without rdma-core.
var ErrNotBuilt = errors.New("verbs: this program was built without rdma-core: build it with cgo and the tag \"verbs\"")

// Limits are what a device has at most.
type Limits struct {
	// Connections is how many queue pairs there may be, Queue how many requests each queue of one has, Completions how many a completion queue reports.
	Connections int
	Queue       int
	Completions int
	// Segments are those of a request, ReadSegments those of a Read.
	Segments     int
	ReadSegments int
	// ReadsIn and ReadsOut are the Reads under way on a connection at once, from the peer and to it.
	ReadsIn  int
	ReadsOut int
	// Message is the longest message in bytes.
	Message uint64
	// Regions is how many there may be, Windows how many memory windows of type 2: 0 if the device has none.
	Regions int
	Windows int
}
