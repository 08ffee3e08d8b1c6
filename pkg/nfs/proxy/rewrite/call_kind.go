package rewrite

import (
	"errors"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Kind says what may become of a call that was forwarded, and is not answered.
type Kind struct {
	// Session: the backend knows a repetition by session and slot. Otherwise it goes by XID and address.
	Session bool
	// Repeatable: the client may be told to come again even though the backend may have executed the call, or still will. With a
	// session's SEQUENCE that is so since the repetition has the same slot and sequence; otherwise since nothing comes of executing it twice or late.
	Repeatable bool
}

// Kind is for in, on which Args has decided Forward.
func (c *Call) Kind(in *oncrpc.Call) Kind {
	switch {
	case c.protected:
		return Kind{}
	case in.Program == nfs3.ACLProgram:
		return Kind{Repeatable: in.Procedure == nfs3.ACLProcGetACL}
	case in.Version == nfs3.Version:
		return Kind{Repeatable: repeatableV3[in.Procedure]}
	}
	k := Kind{Session: c.walker.Minor > 0, Repeatable: true}
	for i := range c.ops {
		code := c.ops[i].code
		if k.Session && i == 0 && code == schema.OpSequence {
			return k
		}
		k.Repeatable = k.Repeatable && code < uint32(len(repeatableV4)) && repeatableV4[code]
	}
	return k
}

// repeatableV3 are the procedures that change nothing.
var repeatableV3 = [nfs3.Procedures]bool{
	nfs3.ProcNull: true, nfs3.ProcGetAttr: true, nfs3.ProcLookup: true, nfs3.ProcAccess: true, nfs3.ProcReadlink: true, nfs3.ProcRead: true,
	nfs3.ProcReaddir: true, nfs3.ProcReaddirPlus: true, nfs3.ProcFSStat: true, nfs3.ProcFSInfo: true, nfs3.ProcPathConf: true, nfs3.ProcCommit: true,
}

// repeatableV4 are the operations that change nothing and have no seqid.
var repeatableV4 = [schema.OpRemoveXattr + 1]bool{
	schema.OpPutFH: true, schema.OpPutRootFH: true, schema.OpPutPubFH: true, schema.OpSaveFH: true, schema.OpRestoreFH: true,
	schema.OpGetFH: true, schema.OpGetAttr: true, schema.OpVerify: true, schema.OpNVerify: true, schema.OpAccess: true,
	schema.OpLookup: true, schema.OpLookupP: true, schema.OpReaddir: true, schema.OpReadlink: true, schema.OpRead: true,
	schema.OpSecInfo: true, schema.OpCommit: true, schema.OpRenew: true,
}

// Cred is who calls, as the rules want it.
func (c *Call) Cred(in *oncrpc.Call) (oncrpc.Auth, error) {
	if in.Cred.Flavor == oncrpc.AuthSys {
		return c.auth.Auth()
	}
	return oncrpc.Auth{}, nil
}

var errNoDelay = errors.New("rewrite: no answer to this call tells to come again")

// Delay answers a call on which Args has decided Forward, or for which it lacks the root, and which is not answered in time: its client is to come again later. In a session it
// is SEQUENCE that is answered so, and the repetition has the same slot and sequence. An error means that there is no memory, or no such answer.
func (c *Call) Delay(in *oncrpc.Call) error {
	switch {
	case c.gss, in.Program == nfs3.MountProgram: // only the backend can make the verifier of the answer; MOUNT has no such status
		return errNoDelay
	case in.Program == nfs3.ACLProgram:
		_, err := c.failV3(in, nfs3.ErrJukebox, failureLenACL)
		return err
	case in.Version == nfs3.Version:
		_, err := c.failV3(in, nfs3.ErrJukebox, failureLenV3[in.Procedure])
		return err
	}
	h, err := readHead(in.Args(), false)
	if err != nil || len(c.walker.Ops) == 0 {
		return errNoDelay
	}
	_, err = c.answerCompound(in, h.tag, errDelay, &refusal{true, c.walker.Ops[0].Code, errDelay})
	return err
}
