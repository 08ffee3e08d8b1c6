package proxy

import (
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/oncrpc"
)

// callbackHandler handles the backend's calls, the callbacks of NFSv4.1: it forwards them over the
// client's own connection (RFC 8167), with an XID of that direction.
type callbackHandler clientConn

// ServeRPC implements [oncrpc.Handler]. Session, slot and sequence of the callback are the client's
// own and pass unchanged.
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
	// The client chose ca_maxresponsesize so that it can send the reply without chunks (RFC 8167,
	// section 5.2). The backend's connection could take more.
	r.Plan.MaxReply = oncrpc.MinReplyLen
	r.Done = b.done
	oncrpc.Submit(back, r)
	cb.s.stats.callbacks.Add(1)
}

// callback is one callback on its way to the client and back. It is the Scratch of its call.
type callback struct {
	s    *Server
	conn *oncrpc.Conn
	call *oncrpc.Call
	rw   rewrite.Callback
	req  oncrpc.Request
	done func(*oncrpc.Request)
}

// onClientReply forwards the client's reply to the backend.
func (b *callback) onClientReply(r *oncrpc.Request) {
	r.Call.Release()
	if r.Err != nil {
		select {
		case <-b.conn.Done:
			// The client has disconnected. The backend learns that from its own connection.
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
