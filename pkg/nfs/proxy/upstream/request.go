package upstream

import (
	"errors"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// What becomes of a request other than that the backend answers it, as its Err.
var (
	// ErrClosed: the link or the backend was closed.
	ErrClosed = errors.New("upstream: the link is closed")
	// ErrSoftTimeout: the backend has not answered within Config.SoftTimeout. If it does so later, nobody hears of it.
	ErrSoftTimeout = errors.New("upstream: the backend has not answered in time")
	// ErrSuperseded: the client has sent another call with the same XID, which gets the answer. Nothing is to be sent to the client.
	ErrSuperseded = errors.New("upstream: the client has sent the call again")
	// ErrLost: the connection to the backend has ended, and the call is not sent on another: it has
	// Once, or two connections to a backend that answered have ended with it. The client's
	// connection is to be closed, so that the client sends the call again, as it has to be by then,
	// or lets it be.
	ErrLost = errors.New("upstream: the connection that had the call has ended")
	// ErrOverloaded: too much waits for the backend already. The client's connection is to be closed, so that the client keeps the call
	// and sends it again later.
	ErrOverloaded = errors.New("upstream: too much waits for the backend")
)

// Replay says by what the backend knows a call again that it has seen.
type Replay uint8

// What the backend knows a call by.
const (
	// ReplayHarmless: nothing, and nothing is needed. NULL is such a call.
	ReplayHarmless Replay = iota
	// ReplayByXID: its XID and the address that it comes from. So it is in NFSv3, MOUNT, NFSACL and NFSv4.0.
	ReplayByXID
	// ReplayBySession: session, slot and sequence id. So it is from NFSv4.1 on.
	ReplayBySession
)

// TimeoutPolicy says whether the soft timeout ends a request.
type TimeoutPolicy uint8

// Which requests the soft timeout ends.
const (
	// TimeoutNever: it waits for as long as it takes.
	TimeoutNever TimeoutPolicy = iota
	// TimeoutUnsent: it is ended unless it has been sent, also on a connection that is lost by now: the backend may have executed it then.
	TimeoutUnsent
	// TimeoutAlways: it is ended.
	TimeoutAlways
)

// Request is a call to the backend. The zero value is ready for use, and so is one after Reset: its memory is used again.
//
// The submitter fills in what [oncrpc.Request] says: Call with an XID of the client's choice, which is also the stream's first word, and the fields that
// repeat its header; Eligible and Plan for a backend behind RPC-over-RDMA. Plan's results leave their Memory nil, since the answer may be for another
// request than the one that was sent. Done is the link's.
type Request struct {
	oncrpc.Request
	Replay  Replay
	Timeout TimeoutPolicy
	// Once: it is sent on one connection at most. A call with RPCSEC_GSS is such: for each sending its credential needs a new sequence number, which only the
	// client can make; one that the backend has seen it drops without an answer (RFC 2203 section 5.3.3.1).
	NoReplay bool
	// WaitingSince is when the request began to wait elsewhere, for the soft timeout; zero if it did not.
	WaitingSince time.Time
	// Finished is called exactly once, from whichever goroutine finished the request, perhaps within Submit; it must not block. Then the request is its
	// submitter's again. Err is nil if Reply is the backend's answer.
	Finished func(*Request)

	requestState
}

// requestState is a line's, guarded by its lock.
type requestState struct {
	onDone func(*oncrpc.Request) // the method value, made once

	bc           *backendConn
	prev, next   *Request  // in order of submission
	nextInBucket *Request  // in the table
	sentOn       *liveConn // the connection that has it, or its carrier; nil: it waits to be sent
	size         int64     // what it counts for while it waits, or is left
	timedFrom    time.Time
	wasSent      bool
	deaths       int  // connections that ended with it, although the backend had answered on them
	orphaned     bool // its client has gone, and it counts for that until it is finished

	// A request that repeats one which a connection has in hand takes its place in the line. The former carries on, for the newcomer.
	replacement, inFlight *Request
	differs               bool // the carrier's answer is not the answer to this one

	// For giving up.
	cancelCause error
	cancelScan  uint64 // at which run of the timer it was last cancelled
	cancelling  bool   // it is being cancelled: it is not to be finished meanwhile
	doneEarly   bool   // it came back meanwhile
}

// Reset makes r, which is finished or was never submitted, ready for another call. It releases Call and Reply.
func (r *Request) Reset() {
	r.Call.Release()
	r.Reply.Release()
	r.Plan.Reset()
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = 0, 0, 0, 0, 0
	r.Eligible, r.Err, r.Transport = r.Eligible[:0], nil, nil
	r.Replay, r.Timeout, r.NoReplay, r.WaitingSince, r.Finished = 0, 0, false, time.Time{}, nil
}

// orphan counts r, which a connection has in hand, as left by its client. The line is locked.
func (r *Request) orphan() {
	if !r.orphaned {
		r.orphaned = true
		r.bc.b.orphaned.Add(r.size)
	}
}

// finish hands r back. No lock is held.
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

// sameBytes reports whether two calls are the same, byte for byte.
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
