package rewrite

import (
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

// failureLenACL is the length of an empty post_op_attr after the status of both procedures.
const failureLenACL = 4

// argsACL rewrites the arguments of NFSACL.
func (c *Call) argsACL(x *Export, in *oncrpc.Call) (Verdict, error) {
	if !c.walkArgs(in) {
		return c.garbageArgs(in)
	}
	for i := range c.walker.Spans {
		sp := &c.walker.Spans[i]
		if sp.Mark != schema.Handle {
			continue
		}
		h, ok := x.Signer.Verify(sp.B, sign.Max3)
		if !ok {
			return c.failV3(in, nfs3.ErrBadHandle, failureLenACL)
		}
		if len(h) != len(sp.B) {
			c.replaceOpaque(sp, len(h), h)
		}
	}
	if c.readOnly && in.Procedure == nfs3.ACLProcSetACL {
		return c.failV3(in, nfs3.ErrROFS, failureLenACL)
	}
	return Forward, nil
}
