// Package rdmatest has an RDMA provider in memory, for tests of code on top of RDMA, and the
// conformance suite of all providers.
//
// # The fabric
//
// A [Fabric] connects endpoints of one process. It follows package rdma to the letter, and is as
// strict as the strictest adapter: local memory outside the registered arenas, a full queue, or a
// list with too many segments fail the call; a Send without a receive, or an access outside of
// exposed memory, ends the connection with a cause in words. Code that runs here without errors
// should run on any provider.
//
// Latency and bandwidth are set in [Options] and use only package time: inside a testing/synctest
// bubble (the Fabric must be made there) they pass in virtual time, and round trips can be counted
// exactly, see [Fabric.RoundTrips]. Without either, a work request executes wholly on the goroutine
// that posts it. [Fabric.Inject] injects a fault at a chosen operation. [Fabric.Counters],
// [CountersOf] and [Fabric.Events] report the operations on the wire.
//
// # The suite
//
// [TestProvider] is called by a provider's own test.
package rdmatest

import (
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// MaxPrivateData bounds the bytes of private data in a connection request, its acceptance or its
// rejection.
const MaxPrivateData = 196

// Options configure a Fabric. The zero value is a fabric as fast as the machine, and without
// faults.
type Options struct {
	// Delay is the time from the end of a message's transmission to its arrival; a round trip takes
	// twice that.
	Delay time.Duration
	// Bandwidth is in payload bytes per second, for each direction of each connection; 0 is
	// unlimited. Memory is read, and completed, at the end of its transmission.
	Bandwidth int64
	// SentDelay is the time from the end of a transmission to the completion (Sent) of the work
	// request. Set it to 2*Delay for an adapter that completes upon the acknowledgement, as
	// InfiniBand does.
	SentDelay time.Duration

	// MaxSegments and MaxReadSegments are the values of Attributes; 0 means 16.
	MaxSegments, MaxReadSegments int
	// MaxReads bounds the ORD and IRD of every endpoint, as an adapter does; 0 means 128.
	MaxReads int
	// NoRemoteInvalidation: endpoints do not offer it, and a SendWithInvalidate to them ends the
	// connection.
	NoRemoteInvalidation bool
	// NoRedirects: endpoints do not have [rdma.Redirect]; neither do those with ReuseHandles.
	NoRedirects bool
	// MaxExposed bounds the memory that an endpoint may expose at once, counted in handles; 0 means
	// no limit.
	MaxExposed int
	// MaxShared bounds the receives of an rdma.SRQ; 0 means 65536. A negative number means no SRQs.
	MaxShared int
	// ReuseHandles makes Expose return the handle that was invalidated last, instead of a random
	// one. With a delayed SendWithInvalidate (see Fault) a handle can so be invalidated under its
	// new owner.
	ReuseHandles bool

	// ScribbleReceives overwrites memory for the fabric to fill (receives and the sinks of Reads)
	// when it is posted, so that stale contents do not pass for data.
	ScribbleReceives bool
	// ScribbleSends overwrites the local memory of Sends and Writes just before their completion is
	// reported, so that it cannot be sent afterwards. It is for callers that do not share memory
	// between work requests.
	ScribbleSends bool

	// Record keeps the events for Fabric.Events.
	Record bool
	// Seed makes handles and offsets the same in every run; 0 makes them unpredictable.
	Seed uint64
}

// Fabric is a network in memory. It is an rdma.Provider whose connections come from 127.0.0.1; see
// also [Fabric.Host].
type Fabric struct {
	o     Options
	start time.Time
	seed  uint64

	mu        sync.Mutex
	listeners map[netip.AddrPort]*listener
	lastPort  uint16
	conns     int
	armed     []*Armed
	events    []Event

	faults   atomic.Int32 // armed and not yet fired
	counters counters
}

var _ rdma.Provider = (*Fabric)(nil)

// NewFabric makes a fabric.
func NewFabric(o Options) *Fabric {
	o.MaxSegments = orDefault(o.MaxSegments, 16)
	o.MaxReadSegments = orDefault(o.MaxReadSegments, 16)
	o.MaxReads = orDefault(o.MaxReads, 128)
	o.MaxShared = orDefault(o.MaxShared, 1<<16)
	f := &Fabric{o: o, start: time.Now(), seed: o.Seed, listeners: map[netip.AddrPort]*listener{}, lastPort: 40000}
	if f.seed == 0 {
		var b [8]byte
		crand.Read(b[:])
		f.seed = binary.LittleEndian.Uint64(b[:])
	}
	return f
}

func orDefault(n, d int) int {
	if n == 0 {
		return d
	}
	return n
}

// Name returns "fabric".
func (f *Fabric) Name() string { return "fabric" }

// NewDomain makes a protection domain. It serves all hosts of this fabric.
func (f *Fabric) NewDomain() (rdma.Domain, error) { return newDomain(f), nil }

// Listen listens on an IP address and port; 0 chooses a port. Host "" is every address, "localhost"
// 127.0.0.1.
func (f *Fabric) Listen(ctx context.Context, address string) (rdma.Listener, error) {
	return f.listen(ctx, address)
}

// Dial connects from 127.0.0.1.
func (f *Fabric) Dial(ctx context.Context, address string, o rdma.Options) (rdma.Endpoint, error) {
	return f.dial(ctx, netip.AddrFrom4([4]byte{127, 0, 0, 1}), address, o)
}

// Host returns the fabric as a provider whose connections come from address.
func (f *Fabric) Host(address netip.Addr) rdma.Provider { return host{f, address} }

type host struct {
	*Fabric
	address netip.Addr
}

func (h host) Dial(ctx context.Context, address string, o rdma.Options) (rdma.Endpoint, error) {
	return h.dial(ctx, h.address, address, o)
}

// RoundTrips returns the number of round trips since a time, in units of twice the Delay. In
// virtual time, where computing takes none, it is the number of waits for the other side.
func (f *Fabric) RoundTrips(since time.Time) float64 {
	if f.o.Delay == 0 {
		return 0
	}
	return float64(time.Since(since)) / float64(2*f.o.Delay)
}

// portLocked returns an unused port; f.mu is held.
func (f *Fabric) portLocked() uint16 {
	for {
		f.lastPort++
		if f.lastPort < 40000 {
			f.lastPort = 40000
		}
		used := false
		for a := range f.listeners {
			used = used || a.Port() == f.lastPort
		}
		if !used {
			return f.lastPort
		}
	}
}

func parseAddress(s string) (netip.AddrPort, error) {
	h, p, err := net.SplitHostPort(s)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("rdma fabric: address %q is not host:port: %w", s, err)
	}
	switch h {
	case "":
		h = "0.0.0.0"
	case "localhost":
		h = "127.0.0.1"
	}
	a, err := netip.ParseAddrPort(net.JoinHostPort(h, p))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("rdma fabric: address %q is not an IP address and a port: %w", s, err)
	}
	return a, nil
}

// addr is an address in the fabric.
type addr netip.AddrPort

func (a addr) Network() string { return "fabric" }
func (a addr) String() string  { return netip.AddrPort(a).String() }
