package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/filewatch"
	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/internal/speaker/fsm"
	"sluice.dev/sluice/internal/speaker/lease"
	"sluice.dev/sluice/internal/speaker/neighbour"
	"sluice.dev/sluice/internal/speaker/netif"
)

const (
	deviceEvery = time.Second
	// longest time for which an interface may be down before its addresses are given up
	downMost = 3 * time.Second
	gidMost  = 3 * time.Second // an adapter has the GID of an address after this
)

// speaker executes the machine's decisions. mu guards everything but the goroutines' own fields;
// the loop holds it while it works.
type speaker struct {
	o      options
	log    *slog.Logger
	leases *lease.Client

	events chan fsm.Event
	calls  chan func() // run by the loop
	work   sync.WaitGroup

	mu       sync.Mutex
	m        *fsm.Machine
	looked   fsm.Time // time of the loop's last round
	file     configFile
	config   *api.Config // in force; nil before the first
	device   netif.Device
	missing  error // reason why device is unusable
	upAt     fsm.Time
	port     *neighbour.Port
	gateway  fsm.Fit
	follows  map[string]context.CancelFunc
	carried  map[netip.Addr]fsm.Time // time at which they were put on the interface
	problems map[string]api.Problem  // by source
	stopping bool
	done     bool
}

// boot is the time since the machine was started, suspension included.
func boot() fsm.Time {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("CLOCK_BOOTTIME: %v", err)) // every kernel has it since 2.6.39
	}
	return fsm.Time(t.Nano())
}

func random(n time.Duration) time.Duration {
	if n <= 0 {
		return 0
	}
	return rand.N(n)
}

func newSpeaker(o options, log *slog.Logger, leases *lease.Client) *speaker {
	return &speaker{
		o: o, log: log, leases: leases,
		events: make(chan fsm.Event, 256), calls: make(chan func(), 16),
		m: fsm.New(o.timing, api.Identity(o.pod, o.uid), boot(), random), looked: boot(),
		follows: map[string]context.CancelFunc{}, carried: map[netip.Addr]fsm.Time{}, problems: map[string]api.Problem{},
		gateway: fsm.Fit{Take: o.gateway == "", Keep: true},
	}
}

// run works until everything is given up after stop ended.
func (s *speaker) run(stop context.Context) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer s.work.Wait()
	defer cancel()
	present, err := netif.Present()
	if err != nil {
		return fmt.Errorf("addresses of an earlier speaker: %w", err)
	}
	s.locked(func() { s.step(ctx, fsm.Present{Addresses: present}) })
	s.work.Go(func() {
		filewatch.Watch(ctx, s.log, s.o.file, func() {
			f := readConfig(s.o.file)
			s.call(ctx, func() { s.configure(ctx, f) })
		})
	})
	if s.o.gateway != "" {
		s.work.Go(func() {
			watchGateway(ctx, s.o.gateway, &http.Transport{DisableKeepAlives: true}, s.o.timing.Lease, func(f fsm.Fit) { s.call(ctx, func() { s.gateway = f }) })
		})
	}
	s.loop(ctx, stop)
	if s.port != nil {
		s.port.Close()
	}
	return nil
}

func (s *speaker) loop(ctx, stop context.Context) {
	tick := time.NewTicker(s.o.timing.Probe / 4)
	defer tick.Stop()
	look := time.NewTicker(deviceEvery)
	defer look.Stop()
	stopped := stop.Done()
	for !s.done {
		select {
		case e := <-s.events:
			s.locked(func() { s.step(ctx, e) })
		case f := <-s.calls:
			s.locked(f)
		case <-tick.C:
			s.locked(func() { s.step(ctx, fsm.Tick{}) })
		case <-look.C:
			s.locked(func() { s.look(ctx) })
		case <-stopped:
			stopped = nil
			s.locked(func() {
				s.log.Info("giving the addresses up")
				s.stopping = true
				s.step(ctx, fsm.Stop{})
			})
		}
	}
}

func (s *speaker) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// call runs f in the loop, soon.
func (s *speaker) call(ctx context.Context, f func()) {
	select {
	case s.calls <- f:
	case <-ctx.Done():
	}
}

// deliver hands an event to the loop, and waits until it is taken.
func (s *speaker) deliver(ctx context.Context, e fsm.Event) {
	select {
	case s.events <- e:
	case <-ctx.Done():
	}
}

// step hands an event to the machine and executes its decisions.
func (s *speaker) step(ctx context.Context, e fsm.Event) {
	now := boot()
	s.looked = now
	before := s.holding(now)
	for _, a := range s.m.Step(now, e) {
		s.do(ctx, a, now)
	}
	for lease, h := range s.holding(now) {
		if h != before[lease] {
			s.log.Info("group", "lease", lease, "holding", h)
		}
	}
}

func (s *speaker) holding(now fsm.Time) map[string]bool {
	all := map[string]bool{}
	for _, g := range s.m.Status(now) {
		all[g.Lease] = g.State == "Holding"
	}
	return all
}

// do executes an action that was decided at since. It drops frames that are late because the
// process was stopped.
func (s *speaker) do(ctx context.Context, a fsm.Action, since fsm.Time) {
	send := func(what string, ip netip.Addr, f func() error) {
		if s.port == nil || boot()-since > s.o.timing.Probe/2 {
			return
		}
		if err := f(); err != nil {
			s.log.Debug("not sent", "frame", what, "address", ip, "error", err)
		}
	}
	switch a := a.(type) {
	case fsm.Ask:
		send("probe", a.Address, func() error { return s.port.Ask(a.Address) })
	case fsm.Announce:
		send("announcement", a.Address, func() error { return s.port.Announce(a.Address) })
	case fsm.Reply:
		send("reply", a.To.Address, func() error { return s.port.Reply(a.To) })
	case fsm.Write:
		s.work.Go(func() { s.write(ctx, a) })
	case fsm.Add:
		err := s.device.Add(a.Address, s.config.Networks, s.config.Gateways)
		s.problem("address "+a.Address.String(), err)
		if err == nil {
			s.carried[a.Address] = since
			s.log.Info("address taken", "address", a.Address, "interface", s.device.Name)
		}
		s.step(ctx, fsm.Added{Address: a.Address, Failed: err != nil})
	case fsm.Remove:
		delete(s.carried, a.Address)
		s.problem("gid "+a.Address.String(), nil)
		if err := s.device.Remove(a.Address); err != nil {
			s.log.Warn("address given up, with errors", "address", a.Address, "interface", s.device.Name, "error", err)
		} else {
			s.log.Info("address given up", "address", a.Address, "interface", s.device.Name)
		}
	case fsm.Done:
		s.done = true
	}
}

func (s *speaker) write(ctx context.Context, w fsm.Write) {
	r, err := s.leases.Write(ctx, w, time.Now())
	s.call(ctx, func() {
		s.leaseProblem(w.Lease, err)
		s.step(ctx, fsm.Written{Lease: w.Lease, Failed: err != nil, Record: r})
	})
	if err == nil {
		return
	}
	// Another client may have written in between.
	if r, err := s.leases.Get(ctx, w.Lease); err == nil {
		s.deliver(ctx, fsm.Observed{Lease: w.Lease, Record: r})
	}
}

// leaseProblem records the problem of a followed Lease. It tries to free a Lease without a group.
func (s *speaker) leaseProblem(name string, err error) {
	if err != nil && s.follows[name] == nil {
		return
	}
	if err != nil {
		err = &api.Problem{Reason: api.LeaseUnreachable, Lease: name, Message: fmt.Sprintf("Lease %s: %v", name, err)}
	}
	s.problem("lease "+name, err)
}

// problem records the problem of a source, or its end.
func (s *speaker) problem(what string, err error) {
	before, had := s.problems[what]
	if err == nil {
		delete(s.problems, what)
		if had {
			s.log.Info("over", "problem", before.Message)
		}
		return
	}
	var p *api.Problem
	if !errors.As(err, &p) {
		p = &api.Problem{Reason: api.ConfigInvalid, Message: err.Error()}
	}
	if !had || before.Reason != p.Reason {
		s.log.Warn(p.Message, "reason", p.Reason)
	}
	s.problems[what] = *p
}

// configure takes a new file over. An unusable one changes nothing.
func (s *speaker) configure(ctx context.Context, f configFile) {
	if f.err != nil {
		s.problem("config", fmt.Errorf("%s: %w", s.o.file, f.err))
		return
	}
	s.problem("config", nil)
	if s.config != nil && f.hash == s.file.hash {
		return
	}
	moved := s.config != nil && s.config.Interface != f.config.Interface
	s.file, s.config = f, f.config
	if moved {
		s.leaveDevice(ctx)
	}
	var groups []fsm.Group
	wanted := map[string]bool{}
	for _, g := range f.config.Groups {
		groups = append(groups, fsm.Group{Lease: g.Lease, Addresses: g.Addresses})
		wanted[g.Lease] = true
	}
	for name, cancel := range s.follows {
		if !wanted[name] {
			cancel()
			delete(s.follows, name)
			s.problem("lease "+name, nil)
		}
	}
	for what, p := range s.problems {
		if ip, err := netip.ParseAddr(p.Address); err == nil && !slices.ContainsFunc(groups, func(g fsm.Group) bool { return slices.Contains(g.Addresses, ip) }) {
			delete(s.problems, what)
		}
	}
	s.step(ctx, fsm.Configure{Groups: groups})
	for name := range wanted {
		if s.follows[name] != nil {
			continue
		}
		fctx, cancel := context.WithCancel(ctx)
		s.follows[name] = cancel
		s.work.Go(func() {
			s.leases.Follow(fctx, name,
				func(r fsm.Record) { s.deliver(fctx, fsm.Observed{Lease: name, Record: r}) },
				func(err error) { s.call(fctx, func() { s.leaseProblem(name, err) }) })
		})
	}
	s.look(ctx)
	s.listen()
}

// look reads the state of the interface, and updates the pod's fitness.
func (s *speaker) look(ctx context.Context) {
	if s.config == nil {
		return
	}
	now := boot()
	d, err := netif.Find(s.config.Interface)
	if err == nil && !d.Up {
		err = &api.Problem{Reason: api.InterfaceMissing, Message: fmt.Sprintf("interface %s is down", d.Name)}
	}
	if err == nil {
		s.upAt = now
	}
	if d.Index != s.device.Index || d.MAC != s.device.MAC || s.port == nil {
		s.leaveDevice(ctx)
		s.device = d
		if err == nil {
			err = s.openPort(ctx)
		}
	}
	s.missing = err
	s.problem("interface", err)
	s.checkGIDs(now)
	keep := err == nil || s.port != nil && now-s.upAt < downMost
	s.step(ctx, fsm.Fit{Take: err == nil && s.gateway.Take, Keep: keep && s.gateway.Keep})
}

func (s *speaker) openPort(ctx context.Context) error {
	p, err := neighbour.Open(s.device.Index, s.device.MAC, func(h fsm.Heard) {
		select {
		case s.events <- h:
		case <-ctx.Done():
		default: // a flood: the sender will ask again
		}
	})
	if err != nil {
		return &api.Problem{Reason: api.NotPermitted, Message: err.Error()}
	}
	s.port = p
	s.listen()
	return nil
}

// leaveDevice gives up the addresses of an interface that was replaced.
func (s *speaker) leaveDevice(ctx context.Context) {
	if s.port == nil {
		return
	}
	s.step(ctx, fsm.Fit{})
	s.port.Close()
	s.port = nil
}

func (s *speaker) listen() {
	if s.port == nil || s.config == nil {
		return
	}
	var all []netip.Addr
	for _, g := range s.config.Groups {
		all = append(all, g.Addresses...)
	}
	var err error
	if e := s.port.Watch(all); e != nil {
		err = &api.Problem{Reason: api.NetworkNotLayer2, Message: e.Error()}
	}
	s.problem("groups", err)
}

// checkGIDs checks that the interface's RDMA device, if any, has the addresses' GIDs.
func (s *speaker) checkGIDs(now fsm.Time) {
	device := netif.RDMADevice(netif.Sysfs, s.device.Name)
	if device == "" {
		return
	}
	for _, ip := range slices.Collect(maps.Keys(s.carried)) {
		if now-s.carried[ip] < gidMost {
			continue
		}
		var err error
		if !netif.HasGID(netif.Sysfs, device, ip) {
			err = &api.Problem{Reason: api.DeviceAddressLimit, Address: ip.String(),
				Message: fmt.Sprintf("RDMA device %s has no GID for %v: its table is full, or the address is one of IPv6, which adapters do not get", device, ip)}
		}
		s.problem("gid "+ip.String(), err)
	}
}
