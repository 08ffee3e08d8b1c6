package upstream

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// Config is what a backend is made of.
type Config struct {
	// Dialer connects to the backend. It is required.
	Dialer Dialer
	// Pool has the memory of the calls of the backend's own, and of the connections of DialTCP. It is required.
	Pool *bufpool.Pool
	// Probe is the program and version whose NULL procedure tells the backend's health. 0 means NFS, version 3; an answer that there is no such
	// version is as good as any other.
	Probe struct{ Program, Version uint32 }
	// AnyPort takes whatever source port there is, also where one below 1024 is to be had.
	AnyPort bool

	// WaitLimit bounds in bytes the calls that wait since there is no connection to the backend. It should be less than the bulk budget that these calls hold
	// elsewhere, or none is left to notice. 0 means 64 MiB.
	// It also bounds the calls whose client has gone, and which the backend has not answered: beyond that a connection is not kept, and they end with it.
	WaitLimit int64
	// SoftTimeout ends requests that permit it after that time without an answer, counted from Submit. 0 means never.
	SoftTimeout time.Duration
	// ReattachTimeout is how long the connection of a client that went is kept for it. 0 means one minute.
	ReattachTimeout time.Duration
	// MaxDetached bounds the connections that are kept; the one that was kept longest goes first. 0 means 256.
	MaxDetached int
	// BackoffMin and BackoffMax bound the time between two attempts to connect, which doubles from one to the next. 0 means 50 ms and 5 s.
	BackoffMin, BackoffMax time.Duration
	// DialTimeout bounds one attempt to connect. 0 means 10 s.
	DialTimeout time.Duration
	// PortPatience is how long a connection's source port is tried again when it is not free, before another is taken. 0 means 5 s.
	PortPatience time.Duration
	// ProbeInterval is the time between two probes of the backend's health. 0 means 10 s.
	ProbeInterval time.Duration

	// OnHealthChange, if set, is told when the backend's health changes: that it answers, for the first time or again, or does not any more. That it answers is also
	// told after a connection was lost, since a restart may be over before anybody has missed the backend. It must not block.
	OnHealthChange func(healthy bool)
	// Rand returns numbers in [0, 1), for the spread of the attempts to connect. nil means math/rand.
	Rand func() float64
	// Logger is told what an operator should know. It may be nil.
	Logger *slog.Logger
}

const (
	nfsProgram = 100003

	// callCost is what a waiting call counts for besides its bytes.
	callCost = 1 << 10
)

func (c *Config) complete() error {
	if c.Dialer == nil {
		return errors.New("upstream: Config.Dialer is nil, must be a dialer")
	}
	if c.Pool == nil {
		return errors.New("upstream: Config.Pool is nil, must be a pool")
	}
	if c.SoftTimeout < 0 || c.WaitLimit < 0 || c.MaxDetached < 0 {
		return fmt.Errorf("upstream: Config.SoftTimeout is %v, WaitLimit %d and MaxParked %d, none may be negative", c.SoftTimeout, c.WaitLimit, c.MaxDetached)
	}
	for _, f := range []struct {
		name    string
		v       *time.Duration
		initial time.Duration
	}{
		{"ParkTime", &c.ReattachTimeout, time.Minute},
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
			return fmt.Errorf("upstream: Config.%s is %v, must not be negative", f.name, *f.v)
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
