// Package rdma is the seam between RPC-over-RDMA and the providers of RDMA: what a reliable connected queue pair offers,
// in the words of verbs. It holds no implementation; see rdma/iwarp, rdma/verbs, and rdma/rdmatest for the suite that each passes.
//
// # Batches and loops
//
// An [Endpoint] is driven by one goroutine in [Endpoint.Serve]. It takes what arrived (one read of a socket, one poll of a
// completion queue), hands it to the [Handler] as one batch, and then sends what the handler posted meanwhile, in one go (bulk data may go earlier).
// Work posted by other goroutines is sent at once, or joins the batch that is being gathered or sent. So a burst of small messages costs
// one read and one write, and a lone one does not wait.
//
// # Memory
//
// Local memory is named by slices, which must lie in arenas attached to the endpoint's [Domain]. Memory named in a
// work request belongs to the endpoint from Post until its completion; that of a receive from PostReceives until its completion. When
// Serve has returned, the endpoint holds no memory any more, whether or not completions came for it.
// Remote access exists only for what [Endpoint.Expose] made, for as long as it is not invalidated.
package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"sluice.dev/sluice/pkg/bufpool"
)

// Provider opens connections.
type Provider interface {
	// Name is "iwarp", "verbs" or "fabric".
	Name() string
	// NewDomain makes a protection domain.
	NewDomain() (Domain, error)
	// Listen waits for connections on address ("host:port").
	Listen(ctx context.Context, address string) (Listener, error)
	// Dial connects. The endpoint is established when it returns; receives of o are posted by then. When the peer
	// called ConnRequest.Reject, the error is (or wraps) a *RejectedError.
	Dial(ctx context.Context, address string, o Options) (Endpoint, error)
}

// Domain is a protection domain: local memory and exposed regions of one domain are of no use in another.
type Domain interface {
	// Register registers all arenas of the pool, also those to come, as local memory.
	Register(p *bufpool.Pool) error
	// Close frees the domain; its endpoints must be closed before.
	Close() error
}

// Listener waits for connections.
type Listener interface {
	// Accept returns the next request for a connection. A peer that fails before its request is complete is not reported.
	// After Close it returns net.ErrClosed.
	Accept() (ConnRequest, error)
	Addr() net.Addr
	Close() error
}

// ConnRequest is a peer's request for a connection. Exactly one of Accept and Reject is called.
type ConnRequest interface {
	// PrivateData is what the peer sent along, without the provider's own part.
	PrivateData() []byte
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	Accept(o Options) (Endpoint, error)
	Reject(privateData []byte) error
	// SRQKey returns what requests have in common, to be compared, whose connections can have one SRQ: those over one device. It is nil if
	// there can be none.
	SRQKey() any
	// NewSRQ makes a queue for this connection, and those with the same SRQKey, in a domain. It holds at most depth receives.
	NewSRQ(d Domain, depth int) (SRQ, error)
}

// SRQ is a queue of receives that endpoints of a domain share: a message takes the first one, whichever of them it is for, and the
// completion with its ID goes to that endpoint. What endpoints took and did not report when they ended is posted again.
//
// A message that finds it empty waits (InfiniBand and RoCE, by RNR NAKs) or ends the connection on which it came and no other. One for which its first receive is
// too short ends that connection in any case.
type SRQ interface {
	// PostReceives adds to the queue: all of rs or (with an error) none. It may be called from any goroutine.
	PostReceives(rs []Receive) error
	// Depth is how many receives it holds at most.
	Depth() int
	// Close frees the queue, and what is posted. Its endpoints must be closed before, and its domain after it.
	Close() error
}

// RejectedError is returned by Dial when the peer refused the connection.
type RejectedError struct {
	// PrivateData is what the peer gave to Reject.
	PrivateData []byte
}

func (e *RejectedError) Error() string {
	return "rdma: the peer rejected the connection"
}

// ErrExposed is what Expose's error wraps when so much is exposed already, on this connection or by this device, that there can be no more until some of it
// is invalidated.
var ErrExposed = errors.New("no more memory can be exposed at present")

// AccessError is what Serve's error wraps, as far as a provider can tell, when the connection ended because the peer refused an RDMA
// Read or Write of ours: it does not expose that memory, or not for this.
type AccessError struct {
	// Handle is the peer's handle in question.
	Handle uint32
}

func (e *AccessError) Error() string {
	return fmt.Sprintf("rdma: the peer refused access to its handle %#x", e.Handle)
}

// Options are the parameters of a connection.
type Options struct {
	Domain Domain
	// PrivateData goes to the peer, at most 196 bytes.
	PrivateData []byte
	// PrivateDataFunc, if it is not nil, makes the private data that Dial sends: whether the peer can invalidate what is exposed here may depend
	// on the device that leads to it.
	PrivateDataFunc func(remoteInvalidation bool) []byte
	// NoRemoteAccess says that this end is going to expose nothing, so that a provider keeps nothing ready for that.
	NoRemoteAccess bool
	// Receives are posted before the peer can send.
	Receives []Receive
	// SRQ is where this end's receives are instead, if it is not nil: Receives is empty, and Endpoint.PostReceives fails. ReceiveQueue is then how
	// many messages may wait to be reported.
	SRQ SRQ
	// SendQueue and ReceiveQueue are the most work requests and receives outstanding at once; 0 means 1024.
	SendQueue, ReceiveQueue int
	// ORD and IRD are the most RDMA Reads that may be outstanding from here, and from the peer. The
	// connection gets the smaller of both sides' values; see Attributes.
	ORD, IRD int
}

// SetPrivateData sets PrivateData for Dial. Providers call it.
func (o *Options) SetPrivateData(remoteInvalidation bool) {
	if o.PrivateDataFunc != nil {
		o.PrivateData = o.PrivateDataFunc(remoteInvalidation)
	}
}

// Endpoint is one end of a connection: a queue pair.
type Endpoint interface {
	// Serve drives the endpoint until the connection ends, and returns why: io.EOF when the peer disconnected in order, net.ErrClosed after
	// Close, otherwise an error that says what failed. It is called once. No Handler method runs any more when it returns, and
	// once Close was called too, in whatever order, everything is freed.
	Serve(h Handler) error
	// Post takes a batch of work requests, all of them or (with an error) none. It does not block and copies wrs, but not the
	// slices that these refer to: those stay untouched until the request completes.
	// They execute in order as far as RFC 5040 section 5.5 or verbs demand; a Read does not hold up what follows it.
	Post(wrs []WorkRequest) error
	// Cork lets posted work gather until Uncork, which sends it. It is for batch after batch that is
	// posted from outside of Completed; inside, work gathers in any case. Receives may gather too,
	// and are posted ahead of what is sent. Corks nest, come from any goroutine, and are short. An
	// endpoint may send earlier.
	Cork()
	// Uncork ends a Cork.
	Uncork()
	// PostReceives adds to the receive queue, which is first in, first out.
	PostReceives(rs []Receive) error
	// Expose makes mem accessible to the peer, for Sends that are posted afterwards to advertise. Handles are
	// unpredictable. Access ends with LocalInvalidate, or by the peer's SendWithInvalidate. The error is ErrExposed where that has to happen before.
	Expose(mem []byte, access Access) (Remote, error)
	// Attributes tells what was settled for this connection.
	Attributes() Attributes
	// Stats counts what the endpoint did.
	Stats() Stats
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// Close ends the connection; what was posted is sent before, as far as that is possible without waiting for the peer. Serve returns soon afterwards. It may be called at any time, and
	// more than once. If Serve was never called, Close frees everything.
	Close() error
}

// Writer is an [Endpoint] that can tell how much of what was posted has left, before it is complete.
type Writer interface {
	// Written returns the payload bytes that have been given to the network since the connection began.
	Written() uint64
}

// Handler receives the completions of an endpoint.
type Handler interface {
	// Completed reports, on Serve's goroutine and in order, receives, RDMA Reads and local invalidations. The slice is the provider's.
	Completed(batch []Completion)
	// Sent reports, in the order of posting, signaled Sends and Writes whose memory is free again, by their IDs. It may be called on any goroutine, also concurrently
	// with Completed and from inside Post: the handler holds no lock of its own across Post.
	Sent(ids []uint64)
}

// Opcode tells what a work request does.
type Opcode uint8

// Opcodes.
const (
	Send Opcode = iota
	SendWithInvalidate
	Write
	Read
	LocalInvalidate
	// Recv is the opcode of a receive's completion.
	Recv
)

// WorkRequest is one entry of the send queue.
type WorkRequest struct {
	// ID comes back in the completion.
	ID uint64
	Op Opcode
	// Signaled asks for a completion. Reads and LocalInvalidates have one in any case. An unsignaled request is complete when a later signaled
	// Send or Write of the same endpoint is.
	Signaled bool
	// Local is the gather list of a Send or Write, the scatter list of a Read.
	Local [][]byte
	// Remote is the peer's memory, for Write and Read.
	Remote Remote
	// Invalidate is the peer's handle for SendWithInvalidate, ours for LocalInvalidate.
	Invalidate uint32
}

// Remote names memory across the connection, as RPC-over-RDMA segments do.
type Remote struct {
	Handle uint32 // STag or R_key
	Offset uint64 // tagged offset or virtual address: opaque to everybody but its owner
}

// Receive is one entry of the receive queue: a message is scattered over the segments in order.
type Receive struct {
	ID       uint64
	Segments [][]byte
}

// Completion reports a finished receive, Read or LocalInvalidate.
type Completion struct {
	ID uint64
	Op Opcode
	// Bytes is the length of a received message.
	Bytes int
	// Invalidated is our handle that the peer invalidated with this message, if HasInvalidated.
	Invalidated    uint32
	HasInvalidated bool
}

// Access says what the peer may do with exposed memory.
type Access uint8

// What the peer may do.
const (
	RemoteRead Access = 1 << iota
	RemoteWrite
)

// Attributes are the settled parameters of a connection.
type Attributes struct {
	Provider string
	Device   string // "" for software
	// PrivateData is what the peer sent while connecting.
	PrivateData []byte
	// ORD and IRD are the negotiated limits of outstanding RDMA Reads; see Options.
	ORD, IRD int
	// MaxSegments bounds Local and Segments; MaxReadSegments bounds Local of a Read.
	MaxSegments, MaxReadSegments int
	// RemoteInvalidation: memory exposed here can be invalidated by the peer.
	RemoteInvalidation bool
	// CRC: the connection is protected by CRC32C (iWARP).
	CRC bool
	// QueuePair is the adapter's queue pair, nil for software.
	QueuePair *QueuePair
}

// QueuePair identifies a queue pair of an adapter, and the path to the peer's. Fields that the
// adapter does not report have their zero value: over iWARP all but QPN and Port.
type QueuePair struct {
	// Port is the adapter's port, from 1.
	Port int
	// QPN and RemoteQPN are the queue pair numbers of both ends.
	QPN, RemoteQPN uint32
	// GID and RemoteGID are the GIDs of both ends. Those of RoCE over IPv4 are IPv4 addresses.
	GID, RemoteGID netip.Addr
	// GIDType is "RoCE v2" or "IB/RoCE v1", and empty over InfiniBand.
	GIDType string
	// PathMTU is in bytes, 256 to 4096.
	PathMTU int
}

// Stats counts since the connection began.
type Stats struct {
	ReadCalls, WriteCalls     uint64 // system calls for reading and writing, or crossings into C
	BytesIn, BytesOut         uint64 // of payload
	Sends, Writes, Reads      uint64 // work requests executed
	Receives                  uint64 // messages received
	RemoteWrites, RemoteReads uint64 // operations of the peer on our memory
	CopiedIn                  uint64 // payload bytes that were copied on their way in
}
