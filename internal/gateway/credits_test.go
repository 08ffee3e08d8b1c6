package gateway

import (
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/internal/gateway/rpcstats"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// TestLiveCredits changes the policy and its limits while connections stay.
func TestLiveCredits(t *testing.T) {
	r := newEnv(t)
	a := exportYAML{name: "a", transport: "{credits: {max: 100}}"}
	r.start(r.yaml(a))
	clients := []*testClient{r.connect("a", config.RDMA), r.connect("a", config.RDMA)}
	work := func() {
		var wg sync.WaitGroup
		for _, c := range clients {
			for range 4 {
				wg.Go(func() {
					for range 100 {
						c.works()
					}
				})
			}
		}
		wg.Wait()
	}
	credits := func() *status.Credits { return r.export("a").Credits }
	work()
	if s := credits(); s.Policy != config.Static || s.Granted != 200 || s.Max != 100 || s.Receives != 200*4096 || s.Adaptive != nil {
		t.Errorf("Static: %+v", s)
	}

	a.transport = "{credits: {policy: Adaptive, min: 4, max: 64, memory: 320Ki}}" // 80 receives
	r.apply(r.yaml(a))
	eventually(t, "both connections have half of the memory", func() bool {
		work()
		s := credits()
		return s.Granted == 80 && s.Receives == 320<<10 && clients[0].rdma.Negotiated().Granted == 40
	})
	if s := credits(); s.Policy != config.Adaptive || s.Max != 64 || s.Min != 4 || s.Memory != 320<<10 || s.Ceiling != 64 || len(s.Changes) != 4 ||
		s.Changes["config"].Lowered < 2 {
		t.Errorf("Adaptive: %+v %+v", s, s.Adaptive)
	}
	a.transport = "{credits: {policy: Adaptive, min: 4, max: 16, memory: 320Ki}}"
	r.apply(r.yaml(a))
	eventually(t, "both have the maximum", func() bool {
		work()
		s := credits()
		return s.Granted == 32 && s.Receives == 32*4096
	})

	bad := a
	bad.transport = "{credits: {policy: Adaptive, min: 4, max: 16, memory: 15Ki}}"
	s := r.apply(r.yaml(bad))
	if want := "memory: 15Ki: want at least 16Ki: one connection has 4 receives (min) of 4Ki (inlineThreshold.call)"; s.Exports[0].State != status.Outdated || !strings.Contains(s.Exports[0].Error, want) {
		t.Errorf("%s %q, want %q", s.Exports[0].State, s.Exports[0].Error, want)
	}

	a.transport = "{credits: {max: 100}}"
	r.apply(r.yaml(a))
	work()
	if s := credits(); s.Policy != config.Static || s.Granted != 200 {
		t.Errorf("Static again: %+v", s)
	}
	for _, c := range clients {
		select {
		case <-c.done:
			t.Error("a connection was closed")
		default:
		}
	}
	clients[0].rdma.Close()
	eventually(t, "what a connection had is given back", func() bool { return credits().Granted == 100 && credits().Receives == 100*4096 })
}

// TestCreditsLatency checks that the latency of the backend changes credits, and that /status
// reports the changes.
func TestCreditsLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		e := newTraffic("data", log, newResources(log, "test"))
		x := config.DefaultExport()
		x.Transport.Credits = config.Credits{Policy: config.Adaptive, Min: 8, Max: 128, Memory: 1 << 20}
		if err := e.credits.setLimits(&x.Transport); err != nil {
			t.Fatal(err)
		}
		account := e.credits.Open()
		defer account.Close()
		observer := connObserver{e, new(rpcstats.Calls)}
		calls := func(status oncrpc.Status, d time.Duration) *status.Credits {
			for range 300 {
				c := &oncrpc.Call{Program: nfs3.Program, Version: 3, Procedure: nfs3.ProcRead, Status: status, Began: int64(time.Since(epoch))}
				c.Reply.Stream = [][]byte{make([]byte, oncrpc.MinReplyLen+4)}
				time.Sleep(d)
				observer.Answered(c)
				account.Credits(128, 0)
			}
			return e.credits.status(&x.Transport)
		}
		if s := calls(oncrpc.Status{}, time.Millisecond); s.Ceiling != 128 || s.Granted != 128 {
			t.Errorf("at the beginning: %+v %+v", s, s.Adaptive)
		}
		if s := calls(oncrpc.Status{Accept: oncrpc.SystemErr}, 5*time.Millisecond); s.Ceiling != 128 {
			t.Errorf("calls that were refused tell nothing of the backend: %+v %+v", s, s.Adaptive)
		}
		if s := calls(oncrpc.Status{}, 5*time.Millisecond); s.Ceiling != 8 || s.Granted != 8 || s.Changes["latency"].Lowered == 0 {
			t.Errorf("the backend is slow: %+v %+v", s, s.Adaptive)
		}
		calls(oncrpc.Status{}, time.Millisecond)
		for range 10 {
			calls(oncrpc.Status{}, time.Millisecond)
		}
		if s := calls(oncrpc.Status{}, time.Millisecond); s.Ceiling != 128 || s.Granted != 128 || s.Changes["latency"].Raised == 0 {
			t.Errorf("the backend has recovered: %+v %+v", s, s.Adaptive)
		}
	})
}

// TestCreditLimits checks that a connection counts with its largest possible receives before its
// version is negotiated.
func TestCreditLimits(t *testing.T) {
	tr := config.DefaultExport().Transport
	tr.Credits = config.Credits{Policy: config.Adaptive, Min: 2, Max: 9, Memory: 1 << 20}
	if got, want := creditLimits(&tr), (credit.Limits{Min: 2, Max: 9, Memory: 1 << 20, ReceiveSize: 4096}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	tr.RPCRDMAVersions, tr.Placement = []int{1, 2}, &config.Placement{ReceiveBuffer: 64 << 10}
	if got := creditLimits(&tr).ReceiveSize; got != 68<<10 {
		t.Errorf("receives of %d bytes, want %d", got, 68<<10)
	}
	tr.Credits = config.Credits{Policy: config.Static, Max: 9}
	if got := creditLimits(&tr); got.Min != 9 || got.Max != 9 || got.Memory != math.MaxInt64 {
		t.Errorf("Static: %+v", got)
	}
}

// TestReceiveMemory checks that connections with large receives get fewer credits, and are refused
// at the limit of the gateway.
func TestReceiveMemory(t *testing.T) {
	r := newEnv(t)
	x := exportYAML{name: "data", transport: "{inlineThreshold: {call: 256Ki}, credits: {max: 4096}}"}
	r.start("limits: {receiveMemory: 8Mi}\n" + r.yaml(x))
	// receives of 256 KiB: three quarters of the memory, then first credits
	for i, want := range []int{24, 8} {
		c := r.connect("data", config.RDMA)
		c.works()
		if got := r.export("data").Clients[i].RDMA.Credits; got != want {
			t.Errorf("connection %d has %d credits, want %d", i, got, want)
		}
	}
	if _, err := dial(t, config.RDMA, r.address("data", config.RDMA)); err == nil {
		t.Error("a connection is there that there is no memory for")
	}
	if n := r.conns("data").Refused(conns.RDMA, conns.ByReceiveMemory); n != 1 {
		t.Errorf("%d connections were counted as refused by memory, want 1", n)
	}
	if used := r.g.receiveMemory.Used(); used != 8<<20 {
		t.Errorf("%d bytes are promised, want 8 MiB", used)
	}
	r.connect("data", config.TCP).works()
}
