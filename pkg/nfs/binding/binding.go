// Package binding implements the upper-layer bindings of NFS to RPC-over-RDMA (RFC 8267): the
// arguments and results that may be placed directly, and the maximum length of a reply.
//
// MOUNT, NFSACL (RFC 8267 section 4.2) and the callbacks of version 4 have no binding: their
// messages are never reduced, and the caller bounds the reply.
package binding

import (
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

// For returns the binding of a program and version, nil if none. It is an oncrpc.Bindings.
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
