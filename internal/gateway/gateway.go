// Package gateway is the data plane: it turns a configuration into exports with listeners, backends and memory of
// their own, keeps them as the configuration changes, and tells what they do.
//
// # How it works
//
// A [Gateway] reads the configuration and gives each [export] what is wanted of it. An export has one goroutine, which brings
// the export from what it is to what is wanted, and tries again when it cannot: so a change of one never waits for
// another, and a bad one leaves its export as it was. What clients may do and how many calls they may have outstanding changes under
// their feet; what was settled while connecting (thresholds, versions, the backend) makes new servers, and the old ones drain.
//
// Memory, protection domain, backend and servers of an export are made in this order and given back in the other one.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/adminport"
	"sluice.dev/sluice/internal/filewatch"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
	"sluice.dev/sluice/pkg/rdma"
)

// Options say what a Gateway is made of.
type Options struct {
	// Version is told on /status.
	Version string
	// File is the path of the configuration file, which is watched. Config is used if it is empty.
	File   string
	Config *config.GatewayConfig
	// Host is the address that the configuration's addresses without IP stand for; the zero value is all of the host's.
	Host netip.Addr
	// AdminHosts are the addresses that admin.address without IP stands for; none: Host.
	AdminHosts adminport.Hosts
	// Log gets what happens; Level, if not nil, follows the configuration.
	Log   *slog.Logger
	Level *slog.LevelVar
	// Profile offers profiles on the admin page, which then must be on loopback.
	Profile bool

	decorate func(oncrpc.Handler) oncrpc.Handler // for tests: around every backend
	services []rpcbind.Address                   // for tests: instead of rpcbind.Local
	ending   time.Duration                       // for tests: instead of endWithin
}

// endWithin bounds, beyond drainTimeout, the wait for exports to end: what the kernel does not give back, such as a directory on a server that
// does not answer, is given up. With what a pod lingers after it, that is less than the margin over drainTimeout after which pods are killed.
const endWithin = 8 * time.Second

// Gateway is the data plane.
type Gateway struct {
	o        Options
	log      *slog.Logger
	started  time.Time
	registry *prometheus.Registry
	admin    *admin
	adapters adapters

	total   totals
	huge    sync.Once                    // has been said to be missing
	shared  *wildcards[net.Conn]         // TCP, and software iWARP
	adapted *wildcards[rdma.ConnRequest] // of verbs

	reloading sync.Mutex // one reload at a time

	keysMu    sync.Mutex
	keys      [][]byte // see handleKeys; nil before they are needed
	keysError string   // why the file of keys as it is now is not used
	signers   map[*sign.Signer]struct{}

	mu       sync.Mutex
	config   config.GatewayConfig // its exports are not used
	first    config.GatewayConfig // as it was at the start
	conf     status.Config
	exports  []*export // by name
	draining bool
	wg       sync.WaitGroup // the exports' goroutines
}

// New reads the configuration. It fails if nothing of it can be used; problems of single exports are for /status.
func New(o Options) (*Gateway, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gateway{o: o, log: o.Log, started: time.Now()}
	g.registry = newRegistry(g)
	g.total.memory = bufpool.NewCeiling(0)
	g.shared = newWildcards(g.log, refuseTCP)
	g.adapted = newWildcards(g.log, func(in rdma.ConnRequest) { _ = in.Reject(nil) })
	g.admin = newAdmin(g.log, g.status, g.registry, o.Profile, o.AdminHosts)
	return g, nil
}

// Start begins to serve, and returns when every export has been tried once. It fails if nothing of the configuration can
// be used, or the admin page cannot be served.
func (g *Gateway) Start() error {
	f, err := g.read()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Config.StateDir, 0o700); err != nil {
		return fmt.Errorf("stateDir: %q: %w", f.Config.StateDir, err)
	}
	if err := g.admin.serve(g.at(f.Config.Admin.Address)); err != nil {
		return err
	}
	g.first = f.Config
	g.apply(f)
	g.mu.Lock()
	exports := slices.Clone(g.exports)
	g.mu.Unlock()
	for _, e := range exports {
		e.settled()
	}
	return nil
}

// Watch reloads the configuration file whenever it changes, until ctx ends. Without a file it only waits.
func (g *Gateway) Watch(ctx context.Context) {
	if g.o.File == "" {
		<-ctx.Done()
		return
	}
	var keys sync.WaitGroup
	defer keys.Wait()
	if file := g.first.HandleKeys.File; file != "" {
		keys.Go(func() { filewatch.Watch(ctx, g.log, file, g.reloadKeys) })
	}
	filewatch.Watch(ctx, g.log, g.o.File, func() { g.reload(false) })
}

// Reload reads the configuration file and applies it, export by export, also to those that failed before. It returns when
// all know what is wanted of them; /status tells when they have done it.
func (g *Gateway) Reload() {
	if g.o.File != "" {
		g.reload(true)
		g.reloadKeys()
	}
}

// read returns the configuration as it is now.
func (g *Gateway) read() (*config.File, error) {
	if g.o.File == "" {
		c := *g.o.Config
		c.Exports = slices.Clone(c.Exports)
		for i := range c.Exports {
			c.Exports[i].Listeners = slices.Clone(c.Exports[i].Listeners)
			c.Exports[i].Complete()
		}
		if ps := c.Validate(); len(ps) > 0 {
			return nil, ps
		}
		return &config.File{Config: c}, nil
	}
	return readConfig(g.o.File)
}

func readConfig(file string) (*config.File, error) {
	fi, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "read", Path: file, Err: errors.New("not a regular file")}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return config.Parse(b)
}

func (g *Gateway) reload(force bool) {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	f, err := g.read()
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
	if err := g.admin.serve(g.at(f.Config.Admin.Address)); err != nil {
		g.refuse(err) // the page stays where it is, and so does everything else
		return
	}
	g.log.Info("the configuration is applied", "file", g.o.File, "hash", f.Hash, "exports", len(f.Config.Exports), "refused", len(f.Refused))
	g.apply(f)
}

// refuse keeps everything as it is and tells why.
func (g *Gateway) refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conf.Error != err.Error() {
		g.log.Error("the configuration is refused as a whole; everything stays as it is", "file", g.o.File, "error", err)
	}
	g.conf.Error, g.conf.Problems = err.Error(), nil
	var ps config.Problems
	if errors.As(err, &ps) {
		g.conf.Problems = ps
	}
}

// apply tells every export what is wanted of it.
func (g *Gateway) apply(f *config.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.draining {
		return
	}
	g.config = f.Config
	g.total.set(f.Config.Limits)
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
	var now []*export
	keep := func(name string) *export {
		e := old[name]
		delete(old, name)
		if e == nil {
			e = newExport(g, name)
			g.wg.Go(e.run)
		}
		now = append(now, e)
		return e
	}
	for i := range f.Config.Exports {
		x := &f.Config.Exports[i]
		keep(x.Name).want(x)
	}
	nameless := false
	for i := range f.Refused {
		r := &f.Refused[i]
		nameless = nameless || r.Name == ""
		g.log.Error("an export is refused", "export", r.Name, "index", r.Index, "problems", r.Problems.Error())
		if e := old[r.Name]; r.Name != "" && (e != nil || !slices.ContainsFunc(now, func(e *export) bool { return e.name == r.Name })) {
			keep(r.Name).refuse(r.Problems)
		}
	}
	for _, e := range g.exports {
		if old[e.name] == nil {
			continue
		}
		if nameless {
			// An export whose name cannot be read may be this one: do not take it away from its clients.
			now = append(now, e)
			e.refuse(namelessProblems(f))
			continue
		}
		e.remove()
		now = append(now, e) // until it is gone; see forget
	}
	slices.SortStableFunc(now, func(a, b *export) int { return strings.Compare(a.name, b.name) })
	g.exports = now
}

// namelessProblems are those of the exports that have no name.
func namelessProblems(f *config.File) (ps config.Problems) {
	for _, r := range f.Refused {
		if r.Name == "" {
			ps = append(ps, r.Problems...)
		}
	}
	return ps
}

// restartNeeded names the fields that differ and are only looked at when the process starts.
func restartNeeded(a, b *config.GatewayConfig) (fields []string) {
	if a.StateDir != b.StateDir {
		fields = append(fields, "stateDir")
	}
	if a.HandleKeys != b.HandleKeys {
		fields = append(fields, "handleKeys")
	}
	if a.Log.Format != b.Log.Format {
		fields = append(fields, "log.format")
	}
	if a.Memory != b.Memory {
		fields = append(fields, "memory")
	}
	return fields
}

// forget drops an export that is gone. It returns false if the export is wanted again meanwhile.
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

// Stop drains: new connections are refused, calls in flight finish as long as the configuration's drainTimeout and ctx allow, then everything
// is disconnected and given back. The error names what could not be.
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
	case <-time.After(g.drainTimeout() + cmp.Or(g.o.ending, endWithin)):
	}
	g.admin.stop()
	var errs []error
	for _, e := range exports {
		errs = append(errs, e.leak())
	}
	return errors.Join(errs...)
}

func (g *Gateway) drainTimeout() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Duration(g.config.DrainTimeout)
}

// at returns where an address of the configuration is listened on.
func (g *Gateway) at(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" && g.o.Host.IsValid() {
		return net.JoinHostPort(g.o.Host.String(), port)
	}
	return address
}

// noHugePages says once that there are none for an arena; metrics tell how often that is so.
func (g *Gateway) noHugePages(why error) {
	g.huge.Do(func() {
		g.log.Warn("there are no huge pages: ordinary memory is used instead, now and whenever that is so again. hugepages-2Mi of the pod, or vm.nr_hugepages "+
			"of the host, says how many there are", slog.Any("error", why))
	})
}

// stateDir is that of the start, whatever the configuration says by now.
func (g *Gateway) stateDir() string { return g.first.StateDir }

// rpcbind is where the host's rpcbind is.
func (g *Gateway) rpcbind() []rpcbind.Address {
	if g.o.services != nil {
		return g.o.services
	}
	return rpcbind.Local()
}

func (g *Gateway) list() []*export {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.exports)
}

// Status tells the state of everything.
func (g *Gateway) Status() status.Status { return g.status(true) }

// status describes it, with the exports' clients or without.
func (g *Gateway) status(clients bool) status.Status {
	g.mu.Lock()
	s := status.Status{
		Build:   status.Build{Version: g.o.Version, Go: runtime.Version()},
		Started: g.started, Draining: g.draining, Config: g.conf, Exports: []status.Export{},
	}
	exports := slices.Clone(g.exports)
	g.mu.Unlock()
	g.keysMu.Lock()
	s.Config.HandleKeysError = g.keysError
	s.Config.Features = []string{config.FeatureNetworkSets}
	g.keysMu.Unlock()
	serving, wanted := false, false
	for _, e := range exports {
		es := e.status()
		if clients {
			es.Clients, es.ClientsOmitted = e.clients.list(clientsListed(len(exports)))
		}
		s.Exports = append(s.Exports, es)
		wanted = wanted || es.State != status.Removing
		for _, l := range es.Listeners {
			serving = serving || l.State == status.Listening
		}
	}
	// A gateway without exports misses nothing: it is ready for the first one. Those that are about to go do not count.
	s.Ready = s.Config.Loaded != time.Time{} && !s.Draining && (serving || !wanted)
	return s
}

// Admin returns the address of the admin page, empty if there is none.
func (g *Gateway) Admin() string { return g.admin.where() }

// whyNot says why nothing is served.
func (g *Gateway) whyNot() string {
	for _, e := range g.Status().Exports {
		if e.Error != "" {
			return e.Error
		}
		for _, l := range e.Listeners {
			if l.Error != "" {
				return l.Error
			}
		}
	}
	return "nothing is served"
}
