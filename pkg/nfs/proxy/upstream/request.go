package upstream

import (
	"errors"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Errors of requests that the backend has not answered.
var (
	// ErrClosed: the link or the backend was closed.
	ErrClosed = errors.New("upstream: link closed")
	// ErrSoftTimeout: no answer within Config.SoftTimeout. A later answer is dropped.
	ErrSoftTimeout = errors.New("upstream: no answer within the soft timeout")
	// ErrSuperseded: the client sent another call with the same XID, which gets the answer. Send
	// nothing to the client.
	ErrSuperseded = errors.New("upstream: superseded by a call with the same XID")
	// ErrLost: the connection to the backend has ended and the call cannot be sent on another: it
	// is NoReplay, or two connections to a responsive backend have ended with it. Close the
	// client's connection, so that the client decides whether to send the call again.
	ErrLost = errors.New("upstream: connection lost")
	// ErrOverloaded: too many bytes wait for the backend. Close the client's connection, so that
	// the client keeps the call and sends it again later.
	ErrOverloaded = errors.New("upstream: too many bytes wait for the backend")
)

// Replay is the key by which the backend detects a replayed call.
type Replay uint8

const (
	// ReplayHarmless needs no key. NULL is such a call.
	ReplayHarmless Replay = iota
	// ReplayByXID is XID and source address, in NFSv3, MOUNT, NFSACL and NFSv4.0.
	ReplayByXID
	// ReplayBySession is session, slot and sequence id, from NFSv4.1 on.
	ReplayBySession
)

// TimeoutPolicy decides whether the soft timeout ends a request.
type TimeoutPolicy uint8

const (
	// TimeoutNever lets the request wait forever.
	TimeoutNever TimeoutPolicy = iota
	// TimeoutUnsent ends the request only if it was never sent. The backend may have executed a
	// sent one, even if that connection is lost.
	TimeoutUnsent
	// TimeoutAlways ends the request in any state.
	TimeoutAlways
)

// Request is a call to the backend. The zero value is ready for use, and a request may be reused
// after Reset, including its memory.
//
// The submitter sets the fields described at [oncrpc.Request]: Call, whose XID the client chose and
// which is also the stream's first word, the copies of its header fields, and Eligible and Plan for
// a backend behind RPC-over-RDMA. Plan's results leave Memory nil, since the reply may be that of
// another request. Done belongs to the link.
type Request struct {
	oncrpc.Request
	Replay  Replay
	Timeout TimeoutPolicy
	// NoReplay limits the request to one connection. RPCSEC_GSS needs it: each transmission needs a
	// new sequence number, which only the client can make, and a server silently drops one that it
	// has seen (RFC 2203 section 5.3.3.1).
	NoReplay bool
	// WaitingSince is the time since when the request has waited before Submit, for the soft
	// timeout; zero if it has not.
	WaitingSince time.Time
	// Finished is called exactly once, from any goroutine, perhaps within Submit. It must not
	// block. The request then belongs to its submitter. Err is nil if Reply is the backend's
	// answer.
	Finished func(*Request)

	requestState
}

// requestState is guarded by the mutex of bc.
type requestState struct {
	onDone func(*oncrpc.Request) // calls bc.onDone; made once

	bc           *backendConn
	prev, next   *Request  // in order of submission
	nextInBucket *Request  // hash chain
	sentOn       *liveConn // the connection that has it, or has inFlight; nil: unsent
	size         int64     // cost while it waits or is orphaned
	timedFrom    time.Time
	wasSent      bool
	deaths       int  // connections that ended with it after the backend had answered on them
	orphaned     bool // counted in Backend.orphaned

	// A request that repeats one in flight replaces it in the queue. The request in flight then
	// serves its replacement.
	replacement, inFlight *Request
	differs               bool // inFlight's answer is not the answer to this request

	// Cancellation by the timeout.
	cancelCause error
	cancelScan  uint64 // run of the timer that last tried to cancel it
	cancelling  bool   // Cancel is running: do not finish the request
	doneEarly   bool   // its connection gave it back meanwhile
}

// Reset prepares a finished or never submitted request for reuse. It releases Call and Reply.
func (r *Request) Reset() {
	r.Call.Release()
	r.Reply.Release()
	r.Plan.Reset()
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = 0, 0, 0, 0, 0
	r.Eligible, r.Err, r.Transport = r.Eligible[:0], nil, nil
	r.Replay, r.Timeout, r.NoReplay, r.WaitingSince, r.Finished = 0, 0, false, time.Time{}, nil
}

// orphanLocked counts r, which is in flight, as a call of a disconnected client.
func (r *Request) orphanLocked() {
	if !r.orphaned {
		r.orphaned = true
		r.bc.b.orphaned.Add(r.size)
	}
}

// finish hands r back to its submitter. No lock may be held.
func (r *Request) finish(err error) {
	if r.Err = err; err != nil {
		r.Reply.Release()
	}
	if r.orphaned {
		r.bc.b.orphaned.Add(-r.size)
	}
	answered := r.onDone
	r.requestState = requestState{onDone: answered}
	r.Finished(r)
}

// takeReply takes the reply of an equal call.
func (r *Request) takeReply(from *Request) {
	r.Reply.Release()
	r.Reply, from.Reply = from.Reply, r.Reply
	for i := range min(len(r.Plan.Results), len(from.Plan.Results)) {
		r.Plan.Results[i].State = from.Plan.Results[i].State
	}
}

// sameBytes reports whether two calls are equal byte for byte.
func sameBytes(a, b *oncrpc.Message) bool {
	if a.Len() != b.Len() {
		return false
	}
	x, y := a.Gather(nil), b.Gather(nil)
	var p, q []byte
	for {
		for len(p) == 0 && len(x) > 0 {
			p, x = x[0], x[1:]
		}
		for len(q) == 0 && len(y) > 0 {
			q, y = y[0], y[1:]
		}
		n := min(len(p), len(q))
		if n == 0 {
			return true
		}
		if string(p[:n]) != string(q[:n]) {
			return false
		}
		p, q = p[n:], q[n:]
	}
}

func finishAll(r *Request, err error) {
	for r != nil {
		next := r.next
		r.finish(err)
		r = next
	}
}
