package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/oncrpc"
)

// backend is what answers an export's calls.
type backend interface {
	// handler is what answers calls.
	handler() oncrpc.Handler
	// same tells whether the backend serves what x says, but for access. Then it stays, and so do the connections that it has.
	same(x *config.Export) bool
	// setAccess changes who may do what, from the next call on.
	setAccess(rules []config.AccessRule) error
	// away tells whether calls wait for it which it can not answer now, and nobody knows when it can.
	away() bool
	// status tells of its health. It does not block.
	status() status.Backend
	// collect tells the figures that backends of its kind have.
	collect(counter counterFunc, gauge gaugeFunc)
	// close ends it, when no server hands calls to it any more.
	close() error
}

// held is the backend of an opened export, with the servers that hand calls to it.
type held struct {
	backend
	users    sync.WaitGroup
	decorate func(oncrpc.Handler) oncrpc.Handler // for tests
}

// openBackend opens what x says.
func (o *opened) openBackend(x *config.Export) (*held, error) {
	var b backend
	var err error
	if x.Backend.Volume != nil {
		b, err = openVolume(o.e, x)
	} else {
		b, err = openRemote(o, x)
	}
	if err != nil {
		return nil, err
	}
	return &held{backend: b, decorate: o.e.gateway.o.decorate}, nil
}

func (h *held) handler() oncrpc.Handler {
	if h.decorate != nil {
		return h.decorate(h.backend.handler())
	}
	return h.backend.handler()
}

// close ends the backend when nothing uses it any more.
func (h *held) close() error {
	h.users.Wait()
	return h.backend.close()
}

// rules turns the rules of an export into those of its backend.
func rules(configured []config.AccessRule) []access.Rule {
	rs := make([]access.Rule, len(configured))
	for i, a := range configured {
		rs[i] = access.Rule{Networks: a.From.All(), ReadOnly: a.Mode == config.ReadOnly}
		switch a.Squash {
		case config.SquashNone:
			rs[i].Squash = access.SquashNone
		case config.SquashAll:
			rs[i].Squash = access.SquashAll
		default:
			rs[i].Squash = access.SquashRoot
		}
	}
	return rs
}

// newServing makes a server that hands its calls to h.
func newServing[T any](r *relay[T], h *held, serve func() error, shutdown func(context.Context) error) *serving[T] {
	h.users.Add(1)
	return &serving[T]{relay: r, serve: serve, shutdown: func(ctx context.Context) error {
		defer h.users.Done()
		ctx, cancel := h.present(ctx)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			return context.Cause(ctx)
		}
		return nil
	}}
}

// lookEvery is how often a backend is looked after that calls in flight wait for while their server ends.
const lookEvery = 100 * time.Millisecond

var errAway = errors.New("the backend is away: clients send their calls again when they have connected again")

// present returns a context that ends when the backend is away: nobody shall wait for the answers then. That is safe at any time, as clients send again what
// was not answered.
func (h *held) present(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		t := time.NewTicker(lookEvery)
		defer t.Stop()
		for !h.away() {
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(errAway)
	}()
	return ctx, func() { cancel(nil) }
}
