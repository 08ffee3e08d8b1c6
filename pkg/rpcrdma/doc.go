// Package rpcrdma carries RPC messages over RDMA: RPC-over-RDMA version 1 (RFC 8166) with calls in
// both directions (RFC 8167) and private data (RFC 8797), and version 2 (docs/protocol-v2.md,
// docs/protocol-v2-wg.md). It knows RPC and RDMA, and nothing of NFS: an oncrpc.Binding names the
// items of a message that may be placed directly.
//
// # Messages
//
// A message is one Send. Data that exceed the inline threshold, or need not be copied, cross by
// RDMA operations. The responder alone issues these, on memory that the requester exposed and named
// in chunks:
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
// The extensions of version 2 add messages of several Sends, and bulk data placed in receive
// buffers made for them:
//
//	group          | -- Send: XMTREQ ----------> |
//	               | -- Send: XMTCONT ---------> |
//	               | <-------- Send: XMTRESP --- |
//
// The reverse direction has groups if the client offers them, and never chunks.
//
// # Files, in reading order
//
// A reader of version 1 needs no file with v2 or rfc5666 in its name, and none that ends in _group.
//
//	server, client      accept and dial connections
//	conn, conn_*        one connection: its parts, and the dispatch of completions
//	responder           the peer's calls: call → plan → acquire → fetch → handle → Respond → sent
//	  _call               checks a call
//	  _plan               decodes it, plans its reply, counts its memory
//	  _fetch              takes the memory, reads the Read chunks
//	  _reply              hands it to the handler, writes the results, sends the reply
//	  _group              the same for groups
//	  _retained           replies that the peer may ask for again
//	  _quarantine         calls that cost a connection
//	requester           our calls
//	  _call, _queue       their life, and the wait for credits
//	  _build              a request becomes a message; _group: or several
//	  _reply              a message becomes a reply
//	  _retry              a refused call takes another shape
//	v2_negotiator       the version, and transport properties
//	  v2_negotiate, v2_terms, v2_properties, v2_resize
//	  v2_groups           puts messages of several Sends together
//	  v2_extension        further operations
//	  v2_wg_*             the working group's dialect: terms, properties, credits, parts of messages and
//	                      their continuation
//	inbound             a message that arrived
//	link, link_*        the endpoint, agreed values, and the queue of posted work
//	recv_*              receives: buffers, queue, credits, and queues that connections share
//	config, errors, observer, negotiated
//	rfc5666_*           forms of version 1 that only RFC 5666 has; config_rfc5666, link_rfc5666
//	credit, group, wire the packages below: credit policies, layout of groups, bytes of headers
//
// A call goes in the first of these shapes that fits it and its longest reply: one message each
// way, a group, chunks.
//
// # Loops and locks
//
// The endpoint's goroutine takes completions and runs the handler inline; nothing on it blocks.
// Answers and calls may be posted from any goroutine. Each role has one lock. None is held while
// work is posted, since completions may come from inside.
//
// # Memory
//
// Credits bound receives, and the bufpool.Budget bounds bulk memory. A message owns its buffers
// until the endpoint is done with them: an answer until its Send completes; a request until its
// reply has come, its own Send has completed, and all memory exposed for it is invalidated. When
// the connection ends, the endpoint lets go of everything, and each call and request is ended once,
// by its owner.
package rpcrdma
