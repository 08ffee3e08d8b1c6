package rpcrdma

import (
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Properties are the transport properties of one side: the ones it sent, and defaults for the rest.
type Properties struct {
	// ReceiveSize is the largest message in bytes that the side receives.
	ReceiveSize int
	// Backward is its support of calls of the reverse direction: wire.BackwardNone,
	// wire.BackwardInline or wire.BackwardGeneral.
	Backward uint32
	// Support has a bit for each operation that it accepts, wire.AcceptsRequest and so on.
	Support uint32
	// RequestLimit is the most transmissions of a request that it accepts, ResponseLimit the most
	// of a reply that it sends.
	RequestLimit, ResponseLimit int
	// Targets is the number of bytes of a receive for bulk data.
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

// Negotiated describes the values agreed for a connection.
type Negotiated struct {
	// Version is that of RPC-over-RDMA, 0 at a server that offers version 2 until the client's
	// first message.
	Version int
	// InlineCall and InlineReply are the inline thresholds, in bytes, from client to server and
	// back.
	InlineCall, InlineReply int
	// Dialect is that of the headers.
	Dialect wire.Dialect
	// Granted is the number of credits in the server's last grant, Requested in the client's last
	// request.
	Granted, Requested int
	// RemoteInvalidation: both peers agreed on Send with Invalidate.
	RemoteInvalidation bool
	// Peer is the peer's private data, wire.DefaultPrivateData if it sent none.
	Peer       wire.PrivateData
	Attributes rdma.Attributes
	// Extensions are those that both peers have, in version 2. With any but TransportProperties,
	// calls and replies may be sent in groups.
	Extensions Extensions
	// MaxCallTransmissions and MaxReplyTransmissions bound the Sends of a call and of a reply; 1
	// without MessageContinuation.
	MaxCallTransmissions, MaxReplyTransmissions int
	// Padding is the alignment in bytes of padded calls (RFC 5666 section 3.9), 0 without.
	Padding int
	// ReadRead: calls of the client leave it to the server to expose long replies (RFC 5666 section
	// 5.1). At a server: it does so where a call has no room.
	ReadRead bool
	// Configured: the Connection Configuration Protocol has set the thresholds (RFC 5666 section
	// 6).
	Configured bool
	// Own and Remote are the transport properties of this side and of the peer, in version 2.
	Own, Remote Properties
}

// negotiated are the values that hold on a connection. They do not change, but are replaced as a
// whole.
type negotiated struct {
	// version is 0 until the first message.
	version int
	dialect wire.Dialect
	// sendLimit and recvLimit are the inline thresholds of messages from here and to here.
	sendLimit, recvLimit int
	// invalidate: replies may invalidate the memory of their call.
	invalidate bool
	// backward: the peer takes calls of the reverse direction.
	backward bool
	// own and peer are the transport properties of both sides in version 2.
	own, peer Properties

	// layout is the layout of the peer's receives, if messages may be sent in groups. place: bulk
	// data may be placed in them.
	layout *group.Layout
	place  bool
	// groups: calls may be sent in groups. callLimit and replyLimit bound the transmissions of a
	// call from here and of its reply, sendReplies those of a reply from here.
	groups                             bool
	ext                                Extensions // that both sides have
	callLimit, replyLimit, sendReplies int
	// back: the client takes groups in calls of the reverse direction, and the server in their
	// replies.
	back bool
	// receive is the length, as the peer knows it, of the part of our receives for headers and
	// payload.
	receive int

	// In the working group's dialect of version 2: the most Middles of a call and of a reply, and
	// the most segments of a header and bytes of one that the peer takes; otherwise 0.
	callMiddles, replyMiddles int
	segments, segment         int
}
