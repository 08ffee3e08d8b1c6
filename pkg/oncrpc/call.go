package oncrpc

import (
	"net/netip"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

// Call is an RPC call in the hands of a server, from any transport. The transport owns and recycles it; the handler
// has it from ServeRPC until it calls Respond, Drop or Supersede, once, from any goroutine.
type Call struct {
	Message // the call as it came

	XID, Program, Version, Procedure uint32
	Cred, Verf                       Auth // views of the call's memory
	// ArgsAt is the position of the first byte of the procedure's parameters.
	ArgsAt int
	// Plan is the reply plan: what the transport's encoding of the call says, joined with what the binding says.
	Plan Plan
	// Conn is the connection that the call came by. It is never nil.
	Conn *Conn

	// Reply is what the handler builds, by BeginReply or by hand. The transport takes it over in Respond.
	Reply Message
	// Status is the outcome that Reply tells the caller. BeginReply and the other methods keep it; who builds
	// Reply by hand sets it too, unless it is SUCCESS.
	Status Status

	// Began is for who observes the call: when it came, on a clock of theirs.
	Began int64

	// Scratch is the handler's: it stays with the Call when that is recycled, so that a handler's state for
	// a call in flight need not be allocated. It never refers to an earlier call's memory.
	Scratch any

	pool      *bufpool.Pool
	transport Responder
	enc       xdr.Encoder
	dec       xdr.Decoder
	building  bool // between BeginReply and EndReply
	observer  CallObserver
}

// CallObserver is told how a call ended, on the goroutine that ended it, just before the transport gets it back. It only
// looks, and does not block.
type CallObserver interface {
	// Answered: c.Reply and c.Status are what will be sent.
	Answered(c *Call)
	// Dropped: there will be no reply.
	Dropped(c *Call)
}

// Responder is a transport's side of a Call.
type Responder interface {
	// Respond sends c.Reply and recycles c. It never blocks for long, and may be called from any goroutine.
	Respond(c *Call)
	// Drop recycles c without an answer, and closes the connection: the caller, which waits for an
	// answer, sends the call again on another one (RFC 8166 section 4.5.4, RFC 8881 section 2.9.2).
	Drop(c *Call)
	// Supersede recycles c without an answer. The connection stays: another call with its XID is
	// answered.
	Supersede(c *Call)
}

// Handler answers calls.
type Handler interface {
	// ServeRPC is called on a transport's receive loop. It does only what cannot block, and hands
	// everything else to other goroutines. Exactly one c.Respond, c.Drop or c.Supersede follows, in
	// ServeRPC or later. The RPC header is decoded and valid; the handler refuses programs,
	// versions and procedures that it does not know.
	ServeRPC(c *Call)
}

// Conn is what a server knows of a client's connection. Transports make it; handlers may compare it and keep it.
type Conn struct {
	// Network is "tcp" or "rdma".
	Network string
	// Remote and Local are the connection's addresses.
	Remote, Local netip.AddrPort
	// Back calls the client on the same connection (NFSv4.1 callbacks, RFC 8167). It may be nil.
	Back Requester
	// Out is the connection's sending side.
	Out Corker
	// Batch, if a handler sets it in its ServeRPC, is held while the receive loop works through what one read, or one poll of completions,
	// brought: for the connection to which the handler passes on what comes by this one.
	Batch Corker
	// Done is closed when the connection is gone.
	Done <-chan struct{}
	// Values is for what a handler keeps with a connection; only its ServeRPC may touch it.
	Values map[any]any
	// Calls counts the calls that the handler was given.
	Calls atomic.Uint64
	// Control watches the connection, and ends it. It may be nil.
	Control Controller
}

// Controller is a connection as whoever owns its server sees it. Its methods may be called from any goroutine, also after the end.
type Controller interface {
	// Busy reports whether a call of the peer, or one of ours, is not answered yet.
	Busy() bool
	// End ends the connection because of cause, which the server's observer hears.
	End(cause error)
}

// Corker is a sending side that can wait for more to send: what is sent between Cork and Uncork leaves together, at Uncork the latest.
// Corks nest, and may come from any goroutine; they are as short as the work on a batch of messages.
type Corker interface {
	Cork()
	Uncork()
}

// Auth is a credential or verifier (RFC 5531 section 8.2): at most 400 bytes of body.
type Auth struct {
	Flavor uint32
	Body   []byte
}

// Flavors of authentication.
const (
	AuthNone   = 0
	AuthSys    = 1
	RPCSecGSS  = 6
	MaxAuthLen = 400
)

// Request is an RPC call that this process makes. Its user owns it again when Done was called.
type Request struct {
	// Call is the whole call message, RPC header included; its first word is XID. The requester leaves it
	// to the user to release, when the request is done: until then it may have to be sent again.
	Call Message
	XID  uint32
	// Program, Version, Procedure and ArgsAt repeat what the header in Call says, so that no transport has to parse it.
	Program, Version, Procedure uint32
	ArgsAt                      int
	// Eligible are the positions in the unreduced call stream of the arguments that may be taken out; those that are
	// Items of Call are among them.
	Eligible []Argument
	// Plan is the reply plan.
	Plan Plan

	// Reply is the whole reply message, RPC header included, when Err is nil. The user releases it.
	Reply Message
	Err   error
	// Done is called exactly once, from whichever goroutine finished the request; it must not block.
	Done func(*Request)

	// Transport is the requester's, to keep its own state with the request.
	Transport any

	requestPrivate
}

// Requester sends calls on one connection.
type Requester interface {
	// Submit sends r. It does not block: what cannot be sent yet waits its turn. r.Done tells the outcome.
	Submit(r *Request)
	// NextXID returns an XID that no request of this requester uses now.
	NextXID() uint32
	// Close ends the connection; outstanding requests fail.
	Close() error
}
