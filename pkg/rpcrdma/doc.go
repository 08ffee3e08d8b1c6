// Package rpcrdma carries RPC messages over RDMA: RPC-over-RDMA version 1 (RFC 8166), with calls in both directions
// (RFC 8167) and what peers tell each other while they connect (RFC 8797), and version 2 as docs/protocol-v2.md has it. It knows RPC and RDMA, and nothing of NFS: which items of a
// message may be placed directly, it learns from an oncrpc.Binding.
//
// # Messages
//
// A message is one Send. What does not fit the inline threshold, or need not be copied, crosses by RDMA operations,
// which the responder alone issues, on memory that the requester exposed and named in chunks:
//
//	           requester                     responder
//	inline         | -- Send: call ------------> |
//	               | <------------ Send: reply - |
//
//	Read chunk     | -- Send: call, Read list -> |
//	               | <-------------- RDMA Read - |   an argument's data, or, at position 0, a whole call
//	               | -- data ------------------> |
//	               | <------------ Send: reply - |
//
//	Write chunk    | -- Send: call, Write list > |
//	               | <------------- RDMA Write - |   a result's data, or, in the Reply chunk, a whole reply
//	               | <------------ Send: reply - |   posted with the Writes, in one batch
//
// Version 2 adds, with its extensions, messages that take several Sends, and bulk data that are placed in receive buffers made for them:
//
//	group          | -- Send: XMTREQ ----------> |
//	               | -- Send: XMTCONT ---------> |
//	               | <-------- Send: XMTRESP --- |
//
// The reverse direction has groups too, if the client says so, and never chunks.
//
// # Versions
//
// The first message of a connection settles its version: see control.go for how a client chooses, and pin in version2.go for how a server does.
// What holds from then on are the connection's terms. A call takes the first of these ways that it, and all that its reply may be, fits:
// one message each way, groups (groupreply.go), chunks. When the peer refuses one, the call is sent another way (adapt.go); a reply that has
// been made is kept meanwhile (keep.go), so that no call is executed twice.
//
// # Roles
//
// A connection ([Conn]) has both roles. The responder answers the peer's calls: call → plan → acquire → fetch → serve → Respond →
// sent, see responder.go, fetch.go and reply.go. The requester makes calls, see requester.go, request.go and result.go.
// At a server, the requester is the reverse direction: Conn.Back of the oncrpc.Conn that handlers see.
//
// [Server] accepts connections, [Dial] makes one. Both take a [Config].
//
// # Loops and locks
//
// The endpoint's goroutine takes completions, and runs the handler inline; nothing on it blocks. Answers and calls may be posted from
// any goroutine. Each role has one lock, and none is held while work is posted, since completions may come from inside of it.
//
// # Memory
//
// Receives are bounded by credits (receives.go), bulk memory by the bufpool.Budget (responder.go). A message owns its buffers, and
// they go back when the endpoint is done with them: for an answer that is the completion of its Send, for a request
// the reply, the completion of its own Send, and the revocation of all that was exposed for it. When the connection ends,
// the endpoint has let go of everything; each call and each request is then ended once, by whoever has it.
package rpcrdma
