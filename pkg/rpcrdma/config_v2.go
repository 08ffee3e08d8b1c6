package rpcrdma

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Extensions is a set of what version 2 can do beyond its base.
type Extensions uint8

// The extensions.
const (
	// TransportProperties: peers tell each other their properties, the size of their receive buffers above all.
	TransportProperties Extensions = 1 << iota
	// MessageContinuation: an RPC message may be sent in several Sends. It needs TransportProperties.
	MessageContinuation
	// SendBasedPlacement: bulk data are placed in receive buffers that are made for them. It needs TransportProperties.
	SendBasedPlacement

	allExtensions = TransportProperties | MessageContinuation | SendBasedPlacement
)

// Continuation is about MessageContinuation.
type Continuation struct {
	// MaxCallTransmissions and MaxReplyTransmissions bound the Sends of a call and of a reply, 1 to 256; 0 means 16. What holds for a connection
	// is the smaller of both peers'. A client posts receives for the replies of its calls, as many as each may need.
	MaxCallTransmissions, MaxReplyTransmissions int
}

// Placement is about SendBasedPlacement.
type Placement struct {
	// ReceiveBuffer is the length in bytes of the part of each receive that bulk data are placed in: a power of two from 4 KiB to 1 MiB. 0 means
	// 64 KiB. Pages of it are aligned.
	ReceiveBuffer int
	// MinLength is the length in bytes of the shortest argument or result that is placed. 0 means 4 KiB.
	MinLength int
	// Results is how a client wants results: wire.SendBased, which 0 means, or wire.Explicit, wire.Choice or wire.BySize, for which it exposes
	// memory. Those three need no SendBasedPlacement.
	Results wire.Placement
	// Threshold is a length in bytes: arguments that have it are exposed, and with wire.BySize results that have it are written. 0 means that no
	// argument is exposed; wire.BySize needs one.
	Threshold int
}

const (
	defaultTransmissions = 16
	maxTransmissions     = 256
	pageSize             = 4096
	maxReceiveBuffer     = 1 << 20
)

// completeExtensions fills in and checks what is about extensions.
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
	if cfg.Placement.Results == 0 {
		cfg.Placement.Results = wire.SendBased
	}
	if cfg.has(MessageContinuation|SendBasedPlacement) && !cfg.has(TransportProperties) {
		return fmt.Errorf("rpcrdma: Config.Extensions has %#x, it needs TransportProperties", uint8(cfg.Extensions))
	}
	return nil
}

// has reports whether one of the extensions is offered.
func (cfg *Config) has(e Extensions) bool { return cfg.Extensions&e != 0 }

// callTransmissions and replyTransmissions are how many Sends a call and a reply may have as far as this side is concerned.
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

// completeVersions fills in and checks what is about versions.
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
	if err := cfg.completeExtensions(); err != nil {
		return err
	}
	cfg.Limits.Version2, cfg.Limits.NoVersion1 = cfg.offers(wire.Version2), !cfg.offers(wire.Version1)
	return nil
}
