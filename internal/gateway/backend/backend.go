// Package backend answers the calls of an export: from a directory of this host, or by a proxy of
// an NFS server elsewhere.
package backend

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
)

// backend answers the calls of an export.
type backend interface {
	handler() oncrpc.Handler
	// Same reports whether the backend serves x, apart from access and limits. Then it stays,
	// with its connections.
	Same(x *config.Export) bool
	// Update changes the access rules, and a volume's limits, to those of x from the next call on.
	Update(x *config.Export) error
	// unreachable reports whether calls wait for the backend, for an unknown time.
	unreachable() bool
	// Status reports its health. It does not block.
	Status() status.Backend
	// Expel ends a client of NFSv4 by the id that its status has. It reports whether there is one.
	Expel(client string) bool
	// Collect sends the metrics of its kind.
	Collect(metric.Sink)
	// close ends the backend. No server may hand calls to it any more.
	close() error
}

// Env has the parts of a gateway that a backend needs.
type Env struct {
	Export   string // its name
	Log      *slog.Logger
	Pool     *bufpool.Pool
	StateDir string
	Keys     *Keys
	// Provider returns the verbs provider of a device.
	Provider func(device string, options *config.VerbsOptions) (rdma.Provider, error)
	// Decorate wraps the handler, if not nil. Tests set it.
	Decorate func(oncrpc.Handler) oncrpc.Handler
}

// Backend is an open backend, with a count of the servers that use it.
type Backend struct {
	backend
	users    sync.WaitGroup
	decorate func(oncrpc.Handler) oncrpc.Handler
}

// Open opens the backend of x.
func Open(env Env, x *config.Export) (*Backend, error) {
	var b backend
	var err error
	if x.Backend.Volume != nil {
		b, err = openVolume(&env, x)
	} else {
		b, err = openRemote(&env, x)
	}
	if err != nil {
		return nil, err
	}
	return &Backend{backend: b, decorate: env.Decorate}, nil
}

// Handler returns the handler of calls.
func (b *Backend) Handler() oncrpc.Handler {
	if b.decorate != nil {
		return b.decorate(b.handler())
	}
	return b.handler()
}

// Acquire adds a server that hands calls to the backend, until Release.
func (b *Backend) Acquire() { b.users.Add(1) }

// Release removes a server.
func (b *Backend) Release() { b.users.Done() }

// Close waits until all servers are released, and ends the backend.
func (b *Backend) Close() error {
	b.users.Wait()
	return b.close()
}

// pollInterval is the interval of health checks while servers drain.
const pollInterval = 100 * time.Millisecond

var errUnreachable = errors.New("backend unreachable; clients resend their calls after they reconnect")

// UntilUnreachable returns a context that ends when the backend is unreachable, so that a drain
// does not wait for its answers. That is safe at any time: clients resend unanswered calls.
func (b *Backend) UntilUnreachable(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		t := time.NewTicker(pollInterval)
		defer t.Stop()
		for !b.unreachable() {
			select {
			case <-t.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(errUnreachable)
	}()
	return ctx, func() { cancel(nil) }
}

// Rules converts the access rules of an export.
func Rules(configured []config.AccessRule) []access.Rule {
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
