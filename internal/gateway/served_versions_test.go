package gateway

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// speaks makes a client offer versions of RPC-over-RDMA with all extensions.
func speaks(versions ...int) func(*rpcrdma.Config) {
	return func(cfg *rpcrdma.Config) { cfg.Versions, cfg.Extensions = versions, names.AllExtensions() }
}

// client returns the entry of a client's connection in /status.
func (r *env) client(export string, c *testClient) *status.RDMA {
	r.t.Helper()
	for _, s := range r.export(export).Clients {
		if s.Remote == c.rdma.Conn().Local {
			return s.RDMA
		}
	}
	r.t.Fatalf("%s has no client at %v", export, c.rdma.Conn().Local)
	return nil
}

// TestVersions checks that clients of both versions see the same files, and that /status has their
// versions.
func TestVersions(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "both", transport: "{rpcRDMAVersions: [1, 2], inlineThreshold: {call: 8Ki, reply: 16Ki}}"}))
	one, two := r.connect("both", config.RDMA, speaks(1)), r.connect("both", config.RDMA, speaks(1, 2), func(cfg *rpcrdma.Config) {
		cfg.InlineCall, cfg.InlineReply = 32<<10, 32<<10
	})
	two.put("file", 100_000)
	one.works()
	two.works()
	if s := r.client("both", one); s.Version != 1 || s.Properties != nil || s.Extensions != nil || s.Transmissions != nil {
		t.Errorf("a client of version 1: %+v", s)
	}
	s := r.client("both", two)
	want := status.PropertiesPair{Gateway: status.Properties{ReceiveSize: 8 << 10, Backward: "Inline", CallTransmissions: 1, ReplyTransmissions: 1, Placement: 0}, Client: status.Properties{ReceiveSize: (32 + 64) << 10, Backward: "None", CallTransmissions: 1, ReplyTransmissions: 1, Placement: 64 << 10}}
	if s.Version != 2 || *s.Transmissions != (status.Transmissions{Call: 1, Reply: 1}) || !slices.Equal(s.Extensions, []string{"TransportProperties"}) || s.Properties == nil || *s.Properties != want || s.InlineThreshold.Call != 8<<10 || s.InlineThreshold.Reply != 16<<10 {
		t.Errorf("a client of version 2: %+v, %+v", s, s.Properties)
	}
	_, body := r.get("/metrics")
	for _, line := range []string{
		`sluice_rdma_connections{export="both",version="1"} 1`, `sluice_rdma_connections{export="both",version="2"} 1`,
		`sluice_rdma_connections{export="both",version="unsettled"} 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
}

// TestExtensions checks that data travel in Sends alone with all extensions on both sides, and that
// /status and /metrics report it.
func TestExtensions(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data", transport: "{rpcRDMAVersions: [1, 2], extensions: [TransportProperties, MessageContinuation, SendBasedPlacement], " +
		"continuation: {maxCallTransmissions: 3, maxReplyTransmissions: 17}, placement: {receiveBuffer: 128Ki, minLength: 1Ki}}"}))
	c := r.connect("data", config.RDMA, speaks(1, 2))
	const size = 300_000
	h := c.put("file", size)
	data := make([]byte, size)
	rand.Read(data)
	if err := c.WriteAt(t.Context(), h, data, 0, nfs3.FileSync); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, size)
	if n, err := c.ReadAt(t.Context(), h, b, 0); err != nil || n != size || !bytes.Equal(b, data) {
		t.Fatalf("%d bytes, %v; they are those that were written: %v", n, err, bytes.Equal(b, data))
	}
	s := r.client("data", c)
	want := status.PropertiesPair{Gateway: status.Properties{ReceiveSize: (4 + 128) << 10, Backward: "Inline", CallTransmissions: 3, ReplyTransmissions: 17, Placement: 128 << 10}, Client: status.Properties{ReceiveSize: (4 + 64) << 10, Backward: "None", CallTransmissions: 1, ReplyTransmissions: 1, Placement: 64 << 10}}
	if *s.Properties != want || *s.Transmissions != (status.Transmissions{Call: 3, Reply: 17}) || !slices.Equal(s.Extensions, names.OfExtensions(names.AllExtensions())) {
		t.Errorf("%+v, %+v", s, s.Properties)
	}
	_, body := r.get("/metrics")
	for _, line := range []string{
		// put writes too: twice the size
		fmt.Sprintf(`sluice_bytes_total{direction="in",export="data",network="rdma",path="placed"} %d`, 2*size),
		fmt.Sprintf(`sluice_bytes_total{direction="out",export="data",network="rdma",path="placed"} %d`, size),
		`sluice_rdma_operations_total{export="data",operation="read"} 0`, `sluice_rdma_operations_total{export="data",operation="write"} 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
}

// TestVersionChange checks that RDMA clients reconnect after a change of versions or extensions.
func TestVersionChange(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b", transport: "{rpcRDMAVersions: [2]}"}
	r.start(r.yaml(a, b))
	tcp, other := r.connect("a", config.TCP), r.connect("b", config.RDMA, speaks(1, 2))
	for _, step := range []struct {
		transport string
		version   int
		receives  int // receive size of the gateway
	}{
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}}", 1, 0},
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}, rpcRDMAVersions: [1, 2]}", 2, 16 << 10},
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}, rpcRDMAVersions: [1, 2], extensions: []}", 2, wire.DefaultReceiveSize},
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}, rpcRDMAVersions: [2], extensions: [TransportProperties]}", 2, 16 << 10},
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}, rpcRDMAVersions: [2], extensions: [TransportProperties, SendBasedPlacement]}", 2, (16 + 64) << 10},
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}, rpcRDMAVersions: [2], extensions: [TransportProperties, SendBasedPlacement], placement: {receiveBuffer: 8Ki}}", 2, (16 + 8) << 10},
		{"{inlineThreshold: {call: 16Ki, reply: 4Ki}, rpcRDMAVersions: [1]}", 1, 0},
	} {
		before := r.connect("a", config.RDMA, speaks(1, 2))
		a.transport = step.transport
		r.apply(r.yaml(a, b))
		before.ends()
		c := r.connect("a", config.RDMA, speaks(1, 2))
		c.works()
		if n := c.rdma.Negotiated(); n.Version != step.version || n.Remote.ReceiveSize != step.receives {
			t.Errorf("%s: %+v", step.transport, n)
		}
	}
	tcp.works()
	other.works()
	// A client without a common version gets an error.
	c, err := dial(t, config.RDMA, r.address("b", config.RDMA), speaks(1))
	if err == nil {
		err = c.Null(t.Context())
	}
	var refused *rpcrdma.RemoteError
	if !errors.As(err, &refused) || refused.Code != wire.ErrVers || refused.Low != 2 || refused.High != 2 {
		t.Errorf("a client of version 1 at an export of version 2 alone: %v", err)
	}
}

// TestChainedVersions checks that a gateway speaks version 2 with a backend that offers it,
// whatever its clients speak.
func TestChainedVersions(t *testing.T) {
	near, far := newEnv(t), newEnv(t)
	const all = "{rpcRDMAVersions: [1, 2], extensions: [TransportProperties, MessageContinuation, SendBasedPlacement]}"
	exports := []exportYAML{{name: "both", transport: "{rpcRDMAVersions: [1, 2]}"}, {name: "all", transport: all}, {name: "old"}}
	far.start(far.yaml(exports...))
	for i := range exports {
		e := &exports[i]
		e.path, e.backend = "", inFrontOf(t, config.RDMA, far.address(e.name, config.RDMA))
		if e.name != "all" {
			e.transport = "" // version 1 for clients
		}
	}
	near.start(near.yaml(exports...))
	for _, e := range exports {
		export := e.name
		for name, c := range map[string]*testClient{
			"1": near.connect(export, config.RDMA, speaks(1)), "auto": near.connect(export, config.RDMA, speaks(1, 2)), "tcp": near.connect(export, config.TCP),
		} {
			data := make([]byte, 300_001)
			_, _ = rand.Read(data)
			h := c.put(name, 0)
			if err := c.WriteAt(t.Context(), h, data, 0, nfs3.FileSync); err != nil {
				t.Fatal(err)
			}
			back := make([]byte, len(data))
			if n, err := c.ReadAt(t.Context(), h, back, 0); err != nil || !bytes.Equal(back, data) {
				t.Errorf("%s by %s: %d of %d bytes come back, or others: %v", export, name, n, len(data), err)
			}
			there, err := os.ReadFile(filepath.Join(far.volume(export), name))
			if err != nil || !bytes.Equal(there, data) {
				t.Errorf("%s by %s: %d of %d bytes lie there, or others: %v", export, name, len(there), len(data), err)
			}
		}
		want, extensions := 2, []string{"TransportProperties"}
		switch export {
		case "old":
			want, extensions = 1, nil
		case "all":
			extensions = names.OfExtensions(names.AllExtensions())
		}
		links := far.export(export).Clients
		for _, c := range links {
			if c.RDMA.Version != want || !slices.Equal(c.RDMA.Extensions, extensions) {
				t.Errorf("%s: the link from %v has version %d and %v, must be %d and %v", export, c.Remote, c.RDMA.Version, c.RDMA.Extensions, want, extensions)
			}
		}
		if len(links) < 3 {
			t.Errorf("%s: %d links for 3 clients", export, len(links))
		}
	}
}
