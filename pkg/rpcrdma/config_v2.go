package rpcrdma

import (
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Extensions is a set of extensions of version 2.
type Extensions uint8

// The extensions.
const (
	// TransportProperties: peers exchange properties, above all the size of their receive buffers.
	TransportProperties Extensions = 1 << iota
	// MessageContinuation: an RPC message may be sent in several Sends. It needs
	// TransportProperties.
	MessageContinuation
	// SendBasedPlacement: bulk data are placed in receive buffers made for them. It needs
	// TransportProperties.
	SendBasedPlacement

	allExtensions = TransportProperties | MessageContinuation | SendBasedPlacement
)

// Continuation configures MessageContinuation.
type Continuation struct {
	// MaxCallTransmissions and MaxReplyTransmissions bound the Sends of a call and of a reply, 1 to
	// 256; 0 means 16. The smaller of both peers' values holds for a connection. A client posts as
	// many receives for each call as its reply may need.
	MaxCallTransmissions, MaxReplyTransmissions int
}

// Placement configures SendBasedPlacement.
type Placement struct {
	// ReceiveBuffer is the length in bytes of the part of each receive for bulk data: a power of
	// two from 4 KiB to 1 MiB. 0 means 64 KiB. Its pages are aligned.
	ReceiveBuffer int
	// MinLength is the length in bytes of the shortest argument or result that is placed. 0 means 4
	// KiB.
	MinLength int
	// Results is the placement of a client's results: wire.SendBased (also for 0), or
	// wire.Explicit, wire.Choice or wire.BySize, for which it exposes memory. Those three need no
	// SendBasedPlacement.
	Results wire.Placement
	// Threshold is a length in bytes: arguments at least as long are exposed, and with wire.BySize
	// such results are written. With 0 no argument is exposed; wire.BySize needs one.
	Threshold int
}

const (
	defaultTransmissions = 16
	maxTransmissions     = 256
	pageSize             = 4096
	maxReceiveBuffer     = 1 << 20
)
