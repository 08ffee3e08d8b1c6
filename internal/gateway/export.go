package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// retryEvery is how often an export that does not open, or a change that does not apply, is tried again: its
// directory may not be mounted yet.
const retryEvery = 2 * time.Second

// export is one export: what is wanted of it, what it is, and the goroutine that makes the one the other.
type export struct {
	name    string
	gateway *Gateway
	log     *slog.Logger
	stats   exportStats
	clients clients
	servers tcpServers
	credits *credit.Adaptive // also where the policy is Static

	changed chan struct{} // something else is wanted

	mu      sync.Mutex
	goal    goal
	attempt chan struct{} // closed when the goal was tried
	// problems are those of the configuration as it is now, which therefore is not the goal; failed is why the goal was not reached.
	problems config.Problems
	failed   string
	open     *opened // what is served; nil if nothing is
	hash     string  // of its configuration
	ended    bool    // its goroutine has
	leaked   error
}

// goal is what is wanted of an export: one of the three.
type goal struct {
	export *config.Export
	hash   string // of export
	remove bool
	stop   context.Context // remove, and end even if that takes longer than drainTimeout
}

func newExport(g *Gateway, name string) *export {
	e := &export{
		name: name, gateway: g, log: g.log.With("export", name), changed: make(chan struct{}, 1),
		attempt: make(chan struct{}), credits: newCredits(),
	}
	e.clients.total = &g.total
	e.credits.Under(&g.total.receives)
	e.clients.byConn, e.clients.byClient = map[*oncrpc.Conn]*peer{}, map[netip.Addr]int{}
	e.clients.idle.Store(new(config.IdleTimeout))
	return e
}

// want asks for the export to be as x says.
func (e *export) want(x *config.Export) { e.set(goal{export: x, hash: x.Hash()}) }

// remove asks for the export to be taken away, when its calls in flight have finished.
func (e *export) remove() { e.set(goal{remove: true}) }

// stop asks for the same, until ctx ends at the most.
func (e *export) stop(ctx context.Context) { e.set(goal{stop: ctx}) }

func (e *export) set(g goal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.goal.stop != nil {
		return
	}
	if e.goal.export != nil || e.goal.remove {
		select {
		case <-e.attempt:
			e.attempt = make(chan struct{})
		default: // the last goal was not tried yet: whoever waits for it waits for this one
		}
	}
	e.goal, e.problems, e.failed = g, nil, ""
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// refuse keeps the export as it is, since what the configuration says now is wrong.
func (e *export) refuse(ps config.Problems) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problems = ps
	if e.goal.export == nil && e.goal.stop == nil {
		// It is new, or was about to be removed, which it no longer is.
		e.goal = goal{}
		e.triedLocked()
	}
}

// settled waits until what is wanted now has been tried.
func (e *export) settled() {
	e.mu.Lock()
	a := e.attempt
	e.mu.Unlock()
	<-a
}

func (e *export) unwanted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.goal.remove || e.goal.stop != nil
}

// leak tells what the export could not give back, after stop.
func (e *export) leak() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		return errors.Join(e.leaked, fmt.Errorf("export %s does not end: what it waits for, such as its directory or device, does not answer", e.name))
	}
	return e.leaked
}

// run is the export's goroutine.
func (e *export) run() {
	defer func() {
		e.mu.Lock()
		e.ended = true
		e.mu.Unlock()
	}()
	again := time.NewTimer(0)
	again.Stop()
	defer again.Stop()
	for {
		select {
		case <-e.changed:
		case <-again.C:
		}
		e.mu.Lock()
		g := e.goal
		e.mu.Unlock()
		switch {
		case g.stop != nil:
			e.close(g.stop)
			e.tried()
			return
		case g.remove:
			e.close(context.Background())
			e.tried()
			if e.gateway.forget(e) {
				return
			}
		case g.export != nil:
			if !e.converge(g.export) {
				again.Reset(retryEvery)
			}
		}
	}
}

func (e *export) tried() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.triedLocked()
}

func (e *export) triedLocked() {
	select {
	case <-e.attempt:
	default:
		close(e.attempt)
	}
}

// converge makes the export what x says, or leaves it as it is and tells why. It returns whether x is served now.
func (e *export) converge(x *config.Export) bool {
	e.mu.Lock()
	open := e.open
	e.mu.Unlock()
	var err error
	if open == nil {
		open, err = e.start(x)
	} else {
		err = open.change(x)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		if h := x.Hash(); h != e.hash {
			e.hash = h
			e.log.Info("the export is served as configured", "hash", h)
		}
		e.open = open
	}
	if e.goal.export != x {
		return true // something else is wanted by now, and comes next
	}
	e.triedLocked()
	if err == nil {
		e.failed = ""
		return true
	}
	if e.failed != err.Error() {
		e.log.Error("the export cannot be served as configured; it is tried again and again", "error", err)
	}
	e.failed = err.Error()
	return false
}

// close drains the export and gives back what it has.
func (e *export) close(ctx context.Context) {
	e.mu.Lock()
	open := e.open
	e.mu.Unlock()
	var err error
	if open != nil {
		ctx, cancel := context.WithTimeout(ctx, e.gateway.drainTimeout())
		defer cancel()
		if err = open.close(ctx); err != nil {
			e.log.Error("the export has ended, but not everything could be given back", "error", err)
		} else {
			e.log.Info("the export has ended")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open, e.hash = nil, ""
	e.leaked = errors.Join(e.leaked, err)
}

func (e *export) stateLocked() status.ExportState {
	switch {
	case e.goal.stop != nil || e.goal.remove:
		return status.Removing
	case (len(e.problems) > 0 || e.failed != "") && e.open == nil:
		return status.Refused
	case len(e.problems) > 0 || e.failed != "":
		return status.Outdated
	case e.open == nil || e.hash != e.goal.hash:
		return status.Applying
	default:
		return status.Serving
	}
}

// status describes the export, without its clients.
func (e *export) status() status.Export {
	e.mu.Lock()
	s := status.Export{
		Name: e.name, State: e.stateLocked(), Hash: e.hash, Error: e.failed, Problems: e.problems, Listeners: []status.Listener{}, Clients: []status.Client{},
	}
	if len(e.problems) > 0 {
		s.Error = e.problems.Error()
	}
	open := e.open
	e.mu.Unlock()
	if open != nil {
		s.Listeners = open.listeners()
		s.Backend = open.serves().status()
		x := open.served()
		s.UID = x.UID
		s.Credits = e.creditStatus(&x.Transport)
	}
	s.Counters.RPCs, s.Counters.Errors = e.stats.totals()
	s.Counters.Connections = e.clients.opened[0].Load() + e.clients.opened[1].Load()
	s.Counters.BytesIn, s.Counters.BytesOut = e.stats.bytes()
	return s
}

// served returns the configuration that is served, nil if none is.
func (e *export) served() *config.Export {
	e.mu.Lock()
	open := e.open
	e.mu.Unlock()
	if open == nil {
		return nil
	}
	return open.served()
}
