package oncrpc

import (
	"net/netip"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

// Call is a received RPC call, from any transport. The transport owns and recycles it. The handler
// holds it from ServeRPC until it calls Respond, Drop or Supersede, exactly once, from any
// goroutine.
type Call struct {
	Message // the call as it came

	XID, Program, Version, Procedure uint32
	Cred, Verf                       Auth // views of the call's memory
	// ArgsAt is the position of the first byte of the procedure's parameters.
	ArgsAt int
	// Plan is the reply plan: the transport's encoding in the call joined with the binding's.
	Plan Plan
	// Conn is the connection of the call. It is never nil.
	Conn *Conn

	// Reply is built by BeginReply or by the handler itself. The transport takes it over in
	// Respond.
	Reply Message
	// Status is the outcome in Reply. BeginReply and the other methods set it; a handler that
	// builds Reply itself sets it too, unless it is SUCCESS.
	Status Status

	// Began is for observers: the time of receipt, on their own clock.
	Began int64
	// Trace follows the call through its stages. It is nil for calls that are not traced. An
	// observer sets it when the call is received.
	Trace CallTrace

	// Scratch is the handler's. It survives the recycling of the Call, so that a handler's state
	// for a call in flight need not be allocated. It never refers to an earlier call's memory.
	Scratch any

	pool      *bufpool.Pool
	transport Responder
	enc       xdr.Encoder
	dec       xdr.Decoder
	building  bool // between BeginReply and EndReply
	observer  CallObserver
}

// CallObserver observes a call's end, on the goroutine that ends it, just before the transport gets
// the call back. It must not change the call, nor block.
type CallObserver interface {
	// Answered is called before c.Reply and c.Status are sent.
	Answered(c *Call)
	// Dropped is called when there will be no reply.
	Dropped(c *Call)
}

// Responder is a transport's side of a Call.
type Responder interface {
	// Respond sends c.Reply and recycles c. It never blocks for long, and may be called from any
	// goroutine.
	Respond(c *Call)
	// Drop recycles c without a reply and closes the connection, so that the caller sends the call
	// again on another one (RFC 8166 section 4.5.4, RFC 8881 section 2.9.2).
	Drop(c *Call)
	// Supersede recycles c without a reply. The connection stays: another call with its XID is
	// answered.
	Supersede(c *Call)
}

// Handler answers calls.
type Handler interface {
	// ServeRPC is called on a transport's receive loop. It must not block, and hands longer work to
	// other goroutines. Exactly one c.Respond, c.Drop or c.Supersede follows, in ServeRPC or later.
	// The RPC header is decoded and valid; the handler refuses unknown programs, versions and
	// procedures.
	ServeRPC(c *Call)
}

// Conn describes a client's connection to a server. Transports make it; handlers may compare it and
// keep it.
type Conn struct {
	// Network is "tcp" or "rdma".
	Network string
	// Remote and Local are the connection's addresses.
	Remote, Local netip.AddrPort
	// Back calls the client on the same connection (NFSv4.1 callbacks, RFC 8167). It may be nil.
	Back Requester
	// Out is the connection's sending side.
	Out Corker
	// Batch may be set by a handler in its ServeRPC, to the connection that its calls are forwarded
	// to. It is corked while the receive loop works through one read, or one poll of completions.
	Batch Corker
	// Done is closed when the connection is gone.
	Done <-chan struct{}
	// Values holds a handler's state of a connection. Only its ServeRPC may touch it.
	Values map[any]any
	// Calls counts the calls given to the handler.
	Calls atomic.Uint64
	// Control ends and observes the connection. It may be nil.
	Control Controller
}

// Controller is a server owner's control of a connection. Its methods may be called from any
// goroutine, also after the end.
type Controller interface {
	// Busy reports whether a call of the peer, or one of ours, is outstanding.
	Busy() bool
	// End ends the connection because of cause, which the server's observer receives.
	End(cause error)
}

// Corker is a sending side that can gather messages: everything sent between Cork and Uncork leaves
// together, at Uncork the latest. Corks nest, and may come from any goroutine. Keep them as short
// as the work on a batch of messages.
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

// Request is an RPC call of this process. Its user owns it again after Done was called.
type Request struct {
	// Call is the whole call message, RPC header included; its first word is the XID. The user
	// releases it when the request is done: until then it may be sent again.
	Call Message
	XID  uint32
	// Program, Version, Procedure and ArgsAt repeat the header in Call, so that no transport has to
	// parse it.
	Program, Version, Procedure uint32
	ArgsAt                      int
	// Eligible are the positions in the unreduced call stream of the arguments that may be taken
	// out. The Items of Call are among them.
	Eligible []Argument
	// Plan is the reply plan.
	Plan Plan

	// Reply is the whole reply message, RPC header included, when Err is nil. The user releases it.
	Reply Message
	Err   error
	// Done is called exactly once, from the goroutine that finished the request. It must not block.
	Done func(*Request)

	// Transport is the requester's state of the request.
	Transport any

	requestPrivate
}

// Requester sends calls on one connection.
type Requester interface {
	// Submit sends r, or queues it. It does not block. The outcome comes by r.Done.
	Submit(r *Request)
	// NextXID returns an XID that no outstanding request of this requester uses.
	NextXID() uint32
	// Close ends the connection. Outstanding requests fail.
	Close() error
}
