package rewrite

import (
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
)

const (
	// aclProcedures is how many procedures NFSACL has.
	aclProcedures = 3
	// aclFailure is the length of an empty post_op_attr, which follows the status of both procedures.
	aclFailure = 4
)

// argsACL rewrites the arguments of NFSACL.
func (c *Call) argsACL(x *Export, in *oncrpc.Call) (Verdict, error) {
	if !c.walkArgs(in) {
		return c.garbage(in)
	}
	for i := range c.walker.Spans {
		sp := &c.walker.Spans[i]
		if sp.Mark != schema.Handle {
			continue
		}
		h, ok := x.Signer.Verify(sp.B, sign.Max3)
		if !ok {
			return c.fail(in, nfs3.ErrBadHandle, aclFailure)
		}
		if len(h) != len(sp.B) {
			c.replaceOpaque(sp, len(h), h)
		}
	}
	if c.unchanging && in.Procedure == nfs3.ACLProcSetACL {
		return c.fail(in, nfs3.ErrROFS, aclFailure)
	}
	return Forward, nil
}
