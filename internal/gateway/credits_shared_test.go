package gateway

import (
	"strings"
	"testing"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// TestSharedReceives checks that the first connections have their own receives and further ones
// share them, if the provider can, and that /status and /metrics report it.
func TestSharedReceives(t *testing.T) {
	r := newEnv(t)
	f := rdmatest.NewFabric(rdmatest.Options{})
	r.verbs = func(verbs.Config) (rdma.Provider, error) { return f, nil }
	g := r.start(byVerbs(r.yaml(exportYAML{name: "data", rdma: ":0"}), ""))
	eventually(t, "it listens", func() bool { return r.export("data").Listeners[0].State == status.Listening })
	address := strings.Replace(r.export("data").Listeners[0].Address, "0.0.0.0", "127.0.0.1", 1)
	pool := bufpool.New(0)
	var clients []*rpcrdma.Client
	dial := func(n int) {
		t.Helper()
		for range n {
			c, err := rpcrdma.Dial(t.Context(), f, address, rpcrdma.Config{Pool: pool, Bindings: binding.For})
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
		}
	}
	posted := func() int { return r.export("data").Credits.Shared }
	dial(ownReceives)
	if n := posted(); n != 0 {
		t.Errorf("%d shared receives, though each connection has its own", n)
	}
	dial(3)
	if n := posted(); n < 3 {
		t.Errorf("%d shared receives for 3 connections", n)
	}
	if n := len(g.list()[0].served.domains); n != 1 {
		t.Errorf("%d protection domains", n)
	}
	if _, page := r.get("/metrics"); !strings.Contains(page, `sluice_shared_receives{export="data"} `) {
		t.Error("no metric tells of them")
	}
	for _, c := range clients {
		_ = c.Close()
		<-c.Done()
	}
	eventually(t, "they are gone", func() bool { return posted() == 0 })
}
