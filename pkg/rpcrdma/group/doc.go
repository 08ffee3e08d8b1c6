// Package group has the transmission groups of the round-trip extension (draft-dnoveck-nfsv4-rpcrdma-rtrext-03): how an RPC message is
// dealt out to several Sends with its bulk data where the receiver wants them, and how the receiver puts it together. It is pure: no I/O, no
// locks, no time. The engine in pkg/rpcrdma gives it messages and receives, and sends what it makes.
//
// # Receives
//
// A side tells how its receive buffers are made: a [Layout]. Byte n of a Send lands at byte n of the buffer, whatever it means. So the
// sender brings bulk data into a segment that is made for them, a target, by sending zeros up to where the target begins:
//
//	buffer   | 4 KiB                        | 64 KiB, target, aligned         |
//	Send     | header | payload | zeros     | bulk data                       |
//	             |                            ^
//	             +-- item: position, length, buffer segment 0
//
// A WRITE or a READ of 64 KiB so is one Send, lands in aligned memory, and needs no RDMA operation.
//
// # Groups
//
// What is longer goes on in continuations. The payload stream is the concatenation of their parts, each behind its header; targets are
// numbered through the group, used or not:
//
//	            4 KiB                          64 KiB
//	XmtReq   | header count=3 | payload | 000 | bulk data         |  segment 0
//	XmtCont  | header 1                 | 000 | bulk data         |  segment 1
//	XmtCont  | header 2                 | 000 | bulk data |          segment 2
//
// In a transmission without bulk data the payload stream has the whole buffer.
//
// # Sending
//
// A [Planner] takes the bulk items out of a message, decides on a shortest group, and makes the gather lists: of the message's own
// memory, of zeros, and of headers:
//
//	Split(message, zeros, items) -> Lay(layout, operation, header, limits) -> Write(memory, xid, credits) -> Sends
//
// # Results
//
// A request directs how results are placed, in sets, each for a range of the request, such as an operation of a COMPOUND:
//
//	requester                                          responder
//	Direct:  the wanted placement of each result of the plan
//	                         -- XmtReq -->
//	                                                   Answer: the placement of each result in the reply
//	                         <-- XmtResp --
//	Check:   whether the request allows the reply
//
// Every direction gets one item in the reply's header, in order: EXRW, TBSN, TOOSHORT or NOITEM.
//
// # Receiving
//
// An [Assembler] sees every message of a connection in the order in which they came. It never joins or copies: stream and items
// of the RPC message refer to the receive buffers, which the message then owns.
//
// # Errors
//
// What is wrong with a group is told by ReptErr, never by RDMA2_ERROR, since requests and replies can both be wrong. The draft leaves the
// choice of the code open in places; here it is
//
//	BADHMT, BADOMT  a message that is no continuation, in the midst of a group
//	BADCONT         a continuation outside of a group, or of the other direction
//	BADSEQ          another number than the next; or a first header with a count beyond the limit
//	BADXID          a continuation with another XID
//	BADPL           a payload that the transmission does not hold, or that is not a multiple of 4
//	BADTBSN         a buffer segment number beyond those of the group; or none for an item with data (the valid range is then empty)
//	BADOFF          an item's offset beyond its buffer segment; its end beyond what was received, or beyond its last segment; its beginning in
//	                the payload stream or in another item; a position inside another item, behind the end of the message, or not a
//	                multiple of 4; explicit segments that are shorter than the item
package group
