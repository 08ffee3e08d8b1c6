package rpcrdma

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// workingGroup changes a Config to version 2 in the working group's dialect.
func workingGroup(cfg *Config) {
	cfg.Versions, cfg.Dialect, cfg.RemoteInvalidation = []int{2}, wire.V2WorkingGroup, true
}

// TestWGMoves moves arguments and results of all lengths about the thresholds, in both directions
// at once, with few credits and many.
func TestWGMoves(t *testing.T) {
	for _, credits := range []int{1, 3, 128} {
		t.Run(fmt.Sprint(credits), func(t *testing.T) {
			w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
				workingGroup(cfg)
				cfg.Credits = credit.Static(credits)
			})
			c := w.dial(func(cfg *Config) { workingGroup(cfg); cfg.Handler = new(testHandler) })
			if n := c.Negotiated(); n.Version != 2 || n.Dialect != wire.V2WorkingGroup {
				t.Fatalf("version %d, %v", n.Version, n.Dialect)
			}
			if err := null(c, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
			back := w.back()
			var wg sync.WaitGroup
			for i, m := range []move{
				{}, {args: []int{1}}, {args: []int{4000}}, {args: []int{4100}}, {args: []int{60000}}, {args: []int{70000}}, {args: []int{1 << 20}},
				{results: []int{4000}}, {results: []int{4100}}, {results: []int{1 << 20}}, {args: []int{5000, 70000}, results: []int{3, 9000}},
			} {
				wg.Add(2)
				go func() {
					defer wg.Done()
					if err := m.do(c, w.cpool); err != nil {
						t.Errorf("move %d: %v", i, err)
					}
				}()
				go func() {
					defer wg.Done()
					if len(m.results) > 0 && m.results[0] > 60000 || len(m.args) > 0 && m.args[len(m.args)-1] > 50000 {
						return
					}
					if err := m.do(back, w.pool); err != nil {
						t.Errorf("move %d of the reverse direction: %v", i, err)
					}
				}()
			}
			wg.Wait()
			w.close(c)
		})
	}
}

// TestWGPlain moves data that are not eligible: in several messages, or as a whole in chunks.
func TestWGPlain(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, workingGroup)
	c := w.dial(workingGroup)
	for _, n := range []int{10, 4000, 4096, 8192, 50000, 65536, 200000} {
		if err := plain(c, w.cpool, n, n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	w.close(c)
}

// TestWGHostAuth checks the peers' material on both sides.
func TestWGHostAuth(t *testing.T) {
	bad := errors.New("unknown host")
	check := func(want string) func([]byte) error {
		return func(b []byte) error {
			if string(b) != want {
				return fmt.Errorf("%w: %q", bad, b)
			}
			return nil
		}
	}
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		workingGroup(cfg)
		cfg.HostAuth = HostAuth{Material: []byte("server"), Check: check("client")}
	})
	dial := func(own, want string) (*Client, error) {
		cfg := w.clientConfig()
		workingGroup(&cfg)
		cfg.HostAuth = HostAuth{Material: []byte(own), Check: check(want)}
		return Dial(t.Context(), w.p, w.address, cfg)
	}
	c, err := dial("client", "server")
	if err != nil {
		t.Fatal(err)
	}
	if err := null(c, w.cpool, procNull); err != nil {
		t.Error(err)
	}
	if _, err := dial("stranger", "server"); err == nil {
		t.Error("a stranger is accepted")
	}
	if _, err := dial("client", "other"); err == nil || !strings.Contains(err.Error(), "unknown host") {
		t.Errorf("a server that the client does not know: %v", err)
	}
	w.close(c)
	cfg := w.clientConfig()
	workingGroup(&cfg)
	cfg.HostAuth.Material = make([]byte, 513)
	if _, err := Dial(t.Context(), w.p, w.address, cfg); err == nil || !strings.Contains(err.Error(), "513 bytes") {
		t.Errorf("long material: %v", err)
	}
}
