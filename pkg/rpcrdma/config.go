package rpcrdma

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Config is the configuration of connections. It must not change while it is in use.
type Config struct {
	// Pool provides all memory. It is required.
	Pool *bufpool.Pool
	// Domain is the protection domain in which Pool is registered. A server requires it. If it is
	// nil, Dial makes one for each connection.
	Domain rdma.Domain
	// Handler answers the peer's calls. Without one they are answered PROG_UNAVAIL.
	Handler oncrpc.Handler
	// Bindings finds the upper-layer bindings, in both roles. Without a binding nothing is reduced.
	Bindings oncrpc.Bindings

	// InlineCall and InlineReply are the largest messages without chunks, in bytes, from client to
	// server and from server to client: multiples of 1024 from 1024 to 262144. The smaller of both
	// peers' values holds for a connection (RFC 8797). 0 means 4096.
	InlineCall, InlineReply int

	// Credits is how many calls from the client to the server may be outstanding: granted by a
	// server, requested by a client. nil means credit.Static(128).
	Credits credit.Policy
	// ReverseCredits is the same for calls from the server to the client (RFC 8167): granted by a
	// client, requested by a server. 0 means 16 at a server, and none at a client without a
	// Handler.
	ReverseCredits int

	// Versions are the offered versions of RPC-over-RDMA, 1 and 2; nil means version 1 alone. A
	// server follows the client's first message. A client that has both tries version 2 first.
	Versions []int
	// Extensions are the offered extensions of version 2.
	Extensions Extensions
	// Dialect is that of version 2: wire.V2RoundTrip, also for nil, or wire.V2WorkingGroup. The
	// latter has no Extensions: properties and messages of several Sends are part of it.
	Dialect wire.Dialect
	// HostAuth authenticates hosts in the dialect wire.V2WorkingGroup.
	HostAuth HostAuth
	// Continuation and Placement configure the extensions of these names.
	Continuation Continuation
	Placement    Placement

	// RFC5666 are the forms of version 1 that only RFC 5666 has. None is the default, and best.
	RFC5666 RFC5666

	// Batch, if set, is corked while a connection handles a batch of messages; see [oncrpc.Conn].
	Batch oncrpc.Corker

	// RemoteInvalidation offers Send with Invalidate to the peer (RFC 8797).
	RemoteInvalidation bool

	// Budget bounds the bulk memory of the peer's calls; each connection has a share of it. nil
	// means no limit.
	Budget *bufpool.Budget
	// MaxBulk bounds the bytes in the Read chunks of a call. 0 means 4 MiB.
	MaxBulk int
	// Limits bound the chunks of a header. The zero value means wire.DefaultLimits. A client
	// assumes them of the server too.
	Limits wire.Limits

	// ORD and IRD bound the outstanding RDMA Reads from here, and from the peer. 0 means 16.
	ORD, IRD int
	// MaxConnections bounds the connections of a server. 0 means no limit.
	MaxConnections int
	// OwnReceives is how many connections of a server have a receive queue of their own. Further
	// ones share a queue, if the provider has that, with receives of at most 4096 bytes. On these
	// InlineCall is capped at 4096, receives keep their size, and there is neither
	// MessageContinuation nor SendBasedPlacement. 0 means that none shares, a negative number that
	// all do.
	OwnReceives int

	// layout are the lengths of the segments of a receive; nil means one, of the inline threshold.
	layout []int

	// Observer counts events. It may be nil.
	Observer Observer
	// Logger gets a line for each protocol error, at most one a second for a connection. It may be
	// nil.
	Logger *slog.Logger
	// Now is the clock that limits the logging; nil means time.Now.
	Now func() time.Time
}

const (
	defaultInline         = 4096
	defaultCredits        = credit.Static(128)
	defaultReverseCredits = 16
	defaultMaxBulk        = 4 << 20
	defaultReads          = 16
)

// complete returns cfg with its defaults filled in.
func (cfg Config) complete() (*Config, error) {
	if cfg.Pool == nil {
		return nil, errors.New("rpcrdma: Config.Pool is missing")
	}
	def(&cfg.InlineCall, defaultInline)
	def(&cfg.InlineReply, defaultInline)
	if err := wire.CheckThreshold(cfg.InlineCall); err != nil {
		return nil, fmt.Errorf("rpcrdma: Config.InlineCall: %w", err)
	}
	if err := wire.CheckThreshold(cfg.InlineReply); err != nil {
		return nil, fmt.Errorf("rpcrdma: Config.InlineReply: %w", err)
	}
	if cfg.Credits == nil {
		cfg.Credits = defaultCredits
	}
	if cfg.ReverseCredits < 0 || cfg.ReverseCredits > credit.Max {
		return nil, fmt.Errorf("rpcrdma: Config.ReverseCredits is %d, must be 0 to %d", cfg.ReverseCredits, credit.Max)
	}
	if cfg.Handler != nil {
		def(&cfg.ReverseCredits, defaultReverseCredits)
	} else {
		cfg.Handler = new(oncrpc.Mux)
	}
	if cfg.Budget == nil {
		cfg.Budget = bufpool.NewBudget(0, 0)
	}
	def(&cfg.MaxBulk, defaultMaxBulk)
	if cfg.Limits == (wire.Limits{}) {
		cfg.Limits = wire.DefaultLimits
	}
	if err := cfg.completeVersions(); err != nil {
		return nil, err
	}
	if err := cfg.completeRFC5666(); err != nil {
		return nil, err
	}
	def(&cfg.ORD, defaultReads)
	def(&cfg.IRD, defaultReads)
	if cfg.Observer == nil {
		cfg.Observer = NoObserver{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &cfg, nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// completeDialect checks the dialect of version 2. It decides about the extensions.
func (cfg *Config) completeDialect() error {
	switch cfg.Dialect {
	case nil, wire.V2RoundTrip:
		cfg.Limits.V2 = nil
		return nil
	case wire.V2WorkingGroup:
	default:
		return fmt.Errorf("rpcrdma: Config.Dialect is %v, must be one of version 2", cfg.Dialect)
	}
	if n := len(cfg.HostAuth.Material); n > maxHostAuth {
		return fmt.Errorf("rpcrdma: Config.HostAuth.Material has %d bytes, must have %d at most", n, maxHostAuth)
	}
	cfg.Limits.V2, cfg.Extensions = cfg.Dialect, TransportProperties
	return nil
}

// completeExtensions checks the extensions, and fills in their defaults.
func (cfg *Config) completeExtensions() error {
	for _, n := range []*int{&cfg.Continuation.MaxCallTransmissions, &cfg.Continuation.MaxReplyTransmissions} {
		if def(n, defaultTransmissions); *n < 1 || *n > maxTransmissions {
			return fmt.Errorf("rpcrdma: Config.Continuation has %d transmissions, must be 1 to %d", *n, maxTransmissions)
		}
	}
	def(&cfg.Placement.ReceiveBuffer, 64<<10)
	def(&cfg.Placement.MinLength, pageSize)
	if n := cfg.Placement.ReceiveBuffer; n < pageSize || n > maxReceiveBuffer || n&(n-1) != 0 {
		return fmt.Errorf("rpcrdma: Config.Placement.ReceiveBuffer is %d, must be a power of two from %d to %d", n, pageSize, maxReceiveBuffer)
	}
	if n := cfg.Placement.MinLength; n < 1 {
		return fmt.Errorf("rpcrdma: Config.Placement.MinLength is %d, must be 1 at least", n)
	}
	if p := &cfg.Placement; p.Results > wire.BySize || p.Threshold < 0 || p.Results == wire.BySize && p.Threshold == 0 {
		return fmt.Errorf("rpcrdma: Config.Placement wants results by %v with a threshold of %d, must be EXRW, TBSN, CHOICE, or BYSIZE with 1 at least",
			p.Results, p.Threshold)
	}
	def(&cfg.Placement.Results, wire.SendBased)
	if cfg.has(MessageContinuation|SendBasedPlacement) && !cfg.has(TransportProperties) {
		return fmt.Errorf("rpcrdma: Config.Extensions has %#x, it needs TransportProperties", uint8(cfg.Extensions))
	}
	return nil
}

// has reports whether one of the extensions is offered.
func (cfg *Config) has(e Extensions) bool { return cfg.Extensions&e != 0 }

// callTransmissions and replyTransmissions are the most Sends of a call and of a reply for this
// side.
func (cfg *Config) callTransmissions() int {
	if !cfg.has(MessageContinuation) {
		return 1
	}
	return cfg.Continuation.MaxCallTransmissions
}

func (cfg *Config) replyTransmissions() int {
	if !cfg.has(MessageContinuation) {
		return 1
	}
	return cfg.Continuation.MaxReplyTransmissions
}

func (cfg *Config) offers(version int) bool { return slices.Contains(cfg.Versions, version) }

// completeVersions checks the versions, and fills in their defaults.
func (cfg *Config) completeVersions() error {
	if len(cfg.Versions) == 0 {
		cfg.Versions = []int{wire.Version1}
	}
	for _, v := range cfg.Versions {
		if v != wire.Version1 && v != wire.Version2 {
			return fmt.Errorf("rpcrdma: Config.Versions has %d, must be 1 or 2", v)
		}
	}
	if extra := cfg.Extensions &^ allExtensions; extra != 0 {
		return fmt.Errorf("rpcrdma: Config.Extensions has %#x, which is none", uint8(extra))
	}
	if err := cfg.completeDialect(); err != nil {
		return err
	}
	if err := cfg.completeExtensions(); err != nil {
		return err
	}
	cfg.Limits.Version2, cfg.Limits.NoVersion1 = cfg.offers(wire.Version2), !cfg.offers(wire.Version1)
	return nil
}
