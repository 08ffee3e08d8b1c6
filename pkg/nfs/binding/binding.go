// Package binding has the upper-layer bindings of NFS to RPC-over-RDMA (RFC 8267): which arguments and results may be
// placed directly, and how long a reply can get.
//
// MOUNT and NFSACL have none (RFC 8267 section 4.2), nor do the callbacks of version 4: their messages are never reduced, and who calls them bounds the reply.
package binding

import (
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// For returns the binding of a program and version, nil when it has none. It is an oncrpc.Bindings.
func For(program, version uint32) oncrpc.Binding {
	switch {
	case program != nfs3.Program:
		return nil
	case version == nfs3.Version:
		return nfs3Binding{}
	case version == nfs4Version:
		return nfs4Binding{}
	}
	return nil
}
