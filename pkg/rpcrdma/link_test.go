package rpcrdma

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestLog: a protocol error is a line with peer and reason, and a peer cannot fill the log.
func TestLog(t *testing.T) {
	var log lockedBuffer
	var mu sync.Mutex
	now := time.Unix(1000, 0)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		cfg.Now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	p := w.rawDial(rawPrivate(4096))
	p.null(1)
	bad := head(1, 5, 0, 0, 0)
	for range 50 {
		p.send(bad)
		p.get()
	}
	if n := strings.Count(log.String(), "protocol error"); n != 1 {
		t.Errorf("%d lines in a second, want 1", n)
	}
	mu.Lock()
	now = now.Add(2 * time.Second)
	mu.Unlock()
	p.send(bad)
	p.get()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), log.String())
	}
	for _, want := range []string{"peer=127.0.0.1:", "error=bad_header", "procedure is 5, must be 0, 1 or 4", "suppressed=49"} {
		if !strings.Contains(lines[1], want) {
			t.Errorf("%q is not in %q", want, lines[1])
		}
	}
	if n := w.counts.faults(BadHeader); n != 51 {
		t.Errorf("bad_header counted %d times, want 51", n)
	}
	p.close()
	w.close()
}

func TestConfig(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Pool = nil }, "Config.Pool is missing"},
		{func(c *Config) { c.InlineCall = 1000 }, "Config.InlineCall: inline threshold is 1000 bytes, must be a multiple of 1024 from 1024 to 262144"},
		{func(c *Config) { c.InlineReply = 1 << 20 }, "Config.InlineReply"},
		{func(c *Config) { c.ReverseCredits = -1 }, "Config.ReverseCredits is -1"},
		{func(c *Config) { c.Domain = nil }, "needs Config.Domain"},
	} {
		w := newEnv(t, rdmatest.Options{}, nil)
		cfg := w.clientConfig()
		cfg.Domain = w.domain
		c.change(&cfg)
		if _, err := NewServer(cfg, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		w.close()
	}
}

// TestRefusedConnections: a server of two connections refuses the third, and takes another when one
// is gone.
func TestRefusedConnections(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.MaxConnections = 2 })
	a, b := w.dial(nil), w.dial(nil)
	if _, err := Dial(t.Context(), w.p, w.address, w.clientConfig()); err == nil || !strings.Contains(err.Error(), "refuses the connection") {
		t.Errorf("the third connection: %v", err)
	}
	a.Close()
	<-a.Done()
	var c *Client
	eventually(t, "another connection is accepted", func() bool {
		c, _ = Dial(t.Context(), w.p, w.address, w.clientConfig())
		return c != nil
	})
	if err := null(c, w.cpool, procNull); err != nil {
		t.Error(err)
	}
	w.close(a, b, c)
}
