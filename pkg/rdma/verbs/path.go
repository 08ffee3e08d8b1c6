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

// path describes the queue pair of a connection that is established, nil if the device refuses.
func (e *endpoint) path() *rdma.QueuePair {
	var c C.struct_sv_path
	if errno := aside(func() C.int { return C.sv_path_of(e.q, &c) }); errno != 0 {
		e.p.cfg.Logger.Debug("query of an RDMA queue pair failed", "device", e.dev.name, "error", syscall.Errno(errno))
		return nil
	}
	p := &rdma.QueuePair{
		Port: int(c.port), QPN: uint32(c.number), RemoteQPN: uint32(c.remote_number), PathMTU: int(c.mtu),
		GID: gidOf(*(*[16]byte)(ptr(&c.gid))), RemoteGID: gidOf(*(*[16]byte)(ptr(&c.remote_gid))),
	}
	if c.ethernet != 0 {
		p.GIDType = gidType(os.DirFS("/sys"), e.dev.name, p.Port, int(c.gid_index))
	}
	return p
}
