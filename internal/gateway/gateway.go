// Package gateway is the data plane: it turns a configuration into exports with listeners, backends
// and memory of their own, follows changes of the configuration, and reports status and metrics.
//
// # How it works
//
//	Gateway ── admin page (adminpage), metrics
//	  └─ export          goal and state, one goroutine each
//	      └─ servedExport    memory, then backend (backend), then ports (listen)
//	          └─ traffic         connections (conns) and calls (rpcstats)
//
// A [Gateway] loads the configuration and gives each [export] its goal. The export's goroutine
// makes the export match the goal, and retries when it cannot. So a change of one export never
// waits for another, and an invalid one leaves its export as it was. Access rules, limits and
// credits change while connections stay. Settings that a connection negotiates at its start
// (thresholds, versions, the backend) make new servers; the old servers drain.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
	"sluice.dev/sluice/internal/filewatch"
	"sluice.dev/sluice/internal/gateway/adminpage"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
)

// Options are the parameters of a Gateway.
type Options struct {
	// Version is the version on /status.
	Version string
	// File is the path of the configuration file, which is watched. If it is empty, Config is used.
	File   string
	Config *config.GatewayConfig
	// Host stands for an empty host in addresses of the configuration; the zero value: all of the
	// host's addresses.
	Host netip.Addr
	// AdminHosts stand for an empty host in admin.address; without any, Host does.
	AdminHosts adminport.Hosts
	// Log receives log lines; nil discards them. The configuration sets Level, if that is not nil.
	Log   *slog.Logger
	Level *slog.LevelVar
	// Profile serves profiles on the admin page, which must be on loopback.
	Profile bool

	decorate   func(oncrpc.Handler) oncrpc.Handler // for tests: around every backend
	services   []rpcbind.Address                   // for tests: instead of rpcbind.Local
	endTimeout time.Duration                       // for tests: instead of defaultEndTimeout
}

// defaultEndTimeout is the time for exports to end after drainTimeout. Afterwards resources that
// the kernel does not give back, such as a hanging directory, are abandoned. Together with --linger
// it is below the margin over drainTimeout after which pods are killed.
const defaultEndTimeout = 8 * time.Second

// tracesTimeout is the time to send the last traces at the end.
const tracesTimeout = time.Second

// Gateway serves the exports of a configuration.
type Gateway struct {
	*resources
	o       Options
	started time.Time
	admin   *adminpage.Server

	reloading sync.Mutex // one reload at a time

	mu       sync.Mutex
	config   config.GatewayConfig // without meaning: its exports
	first    config.GatewayConfig // at the start
	conf     status.Config
	exports  []*export // by name
	draining bool
	wg       sync.WaitGroup // goroutines of exports
}

// New returns a gateway that does nothing before Start.
func New(o Options) (*Gateway, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	recent := new(adminpage.Lines)
	o.Log = slog.New(slog.NewMultiHandler(o.Log.Handler(), slog.NewTextHandler(recent, &slog.HandlerOptions{Level: slog.LevelWarn})))
	g := &Gateway{resources: newResources(o.Log, o.Version), o: o, started: time.Now()}
	g.host, g.decorate, g.services = o.Host, o.decorate, o.services
	registry := newRegistry(collector{g.resources, g.configNow, g.list}, o.Version)
	g.admin = adminpage.New(g.log, adminpage.Gateway{Status: g.status, Metrics: registry, Expel: g.expel, Recent: recent}, o.Profile, o.AdminHosts)
	return g, nil
}

// Start begins to serve, and returns when each export has been tried once. It fails if the whole
// configuration is invalid, or the admin page cannot be served. /status reports errors of exports.
func (g *Gateway) Start() error {
	f, err := load(g.o.File, g.o.Config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Config.StateDir, 0o700); err != nil {
		return fmt.Errorf("stateDir: %q: %w", f.Config.StateDir, err)
	}
	g.begin(&f.Config)
	if err := g.admin.Serve(g.resolve(f.Config.Admin.Address)); err != nil {
		return err
	}
	g.first = f.Config
	g.apply(f)
	for _, e := range g.list() {
		e.awaitTry()
	}
	return nil
}

// Watch reloads the configuration file after changes, until ctx ends. Without a file it only waits.
func (g *Gateway) Watch(ctx context.Context) {
	if g.o.File == "" {
		<-ctx.Done()
		return
	}
	var keys sync.WaitGroup
	defer keys.Wait()
	if file := g.first.HandleKeys.File; file != "" {
		keys.Go(func() { filewatch.Watch(ctx, g.log, file, g.keys.Reload) })
	}
	filewatch.Watch(ctx, g.log, g.o.File, func() { g.reload(false) })
}

// Reload loads the configuration file and gives each export its goal, also those that failed
// before. It does not wait for them: /status reports their states.
func (g *Gateway) Reload() {
	if g.o.File != "" {
		g.reload(true)
		g.keys.Reload()
	}
}

func (g *Gateway) reload(force bool) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	f, err := load(g.o.File, g.o.Config)
	if err != nil {
		g.refuse(err)
		return
	}
	g.mu.Lock()
	unchanged := f.Hash == g.conf.Hash && g.conf.Error == ""
	draining := g.draining
	g.mu.Unlock()
	if draining || unchanged && !force {
		return
	}
	if err := g.admin.Serve(g.resolve(f.Config.Admin.Address)); err != nil {
		g.refuse(err)
		return
	}
	g.log.Info("configuration applied", "file", g.o.File, "hash", f.Hash, "exports", len(f.Config.Exports), "refused", len(f.Refused))
	g.apply(f)
}

// refuse keeps everything as it is, and reports err.
func (g *Gateway) refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conf.Error != err.Error() {
		g.log.Error("configuration refused; nothing changes", "file", g.o.File, "error", err)
	}
	g.conf.Error, g.conf.Problems = err.Error(), nil
	var ps config.Problems
	if errors.As(err, &ps) {
		g.conf.Problems = ps
	}
}

// apply sets the limits of the gateway and the goal of each export.
func (g *Gateway) apply(f *config.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return
	}
	g.config = f.Config
	g.setLimits(&f.Config)
	g.conf = status.Config{File: g.o.File, Hash: f.Hash, Loaded: time.Now(), Restart: restartNeeded(&g.first, &f.Config)}
	if g.o.Level != nil {
		var l slog.Level
		if l.UnmarshalText([]byte(f.Config.Log.Level)) == nil {
			g.o.Level.Set(l)
		}
	}
	old := map[string]*export{}
	for _, e := range g.exports {
		old[e.name] = e
	}
	var exports []*export
	keep := func(name string) *export {
		e := old[name]
		delete(old, name)
		if e == nil {
			e = newExport(name, g.resources, g.forget)
			g.wg.Go(e.run)
		}
		exports = append(exports, e)
		return e
	}
	for i := range f.Config.Exports {
		x := &f.Config.Exports[i]
		keep(x.Name).configure(x)
	}
	nameless := false
	for i := range f.Refused {
		r := &f.Refused[i]
		nameless = nameless || r.Name == ""
		g.log.Error("export refused", "export", r.Name, "index", r.Index, "problems", r.Problems.Error())
		if e := old[r.Name]; r.Name != "" && (e != nil || !slices.ContainsFunc(exports, func(e *export) bool { return e.name == r.Name })) {
			keep(r.Name).refuse(r.Problems)
		}
	}
	for _, e := range g.exports {
		if old[e.name] == nil {
			continue
		}
		exports = append(exports, e) // until forget
		if nameless {
			// an export without a readable name may be this one: its clients keep it
			e.refuse(namelessProblems(f))
		} else {
			e.remove()
		}
	}
	slices.SortStableFunc(exports, func(a, b *export) int { return strings.Compare(a.name, b.name) })
	g.exports = exports
}

// forget drops a removed export. It returns false if the export is wanted again.
func (g *Gateway) forget(e *export) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.draining && !e.unwanted() {
		return false
	}
	if i := slices.Index(g.exports, e); i >= 0 && !g.draining {
		g.exports = slices.Delete(slices.Clone(g.exports), i, i+1)
	}
	return true
}

// Stop refuses new connections, lets calls in flight finish within drainTimeout and ctx,
// disconnects everybody, and gives everything back. The error names everything that was not given
// back.
func (g *Gateway) Stop(ctx context.Context) error {
	g.reloading.Lock()
	g.mu.Lock()
	g.draining = true
	exports := slices.Clone(g.exports)
	g.mu.Unlock()
	g.reloading.Unlock()
	for _, e := range exports {
		e.stop(ctx)
	}
	ended := make(chan struct{})
	go func() {
		g.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(g.drainLimit() + cmp.Or(g.o.endTimeout, defaultEndTimeout)):
	}
	g.admin.Stop()
	sending, cancel := context.WithTimeout(ctx, tracesTimeout)
	defer cancel()
	if err := g.tracer.Close(sending); err != nil {
		g.log.Warn("traces not sent", "error", err)
	}
	var errs []error
	for _, e := range exports {
		errs = append(errs, e.leak())
	}
	return errors.Join(errs...)
}

func (g *Gateway) list() []*export {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.exports)
}

// expel ends an NFSv4 client of an export.
func (g *Gateway) expel(export, client string) error {
	for _, e := range g.list() {
		if e.name != export {
			continue
		}
		served := e.current()
		if served == nil || !served.expel(client) {
			return fmt.Errorf("export %q has no NFSv4 client %q: /status lists them", export, client)
		}
		return nil
	}
	return fmt.Errorf("there is no export %q", export)
}

func (g *Gateway) configNow() (status.Config, config.TotalLimits) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.conf, g.config.Limits
}

// Status describes the gateway, its exports and their clients.
func (g *Gateway) Status() status.Status { return g.status(true) }

func (g *Gateway) status(clients bool) status.Status {
	g.mu.Lock()
	s := status.Status{
		Build:   status.Build{Version: g.o.Version, Go: runtime.Version()},
		Started: g.started, Draining: g.draining, Config: g.conf, Exports: []status.Export{},
	}
	exports := slices.Clone(g.exports)
	g.mu.Unlock()
	s.Config.HandleKeysError = g.keys.Error()
	s.Config.Features = []string{config.FeatureNetworkSets}
	serving, wanted := false, false
	for _, e := range exports {
		es := e.status()
		if clients {
			es.Clients, es.ClientsOmitted = e.conns.List(conns.ListLimit(len(exports)))
			noteMTU(&es)
		}
		s.Exports = append(s.Exports, es)
		wanted = wanted || es.State != status.Removing
		for _, l := range es.Listeners {
			serving = serving || l.State == status.Listening
		}
	}
	// A gateway without exports is ready for the first one. Exports in removal do not count.
	s.Ready = s.Config.Loaded != time.Time{} && !s.Draining && (serving || !wanted)
	return s
}

// noteMTU adds a remark on clients with a larger MTU to the export's devices.
func noteMTU(e *status.Export) {
	note := e.MTUMismatch()
	if note == "" {
		return
	}
	for _, l := range e.Listeners {
		if l.Device != nil {
			l.Device.Notes = append(l.Device.Notes, note)
		}
	}
}

// Admin returns the address of the admin page, empty if there is none.
func (g *Gateway) Admin() string { return g.admin.Address() }
