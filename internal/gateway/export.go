package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
)

// retryInterval is the interval of attempts to reach a goal: a directory may not be mounted yet.
const retryInterval = 2 * time.Second

var (
	stateDesc    = metric.Desc("export_state", "1 for the current state of the export, otherwise 0: Serving, Refused, Outdated, Applying or Removing.", "state")
	listenerDesc = metric.Desc("listener_up", "1 if all listeners configured for the address listen, otherwise 0.", "network", "address")
)

// export is one export: its goal, its state, and the goroutine that makes the state match the goal.
type export struct {
	*traffic
	res    *resources
	forget func(*export) bool // called after removal; false if the export is wanted again

	changed chan struct{} // gets one after a change of the goal

	mu    sync.Mutex
	goal  goal
	tried chan struct{} // closed after the first attempt to reach the goal
	// problems are those of a configuration that is not the goal, because it is invalid.
	problems config.Problems
	failed   string        // error of the last attempt
	served   *servedExport // nil if nothing is served
	hash     string        // of the served configuration
	ended    bool          // the goroutine has ended
	leaked   error         // errors of closing
}

// goal is the wanted state of an export: one of config, remove and stop, or none for a new export
// whose configuration is invalid.
type goal struct {
	config *config.Export
	hash   string // of config
	remove bool
	stop   context.Context // removes it, and cuts calls off when it ends
}

// newExport starts an export without a goal.
func newExport(name string, res *resources, forget func(*export) bool) *export {
	e := &export{
		traffic: newTraffic(name, res.log.With("export", name), res), res: res, forget: forget,
		changed: make(chan struct{}, 1), tried: make(chan struct{}),
	}
	return e
}

// configure makes x the goal.
func (e *export) configure(x *config.Export) { e.setGoal(goal{config: x, hash: x.Hash()}) }

// remove ends the export when its calls in flight have finished.
func (e *export) remove() { e.setGoal(goal{remove: true}) }

// stop ends the export when its calls in flight have finished, or when ctx ends.
func (e *export) stop(ctx context.Context) { e.setGoal(goal{stop: ctx}) }

func (e *export) setGoal(g goal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.goal.stop != nil {
		return
	}
	if e.goal.config != nil || e.goal.remove {
		select {
		case <-e.tried:
			e.tried = make(chan struct{})
		default: // the former goal was not tried: its waiters wait for this one
		}
	}
	e.goal, e.problems, e.failed = g, nil, ""
	select {
	case e.changed <- struct{}{}:
	default:
	}
}

// refuse keeps the export as it is, because its configuration is invalid now.
func (e *export) refuse(ps config.Problems) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.problems = ps
	if e.goal.config == nil && e.goal.stop == nil {
		// A new export has no goal. A removal is withdrawn.
		e.goal = goal{}
		e.setTriedLocked()
	}
}

// awaitTry waits for the first attempt to reach the goal.
func (e *export) awaitTry() {
	e.mu.Lock()
	tried := e.tried
	e.mu.Unlock()
	<-tried
}

// unwanted reports whether the goal is to end.
func (e *export) unwanted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.goal.remove || e.goal.stop != nil
}

// leak returns an error for everything that was not given back after stop.
func (e *export) leak() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		return errors.Join(e.leaked, fmt.Errorf("export %s does not end: its directory or device does not answer", e.name))
	}
	return e.leaked
}

// run is the export's goroutine. It returns after removal.
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
			e.setTried()
			return
		case g.remove:
			e.close(context.Background())
			e.setTried()
			if e.forget(e) {
				return
			}
		case g.config != nil:
			if !e.converge(g.config) {
				again.Reset(retryInterval)
			}
		}
	}
}

func (e *export) setTried() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setTriedLocked()
}

func (e *export) setTriedLocked() {
	select {
	case <-e.tried:
	default:
		close(e.tried)
	}
}

// current returns the served export, nil if nothing is served.
func (e *export) current() *servedExport {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.served
}

// converge serves the export as x. It returns false to be called again.
func (e *export) converge(x *config.Export) bool {
	served := e.current()
	var err error
	if served == nil {
		served, err = startExport(e.name, e.res, e.traffic, x)
	} else {
		err = served.change(x)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		if h := x.Hash(); h != e.hash {
			e.hash = h
			e.log.Info("export configured", "hash", h)
		}
		e.served = served
	}
	if e.goal.config != x {
		return true // changed has the next goal
	}
	e.setTriedLocked()
	if err == nil {
		e.failed = ""
		return true
	}
	if e.failed != err.Error() {
		e.log.Error("cannot serve the export as configured; retrying", "error", err)
	}
	e.failed = err.Error()
	return false
}

// close drains the export and gives everything back.
func (e *export) close(ctx context.Context) {
	var err error
	if served := e.current(); served != nil {
		ctx, cancel := context.WithTimeout(ctx, e.res.drainLimit())
		defer cancel()
		if err = served.close(ctx); err != nil {
			e.log.Error("export ended with leaks", "error", err)
		} else {
			e.log.Info("export ended")
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.served, e.hash = nil, ""
	e.leaked = errors.Join(e.leaked, err)
}

func (e *export) stateLocked() status.ExportState {
	switch {
	case e.goal.stop != nil || e.goal.remove:
		return status.Removing
	case (len(e.problems) > 0 || e.failed != "") && e.served == nil:
		return status.Refused
	case len(e.problems) > 0 || e.failed != "":
		return status.Outdated
	case e.served == nil || e.hash != e.goal.hash:
		return status.Applying
	default:
		return status.Serving
	}
}

// status describes the export without its clients.
func (e *export) status() status.Export {
	e.mu.Lock()
	s := status.Export{
		Name: e.name, State: e.stateLocked(), Hash: e.hash, Error: e.failed, Problems: e.problems, Listeners: []status.Listener{}, Clients: []status.Client{},
	}
	if len(e.problems) > 0 {
		s.Error = e.problems.Error()
	}
	served := e.served
	e.mu.Unlock()
	if served != nil {
		served.status(&s)
	}
	s.Counters = e.stats.Totals()
	s.Counters.Connections = e.conns.Opened()
	return s
}

// servedConfig returns the configuration that is served, nil if nothing is served.
func (e *export) servedConfig() *config.Export {
	if served := e.current(); served != nil {
		return served.currentConfig()
	}
	return nil
}

func (e *export) collect(ch chan<- prometheus.Metric) {
	sink := metric.NewSink(e.name, ch)
	e.traffic.collect(sink)
	s := e.status()
	for _, st := range []status.ExportState{status.Serving, status.Refused, status.Outdated, status.Applying, status.Removing} {
		sink.Gauge(stateDesc, metric.Bool(s.State == st), string(st))
	}
	// Several listeners may have the same configured address, with port 0: Prometheus refuses a
	// series twice.
	up := map[[2]string]bool{}
	for _, l := range s.Listeners {
		key := [2]string{string(l.Network), l.Configured}
		was, seen := up[key]
		up[key] = l.State == status.Listening && (was || !seen)
	}
	for key, all := range up {
		sink.Gauge(listenerDesc, metric.Bool(all), key[0], key[1])
	}
	if served := e.current(); served != nil {
		served.collect(sink, s.Backend.Healthy)
	}
}
