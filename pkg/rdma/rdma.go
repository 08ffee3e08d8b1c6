// Package rdma is the interface between RPC-over-RDMA and the providers of RDMA: a reliable
// connected queue pair, in the terms of verbs. It has no implementation; see rdma/iwarp,
// rdma/verbs, and rdma/rdmatest for the conformance suite.
//
// # Batches and loops
//
// One goroutine drives an [Endpoint] in [Endpoint.Serve]. It takes a batch of events (one read of a
// socket, one poll of a completion queue), hands the completions to the [Handler], and then sends
// everything that the handler posted meanwhile in one go (bulk data may leave earlier). Work posted
// by other goroutines is sent at once, or joins the batch that is being gathered or sent. So a
// burst of small messages costs one read and one write, and a lone message does not wait.
//
// # Memory
//
// Local memory is named by slices, which must lie in arenas registered with the endpoint's
// [Domain]. The memory of a work request belongs to the endpoint from Post until its completion;
// that of a receive, from PostReceives until its completion. When Serve has returned, the endpoint
// holds no memory, with or without completions. Remote access exists only for memory given to
// [Endpoint.Expose], until it is invalidated.
package rdma

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

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
	// Dial connects. The endpoint is established when it returns; the receives of o are posted by
	// then. When the peer called ConnRequest.Reject, the error is (or wraps) a *RejectedError.
	Dial(ctx context.Context, address string, o Options) (Endpoint, error)
}

// Domain is a protection domain: local memory and exposed regions of one domain cannot be used in
// another.
type Domain interface {
	// Register registers all arenas of the pool, later ones too, as local memory.
	Register(p *bufpool.Pool) error
	// Close frees the domain. Its endpoints must be closed before.
	Close() error
}

// Listener accepts connections.
type Listener interface {
	// Accept returns the next request for a connection. Peers that fail before their request is
	// complete are not reported. After Close it returns net.ErrClosed.
	Accept() (ConnRequest, error)
	Addr() net.Addr
	Close() error
}

// ConnRequest is a peer's request for a connection. Call exactly one of Accept and Reject.
type ConnRequest interface {
	// PrivateData returns the peer's private data, without the provider's own part.
	PrivateData() []byte
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	Accept(o Options) (Endpoint, error)
	Reject(privateData []byte) error
	// SRQKey returns a comparable key. Requests with equal keys, those over one device, may share
	// an SRQ. It is nil if the provider has no SRQs.
	SRQKey() any
	// NewSRQ makes a queue in a domain for this connection, and others with the same SRQKey. It
	// holds at most depth receives.
	NewSRQ(d Domain, depth int) (SRQ, error)
}

// SRQ is a shared receive queue of endpoints in a domain: a message to any of them takes the first
// receive, and the completion with its ID goes to that endpoint. Receives that an endpoint took and
// did not report before its end are posted again.
//
// A message that finds it empty waits (InfiniBand and RoCE, by RNR NAKs) or ends its own
// connection. A message longer than its receive ends its own connection in any case.
type SRQ interface {
	// PostReceives adds all of rs or, with an error, none. It may be called from any goroutine.
	PostReceives(rs []Receive) error
	// Depth is the limit of receives.
	Depth() int
	// Close frees the queue and its receives. Close its endpoints before, and its domain after it.
	Close() error
}

// RejectedError is returned by Dial when the peer refused the connection.
type RejectedError struct {
	// PrivateData is the peer's argument of Reject.
	PrivateData []byte
}

func (e *RejectedError) Error() string {
	return "rdma: the peer rejected the connection"
}

// ErrExposed is wrapped by Expose's error when the connection or the device can expose no more
// memory until some is invalidated.
var ErrExposed = errors.New("no more memory can be exposed at present")

// AccessError is wrapped by Serve's error, where the provider can detect it, when the peer refused
// an RDMA Read or Write of ours: it does not expose that memory, or not for this access.
type AccessError struct {
	// Handle is the peer's handle in the refused operation.
	Handle uint32
}

func (e *AccessError) Error() string {
	return fmt.Sprintf("rdma: the peer refused access to its handle %#x", e.Handle)
}

// Options are the parameters of a connection.
type Options struct {
	Domain Domain
	// PrivateData is sent to the peer, at most 196 bytes.
	PrivateData []byte
	// PrivateDataFunc, if not nil, makes the private data for Dial. Its argument is whether the
	// peer can invalidate memory exposed here, which may depend on the device.
	PrivateDataFunc func(remoteInvalidation bool) []byte
	// NoRemoteAccess: this end will expose nothing, so the provider need not prepare for it.
	NoRemoteAccess bool
	// Receives are posted before the peer can send.
	Receives []Receive
	// ReuseReceives lets a message take the last posted of several receives whose segments have the
	// same lengths, so that few of them are used where few suffice. Others keep their order. It is
	// a hint: adapters take the first.
	ReuseReceives bool
	// SRQ, if not nil, replaces the endpoint's own receive queue: Receives is empty, and
	// Endpoint.PostReceives fails. ReceiveQueue then bounds the messages that wait to be reported.
	SRQ SRQ
	// SendQueue and ReceiveQueue bound the outstanding work requests and receives; 0 means 1024.
	SendQueue, ReceiveQueue int
	// ORD and IRD bound the outstanding RDMA Reads of this end, and of the peer. The connection
	// gets the smaller of both sides' values; see Attributes.
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
	// Serve drives the endpoint until the connection ends, and returns the cause: io.EOF when the
	// peer disconnected in order, net.ErrClosed after Close, otherwise an error that describes the
	// failure. Call it once. When it returns no Handler method runs any more; after both Serve and
	// Close, in either order, everything is freed.
	Serve(h Handler) error
	// Post takes a batch of work requests: all of them or, with an error, none. It does not block.
	// It copies wrs, but not the slices that they refer to: those must stay untouched until the
	// request completes. Requests execute in the order that RFC 5040 section 5.5 or verbs demand; a
	// Read does not delay later requests.
	Post(wrs []WorkRequest) error
	// Cork lets posted work gather until Uncork, which sends it. It is for several batches posted
	// from outside of Completed; inside, work gathers anyway. Receives may gather too, and are
	// posted ahead of sends. Corks nest, come from any goroutine, and should be short. An endpoint
	// may send earlier.
	Cork()
	// Uncork ends a Cork.
	Uncork()
	// PostReceives adds to the receive queue, which is first in, first out, unless
	// Options.ReuseReceives is set.
	PostReceives(rs []Receive) error
	// Expose makes mem accessible to the peer, to be advertised by Sends posted afterwards. Handles
	// are unpredictable. Access ends with LocalInvalidate, or by the peer's SendWithInvalidate. The
	// error is ErrExposed if one of these must happen first.
	Expose(mem []byte, access Access) (Remote, error)
	// Attributes returns the connection's parameters.
	Attributes() Attributes
	// Stats returns the endpoint's counters.
	Stats() Stats
	LocalAddr() net.Addr
	RemoteAddr() net.Addr
	// Close ends the connection. It first sends posted work, as far as the peer's window allows
	// without waiting. Serve returns soon afterwards. Close may be called at any time, and more
	// than once. If Serve was never called, Close frees everything.
	Close() error
}

// Writer is an [Endpoint] that counts posted bytes as they leave, before their completion.
type Writer interface {
	// Written returns the payload bytes given to the network since the connection began.
	Written() uint64
}

// Trimmer is an [Endpoint] with memory that it needs only while it is busy.
type Trimmer interface {
	// Trim frees that memory soon. Any goroutine may call it at any time.
	Trim()
}

// Handler receives the completions of an endpoint.
type Handler interface {
	// Completed reports, on Serve's goroutine and in order, receives, RDMA Reads, local
	// invalidations and redirections. The provider owns the slice.
	Completed(batch []Completion)
	// Sent reports signaled Sends and Writes whose memory is free again, by their IDs, in the order
	// of posting. It may be called on any goroutine, also concurrently with Completed and from
	// inside Post: hold no lock across Post that Sent takes.
	Sent(ids []uint64)
}

// Opcode is the operation of a work request.
type Opcode uint8

// Opcodes.
const (
	Send Opcode = iota
	SendWithInvalidate
	Write
	Read
	LocalInvalidate
	// Redirect leads a handle to other memory: it is complete when the peer no longer reaches the
	// old one, but the new one in its place. It has no effect on a handle that was invalidated.
	// Only endpoints with Attributes.Redirects have it.
	Redirect
	// Recv is the opcode of a receive's completion.
	Recv
)

// WorkRequest is one entry of the send queue.
type WorkRequest struct {
	// ID comes back in the completion.
	ID uint64
	Op Opcode
	// Signaled requests a completion. Reads, LocalInvalidates and Redirects always have one. An
	// unsignaled request is complete when a later signaled Send or Write of the same endpoint is.
	Signaled bool
	// Local is the gather list of a Send or Write, the scatter list of a Read. For Redirect it is
	// one slice, as long as the exposed memory, which stays untouched until LocalInvalidate.
	Local [][]byte
	// Remote is the peer's memory, for Write and Read.
	Remote Remote
	// Invalidate is the peer's handle for SendWithInvalidate, ours for LocalInvalidate and
	// Redirect.
	Invalidate uint32
}

// Remote names memory across the connection, as RPC-over-RDMA segments do.
type Remote struct {
	Handle uint32 // STag or R_key
	Offset uint64 // tagged offset or virtual address: opaque to all but its owner
}

// Receive is one entry of the receive queue. A message is scattered over the segments in order.
type Receive struct {
	ID       uint64
	Segments [][]byte
}

// Completion reports a finished receive, Read, LocalInvalidate or Redirect.
type Completion struct {
	ID uint64
	Op Opcode
	// Bytes is the length of a received message.
	Bytes int
	// Invalidated is our handle that the peer invalidated with this message, if HasInvalidated.
	Invalidated    uint32
	HasInvalidated bool
}

// Access is a set of the peer's rights on exposed memory.
type Access uint8

// The peer's rights.
const (
	RemoteRead Access = 1 << iota
	RemoteWrite
)

// Attributes are the negotiated parameters of a connection.
type Attributes struct {
	Provider string
	Device   string // "" for software
	// PrivateData is the peer's private data.
	PrivateData []byte
	// ORD and IRD are the negotiated limits of outstanding RDMA Reads; see Options.
	ORD, IRD int
	// MaxSegments bounds Local and Segments; MaxReadSegments bounds Local of a Read.
	MaxSegments, MaxReadSegments int
	// RemoteInvalidation: the peer can invalidate memory exposed here.
	RemoteInvalidation bool
	// Redirects: the endpoint has Redirect, and does not give handles anew within a short time.
	Redirects bool
	// RoundTrip is the shortest round trip while connecting, 0 if the provider did not measure it.
	RoundTrip time.Duration
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

// Stats are counters since the connection began.
type Stats struct {
	ReadCalls, WriteCalls     uint64 // system calls for reading and writing, or entries into C
	BytesIn, BytesOut         uint64 // of payload
	Sends, Writes, Reads      uint64 // work requests executed
	Receives                  uint64 // messages received
	RemoteWrites, RemoteReads uint64 // operations of the peer on our memory
	CopiedIn                  uint64 // payload bytes copied on their way in
}

// Add adds the counters of o.
func (s *Stats) Add(o Stats) {
	s.ReadCalls += o.ReadCalls
	s.WriteCalls += o.WriteCalls
	s.BytesIn += o.BytesIn
	s.BytesOut += o.BytesOut
	s.Sends += o.Sends
	s.Writes += o.Writes
	s.Reads += o.Reads
	s.Receives += o.Receives
	s.RemoteWrites += o.RemoteWrites
	s.RemoteReads += o.RemoteReads
	s.CopiedIn += o.CopiedIn
}
