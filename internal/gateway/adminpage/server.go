// Package adminpage serves status, metrics, probes and profiles of the gateway. On loopback
// addresses it also ends NFSv4 clients.
package adminpage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
)

// Server serves the page on an address that may change.
type Server struct {
	log     *slog.Logger
	handler http.Handler
	profile bool
	limit   adminport.ConnLimit
	hosts   adminport.Hosts // for an empty host; none: all addresses
	page    *page

	mu      sync.Mutex
	address string // as configured
	bound   string // empty while it does not listen
	server  *http.Server
	l       net.Listener
	sampled context.CancelFunc // ends the history's goroutine
}

// Gateway is the gateway behind the page.
type Gateway struct {
	// Status describes it, with its clients or without.
	Status  func(clients bool) status.Status
	Metrics prometheus.Gatherer
	// Expel ends an NFSv4 client of an export.
	Expel func(export, client string) error
	// Recent has the last log lines for the page.
	Recent *Lines
}

// New returns a server that does not listen yet. profile serves profiles, on loopback addresses
// only.
func New(log *slog.Logger, g Gateway, profile bool, hosts adminport.Hosts) *Server {
	p := &page{gateway: g}
	m := http.NewServeMux()
	m.Handle("GET /metrics", metricsPage(g.Metrics))
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		switch s := g.Status(false); {
		case s.Ready:
			fmt.Fprintln(w, "ok")
		case s.Draining:
			http.Error(w, "draining: no new connections", http.StatusServiceUnavailable)
		default:
			http.Error(w, "no listener serves: see /status", http.StatusServiceUnavailable)
		}
	})
	m.Handle("GET /status", &shared{render: func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, g.Status(true)) }})
	m.Handle("GET /{$}", &shared{render: p.overview})
	m.HandleFunc("GET /exports/{export}", p.export)
	m.HandleFunc("GET /exports/{export}/status", p.exportStatus)
	m.HandleFunc("GET /style.css", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/css; charset=utf-8")
		fmt.Fprint(w, styleCSS)
	})
	// A web page cannot send DELETE to another site without its consent.
	m.HandleFunc("DELETE /exports/{export}/clients/{client}", func(w http.ResponseWriter, r *http.Request) {
		if !local(r) {
			http.Error(w, "clients can be ended on a loopback address of the gateway's host only", http.StatusForbidden)
			return
		}
		if err := g.Expel(r.PathValue("export"), r.PathValue("client")); err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		log.Info("NFSv4 client ended by the administrator", "export", r.PathValue("export"), "client", r.PathValue("client"))
		w.WriteHeader(http.StatusNoContent)
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
	return &Server{log: log, handler: all, profile: profile, hosts: hosts, page: p}
}

// metricsPage serves metrics. If the request accepts OpenMetrics, they are in that format, with the
// traces of calls as exemplars.
func metricsPage(metrics prometheus.Gatherer) http.Handler {
	h := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true})
	as := func(format string) http.Handler {
		return &shared{render: func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Accept", format)
			h.ServeHTTP(w, r)
		}}
	}
	text, open := as("text/plain"), as("application/openmetrics-text;version=1.0.0")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if expfmt.NegotiateIncludingOpenMetrics(r.Header).FormatType() == expfmt.TypeOpenMetrics {
			open.ServeHTTP(w, r)
			return
		}
		text.ServeHTTP(w, r)
	})
}

// local reports whether both ends of a request's connection are loopback addresses.
func local(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() {
		return false
	}
	here, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && here.IP.IsLoopback()
}

// Serve moves the page to address, HOST:PORT, or ends it if that is empty. After an error it keeps
// the former address.
func (a *Server) Serve(address string) error {
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
		// The page itself may have it: a wildcard address conflicts with each single one.
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
		return fmt.Errorf("admin.address: %q: profiles need a loopback address: want 127.0.0.1, or no --pprof", address)
	}
	a.stopLocked()
	a.startLocked(address, l)
	return nil
}

func (a *Server) startLocked(address string, l net.Listener) {
	a.address, a.bound = address, l.Addr().String()
	s := adminport.NewServer(a.handler, &a.limit, a.log)
	a.server, a.l = s, l
	ctx, cancel := context.WithCancel(context.Background())
	a.sampled = cancel
	go a.page.history.run(ctx, func() []status.Export { return a.page.gateway.Status(false).Exports })
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("admin page failed", "error", err)
		}
	}()
}

// Address returns the address of the page, empty while it does not listen.
func (a *Server) Address() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bound
}

// Stop ends the page, within about 1 s.
func (a *Server) Stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopLocked()
}

func (a *Server) stopLocked() {
	if a.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if a.server.Shutdown(ctx) != nil {
		_ = a.server.Close()
	}
	a.sampled()
	_ = a.l.Close() // Serve may not have registered it yet
	a.server, a.address, a.bound = nil, "", ""
}

// Connections returns the number of open connections.
func (a *Server) Connections() int { return a.limit.Len() }
