// Package iwarp is RDMA on TCP sockets, in pure Go: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040). It
// needs no device and no kernel module, and talks to any iWARP peer, Linux's siw for one.
//
// # How it works
//
// An endpoint has one receive loop, in Serve. It reads what the socket has into a buffer, handles every FPDU in it, gives all
// completions to the handler at once, and then sends, in one vectored write, what the handler posted meanwhile. The payload of an FPDU
// of more than 16 KiB is read straight to its place; smaller ones are copied there from the buffer.
//
// Whoever finds work to send and nobody sending becomes the flusher: it gathers headers, CRCs and small payloads in an arena,
// refers to the rest where it lies, and writes without blocking. What the socket does not take is left to the
// endpoint's writer goroutine, which waits for room; the receive loop goes on reading.
//
// Each FPDU's CRC is verified before what it carried counts as delivered. Large segments are placed first, inside of
// memory that the peer may write anyway, and verified before anything is completed.
//
// # Memory
//
// A connection has a receive buffer of 256 KiB, and from its first message on 66 KiB for headers and small payloads. Its queues grow to what has
// been outstanding at once. What a peer can ask for is bounded before memory is taken: its Reads by the negotiated depth, and they are
// answered from the exposed memory itself, piece by piece.
//
// # Ordering
//
// Messages are sent in the order they were posted and never interleaved. Two exceptions: an RDMA Read beyond the
// negotiated depth waits for its turn while later work passes it, and Read Responses go out, in the order of their requests, between other messages.
package iwarp

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// CRCMode says when FPDUs are protected by CRC32C. The CRC is used in both directions as soon as one side asks (RFC 5044 section 7.1.1).
type CRCMode uint8

const (
	// CRCRequire always asks for it.
	CRCRequire CRCMode = iota
	// CRCMirror asks for it if the initiator did. As initiator it does not ask.
	CRCMirror
	// CRCOff never asks, and computes it only for peers that do.
	CRCOff
)

// Sizes for Config.MaxFPDU.
const (
	// FPDULargest sends up to 64 KiB in an FPDU.
	FPDULargest = 0
	// FPDUSegment fits each FPDU in one TCP segment, as RFC 5044 section 4.5 recommends for hardware.
	FPDUSegment = -1
)

// Config are the settings of a provider. The zero value is a good one.
type Config struct {
	CRC CRCMode
	// MaxFPDU is the size of FPDUs sent, in bytes from 256 to 65535, or FPDULargest or FPDUSegment.
	// FPDUs of any size are received.
	MaxFPDU int
	// Revision is the MPA revision to dial with: 2 (or 0) negotiates IRD and ORD, 1 is for peers that know only RFC 5044.
	Revision uint8
	// RequestTimeout bounds the wait for a peer's MPA request (0 means 10 s), ReplyTimeout that for its reply (0 means 5 s).
	RequestTimeout, ReplyTimeout time.Duration
	// MaxPending is the most connections of a listener that have not been accepted yet (0 means 256).
	// Beyond it the one that has kept its request back the longest is dropped.
	MaxPending int
	// MaxRegions is the most regions that a connection exposes at once (0 means 65536).
	MaxRegions int
	// KeepAlive is the idle time after which TCP probes the peer (0 means 30 s, negative means never). A peer that is silent for twice as
	// long, whatever it owes, is gone.
	KeepAlive time.Duration
	// Nudge is how long a connection that was dialed waits for a first sign of its peer, once it has sent something, before it sends an empty
	// RDMA Write to wake it (0 means 250 ms, negative means never). Linux's siw needs that now and then.
	Nudge time.Duration
	// Threads is how many connections of the process, of whatever kind, may block a thread each while they wait, which takes a third and more off the time of
	// a lone message; further ones of this provider use Go's poller. 0 means one less than GOMAXPROCS, negative means none.
	Threads int
	// Spin is how long such a connection asks again whether something has come before it blocks, at most; it does so less where that lately was in vain.
	// 0, the default, means not at all. While calls come in quick succession that takes a processor, at the peer best too, and spares it the wake-ups.
	Spin time.Duration
	// Logger hears of peers that fail in the start-up (nil means no one).
	Logger *slog.Logger
	// Failed, if set, is called for each TCP connection to a listener by which no MPA request came that could be used, or not in time. It
	// does not block.
	Failed func(peer net.Addr, cause error)
}

const (
	maxPrivateData = 196
	// maxSegments is the most pieces of memory in one work request or receive.
	maxSegments  = 1024
	defaultQueue = 1024
	minMaxFPDU   = 256
)

type provider struct{ cfg Config }

// New makes a provider, or says which setting is wrong.
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

// checkOptions verifies what does not depend on the peer, and fills in defaults.
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
