package proxy

import (
	"errors"
	"time"

	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
)

// flight is a call on its way to the backend and back. It stays with the oncrpc.Call as its Scratch, so that nothing is allocated
// for the next one.
type flight struct {
	s      *Server
	peer   *peer
	call   *oncrpc.Call
	caller rewrite.Caller
	rw     rewrite.Call
	req    upstream.Request
	done   func(*upstream.Request) // f.landed
	walk   walk                    // of a MNT
	waits  time.Time               // since when it waits for the root, zero if it never did
}

func newFlight(s *Server, c *oncrpc.Call) *flight {
	f := &flight{s: s, call: c}
	f.done = f.landed
	return f
}

// begin decides on a call that just came.
func (f *flight) begin() {
	f.caller, f.waits = f.peer.caller, time.Time{}
	f.decide()
}

// decide rewrites the call, and sends it on its way. It may be called again, from any goroutine, when something was missing.
func (f *flight) decide() {
	r := &f.req
	r.Reset()
	roots := f.s.export.Roots.Load()
	verdict, err := f.rw.Args(&f.s.export, &f.caller, f.call, &r.Call, &r.Plan)
	switch {
	case errors.Is(err, rewrite.ErrNoRoot):
		r.Call.Release()
		f.s.waiting.await(f, roots)
	case err != nil:
		f.fail("a call cannot be forwarded", err)
	case verdict == rewrite.Answered:
		f.call.Respond()
	case verdict == rewrite.Resolve:
		f.resolve()
	default:
		f.forward()
	}
}

// forward sends the rewritten call.
func (f *flight) forward() {
	r, c := &f.req, f.call
	r.XID, r.Program, r.Version, r.Procedure, r.ArgsAt = c.XID, c.Program, c.Version, c.Procedure, f.rw.ArgsAt
	r.Eligible = append(r.Eligible[:0], f.rw.Eligible...)
	kind := f.rw.Kind(c)
	r.Replay, r.Soft = upstream.ReplayByXID, upstream.SoftUnsent
	if kind.Session {
		r.Replay = upstream.ReplayBySession
	}
	if kind.Repeatable {
		r.Soft = upstream.SoftAlways
	}
	r.Once = c.Cred.Flavor == oncrpc.RPCSecGSS
	r.Since = f.waits
	r.Finished = f.done
	f.peer.link.Submit(r)
}

// landed takes the backend's reply, on whatever goroutine finished the request.
func (f *flight) landed(r *upstream.Request) {
	r.Call.Release()
	if r.Err != nil {
		f.failed(r.Err)
		return
	}
	if err := f.rw.Results(&f.s.export, f.call, &r.Reply); err != nil {
		r.Reply.Release()
		f.s.stats.unreadable.Add(1)
		f.s.log.Warn("the backend's reply cannot be read", "backend", f.s.address(), "client", f.peer.conn.Remote,
			"program", f.call.Program, "version", f.call.Version, "procedure", f.call.Procedure, "error", err)
		if len(f.call.Reply.Stream) == 0 {
			f.call.ReplyAccept(oncrpc.SystemErr)
			return
		}
	}
	f.call.Respond()
}

// failed ends a call for which there is no reply.
func (f *flight) failed(err error) {
	if errors.Is(err, upstream.ErrSoftTimeout) && f.rw.Delay(f.call) == nil {
		f.s.stats.delayed.Add(1)
		f.call.Respond()
		return
	}
	f.fail("a call was not answered by the backend", err)
}

// fail gives a call up. Who calls finds the connection closed, and will send the call again on the next one; to leave it unanswered would have
// a client of version 4 wait for ever.
func (f *flight) fail(what string, err error) {
	f.req.Call.Release()
	switch {
	case errors.Is(err, upstream.ErrSuperseded):
		f.call.Supersede()
		return
	case !errors.Is(err, upstream.ErrClosed):
		f.s.log.Warn(what+": its client's connection is closed", "client", f.peer.conn.Remote, "error", err)
	}
	f.call.Drop()
}
