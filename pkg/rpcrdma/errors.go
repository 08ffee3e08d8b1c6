package rpcrdma

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// ErrClosed is the error of requests when Close ended the connection.
var ErrClosed = errors.New("rpcrdma: connection closed")

// LostError is the error of requests that were outstanding when the connection ended. They may have
// been executed.
type LostError struct{ Cause error }

func (e *LostError) Error() string { return fmt.Sprintf("rpcrdma: connection lost: %v", e.Cause) }

func (e *LostError) Unwrap() error { return e.Cause }

// RemoteError is the error of a request that the peer answered with RDMA_ERROR. It is final:
// sending it again does not help, or was tried.
type RemoteError struct {
	// Version is that of the message. It decides the meaning of Code.
	Version   uint32
	Code      wire.ErrorCode
	Low, High uint32 // with ERR_VERS, the versions that the peer has

	// Max, Index and Needed are further values of version 2; see wire.Fault2.
	Max, Index, Needed uint32
}

func (e *RemoteError) Error() string {
	name := e.Code.Name(e.Version)
	switch {
	case e.Code == wire.ErrVers:
		return fmt.Sprintf("rpcrdma: the peer answered ERR_VERS, it has versions %d to %d", e.Low, e.High)
	case e.Version != wire.Version2:
	case e.Code == wire.ReadChunks, e.Code == wire.WriteChunks, e.Code == wire.Segments:
		return fmt.Sprintf("rpcrdma: the peer answered %s, it takes %d at most", name, e.Max)
	case e.Code == wire.WriteResource:
		return fmt.Sprintf("rpcrdma: the peer answered %s, it needs %d bytes in Write chunk %d", name, e.Needed, e.Index)
	case e.Code == wire.ReplyResource:
		return fmt.Sprintf("rpcrdma: the peer answered %s, it needs %d bytes for the reply", name, e.Needed)
	}
	return "rpcrdma: the peer answered " + name
}

func remoteError(h *wire.Header) *RemoteError {
	return &RemoteError{Version: h.Version, Code: h.Code, Low: h.Low, High: h.High, Max: h.Max, Index: h.Index, Needed: h.Needed}
}

// ReplyError is the error of a request whose reply does not fit it.
type ReplyError struct{ Reason string }

func (e *ReplyError) Error() string { return "rpcrdma: bad reply: " + e.Reason }

// RequestError is the error of a request that cannot be sent.
type RequestError struct{ Reason string }

func (e *RequestError) Error() string { return "rpcrdma: request cannot be sent: " + e.Reason }

// ReportError is the error of a request whose transmissions the peer could not put together.
type ReportError struct {
	Code  wire.ReportCode
	stray bool // it is about a continuation outside of all groups
}

func (e *ReportError) Error() string { return fmt.Sprintf("rpcrdma: the peer reports %v", e.Code) }

var (
	// errNoReceive ends a connection without a receive or memory for one, and fails a reverse call
	// without a receive for its reply.
	errNoReceive = errors.New("rpcrdma: no memory for another receive")
	// errFull is the reason in a queue that connections share.
	errFull = errors.New("the shared queue of receives is full")
)

// errShort: only a group can carry a call, and its credits are not free.
var errShort = errors.New("rpcrdma: more credits are needed")
