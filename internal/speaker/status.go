package speaker

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/internal/speaker/fsm"
)

// aliveMost bounds a round of the loop.
const aliveMost = 10 * time.Second

// page is for the operator, probes and people. It is read-only.
func (s *speaker) page() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(s.status())
	})
	m.Handle("GET /metrics", s.metrics())
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		late := boot() - s.looked
		s.mu.Unlock()
		if late > aliveMost {
			http.Error(w, fmt.Sprintf("the loop has not gone round for %v", late), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		configured := s.config != nil
		s.mu.Unlock()
		if !configured {
			http.Error(w, "no configuration could be read yet: see /status", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return m
}

func (s *speaker) status() api.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := api.Status{
		Version: s.o.version, Pod: s.o.pod, Identity: api.Identity(s.o.pod, s.o.uid), Stopping: s.stopping,
		ConfigHash: s.file.hash, Groups: []api.GroupStatus{}, Problems: []api.Problem{},
		Interface: api.Interface{Name: s.device.Name, Up: s.missing == nil && s.port != nil},
	}
	if s.device.MAC != (fsm.MAC{}) {
		st.Interface.MAC = mac(s.device.MAC)
	}
	for _, k := range slices.Sorted(maps.Keys(s.problems)) {
		st.Problems = append(st.Problems, s.problems[k])
	}
	if s.o.gateway != "" && !s.gateway.Take {
		st.Problems = append(st.Problems, api.Problem{Reason: api.GatewayNotReady, Message: "the gateway does not answer that it is ready at " + s.o.gateway})
	}
	for _, g := range s.m.Status(boot()) {
		gs := api.GroupStatus{Lease: g.Lease, State: g.State, Holder: g.Holder, Holding: g.State == "Holding", LeaseValid: g.Valid, Addresses: []api.AddressStatus{}}
		for _, a := range g.Addresses {
			as := api.AddressStatus{Address: a.Address, State: a.State}
			if a.Foreign != (fsm.MAC{}) {
				as.Foreign = mac(a.Foreign)
				st.Problems = append(st.Problems, api.Problem{Reason: api.AddressConflict, Lease: g.Lease, Address: a.Address.String(),
					Message: fmt.Sprintf("%v is also claimed by the host with hardware address %s", a.Address, as.Foreign)})
			}
			gs.Addresses = append(gs.Addresses, as)
		}
		st.Groups = append(st.Groups, gs)
	}
	slices.SortFunc(st.Groups, func(a, b api.GroupStatus) int {
		if a.Lease < b.Lease {
			return -1
		}
		return 1
	})
	return st
}

func mac(m fsm.MAC) string { return net.HardwareAddr(m[:]).String() }
