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

// For returns the binding of a program and version, nil if none. It is an oncrpc.Bindings. Its
// plans have all results that a responder may place.
func For(program, version uint32) oncrpc.Binding {
	return choose(program, version, nfs4Binding{})
}

// Offered returns the binding by which a requester plans its calls: the plans have the results for
// which it offers memory. A COMPOUND that reads a link, and no data, gets the text in the reply's
// stream: Linux's server (seen in 6.1) places it from its length word on.
func Offered(program, version uint32) oncrpc.Binding {
	return choose(program, version, nfs4Binding{inlineLinks: true})
}

func choose(program, version uint32, v4 nfs4Binding) oncrpc.Binding {
	switch {
	case program != nfs3.Program:
		return nil
	case version == nfs3.Version:
		return nfs3Binding{}
	case version == nfs4Version:
		return v4
	}
	return nil
}
