package rewrite

import (
	"errors"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
)

// Kind is the replay behaviour of a forwarded call.
type Kind struct {
	// Session: the backend detects replays by session and slot, otherwise by XID and address.
	Session bool
	// Repeatable: the client may be asked to try again even if the backend executes the call. In a
	// session, the repetition has the same slot and sequence; elsewhere, late or double execution
	// is harmless.
	Repeatable bool
}

// Kind returns the kind of in after Forward.
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

// repeatableV3 has the procedures that change nothing.
var repeatableV3 = [nfs3.Procedures]bool{
	nfs3.ProcNull: true, nfs3.ProcGetAttr: true, nfs3.ProcLookup: true, nfs3.ProcAccess: true, nfs3.ProcReadlink: true, nfs3.ProcRead: true,
	nfs3.ProcReaddir: true, nfs3.ProcReaddirPlus: true, nfs3.ProcFSStat: true, nfs3.ProcFSInfo: true, nfs3.ProcPathConf: true, nfs3.ProcCommit: true,
}

// repeatableV4 has the operations that change nothing and have no seqid.
var repeatableV4 = [schema.OpRemoveXattr + 1]bool{
	schema.OpPutFH: true, schema.OpPutRootFH: true, schema.OpPutPubFH: true, schema.OpSaveFH: true, schema.OpRestoreFH: true,
	schema.OpGetFH: true, schema.OpGetAttr: true, schema.OpVerify: true, schema.OpNVerify: true, schema.OpAccess: true,
	schema.OpLookup: true, schema.OpLookupP: true, schema.OpReaddir: true, schema.OpReadlink: true, schema.OpRead: true,
	schema.OpSecInfo: true, schema.OpCommit: true, schema.OpRenew: true,
}

// Cred returns the caller after squashing.
func (c *Call) Cred(in *oncrpc.Call) (oncrpc.Auth, error) {
	if in.Cred.Flavor == oncrpc.AuthSys {
		return c.auth.Auth()
	}
	return oncrpc.Auth{}, nil
}

var errNoDelay = errors.New("rewrite: no reply to this call asks to try again")

// Delay answers a call that waits for the root or the backend: its client must try again later. In
// a session, SEQUENCE gets that status, and the repetition has the same slot and sequence. An error
// means that memory is missing, or that the call has no such answer.
func (c *Call) Delay(in *oncrpc.Call) error {
	switch {
	// only the backend can make the verifier; MOUNT has no such status
	case c.gss, in.Program == nfs3.MountProgram:
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
