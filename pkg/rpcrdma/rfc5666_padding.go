package rpcrdma

import (
	"math/bits"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/padded"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// RDMA_MSGP. A call is padded if it is one message, and the padding fits. A peer that answers
// ERR_CHUNK gets the call again without padding, and no other padded one. Replies are not padded: a
// server does not know the client's alignment.

// padding is the alignment of padded calls, 0 if none are.
func (s *rfc5666) padding(t *negotiated) int {
	if s == nil || t.version != wire.Version1 {
		return 0
	}
	return s.alignment(t.sendLimit)
}

// alignment is that of padded calls of at most limit bytes.
func (s *rfc5666) alignment(limit int) int { return min(int(s.align.Load()), alignFor(limit)) }

// pad lays a call out as RDMA_MSGP, or leaves it as it is. The call has no Read chunks, and a
// header of size bytes.
func (b *callBuilder) pad(out *requester, r *oncrpc.Request, size, limit int) (wire.Procedure, int, error) {
	align := out.rfc5666.alignment(limit)
	rule, ok := padded.Choose(r.Eligible, align)
	if !ok || size+wire.PaddingSize+split.Length(b.out) > limit {
		return wire.Msg, size, nil
	}
	zeros, err := out.cfg.Pool.Get(max(align, 4))
	if err != nil {
		return 0, 0, err
	}
	b.bufs = append(b.bufs, zeros)
	clear(zeros.B)
	size += wire.PaddingSize
	b.data, ok = rule.Append(b.data[:0], &r.Call, r.Eligible, size, zeros.B)
	if !ok || size+split.Length(b.data) > limit {
		b.data = b.data[:0]
		return wire.Msg, size - wire.PaddingSize, nil
	}
	b.out, b.data, b.padding = b.data, b.out[:0], rule
	return wire.MsgP, size, nil
}

func paddingOf(h *wire.Header) padded.Rule {
	return padded.Rule{Align: int(h.Align), Threshold: int(h.Threshold)}
}

// stripCall takes the padding out of a call whose RPC header is decoded. It returns false when the
// call has been answered. recvMu is held.
func (ic *inCall) stripCall() bool {
	b := ic.in.binding(ic.Program, ic.Version)
	if b == nil { // nothing is eligible, so nothing is padded
		return true
	}
	rule, size := paddingOf(&ic.hdr), split.Length(ic.message)
	d := ic.Args()
	d.SkipPads(rule.Align, rule.Threshold, size)
	var err error
	if ic.args, err = b.Plan(&ic.Plan, ic.args[:0], ic.Procedure, d); err == nil {
		err = ic.in.rfc5666.strip(&ic.Message, ic.args, rule, size)
	}
	ic.Plan.Reset()
	if err != nil {
		ic.in.protocolError(BadArguments, "RDMA_MSGP: %v", err)
		ic.state = stateServing
		ic.ReplyAccept(oncrpc.GarbageArgs)
	}
	return err == nil
}

// stripReply takes the padding out of a reply to o, a message of size bytes. recvMu is held.
func (o *outCall) stripReply(m *oncrpc.Message, rule padded.Rule, size int) error {
	a, r := &o.reply, o.req
	bind := o.out.binding(r.Program, r.Version)
	switch {
	case bind == nil || len(r.Plan.Results) == 0:
		return nil
	case o.build.writes > 0:
		return &ReplyError{"RDMA_MSGP in answer to a call with Write chunks"}
	}
	a.dec.Reset(m.Stream, nil)
	a.dec.SkipPads(rule.Align, rule.Threshold, size)
	if err := a.header.Decode(&a.dec); err != nil || !a.header.Status.OK() {
		return nil //nolint:nilerr // assemble finds it out
	}
	var err error
	a.found, err = bind.Results(a.found[:0], &r.Plan, nil, r.Procedure, &a.dec)
	if err != nil {
		return &ReplyError{err.Error()}
	}
	at := make([]oncrpc.Argument, 0, len(a.found))
	for _, f := range a.found {
		if f.State == oncrpc.Inline {
			at = append(at, oncrpc.Argument{Position: f.Position, Length: f.Length})
		}
	}
	if err := o.out.rfc5666.strip(m, at, rule, size); err != nil {
		return &ReplyError{err.Error()}
	}
	return nil
}

func (s *rfc5666) strip(m *oncrpc.Message, found []oncrpc.Argument, rule padded.Rule, size int) error {
	stream, err := rule.Strip(s.spare[:0], m.Stream, m.Items, found, size)
	if err != nil {
		clear(stream)
		return err
	}
	s.spare, m.Stream = m.Stream, stream
	clear(s.spare)
	return nil
}

// alignFor is the alignment for messages of at most limit bytes: an eighth of it, and a page at
// most, so that padding seldom prevents a message from fitting.
func alignFor(limit int) int {
	return min(1<<(bits.Len(uint(limit/8))-1), padded.MaxAlign)
}

// withoutOldForms decides whether a call is sent again without the forms that the peer may not
// have. The peer has answered ERR_CHUNK to version 1.
func (o *outCall) withoutOldForms() bool {
	s, b := o.out.rfc5666, &o.build
	switch {
	case b.padding != (padded.Rule{}):
		s.align.Store(0)
	case b.omitted:
		s.readRead.Store(false)
	default:
		return false
	}
	return true
}
