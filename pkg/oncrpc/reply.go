package oncrpc

import (
	"encoding/binary"
	"errors"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

// Init prepares a new Call for its transport: t answers it, pool provides the memory of its
// replies. A transport that keeps state with each call makes that state the Responder.
func (c *Call) Init(pool *bufpool.Pool, t Responder) { c.pool, c.transport = pool, t }

// Recycle is for transports: it gives back the memory of the call and its reply, and prepares c for
// the next call. Scratch, the arguments of Init, and the capacity of slices stay.
func (c *Call) Recycle() {
	c.Release()
	c.Reply.Release()
	c.Plan.Reset()
	c.XID, c.Program, c.Version, c.Procedure, c.ArgsAt = 0, 0, 0, 0, 0
	c.Cred, c.Verf, c.Status, c.Conn = Auth{}, Auth{}, Status{}, nil
	c.enc, c.dec, c.building = xdr.Encoder{}, xdr.Decoder{}, false
	c.observer, c.Began = nil, 0
	if c.Trace != nil {
		c.Trace.Ended()
		c.Trace = nil
	}
}

// Args returns the call's decoder, which stands at the first byte of the procedure's parameters.
func (c *Call) Args() *xdr.Decoder {
	c.dec.Reset(c.Stream, c.Items)
	c.dec.Skip(c.ArgsAt)
	return &c.dec
}

// Pool returns the pool for the call's reply and its items.
func (c *Call) Pool() *bufpool.Pool { return c.pool }

// BeginReply starts a reply of the status SUCCESS with an empty verifier, and returns the encoder
// for its results. size bounds the reduced reply stream in bytes, the header's 24 included, and is
// at most [bufpool.MaxSize]. The former content of c.Reply is released. Buffers of items are given
// to c.Reply by Own.
func (c *Call) BeginReply(size int) (*xdr.Encoder, error) {
	return c.begin(size, Status{})
}

func (c *Call) begin(size int, s Status) (*xdr.Encoder, error) {
	c.Reply.Release()
	c.building = false
	size = max(size, MinReplyLen)
	buf, err := c.pool.Get(size)
	if err != nil {
		return nil, err
	}
	c.Reply.Own(buf)
	c.building = true
	c.Status = s
	c.enc.Reset(buf.B[:0:size], c.Reply.Items)
	h := ReplyHeader{XID: c.XID, Status: s}
	h.Encode(&c.enc)
	return &c.enc, nil
}

// GrowReply moves the reply begun to memory of size bytes, for more results than BeginReply was
// asked for. The encoder stays the same.
func (c *Call) GrowReply(size int) error {
	buf, err := c.pool.Get(size)
	if err != nil {
		return err
	}
	c.enc.Move(buf.B[:0:size])
	c.Reply.bufs[0].Release()
	c.Reply.bufs[0] = buf
	return nil
}

// EndReply puts the output of BeginReply's encoder into c.Reply. If it ran over, the reply becomes
// SYSTEM_ERR. Respond calls it.
func (c *Call) EndReply() {
	if !c.building {
		return
	}
	c.building = false
	b := c.enc.Bytes()
	c.Reply.Items = c.enc.Items()
	if c.enc.Overflow() {
		b = b[:MinReplyLen] // SYSTEM_ERR's header is as long as that of SUCCESS
		binary.BigEndian.PutUint32(b[MinReplyLen-4:], uint32(SystemErr))
		c.Status = Status{Accept: SystemErr}
		clear(c.Reply.Items)
		c.Reply.Items = c.Reply.Items[:0]
	}
	c.Reply.Stream = append(c.Reply.Stream[:0], b)
}

// Respond sends the reply. The call belongs to the transport afterwards.
func (c *Call) Respond() {
	c.EndReply()
	if c.observer != nil {
		c.observer.Answered(c)
	}
	c.Reach(Replying)
	c.transport.Respond(c)
}

// Drop ends the call without a reply, and with it the connection, so that no caller waits for a
// reply that never comes. The call belongs to the transport afterwards.
func (c *Call) Drop() {
	if c.observer != nil {
		c.observer.Dropped(c)
	}
	c.transport.Drop(c)
}

// Supersede ends the call without a reply, because the same call has arrived again and is answered
// in its place. The connection stays. The call belongs to the transport afterwards.
func (c *Call) Supersede() {
	if c.observer != nil {
		c.observer.Dropped(c)
	}
	c.transport.Supersede(c)
}

// Observe sets the observer of the call's end. A handler that wraps another one calls it before the
// other's ServeRPC.
func (c *Call) Observe(o CallObserver) { c.observer = o }

// ReplyAccept answers with ProgUnavail, ProcUnavail, GarbageArgs or SystemErr (or Success, without
// results), in place of any reply begun. ProgMismatch has ReplyMismatch.
func (c *Call) ReplyAccept(stat AcceptStat) { c.replyStatus(Status{Accept: stat}) }

// ReplyMismatch answers PROG_MISMATCH: the program has versions low to high.
func (c *Call) ReplyMismatch(low, high uint32) {
	c.replyStatus(Status{Accept: ProgMismatch, Low: low, High: high})
}

// ReplyDenied answers AUTH_ERROR.
func (c *Call) ReplyDenied(stat AuthStat) {
	c.replyStatus(Status{Denied: true, Reject: AuthError, Auth: stat})
}

// Refuse handles a call with an error of [DecodeCall]: it answers RPC_MISMATCH, AUTH_BADCRED or
// AUTH_BADVERF, and drops a message that is no call.
func (c *Call) Refuse(err error) {
	switch {
	case errors.Is(err, ErrRPCVersion):
		c.replyStatus(Status{Denied: true, Reject: RPCMismatch, Low: RPCVersion, High: RPCVersion})
	case errors.Is(err, ErrBadCred):
		c.ReplyDenied(AuthBadCred)
	case errors.Is(err, ErrBadVerf):
		c.ReplyDenied(AuthBadVerf)
	default:
		c.Drop()
	}
}

func (c *Call) replyStatus(s Status) {
	if _, err := c.begin(maxStatusLen, s); err != nil {
		c.Drop() // not even 32 bytes: the caller will send the call again
		return
	}
	c.Respond()
}
