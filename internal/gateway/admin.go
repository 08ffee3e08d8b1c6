package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
)

// admin is the page for people, probes and Prometheus. It only reads.
type admin struct {
	log     *slog.Logger
	handler http.Handler
	profile bool
	limit   adminport.ConnLimit
	hosts   adminport.Hosts // which an address without a host stands for; none: all of the host's

	mu      sync.Mutex
	address string // as configured
	bound   string // as listened on; empty if nowhere
	server  *http.Server
	l       net.Listener
}

// newAdmin makes a page that is nowhere yet. status describes the gateway, with its clients or without.
func newAdmin(log *slog.Logger, status func(clients bool) status.Status, metrics prometheus.Gatherer, profile bool, hosts adminport.Hosts) *admin {
	m := http.NewServeMux()
	m.Handle("GET /metrics", &page{render: promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}).ServeHTTP})
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch s := status(false); {
		case s.Ready:
			fmt.Fprintln(w, "ok")
		case s.Draining:
			http.Error(w, "draining: no new connections are taken", http.StatusServiceUnavailable)
		default:
			http.Error(w, "no listener serves: see /status", http.StatusServiceUnavailable)
		}
	})
	m.Handle("GET /status", &page{render: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(status(true))
	}})
	m.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "Sluice gateway\n\n/status   exports, listeners, clients, as JSON\n/metrics  for Prometheus\n/readyz   a listener serves, or there is no export\n/healthz  the process answers\n")
	})
	all := http.NewServeMux()
	all.Handle("/", adminport.WriteTimeout(m))
	if profile {
		all.HandleFunc("GET /debug/pprof/", pprof.Index)
		all.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		all.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		all.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		all.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return &admin{log: log, handler: all, profile: profile, hosts: hosts}
}

// serve moves the page to address, or ends it if that is empty. On an error it stays where it is.
func (a *admin) serve(address string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server != nil && address == a.address {
		return nil
	}
	if address == "" {
		a.stopLocked()
		return nil
	}
	l, err := adminport.Listen(address, a.hosts)
	if old := a.address; errors.Is(err, syscall.EADDRINUSE) && a.server != nil {
		// Perhaps by the page itself, as when a wildcard address takes the place of one of its own.
		a.stopLocked()
		if l, err = adminport.Listen(address, a.hosts); err != nil {
			if back, err := adminport.Listen(old, a.hosts); err == nil {
				a.startLocked(old, back)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("admin.address: %w", err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; a.profile && !ip.IsLoopback() {
		_ = l.Close()
		return fmt.Errorf("admin.address: %q: profiles are for loopback alone: want 127.0.0.1, or no --pprof", address)
	}
	a.stopLocked()
	a.startLocked(address, l)
	return nil
}

func (a *admin) startLocked(address string, l net.Listener) {
	a.address, a.bound = address, l.Addr().String()
	s := adminport.NewServer(a.handler, &a.limit, a.log)
	a.server, a.l = s, l
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the admin page ended", "error", err)
		}
	}()
}

// where returns the address that the page is on, empty if it is nowhere.
func (a *admin) where() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bound
}

func (a *admin) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopLocked()
}

func (a *admin) stopLocked() {
	if a.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close()
	}
	_ = a.l.Close() // the server may not have begun to serve it
	a.server, a.address, a.bound = nil, "", ""
}
