//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"os"
	"syscall"

	"sluice.dev/sluice/pkg/rdma"
)

// path describes the queue pair of an established connection, nil if the device refuses.
func (e *endpoint) path() *rdma.QueuePair {
	var c C.struct_sv_path
	if errno := onHelper(func() C.int { return C.sv_path_of(e.q, &c) }); errno != 0 {
		e.p.cfg.Logger.Debug("query of an RDMA queue pair failed", "device", e.dev.name, "error", syscall.Errno(errno))
		return nil
	}
	p := &rdma.QueuePair{
		Port: int(c.port), QPN: uint32(c.number), RemoteQPN: uint32(c.remote_number), PathMTU: int(c.mtu),
		GID: gidOf(*(*[16]byte)(ptr(&c.gid))), RemoteGID: gidOf(*(*[16]byte)(ptr(&c.remote_gid))),
	}
	if c.port_mtu > 0 && c.mtu > c.port_mtu {
		e.p.cfg.Logger.Warn("path MTU of an RDMA connection exceeds the MTU of the port; large messages may be lost: set the same MTU at both ends",
			"device", e.dev.name, "port", p.Port, "pathMTU", p.PathMTU, "portMTU", int(c.port_mtu), "peer", e.remote)
	}
	if c.ethernet != 0 {
		p.GIDType = gidType(os.DirFS("/sys"), e.dev.name, p.Port, int(c.gid_index))
	}
	return p
}
