package rewrite

import (
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// Call is one call on its way to the backend and back. It is reusable, and then does not allocate.
type Call struct {
	// Path holds the names of a MNT after Resolve. They are memory of the call.
	Path [][]byte
	// ArgsAt and Eligible describe the forwarded message after Forward, as an oncrpc.Request needs
	// them: the position of the procedure's arguments, and the arguments that may move by RDMA,
	// including those that are items.
	ArgsAt   int
	Eligible []oncrpc.Argument

	walker schema.Walker
	edits  Edits
	callState
}

// callState is the state of a Call until its reply.
type callState struct {
	x        *Export
	readOnly bool
	// gss: RPCSEC_GSS authenticates the call. Only the backend can make the verifier of its reply.
	gss bool
	// protected: RPCSEC_GSS hides the arguments (RFC 2203). Call and reply pass unchanged.
	protected bool
	// listsRoot: the call lists the export's root, whose fileid is rootFileID.
	listsRoot    bool
	rootFileID   uint64
	headerGrowth int // bytes by which the header has grown

	dec    xdr.Decoder
	enc    xdr.Encoder
	header oncrpc.ReplyHeader
	auth   oncrpc.AuthSysParms
	found  []oncrpc.Found
	bufs   []*bufpool.Buf

	compound
}

// Args reads the call in and decides on it. For Forward, it makes out, which must be empty, the
// message for the backend, and plan its reply plan. out refers to memory of in, owns the rest, and
// keeps the XID. An error means that memory or the export's root is missing; out is then empty, and
// the call may be tried again.
func (c *Call) Args(x *Export, who *Caller, in *oncrpc.Call, out *oncrpc.Message, plan *oncrpc.Plan) (Verdict, error) {
	c.x, c.readOnly, c.gss, c.protected, c.listsRoot, c.headerGrowth = x, who.ReadOnly, false, false, false, 0
	c.Path, c.Eligible, c.ArgsAt = c.Path[:0], c.Eligible[:0], 0
	c.edits.Reset(in.Pool())
	v, err := c.dispatch(x, who, in)
	if err == nil && v == Forward {
		err = c.buildForwarded(in, out, plan)
	}
	c.edits.Release()
	if err != nil {
		out.Release()
		plan.Reset()
		in.Reply.Release()
	}
	return v, err
}

// dispatch authenticates the call and handles its program.
func (c *Call) dispatch(x *Export, who *Caller, in *oncrpc.Call) (Verdict, error) {
	if stat := c.authenticate(x, who, in); stat != oncrpc.AuthOK {
		return c.deny(in, stat)
	}
	low, high, procedures := x.versions(in.Program, in.Version)
	switch {
	case high == 0:
		return c.answerStatus(in, oncrpc.Status{Accept: oncrpc.ProgUnavail})
	case in.Version < low || in.Version > high:
		return c.answerStatus(in, oncrpc.Status{Accept: oncrpc.ProgMismatch, Low: low, High: high})
	case in.Procedure >= procedures:
		return c.answerStatus(in, oncrpc.Status{Accept: oncrpc.ProcUnavail})
	case c.gss && in.Program == nfs3.MountProgram:
		// MOUNT is answered here, without a verifier.
		return c.deny(in, oncrpc.AuthRejectedCred)
	case c.protected:
		in.Plan.Results = in.Plan.Results[:0] // the results of a protected call cannot be placed
		return Forward, nil
	case in.Procedure == 0:
		return c.answerStatus(in, oncrpc.Status{})
	case in.Program == nfs3.MountProgram:
		return c.argsMount(x, in)
	case in.Program == nfs3.ACLProgram:
		return c.argsACL(x, in)
	case in.Version == nfs3.Version:
		return c.argsV3(x, in)
	default:
		return c.argsV4(x, who, in)
	}
}

// versions returns the range of offered versions of a program, 0 if there is none, and the number
// of procedures of the version.
func (x *Export) versions(program, version uint32) (low, high, procedures uint32) {
	v3, v4 := x.V3, x.Minor != [3]bool{}
	if r := x.Roots.Load(); r != nil {
		v3, v4 = v3 && !r.No3, v4 && !r.No4
	}
	switch {
	case program == nfs3.Program:
		low, high, procedures = 3, 4, nfs3.Procedures
		if !v3 {
			low = 4
		}
		if !v4 {
			high = 3
		}
		if version == 4 {
			procedures = 2 // NULL and COMPOUND
		}
		if low > high {
			return 0, 0, 0
		}
	case program == nfs3.MountProgram && v3:
		low, high, procedures = nfs3.MountVersion, nfs3.MountVersion, nfs3.MountProcedures
	case program == nfs3.ACLProgram && v3:
		low, high, procedures = nfs3.ACLVersion, nfs3.ACLVersion, nfs3.ACLProcedures
	}
	return low, high, procedures
}

// buildForwarded makes out from the call and its edits.
func (c *Call) buildForwarded(in *oncrpc.Call, out *oncrpc.Message, plan *oncrpc.Plan) error {
	if err := c.edits.Apply(out, &in.Message); err != nil {
		return err
	}
	c.ArgsAt = in.ArgsAt + c.headerGrowth
	plan.Reset()
	if b := binding.Offered(in.Program, in.Version); b != nil && !c.protected {
		c.dec.Reset(out.Stream, out.Items)
		c.dec.Skip(c.ArgsAt)
		var err error
		if c.Eligible, err = b.Plan(plan, c.Eligible, in.Procedure, &c.dec); err == nil {
			plan.MaxReply += oncrpc.MinReplyLen + oncrpc.MaxAuthLen
			return nil
		}
		plan.Reset()
		c.Eligible = c.Eligible[:0]
	}
	// No edit makes the backend's reply longer than the client's.
	plan.MaxReply = in.Plan.MaxReply
	for _, it := range out.Items {
		c.Eligible = append(c.Eligible, oncrpc.Argument{Position: it.Position, Length: it.Length})
	}
	return nil
}

// Results makes in.Reply and in.Status from the backend's reply to a forwarded call. It takes the
// memory of reply, which is empty afterwards. Eligible results become items of in.Reply where
// in.Plan has results. An error means that the reply is unreadable, or that memory is missing;
// in.Reply is then empty or an error reply.
func (c *Call) Results(x *Export, in *oncrpc.Call, reply *oncrpc.Message) error {
	defer reply.Release()
	in.Reply.Release()
	c.dec.Reset(reply.Stream, reply.Items)
	err := c.header.Decode(&c.dec)
	if err == nil && c.header.XID != in.XID {
		err = fmt.Errorf("rewrite: reply XID is %#x, want %#x", c.header.XID, in.XID)
	}
	if err != nil {
		// without memory the reply stays empty
		_, _ = c.answerStatus(in, oncrpc.Status{Accept: oncrpc.SystemErr})
		return err
	}
	c.edits.Reset(in.Pool())
	defer c.edits.Release()
	c.walker.Spans = c.walker.Spans[:0]
	if c.header.Status.OK() && !c.protected {
		done := false
		switch {
		case in.Program == nfs3.ACLProgram:
			// Its results have neither handles nor names.
		case in.Version == nfs3.Version:
			done, err = c.resultsV3(x, in)
		default:
			if err = c.resultsV4(x, in, reply); err != nil {
				_, _ = c.answerStatus(in, oncrpc.Status{Accept: oncrpc.SystemErr})
			}
		}
		if done || err != nil {
			return err
		}
	}
	in.Status = c.header.Status
	return c.buildReply(in, reply)
}

// buildReply makes in.Reply from the backend's reply and the edits. Bulk data is cut out first, so
// that it is never copied.
func (c *Call) buildReply(in *oncrpc.Call, reply *oncrpc.Message) error {
	err := c.cutData(in, reply)
	if err == nil && c.edits.Len() == 0 {
		in.Reply, *reply = *reply, in.Reply
		return nil
	}
	if err == nil {
		err = c.edits.Apply(&in.Reply, reply)
	}
	if err != nil {
		_, _ = c.answerStatus(in, oncrpc.Status{Accept: oncrpc.SystemErr})
		return err
	}
	for i := range in.Reply.Items {
		it := &in.Reply.Items[i]
		it.Data = in.Reply.Keep(it.Data)
	}
	c.bufs = reply.Disown(c.bufs[:0])
	for i, b := range c.bufs {
		in.Reply.Own(b)
		c.bufs[i] = nil
	}
	return nil
}

// cutData cuts the eligible results out of an inline message, if the client's transport has planned
// for any.
func (c *Call) cutData(in *oncrpc.Call, m *oncrpc.Message) error {
	if len(in.Plan.Results) == 0 || len(m.Items) > 0 {
		return nil
	}
	c.found = c.found[:0]
	for i := range c.walker.Spans {
		if sp := &c.walker.Spans[i]; sp.Mark == schema.Data {
			c.found = append(c.found, oncrpc.Found{State: oncrpc.Inline, Position: sp.Pos + 4, Length: int(sp.Value)})
		}
	}
	return m.Cut(c.found)
}
