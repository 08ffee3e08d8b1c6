package proxy

import (
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/oncrpc"
)

// callbackHandler is a client as the backend sees it: its calls, NFSv4.1's callbacks, go on to the client by its own connection (RFC 8167), with
// an XID of that direction.
type callbackHandler clientConn

// ServeRPC implements [oncrpc.Handler]. Session, slot and sequence of the callback are the client's own, so it needs no more care than a call.
func (cb *callbackHandler) ServeRPC(c *oncrpc.Call) {
	b, ok := c.Scratch.(*callback)
	if !ok {
		b = &callback{}
		b.done = b.onClientReply
		c.Scratch = b
	}
	b.s, b.conn, b.call = cb.s, cb.conn, c
	r := &b.req
	r.Call.Release()
	if !b.rw.Args(&cb.s.export, c, &r.Call) {
		c.Respond()
		return
	}
	back := cb.conn.Back
	r.Program, r.Version, r.Procedure, r.ArgsAt = c.Program, c.Version, c.Procedure, c.ArgsAt
	r.Eligible = r.Eligible[:0]
	r.Plan.Reset()
	// The session's ca_maxresponsesize bounds the reply, which the client has chosen so that a reply fits what it sends without chunks
	// (RFC 8167, section 5.2). What the backend's connection could take is more than that.
	r.Plan.MaxReply = oncrpc.MinReplyLen
	r.Done = b.done
	oncrpc.Submit(back, r)
	cb.s.stats.callbacks.Add(1)
}

// callback is a callback on its way to the client and back. It is the Scratch of its call.
type callback struct {
	s    *Server
	conn *oncrpc.Conn
	call *oncrpc.Call
	rw   rewrite.Callback
	req  oncrpc.Request
	done func(*oncrpc.Request)
}

// onClientReply takes the client's reply.
func (b *callback) onClientReply(r *oncrpc.Request) {
	r.Call.Release()
	if r.Err != nil {
		select {
		case <-b.conn.Done:
			// The client is gone, and its connection to the backend ends or waits for it: the backend finds out.
			b.call.Drop()
		default:
			b.s.log.Warn("send callback to client failed", "error", r.Err)
			b.call.ReplyAccept(oncrpc.SystemErr)
		}
		return
	}
	if err := b.rw.Results(&b.s.export, b.call, &r.Reply); err != nil {
		r.Reply.Release()
		b.s.stats.unreadable.Add(1)
		b.s.log.Warn("callback reply from client unreadable", "error", err)
		b.call.ReplyAccept(oncrpc.SystemErr)
		return
	}
	b.call.Respond()
}
