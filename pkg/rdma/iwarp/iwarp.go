// Package iwarp is RDMA on TCP sockets, in pure Go: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and
// RDMAP (RFC 5040). It needs no device and no kernel module, and works with any iWARP peer, for
// example Linux's siw.
//
// # How it works
//
// An endpoint has one receive loop, in Serve. It reads the socket into a buffer, handles every FPDU
// in it, gives all completions to the handler at once, and then sends everything that the handler
// posted meanwhile in one vectored write. The payload of an FPDU of more than 16 KiB is read
// straight to its place; smaller ones are copied there from the buffer.
//
// A goroutine that posts work while no other one sends becomes the flusher: it gathers headers,
// CRCs and small payloads in an arena, refers to the rest in place, and writes without blocking.
// When the socket is full, the rest is left to the endpoint's writer goroutine, which waits for
// room; the receive loop goes on reading.
//
// Each FPDU's CRC is verified before its payload counts as delivered. Large segments are placed
// first, inside of memory that the peer may write anyway, and verified before anything is
// completed.
//
// # Memory
//
// A connection has a receive buffer of 256 KiB, and from its first message on 66 KiB for headers
// and small payloads. Its queues grow to the largest number of outstanding entries. A peer's
// requests are bounded before they take memory: its Reads by the negotiated depth, and they are
// answered from the exposed memory itself, piece by piece.
//
// # Ordering
//
// Messages are sent in the order of posting and never interleaved. Two exceptions: an RDMA Read
// beyond the negotiated depth waits for its turn while later work passes it, and Read Responses
// leave, in the order of their requests, between other messages.
package iwarp

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// CRCMode selects the protection of FPDUs by CRC32C. The CRC is used in both directions as soon as
// one side requests it (RFC 5044 section 7.1.1).
type CRCMode uint8

const (
	// CRCRequire always requests it.
	CRCRequire CRCMode = iota
	// CRCMirror requests it if the initiator did. As initiator it does not.
	CRCMirror
	// CRCOff never requests it, and computes it only for peers that do.
	CRCOff
)

// Sizes for Config.MaxFPDU.
const (
	// FPDULargest sends up to 64 KiB in an FPDU.
	FPDULargest = 0
	// FPDUSegment fits each FPDU in one TCP segment, as RFC 5044 section 4.5 recommends for
	// hardware.
	FPDUSegment = -1
)

// Config are the settings of a provider. The zero value is valid.
type Config struct {
	CRC CRCMode
	// MaxFPDU is the size of sent FPDUs in bytes, from 256 to 65535, or FPDULargest or FPDUSegment.
	// FPDUs of any size are received.
	MaxFPDU int
	// Revision is the MPA revision for Dial: 2 (or 0) negotiates IRD and ORD, 1 is for peers with
	// RFC 5044 alone.
	Revision uint8
	// RequestTimeout bounds the wait for a peer's MPA request (0 means 10 s), ReplyTimeout that for
	// its reply (0 means 5 s).
	RequestTimeout, ReplyTimeout time.Duration
	// MaxPending bounds a listener's connections that are not accepted yet (0 means 256). Beyond it
	// the one whose request has been incomplete for the longest time is dropped.
	MaxPending int
	// MaxRegions bounds the regions that a connection exposes at once (0 means 65536).
	MaxRegions int
	// KeepAlive is the idle time before TCP probes the peer (0 means 30 s, negative means never). A
	// peer that is silent for twice as long is gone.
	KeepAlive time.Duration
	// Nudge is the time after which a dialed connection that has sent something, and received
	// nothing yet, sends an empty RDMA Write to wake the peer (0 means 250 ms, negative means
	// never). Linux's siw needs that now and then.
	Nudge time.Duration
	// Threads bounds the connections of the process, of any kind, that may block a thread each
	// while they wait, which saves a third or more of the time of a lone message; further ones of
	// this provider use Go's poller. 0 means one less than GOMAXPROCS, negative means none.
	Threads int
	// Spin is the longest time that such a connection polls for bytes before it blocks. It polls
	// less where that lately failed. 0, the default, means not at all. While calls come in quick
	// succession polling takes a processor, and spares the wake-ups. It is most useful at the peer.
	Spin time.Duration
	// Logger logs peers that fail in the start-up (nil means none).
	Logger *slog.Logger
	// Failed, if set, is called for each TCP connection to a listener without a valid MPA request
	// in time. It must not block.
	Failed func(peer net.Addr, cause error)
}

const (
	maxPrivateData = 196
	// maxSegments bounds the pieces of memory in one work request or receive.
	maxSegments  = 1024
	defaultQueue = 1024
	minMaxFPDU   = 256
)

type provider struct{ cfg Config }

// New makes a provider, or names the wrong setting.
func New(cfg Config) (rdma.Provider, error) {
	if cfg.CRC > CRCOff {
		return nil, fmt.Errorf("iwarp: CRC mode %d, want 0 to %d", cfg.CRC, CRCOff)
	}
	if f := cfg.MaxFPDU; f != FPDULargest && f != FPDUSegment && (f < minMaxFPDU || f > maxULPDU) {
		return nil, fmt.Errorf("iwarp: MaxFPDU %d, want %d to %d, FPDULargest or FPDUSegment", f, minMaxFPDU, maxULPDU)
	}
	if cfg.Revision == 0 {
		cfg.Revision = 2
	}
	if cfg.Revision > 2 {
		return nil, fmt.Errorf("iwarp: MPA revision %d, want 1 or 2", cfg.Revision)
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 10 * time.Second
	}
	if cfg.ReplyTimeout == 0 {
		cfg.ReplyTimeout = 5 * time.Second
	}
	if cfg.KeepAlive == 0 {
		cfg.KeepAlive = 30 * time.Second
	}
	if cfg.Nudge == 0 {
		cfg.Nudge = 250 * time.Millisecond
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = 256
	}
	if cfg.MaxRegions == 0 {
		cfg.MaxRegions = 1 << 16
	}
	if cfg.RequestTimeout < 0 || cfg.ReplyTimeout < 0 || cfg.Spin < 0 || cfg.MaxPending < 0 || cfg.MaxRegions < 0 {
		return nil, fmt.Errorf("iwarp: negative limit in %+v", cfg)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &provider{cfg}, nil
}

func (p *provider) Name() string { return "iwarp" }

func (p *provider) NewDomain() (rdma.Domain, error) { return &domain{}, nil }

// checkOptions validates the options that do not depend on the peer, and fills in defaults.
func checkOptions(o *rdma.Options) error {
	if o.SRQ != nil {
		return fmt.Errorf("iwarp: Options.SRQ is a %T, but there are none", o.SRQ)
	}
	if len(o.PrivateData) > maxPrivateData {
		return fmt.Errorf("iwarp: private data of %d bytes, at most %d are possible", len(o.PrivateData), maxPrivateData)
	}
	d, ok := o.Domain.(*domain)
	if !ok {
		return fmt.Errorf("iwarp: Options.Domain is a %T, want one that this provider made", o.Domain)
	}
	for i := range o.Receives {
		if _, err := d.check(o.Receives[i].Segments); err != nil {
			return fmt.Errorf("iwarp: receive %d: %w", o.Receives[i].ID, err)
		}
	}
	if o.SendQueue == 0 {
		o.SendQueue = defaultQueue
	}
	if o.ReceiveQueue == 0 {
		o.ReceiveQueue = defaultQueue
	}
	if o.SendQueue < 0 || o.ReceiveQueue < 0 {
		return fmt.Errorf("iwarp: queues of %d and %d entries, want none below 0", o.SendQueue, o.ReceiveQueue)
	}
	if o.ORD < 0 || o.ORD > maxReads || o.IRD < 0 || o.IRD > maxReads {
		return fmt.Errorf("iwarp: ORD %d and IRD %d, want 0 to %d", o.ORD, o.IRD, maxReads)
	}
	if len(o.Receives) > o.ReceiveQueue {
		return fmt.Errorf("iwarp: %d receives for a queue of %d", len(o.Receives), o.ReceiveQueue)
	}
	return nil
}
