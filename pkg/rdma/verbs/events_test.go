//go:build verbs

package verbs

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Events of libibverbs, as enum ibv_event_type numbers them.
const (
	cqErr, qpFatal, lastWQE         asyncKind = 0, 1, 16
	deviceFatal, portErr, srqErr    asyncKind = 8, 10, 14
	gidChange, accessErr, portAlive asyncKind = 18, 3, 9
)

// sharingEndpoint returns an endpoint with an SRQ on an adapter, without a device.
func sharingEndpoint(w *watcher) *endpoint {
	return &endpoint{dev: &device{name: "mlx5_0"}, shared: &receiveQueue{}, events: w, last: make(chan struct{}), local: new(nowhere)}
}

type nowhere struct{}

func (*nowhere) Network() string { return "rdma" }
func (*nowhere) String() string  { return "nowhere" }

// TestLastReceive: the end of a connection with an SRQ waits until the adapter takes no more
// receives, for at most a second. Software devices and removed ones send no event.
func TestLastReceive(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*endpoint)
		event  time.Duration // time of the event; 0: never
		wait   time.Duration
		told   bool
	}{
		{name: "told", event: 5 * time.Millisecond, wait: 5 * time.Millisecond, told: true},
		{name: "not told", wait: lastReceive},
		{name: "late", event: time.Minute, wait: lastReceive},
		{name: "software", change: func(e *endpoint) { e.dev.limits.software = 1 }, told: true},
		{name: "not established", change: func(e *endpoint) { e.local = nil }, told: true},
		{name: "events not read", change: func(e *endpoint) { e.events = nil }, told: true},
		{name: "device gone", change: func(e *endpoint) { close(e.events.stopped) }, told: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWatcher("mlx5_0", slog.New(slog.DiscardHandler))
				e := sharingEndpoint(w)
				const qp = 0x1000
				w.join(e, qp, 0x2000)
				if c.change != nil {
					c.change(e)
				}
				if c.event > 0 {
					time.AfterFunc(c.event, func() {
						for range 2 { // a second one does no harm
							w.take(asyncEvent{kind: lastWQE, object: qp}, w.find(qp))
						}
					})
				}
				begun := time.Now()
				if told := e.awaitLast(); told != c.told {
					t.Errorf("told: %v, want %v", told, c.told)
				}
				if took := time.Since(begun); took != c.wait {
					t.Errorf("it took %v, want %v", took, c.wait)
				}
				w.leave(qp)
				if s := w.find(qp); s != nil {
					t.Errorf("an event of a queue pair that is destroyed goes to %v", s)
				}
			})
		})
	}
}

// TestEvents: the effect of each event on its subject, and the log line.
func TestEvents(t *testing.T) {
	for _, c := range []struct {
		ev     asyncEvent
		log    string
		broken string // the endpoint
		other  bool   // later connections have another shared queue
	}{
		{ev: asyncEvent{kind: cqErr, object: 2}, log: "a queue of the RDMA device failed", broken: "CQ error", other: true},
		{ev: asyncEvent{kind: qpFatal, object: 1}, log: "a queue of the RDMA device failed", broken: "local work queue catastrophic error"},
		{ev: asyncEvent{kind: accessErr, object: 1}, log: "a queue of the RDMA device failed"},
		{ev: asyncEvent{kind: srqErr, object: 3}, log: "a queue of the RDMA device failed", other: true},
		{ev: asyncEvent{kind: deviceFatal}, log: "the RDMA device failed", broken: "local catastrophic error", other: true},
		{ev: asyncEvent{kind: portErr, port: 2}, log: "a port of the RDMA device went down"},
		{ev: asyncEvent{kind: portAlive, port: 2}, log: "port=2"},
		{ev: asyncEvent{kind: gidChange, port: 1}, log: "reports an event"},
		{ev: asyncEvent{kind: lastWQE, object: 1}},
		// without a subject
		{ev: asyncEvent{kind: qpFatal, object: 9}, log: "a queue of the RDMA device failed"},
	} {
		t.Run(c.ev.kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				w := newWatcher("test_"+strings.ReplaceAll(t.Name(), "/", "_"), slog.New(slog.NewTextHandler(&said, nil)))
				e := sharingEndpoint(w)
				e.shared.dev = e.dev
				w.join(e, 1, 2)
				w.join(e.shared, 3)
				w.take(c.ev, w.find(c.ev.object))
				synctest.Wait()
				if got := said.String(); !strings.Contains(got, c.log) || (got == "") != (c.log == "") {
					t.Errorf("the log says %q, want %q", got, c.log)
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				switch {
				case c.broken == "" && e.broken != nil:
					t.Errorf("the connection ends: %v", e.broken)
				case c.broken != "" && (e.broken == nil || !strings.Contains(e.broken.Error(), c.broken)):
					t.Errorf("the connection ends with %v, want %q", e.broken, c.broken)
				}
				if other := e.dev.overruns.Load() > 0; other != c.other {
					t.Errorf("another queue: %v, want %v", other, c.other)
				}
				counted := false
				for _, d := range Events() {
					counted = counted || d.Device == w.device && d.Event == c.ev.kind.String() && d.Count == 1
				}
				if !counted {
					t.Errorf("%s is not counted once", c.ev.kind)
				}
			})
		})
	}
}

// TestJoinLost: no domain makes a space on a device that was removed meanwhile.
func TestJoinLost(t *testing.T) {
	p := &provider{domains: map[*domain]struct{}{}}
	d := &domain{p: p, spaces: map[*device]*space{}}
	dev := &device{name: "mlx5_0"}
	dev.lost.Store(true)
	if _, err := d.join(dev); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("%v, want an error that says that the device was removed", err)
	}
}
