package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Properties are the transport properties of one side: what it told, and defaults for the rest.
type Properties struct {
	// ReceiveSize is the largest message in bytes that the side receives.
	ReceiveSize int
	// Backward says what it can do with calls of the reverse direction: wire.BackwardNone, wire.BackwardInline or wire.BackwardGeneral.
	Backward uint32
	// Support are bits of operations that it accepts, wire.AcceptsRequest and so on.
	Support uint32
	// RequestLimit is the most transmissions of a request that it accepts, ResponseLimit the most of a reply that it sends.
	RequestLimit, ResponseLimit int
	// Targets is how many bytes of a receive bulk data may be placed in.
	Targets int
}

func propertiesOf(v *wire.Values) Properties {
	p := Properties{
		ReceiveSize: int(v.ReceiveSize()), Backward: v.Backward(), Support: v.Support(),
		RequestLimit: int(v.RequestLimit()), ResponseLimit: int(v.ResponseLimit()),
	}
	for _, s := range v.Structure().Segments() {
		if s.Flags&wire.Targetable != 0 {
			p.Targets += int(s.Length)
		}
	}
	return p
}

// Negotiated is what was settled for a connection.
type Negotiated struct {
	// Version is that of RPC-over-RDMA, 0 at a server that offers version 2 until the client's first message.
	Version int
	// InlineCall and InlineReply are the inline thresholds, in bytes, from client to server and back.
	InlineCall, InlineReply int
	// Granted is the number of credits that the server granted last, Requested what the client asks for.
	Granted, Requested int
	// RemoteInvalidation: both peers agreed on Send with Invalidate.
	RemoteInvalidation bool
	// Peer is what the peer sent while connecting, wire.DefaultPrivateData if it sent none.
	Peer       wire.PrivateData
	Attributes rdma.Attributes
	// Extensions are those that both peers have, in version 2. With any but TransportProperties, calls and replies may be sent in groups.
	Extensions Extensions
	// MaxCallTransmissions and MaxReplyTransmissions are how many Sends a call and a reply may take, 1 without MessageContinuation.
	MaxCallTransmissions, MaxReplyTransmissions int
	// Own and Remote are the transport properties of this side and of the peer, in version 2.
	Own, Remote Properties
}

// negotiated is what holds on a connection. They do not change, but are replaced as a whole.
type negotiated struct {
	// version is 0 until the first message has settled it.
	version int
	// sendLimit and recvLimit are the inline thresholds of messages from here and to here.
	sendLimit, recvLimit int
	// invalidate: replies may revoke the memory of their call.
	invalidate bool
	// backward: the peer takes calls of the reverse direction.
	backward bool
	// own and peer are the transport properties of both sides in version 2.
	own, peer Properties

	// layout is that of the peer's receives, if messages may be sent in groups. place: bulk data may be placed in them.
	layout *group.Layout
	place  bool
	// groups: calls may be sent so. callLimit and replyLimit are the most transmissions of a call from here and of the reply to it, sendLimits those
	// of a reply from here.
	groups                             bool
	ext                                Extensions // that both sides have
	callLimit, replyLimit, sendReplies int
	// back: the client takes groups in calls of the reverse direction, and the server in their replies.
	back bool
	// receive is how long the part of our receives for headers and payload is, as far as the peer knows.
	receive int
}
