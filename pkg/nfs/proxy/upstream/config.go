package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// Config configures a backend.
type Config struct {
	// Dialer connects to the backend. Required.
	Dialer Dialer
	// Pool provides memory for the backend's own calls and for DialTCP. Required.
	Pool *bufpool.Pool
	// Probe is the program and version whose NULL procedure is the health check. 0 means NFS
	// version 3. An error reply, such as an unknown version, also counts as healthy.
	Probe struct{ Program, Version uint32 }
	// AnyPort permits source ports of 1024 and above even where a lower one is free.
	AnyPort bool

	// WaitLimit bounds the bytes of calls that wait for a connection. Keep it below the bulk budget
	// that these calls hold, or no budget is left to notice the limit. 0 means 64 MiB.
	//
	// It also bounds the unanswered calls of disconnected clients: beyond it, a connection is
	// closed instead of detached, and its calls end.
	WaitLimit int64
	// SoftTimeout ends unanswered requests whose TimeoutPolicy permits it, this long after Submit.
	// 0 means never.
	SoftTimeout time.Duration
	// ReattachTimeout is the time for which a detached connection waits for its client. 0 means one
	// minute.
	ReattachTimeout time.Duration
	// MaxDetached bounds the detached connections; the oldest is closed first. 0 means 256.
	MaxDetached int
	// BackoffMin and BackoffMax bound the delay between attempts to connect, which doubles each
	// time. 0 means 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// DialTimeout bounds one attempt to connect. 0 means 10 s.
	DialTimeout time.Duration
	// PortPatience is the time for which a busy source port is retried before another is used. 0
	// means 5 s.
	PortPatience time.Duration
	// ProbeInterval is the time between health checks. 0 means 10 s.
	ProbeInterval time.Duration

	// OnHealthChange, if set, is called when the backend's health changes. It is also called with
	// true after a connection was lost, since the backend may have restarted between two checks. It
	// must not block.
	OnHealthChange func(healthy bool)
	// Rand returns numbers in [0, 1), to spread attempts to connect. nil means math/rand.
	Rand func() float64
	// Logger may be nil.
	Logger *slog.Logger
}

const (
	nfsProgram = 100003

	// callCost is the fixed cost of a waiting call, in bytes.
	callCost = 1 << 10
)

func (c *Config) complete() error {
	if c.Dialer == nil {
		return errors.New("upstream: Config.Dialer is required")
	}
	if c.Pool == nil {
		return errors.New("upstream: Config.Pool is required")
	}
	if c.SoftTimeout < 0 || c.WaitLimit < 0 || c.MaxDetached < 0 {
		return fmt.Errorf("upstream: Config.SoftTimeout is %v, WaitLimit %d, MaxDetached %d: want none negative",
			c.SoftTimeout, c.WaitLimit, c.MaxDetached)
	}
	for _, f := range []struct {
		name    string
		v       *time.Duration
		initial time.Duration
	}{
		{"ReattachTimeout", &c.ReattachTimeout, time.Minute},
		{"BackoffMin", &c.BackoffMin, 50 * time.Millisecond},
		{"BackoffMax", &c.BackoffMax, 5 * time.Second},
		{"DialTimeout", &c.DialTimeout, 10 * time.Second},
		{"PortPatience", &c.PortPatience, 5 * time.Second},
		{"ProbeInterval", &c.ProbeInterval, 10 * time.Second},
	} {
		if *f.v == 0 {
			*f.v = f.initial
		}
		if *f.v < 0 {
			return fmt.Errorf("upstream: Config.%s is %v: want at least 0", f.name, *f.v)
		}
	}
	if c.WaitLimit == 0 {
		c.WaitLimit = 64 << 20
	}
	if c.MaxDetached == 0 {
		c.MaxDetached = 256
	}
	if c.Probe.Program == 0 {
		c.Probe.Program, c.Probe.Version = nfsProgram, 3
	}
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
