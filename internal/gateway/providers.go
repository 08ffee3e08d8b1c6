package gateway

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// adapters are the verbs providers of the process. Each lasts as long as the process.
type adapters struct {
	open func(verbs.Config) (rdma.Provider, error) // for tests: instead of verbs.New
	read func() *doctor.Host                       // for tests: instead of doctor.ReadHost

	mu        sync.Mutex
	providers map[string]rdma.Provider // by device and options

	hostMu sync.Mutex
	host   *doctor.Host
	readAt time.Time // of host
}

// hostAge is the most age of the host's state in a report, so that a page with many listeners reads
// the host once.
const hostAge = time.Second

// hostNow returns the host's state, read-only.
func (a *adapters) hostNow() *doctor.Host {
	a.hostMu.Lock()
	defer a.hostMu.Unlock()
	if a.host == nil || time.Since(a.readAt) > hostAge {
		read := a.read
		if read == nil {
			read = doctor.ReadHost
		}
		a.host, a.readAt = read(), time.Now()
	}
	return a.host
}

// provider returns the provider of a device with these options, nil for the defaults. Device
// "" is the device that leads to the address.
func (a *adapters) provider(log *slog.Logger, device string, settings *config.VerbsOptions) (rdma.Provider, error) {
	cfg := verbsConfig(device, settings)
	key := fmt.Sprintf("%+v", cfg)
	cfg.Logger = log
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.providers[key]; p != nil {
		return p, nil
	}
	open := a.open
	if open == nil {
		open = verbs.New
	}
	p, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if a.providers == nil {
		a.providers = map[string]rdma.Provider{}
	}
	a.providers[key] = p
	return p, nil
}

func (a *adapters) used() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.providers) > 0
}

func verbsConfig(device string, o *config.VerbsOptions) verbs.Config {
	cfg := verbs.Config{Device: device}
	if o == nil {
		return cfg
	}
	cfg.KeepAlive, cfg.AckTimeout = time.Duration(o.KeepAlive), time.Duration(o.AckTimeout)
	cfg.RetryCount, cfg.TOS = o.RetryCount, o.TOS
	cfg.CompletionVectors = o.CompletionVectors
	cfg.Moderation = verbs.Moderation{Completions: o.ModerationCount, Period: time.Duration(o.ModerationPeriod)}
	cfg.Inline, cfg.Spin, cfg.StrictOrdering = o.Inline, o.Spin, o.StrictOrdering
	return cfg
}
