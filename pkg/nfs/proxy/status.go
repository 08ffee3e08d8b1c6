package proxy

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
)

// stats count since the start.
type stats struct {
	unreadable, delayed, callbacks atomic.Uint64
}

// Status tells how the backend does.
type Status struct {
	upstream.Status
	// Versions are those that clients are served, "3" and "4.0" to "4.2", as far as is known.
	Versions []string
	// RootError is why the export's root is not known, or was not found again; empty if all is well.
	RootError string
	// MountError is why the root of version 3 was not found, where that of version 4 was: the backend's MOUNT cannot be asked. A root that was known
	// before holds; if none was, Versions is without "3". Empty if MOUNT answers, or if it is all of RootError.
	MountError string
	// RootFrom is the local address of the connection that it was asked for on; not valid if there was none.
	RootFrom netip.AddrPort
	// Unreadable counts messages of backend and clients that could not be read, Delayed the calls whose client was told to come
	// again, Callbacks the backend's calls that were passed on.
	Unreadable, Delayed, Callbacks uint64
}

// Status returns the present state.
func (s *Server) Status() Status {
	st := Status{
		Status: s.backend.Status(), Unreadable: s.stats.unreadable.Load(), Delayed: s.stats.delayed.Load(), Callbacks: s.stats.callbacks.Load(),
	}
	if r := s.export.Roots.Load(); r != nil {
		if s.cfg.V3 && r.V3 != nil && !r.No3 {
			st.Versions = append(st.Versions, "3")
		}
		for minor, offered := range s.cfg.Minor {
			if offered && r.V4 != nil && !r.No4 && !r.NoMinor[minor] {
				st.Versions = append(st.Versions, fmt.Sprintf("4.%d", minor))
			}
		}
	}
	switch from, err := s.roots.lastError(); {
	case onlyMountMissing(err):
		st.MountError = err.Error()
	case err != nil:
		st.RootError, st.RootFrom = err.Error(), from
	}
	return st
}
