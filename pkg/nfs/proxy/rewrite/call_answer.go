package rewrite

import (
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// statusReply is the size of a buffer for a reply without results.
const statusReply = 32

// answerStatus answers with a header without results.
func (c *Call) answerStatus(in *oncrpc.Call, s oncrpc.Status) (Verdict, error) {
	in.Reply.Release()
	b, err := in.Pool().Get(statusReply)
	if err != nil {
		return Answered, err
	}
	in.Reply.Own(b)
	c.enc.Reset(b.B[:0:statusReply], nil)
	c.header = oncrpc.ReplyHeader{XID: in.XID, Status: s}
	c.header.Encode(&c.enc)
	in.Reply.Stream = append(in.Reply.Stream, c.enc.Bytes())
	in.Status = s
	return Answered, nil
}

// deny answers AUTH_ERROR.
func (c *Call) deny(in *oncrpc.Call, stat oncrpc.AuthStat) (Verdict, error) {
	return c.answerStatus(in, oncrpc.Status{Denied: true, Reject: oncrpc.AuthError, Auth: stat})
}

// garbageArgs answers GARBAGE_ARGS.
func (c *Call) garbageArgs(in *oncrpc.Call) (Verdict, error) {
	return c.answerStatus(in, oncrpc.Status{Accept: oncrpc.GarbageArgs})
}

// failV3 answers with a status and n bytes of zeros.
func (c *Call) failV3(in *oncrpc.Call, status nfs3.Status, n int) (Verdict, error) {
	if c.gss {
		return c.deny(in, oncrpc.AuthTooWeak) // the reply to an accepted call needs a verifier
	}
	e, err := in.BeginReply(oncrpc.MinReplyLen + 4 + n)
	if err != nil {
		return Answered, err
	}
	e.Uint32(uint32(status))
	clear(e.Grow(n))
	in.EndReply()
	return Answered, nil
}
