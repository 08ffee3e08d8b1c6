package proxy

import (
	"fmt"
	"net/netip"
	"sync/atomic"

	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
)

// stats holds counters since New.
type stats struct {
	unreadable, delayed, callbacks atomic.Uint64
}

// Status is the state of the backend and of the export's roots.
type Status struct {
	upstream.Status
	// Versions are the served versions, "3" and "4.0" to "4.2", as far as known.
	Versions []string
	// RootError is the reason for an unknown or possibly outdated root; empty if all is well.
	RootError string
	// MountError is the failure of the backend's MOUNT where the root of version 4 was found. A
	// known root of version 3 stays valid; without one, Versions lacks "3". Empty if MOUNT answers,
	// or if RootError says it.
	MountError string
	// RootFrom is the local address of the latest connection that asked for the root; invalid if
	// there was none.
	RootFrom netip.AddrPort
	// Unreadable counts unreadable messages of the backend and of clients, Delayed the calls whose
	// client was asked to try again, Callbacks the forwarded callbacks.
	Unreadable, Delayed, Callbacks uint64
}

// Status returns the current state.
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
