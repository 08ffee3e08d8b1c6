package nfs3test

import (
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func aclEntries(t *rapid.T) (list []nfs3.ACLEntry) {
	for range rapid.IntRange(0, 6).Draw(t, "entries") {
		list = append(list, nfs3.ACLEntry{Type: u32(t), ID: u32(t), Perm: u32(t)})
	}
	return list
}

func acl(t *rapid.T) nfs3.ACL {
	return nfs3.ACL{Mask: u32(t), AccessCount: u32(t), Access: aclEntries(t), DefaultCount: u32(t), Default: aclEntries(t)}
}

func getACLArgs(t *rapid.T) nfs3.GetACLArgs { return nfs3.GetACLArgs{Object: handle(t), Mask: u32(t)} }

func getACLRes(t *rapid.T) nfs3.GetACLRes {
	r := nfs3.GetACLRes{Status: status(t), Attr: postOpAttr(t)}
	if r.Status == nfs3.OK {
		r.ACL = acl(t)
	}
	return r
}

func setACLArgs(t *rapid.T) nfs3.SetACLArgs { return nfs3.SetACLArgs{Object: handle(t), ACL: acl(t)} }

func setACLRes(t *rapid.T) nfs3.SetACLRes {
	return nfs3.SetACLRes{Status: status(t), Attr: postOpAttr(t)}
}
