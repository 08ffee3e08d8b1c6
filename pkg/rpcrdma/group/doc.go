// Package group implements the transmission groups of the round-trip extension
// (draft-dnoveck-nfsv4-rpcrdma-rtrext-03): it splits an RPC message into several Sends, with bulk
// data placed for the receiver, and reassembles them. It is pure: no I/O, no locks, no time. The
// engine in pkg/rpcrdma supplies messages and receives, and sends the result.
//
// # Receives
//
// Each side announces the structure of its receive buffers: a [Layout]. Byte n of a Send arrives at
// byte n of the buffer. So a sender reaches a segment for bulk data, a target, by sending zeros up
// to its beginning:
//
//	buffer   | 4 KiB                        | 64 KiB, target, aligned         |
//	Send     | header | payload | zeros     | bulk data                       |
//	             |                            ^
//	             +-- item: position, length, buffer segment 0
//
// A WRITE or a READ of 64 KiB thus takes one Send, arrives in aligned memory, and needs no RDMA
// operation.
//
// # Groups
//
// Longer messages use continuations. The payload stream is the concatenation of their parts, each
// after its header. Targets are numbered through the group, whether used or not:
//
//	            4 KiB                          64 KiB
//	XmtReq   | header count=3 | payload | 000 | bulk data         |  segment 0
//	XmtCont  | header 1                 | 000 | bulk data         |  segment 1
//	XmtCont  | header 2                 | 000 | bulk data |          segment 2
//
// In a transmission without bulk data the payload stream may fill the whole buffer.
//
// # Sending
//
// A [Planner] takes the bulk items out of a message, finds a shortest group, and makes gather lists
// of the message's memory, zeros and headers:
//
//	Split(message, zeros, items) -> Lay(layout, operation, header, limits)
//	  -> Write(memory, xid, credits) -> Sends
//
// # Results
//
// A request directs the placement of results in sets, each for a range of the request, such as an
// operation of a COMPOUND:
//
//	requester                                responder
//	Direct:  the wanted placement of each result of the plan
//	                         -- XmtReq -->
//	                                         Answer: the placement of each result in the reply
//	                         <-- XmtResp --
//	Check:   whether the request allows the reply
//
// Each direction has one item in the reply's header, in order: EXRW, TBSN, TOOSHORT or NOITEM.
//
// # Receiving
//
// An [Assembler] gets every message of a connection in order of arrival. It never copies: stream
// and items of the RPC message refer to the receive buffers, which the message then owns.
//
// # Errors
//
// ReptErr reports errors in a group, not RDMA2_ERROR, since requests and replies can both be wrong.
// Where the draft leaves the code open, this package uses
//
//	BADHMT, BADOMT  a message other than a continuation, inside a group
//	BADCONT         a continuation outside a group, or of the other direction
//	BADSEQ          a number other than the next; or a first header whose count exceeds the limit
//	BADXID          a continuation with another XID
//	BADPL           a payload beyond the transmission, or not a multiple of 4
//	BADTBSN         a buffer segment number beyond those of the group; or none for an item
//	                with data (the valid range is then empty)
//	BADOFF          an item's offset beyond its buffer segment; its end beyond the received
//	                data, or beyond its last segment; its beginning in the payload stream or
//	                in another item; a position inside another item, after the end of the
//	                message, or not a multiple of 4; explicit segments shorter than the item
package group
