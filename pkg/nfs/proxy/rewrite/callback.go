package rewrite

import (
	"fmt"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

var callbackProc = schema.Proc{Procedure: 1, Callback: true}

// refusedCallbacks has the callbacks about layouts and devices, which no client has, and their
// replies to the backend.
var refusedCallbacks = [...]uint32{
	schema.OpCBLayoutRecall:   errNoMatching,
	schema.OpCBNotifyDeviceID: errNotSupp,
}

// Callback is one call of the backend to a client, and its reply (RFC 8881, section 20). Its
// handles are signed. Directory notifications in CB_NOTIFY pass unchanged: GET_DIR_DELEGATION
// cannot ask for handles in them. A Callback is reusable, and then does not allocate.
type Callback struct{ call Call }

// Args reads the backend's call in and reports whether to send it. If so, it makes out, which must
// be empty, the message for the client: out refers to memory of in, owns the rest, and keeps the
// XID. Otherwise the reply is in in.Reply, which is empty without memory.
func (b *Callback) Args(x *Export, in *oncrpc.Call, out *oncrpc.Message) bool {
	c := &b.call
	c.resetCompound()
	c.gss, c.protected = false, false
	c.edits.Reset(in.Pool())
	defer c.edits.Release()
	v, err := Forward, error(nil)
	switch in.Procedure {
	case 0:
	case 1:
		v, err = b.checkCompound(x, in)
	default:
		v, err = c.answerStatus(in, oncrpc.Status{Accept: oncrpc.ProcUnavail})
	}
	if err == nil && v == Forward {
		err = c.edits.Apply(out, &in.Message)
	}
	if err != nil {
		out.Release()
		v, _ = c.answerStatus(in, oncrpc.Status{Accept: oncrpc.SystemErr})
	}
	return v == Forward
}

// checkCompound reads a CB_COMPOUND and checks its operations.
func (b *Callback) checkCompound(x *Export, in *oncrpc.Call) (Verdict, error) {
	c := &b.call
	h, err := readHead(in.Args(), true)
	if err != nil {
		return c.garbageArgs(in)
	}
	if h.minor >= uint32(len(x.Minor)) || !x.Minor[h.minor] {
		return c.answerCompound(in, h.tag, errMinorMismatch, nil)
	}
	failed, err := walkOps(&c.walker, callbackProc, in)
	if err != nil {
		return c.garbageArgs(in)
	}
	for i := range c.walker.Ops {
		op := &c.walker.Ops[i]
		if status := checkCallback(x, op, c.walker.Spans); status != ok4 {
			c.refuse(op.Code, status)
			break
		}
		c.ops = append(c.ops, operation{code: op.Code, sent: op.Code})
	}
	if failed != nil && !c.refused {
		c.refuse(unreadableOp(failed, h.minor))
	}
	if c.refused && len(c.ops) == 0 {
		return c.answerCompound(in, h.tag, c.stat, &c.refusal)
	}
	end := h.countAt + 4
	if c.refused {
		putUint32(&c.edits, h.countAt, uint32(len(c.ops)))
	}
	for i := range c.ops {
		op := &c.walker.Ops[i]
		editCallback(&c.edits, x, c.walker.Spans[op.First:op.Last])
		end = op.End
	}
	if length := in.Len(); end < length {
		c.edits.Replace(end, length-end, 0)
	}
	return Forward, nil
}

// checkCallback returns the status that refuses an operation, or ok4.
func checkCallback(x *Export, op *schema.Op, spans []schema.Span) uint32 {
	if op.Code < uint32(len(refusedCallbacks)) && refusedCallbacks[op.Code] != ok4 {
		return refusedCallbacks[op.Code]
	}
	for i := op.First; i < op.Last; i++ {
		if spans[i].Mark != schema.Handle {
			continue
		}
		if _, err := signedLen(x, spans[i].B); err != nil {
			return errBadHandle // no client has this handle
		}
	}
	return ok4
}

// editCallback edits the arguments of an operation.
func editCallback(e *Edits, x *Export, spans []schema.Span) {
	for i := range spans {
		s := &spans[i]
		switch s.Mark {
		case schema.Handle:
			_ = putSigned(e, x, s.Pos, s.Len, s.B) // checkCallback has checked its length
		case schema.AttrMask:
			maskRequest(e, s, &notifyAttrs)
		}
	}
}

// Results makes in.Reply and in.Status from the client's reply, with the XID of in. It takes the
// memory of reply, which is empty afterwards. After an error in.Reply is empty or an error reply.
func (b *Callback) Results(x *Export, in *oncrpc.Call, reply *oncrpc.Message) error {
	defer reply.Release()
	c := &b.call
	in.Reply.Release()
	c.dec.Reset(reply.Stream, reply.Items)
	if err := c.header.Decode(&c.dec); err != nil {
		return err
	}
	c.edits.Reset(in.Pool())
	defer c.edits.Release()
	c.walker.Spans = c.walker.Spans[:0]
	putUint32(&c.edits, 0, in.XID)
	if c.header.Status.OK() && in.Procedure == 1 {
		err := c.walker.Results(callbackProc, &c.dec)
		if err == nil {
			a := resultContext{x: x, roots: &noRoots, callback: true, reply: reply, spans: c.walker.Spans}
			err = c.editResults(&c.edits, &a, c.walker.Ops)
		}
		if err != nil {
			return fmt.Errorf("rewrite: results of a CB_COMPOUND: %w", err)
		}
	}
	in.Status = c.header.Status
	return c.buildReply(in, reply)
}
