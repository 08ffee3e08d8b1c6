package rpcrdma

import (
	"net/netip"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Observer counts the events of a Config's connections, for metrics. Its methods are called
// concurrently, on the data path: they do not block or allocate.
type Observer interface {
	// CallReceived reports the header of a call, before the rest is fetched. It may set c.Trace. Of
	// the other fields of c, only Conn may be used.
	CallReceived(c *oncrpc.Call)
	// Transferred counts payload bytes by their path.
	Transferred(p Path, bytes int)
	// ProtocolError counts errors by kind.
	ProtocolError(f ErrorKind)
	// Credits reports the number of credits granted to a peer, and how many it uses.
	Credits(granted, inUse int)
	// SRQPosted reports that n more receives are posted in a queue that connections share, fewer if
	// n is negative.
	SRQPosted(n int)

	// A server hears of each of its listener's connections either ConnRefused, or ConnOpened and
	// later ConnClosed.

	// ConnOpened: c serves calls.
	ConnOpened(c *Conn)
	// ConnClosed: c has ended and freed its memory. cause is the reason; see [rdma.Endpoint.Serve].
	ConnClosed(c *Conn, cause error)
	// ConnRefused: a connection was turned away, or failed while it was set up.
	ConnRefused(remote netip.AddrPort, cause error)
}

// Path is a way for payload to cross the connection.
type Path uint8

// The paths.
const (
	InlineCall  Path = iota // in the Send of a call
	InlineReply             // in the Send of a reply
	ReadChunk               // an argument's data, by RDMA Read
	LongCall                // a Position Zero Read chunk
	WriteChunk              // a result's data, by RDMA Write
	ReplyChunk              // a whole reply
	PlacedCall              // an argument's data, in the Send of a call (version 2)
	PlacedReply             // a result's data, in the Send of a reply
	Paths                   // their number
)

func (p Path) String() string {
	return [Paths]string{"inline_call", "inline_reply", "read_chunk", "long_call", "write_chunk", "reply_chunk", "placed_call", "placed_reply"}[p]
}

// ErrorKind is a kind of error.
type ErrorKind uint8

// The kinds of errors. The first ones are the peer's.
const (
	ShortMessage  ErrorKind = iota // a message shorter than a header: dropped
	BadVersion                     // answered ERR_VERS
	BadHeader                      // answered ERR_CHUNK, or dropped in a reply
	BadChunk                       // chunks that do not fit the message: answered ERR_CHUNK
	BadArguments                   // chunks that do not fit the arguments: answered GARBAGE_ARGS
	TooLarge                       // more bulk memory than a call may have: answered ERR_CHUNK
	UnknownXID                     // a reply to no call: dropped
	BadReply                       // a reply that does not fit its call: the call fails
	Dropped                        // RDMA_DONE, or another message that has no answer
	ReplyTooLong                   // a reply that fits nowhere: answered ERR_CHUNK
	NoMemory                       // the pool is exhausted
	ErrorReceived                  // the peer answered RDMA_ERROR
	// memory that the peer does not let us reach: the connection ends
	BadMemory
	BadRetry   // a call that cost a connection so, again: answered ERR_CHUNK
	ErrorKinds // their number
)

func (f ErrorKind) String() string {
	return [ErrorKinds]string{"short_message", "bad_version", "bad_header", "bad_chunk", "bad_arguments", "too_large", "unknown_xid",
		"bad_reply", "dropped", "reply_too_long", "no_memory", "error_received", "bad_memory", "bad_retry"}[f]
}

// NoObserver does nothing. It can be embedded.
type NoObserver struct{}

// CallReceived implements Observer.
func (NoObserver) CallReceived(*oncrpc.Call) {}

// Transferred implements Observer.
func (NoObserver) Transferred(Path, int) {}

// ProtocolError implements Observer.
func (NoObserver) ProtocolError(ErrorKind) {}

// Credits implements Observer.
func (NoObserver) Credits(int, int) {}

// SRQPosted implements Observer.
func (NoObserver) SRQPosted(int) {}

// ConnOpened implements Observer.
func (NoObserver) ConnOpened(*Conn) {}

// ConnClosed implements Observer.
func (NoObserver) ConnClosed(*Conn, error) {}

// ConnRefused implements Observer.
func (NoObserver) ConnRefused(netip.AddrPort, error) {}
