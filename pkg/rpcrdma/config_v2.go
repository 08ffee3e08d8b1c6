package rpcrdma

import (
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
