package proxy

import (
	"errors"
	"time"

	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
)

// forwardedCall is a call on its way to the backend and back. It is the Scratch of its oncrpc.Call,
// so that the next call allocates nothing.
type forwardedCall struct {
	s            *Server
	client       *clientConn
	call         *oncrpc.Call
	caller       rewrite.Caller
	rw           rewrite.Call
	req          upstream.Request
	finished     func(*upstream.Request) // f.onReply, made once
	mount        mountLookup             // for a MNT
	waitingSince time.Time               // start of the wait for the root; zero if it never waited
}

func newForwardedCall(s *Server, c *oncrpc.Call) *forwardedCall {
	f := &forwardedCall{s: s, call: c}
	f.finished = f.onReply
	return f
}

// start handles a new call.
func (f *forwardedCall) start() {
	f.caller, f.waitingSince = f.client.caller, time.Time{}
	f.rewriteAndSend()
}

// rewriteAndSend rewrites the call and sends or answers it. It runs again, on any goroutine, after
// a wait for the root.
func (f *forwardedCall) rewriteAndSend() {
	r := &f.req
	r.Reset()
	roots := f.s.export.Roots.Load()
	verdict, err := f.rw.Args(&f.s.export, &f.caller, f.call, &r.Call, &r.Plan)
	switch {
	case errors.Is(err, rewrite.ErrNoRoot):
		r.Call.Release()
		f.call.Reach(oncrpc.Queued)
		f.s.waiters.wait(f, roots)
	case err != nil:
		f.abandon("forward call failed", err)
	case verdict == rewrite.Answered:
		f.call.Respond()
	case verdict == rewrite.Resolve:
		f.resolveMount()
	default:
		f.forward()
	}
}

// forward sends the rewritten call.
func (f *forwardedCall) forward() {
	r, c := &f.req, f.call
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = c.XID, c.Program, c.Version, c.Procedure, f.rw.ArgsAt
	r.Eligible = append(r.Eligible[:0], f.rw.Eligible...)
	kind := f.rw.Kind(c)
	r.Replay, r.Timeout = upstream.ReplayByXID, upstream.TimeoutUnsent
	if kind.Session {
		r.Replay = upstream.ReplayBySession
	}
	if kind.Repeatable {
		r.Timeout = upstream.TimeoutAlways
	}
	r.NoReplay = c.Cred.Flavor == oncrpc.RPCSecGSS
	r.WaitingSince = f.waitingSince
	r.Finished = f.finished
	c.Reach(oncrpc.Forwarded)
	f.client.link.Submit(r)
}

// onReply forwards the backend's reply. It runs on any goroutine.
func (f *forwardedCall) onReply(r *upstream.Request) {
	r.Call.Release()
	f.call.Reach(oncrpc.Serving)
	if r.Err != nil {
		f.answerFailure(r.Err)
		return
	}
	if err := f.rw.Results(&f.s.export, f.call, &r.Reply); err != nil {
		r.Reply.Release()
		f.s.stats.unreadable.Add(1)
		f.s.log.Warn("backend reply unreadable", "backend", f.s.address(), "client", f.client.conn.Remote,
			"program", f.call.Program, "version", f.call.Version, "procedure", f.call.Procedure, "error", err)
		if len(f.call.Reply.Stream) == 0 {
			f.call.ReplyAccept(oncrpc.SystemErr)
			return
		}
	}
	f.call.Respond()
}

// answerFailure ends a call that got no reply.
func (f *forwardedCall) answerFailure(err error) {
	if errors.Is(err, upstream.ErrSoftTimeout) && f.rw.Delay(f.call) == nil {
		f.s.stats.delayed.Add(1)
		f.call.Respond()
		return
	}
	f.abandon("call not answered by the backend", err)
}

// abandon drops a call and closes the client's connection, so that the client sends the call again
// on a new one. A version 4 client would wait for an unanswered call forever.
func (f *forwardedCall) abandon(failure string, err error) {
	f.req.Call.Release()
	switch {
	case errors.Is(err, upstream.ErrSuperseded):
		f.call.Supersede()
		return
	case !errors.Is(err, upstream.ErrClosed):
		f.s.log.Warn(failure+"; client connection closed", "client", f.client.conn.Remote, "error", err)
	}
	f.call.Drop()
}
