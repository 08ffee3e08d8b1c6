package rpcrdma

import (
	"time"

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
	// Near is the round trip up to which a client moves data by chunks where these cost less CPU
	// time: results, which take one round trip either way, and arguments beyond NearArguments. 0
	// means never. It has an effect where the provider measures round trips.
	Near time.Duration
	// Threshold is a length in bytes: arguments at least as long are exposed, and with wire.BySize
	// such results are written. With 0 no argument is exposed; wire.BySize needs one.
	Threshold int
}

// NearArguments is the number of bytes of arguments that a client on a near link has on their way
// in receives, for all its calls. A few fit the caches of both sides, and save a round trip each.
// More of them only wait in the socket, while a server reads chunks when it has time for them.
const NearArguments = 64 << 10

// HostAuth exchanges proofs of who the hosts are, such as keys or tokens, with the properties of a
// connection. They are in the clear, without protection against repetition. A connection of version
// 1, where Config.Versions has it, is made without them.
type HostAuth struct {
	// Material is sent to the peer; at most 512 bytes. nil means none.
	Material []byte
	// Check looks at the peer's, nil if it has sent none. An error ends the connection. A nil Check
	// accepts all.
	Check func(material []byte) error
}

// maxHostAuth bounds the material in bytes: the first message has 1024 at most.
const maxHostAuth = 512

const (
	defaultTransmissions = 16
	maxTransmissions     = 256
	pageSize             = 4096
	maxReceiveBuffer     = 1 << 20
)
