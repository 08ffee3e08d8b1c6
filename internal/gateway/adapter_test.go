package gateway

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// byVerbs has the RDMA listeners of a configuration be of verbs.
func byVerbs(yaml, more string) string {
	return strings.ReplaceAll(yaml, "{network: rdma,", "{network: rdma, provider: verbs, "+more)
}

// TestVerbsWithoutDevice: a listener whose device is not there says so, and what to do; nothing else suffers.
func TestVerbsWithoutDevice(t *testing.T) {
	r := newRig(t)
	r.start(byVerbs(r.yaml(exportYAML{name: "data"}), "device: none9, "))
	s := r.export("data")
	l := s.Listeners[0]
	if s.State != status.Serving || l.State != status.Retrying || !strings.Contains(l.Error, `no RDMA device "none9"`) {
		t.Errorf("export %s, listener %+v", s.State, l)
	}
	if l.Device == nil || l.Device.Name != "none9" || !strings.Contains(strings.Join(l.Device.Problems, "\n"), "no RDMA device none9") {
		t.Errorf("device %+v", l.Device)
	}
	if d := s.Listeners[1].Device; d != nil {
		t.Errorf("the TCP listener has a device: %+v", d)
	}
	if !r.g.Status().Ready {
		t.Error("not ready, though TCP is served")
	}
	r.connect("data", config.TCP).works()
}

// TestVerbsListener: a provider that could not be opened is tried again; connections over it belong to a protection domain of its own.
func TestVerbsListener(t *testing.T) {
	r := newRig(t)
	var there atomic.Bool
	var times atomic.Int32
	r.verbs = func(cfg verbs.Config) (rdma.Provider, error) {
		if cfg.Device != "" {
			t.Errorf("device %q, want any", cfg.Device)
		}
		if !there.Load() {
			return nil, errors.New("there is no adapter yet")
		}
		times.Add(1)
		return iwarp.New(iwarp.Config{}) // what carries the connections does not matter here
	}
	g := r.start(byVerbs(r.yaml(exportYAML{name: "data", rdma: ":0"}, exportYAML{name: "more", rdma: ":0"}), ""))
	if l := r.export("data").Listeners[0]; l.State != status.Retrying || l.Error != "there is no adapter yet" {
		t.Errorf("%+v", l)
	}
	there.Store(true)
	for _, name := range []string{"data", "more"} {
		eventually(t, name+" listens", func() bool { return r.export(name).Listeners[0].State == status.Listening })
		address := strings.Replace(r.export(name).Listeners[0].Address, "[::]", "127.0.0.1", 1)
		c, err := dial(t, config.RDMA, address)
		if err != nil {
			t.Fatal(err)
		}
		if c.root, err = c.Mount(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		c.works()
	}
	if n := times.Load(); n != 1 {
		t.Errorf("the provider was opened %d times, want once for both exports", n)
	}
	for _, e := range g.list() {
		if n := len(e.open.domains); n != 1 {
			t.Errorf("export %s has %d protection domains of the provider, want its own", e.name, n)
		}
	}
}

func TestLockedMemory(t *testing.T) {
	x := config.DefaultExport()
	for _, c := range []struct {
		credits config.Credits
		want    uint64
	}{
		{config.Credits{Policy: config.Static, Max: 128}, 1024*128*4096 + 256<<20},
		{config.Credits{Policy: config.Adaptive, Min: 8, Max: 128, Memory: 64 << 20}, 64<<20 + 1024*8*4096 + 256<<20},
		{config.Credits{Policy: config.Adaptive, Min: 8, Max: 16, Memory: 1 << 40}, 1024*16*4096 + 256<<20},
	} {
		x.Transport.Credits = c.credits
		if got := locked(&x); got != c.want {
			t.Errorf("%+v: %d, want %d", c.credits, got, c.want)
		}
	}
}
