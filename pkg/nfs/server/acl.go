package server

import (
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
)

// aclProcedures are those of NFSACL. SETACL can be repeated, so its reply is not kept.
var aclProcedures = [nfs3.ACLProcedures]procedure{
	nfs3.ACLProcGetACL: {run: getACL},
	nfs3.ACLProcSetACL: {run: setACL},
}

// aclChange: a SETACL recalls the delegations of its object.
var aclChange = &recalling{use: state.UseChange, object: true, failure: 4}

func (s *Server) serveACL(c *oncrpc.Call) {
	switch c.Procedure {
	case nfs3.ACLProcNull:
		c.ReplyAccept(oncrpc.Success)
	case nfs3.ACLProcGetACL:
		s.serve(c, &aclProcedures[c.Procedure], nil)
	case nfs3.ACLProcSetACL:
		s.serve(c, &aclProcedures[c.Procedure], aclChange)
	default:
		c.ReplyAccept(oncrpc.ProcUnavail)
	}
}

const aclFailureLen = 4 + nfs3.PostOpAttrLen

func getACL(o *op) {
	var a nfs3.GetACLArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.GetACLRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		r.Status = o.readACL(n, a.Mask, &r.ACL)
		o.s.postOf(n, &r.Attr)
		n.Release()
	}
	if e := o.begin(aclFailureLen + r.ACL.Len()); e != nil {
		r.Encode(e)
		o.respond()
	}
}

// readACL gets the lists of an object in o.stat. One without a list has that of its mode.
func (o *op) readACL(n *vfs.Node, mask uint32, out *nfs3.ACL) nfs3.Status {
	if mask&^nfs3.ACLMask != 0 {
		return nfs3.ErrInval
	}
	out.Mask = mask
	if mask&(nfs3.ACLAccess|nfs3.ACLAccessCount) != 0 {
		list, err := n.ACL(false)
		if err != nil {
			return status(err)
		}
		if list == nil {
			list = modeACL(o.stat.Mode)
		}
		out.Access = aclEntries(list, 0, &o.stat)
		out.AccessCount = uint32(len(out.Access))
	}
	if mask&(nfs3.ACLDefault|nfs3.ACLDefaultCount) != 0 {
		list, err := n.ACL(true)
		if err != nil {
			return status(err)
		}
		out.Default = aclEntries(list, nfs3.ACLTypeDefault, &o.stat)
		out.DefaultCount = uint32(len(out.Default))
	}
	if max(out.AccessCount, out.DefaultCount) > nfs3.MaxACL {
		*out = nfs3.ACL{}
		return nfs3.ErrServerFault
	}
	if mask&nfs3.ACLAccess == 0 {
		out.Access = nil
	}
	if mask&nfs3.ACLDefault == 0 {
		out.Default = nil
	}
	return nfs3.OK
}

// aclEntries converts a list. Solaris and Linux want a mask in each, which follows from the
// permissions of the group where there are no users and groups.
func aclEntries(list []vfs.ACLEntry, flag uint32, st *vfs.Stat) (out []nfs3.ACLEntry) {
	for _, e := range list {
		n := nfs3.ACLEntry{Type: uint32(e.Tag) | flag, Perm: uint32(e.Perm)}
		switch e.Tag {
		case vfs.ACLUser, vfs.ACLGroup:
			n.ID = e.ID
		case vfs.ACLUserObj:
			n.ID = st.Uid
		case vfs.ACLGroupObj:
			n.ID = st.Gid
		}
		out = append(out, n)
		if len(list) == 3 && e.Tag == vfs.ACLGroupObj {
			out = append(out, nfs3.ACLEntry{Type: nfs3.ACLClass | flag, Perm: n.Perm})
		}
	}
	return out
}

// posixACL converts the list of a client. It drops a mask that changes nothing: a mode can say the
// rest.
func posixACL(list []nfs3.ACLEntry) ([]vfs.ACLEntry, nfs3.Status) {
	var out []vfs.ACLEntry
	group, mask := -1, -1
	for _, e := range list {
		n := vfs.ACLEntry{Tag: vfs.ACLTag(e.Type &^ nfs3.ACLTypeDefault), Perm: uint16(e.Perm & permissions)}
		switch n.Tag {
		case vfs.ACLUser, vfs.ACLGroup:
			n.ID = e.ID
		case vfs.ACLGroupObj:
			group = len(out)
		case vfs.ACLMask:
			mask = len(out)
		case vfs.ACLUserObj, vfs.ACLOther:
		default:
			return nil, nfs3.ErrInval
		}
		// Solaris sets other bits too in the mask.
		if e.Type > 0xffff || e.Perm&^permissions != 0 && n.Tag != vfs.ACLMask {
			return nil, nfs3.ErrInval
		}
		out = append(out, n)
	}
	if len(out) == 4 && group >= 0 && mask >= 0 && out[group].Perm == out[mask].Perm {
		out = append(out[:mask], out[mask+1:]...)
	}
	return out, nfs3.OK
}

func setACL(o *op) {
	e := o.begin(aclFailureLen)
	if e == nil {
		return
	}
	var a nfs3.SetACLArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.SetACLRes
	n, st := o.writable(a.Object)
	if r.Status = st; st == nfs3.OK {
		r.Status = o.writeACL(n, &a.ACL)
		o.s.postOf(n, &r.Attr)
		n.Release()
	}
	r.Encode(e)
	o.respond()
}

func (o *op) writeACL(n *vfs.Node, in *nfs3.ACL) nfs3.Status {
	access, st := posixACL(in.Access)
	if st != nfs3.OK {
		return st
	}
	inherited, st := posixACL(in.Default)
	switch {
	case st != nfs3.OK:
		return st
	case in.Mask&^nfs3.ACLMask != 0, len(inherited) > 0 && !n.IsDir():
		return nfs3.ErrInval
	case n.Kind() == unix.S_IFLNK:
		return nfs3.ErrNotSupp
	}
	var err error
	if in.Mask&nfs3.ACLAccess != 0 {
		err = o.s.fs.SetACL(n, false, access, &o.cred, &o.wcc)
	}
	if err == nil && in.Mask&nfs3.ACLDefault != 0 && n.IsDir() {
		err = o.s.fs.SetACL(n, true, inherited, &o.cred, &o.wcc)
	}
	if err == nil {
		err = n.Sync(false)
	}
	return status(err)
}
