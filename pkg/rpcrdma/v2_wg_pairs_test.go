package rpcrdma

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

var writePairs = flag.Bool("write-pairs", false, "write the table of pairs into docs/protocol-v2-wg.md")

// settings are those of which each pair meets.
var settings = []struct {
	name   string
	change func(*Config)
}{
	{"`[1]`", func(*Config) {}},
	{"`[1]`, RFC 5666", func(cfg *Config) { cfg.RFC5666 = Padding | ReadRead | Configuration }},
	{"`[1, 2]`, RoundTrip", func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, TransportProperties }},
	{"`[1, 2]`, RoundTrip, all extensions", func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, allExtensions }},
	{"`[2]`, RoundTrip", version2},
	{"`[1, 2]`, WorkingGroup", func(cfg *Config) { workingGroup(cfg); cfg.Versions = []int{1, 2} }},
	{"`[2]`, WorkingGroup", workingGroup},
}

// meet connects a client to a server, makes a call, and describes the outcome.
func meet(t *testing.T, server, client func(*Config)) (outcome string) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, rdmatest.Options{Delay: time.Millisecond}, server)
		cfg := w.clientConfig()
		client(&cfg)
		start := time.Now()
		c, err := Dial(t.Context(), w.p, w.address, cfg)
		if err != nil {
			outcome = "none"
			w.close()
			return
		}
		trips := w.fabric.RoundTrips(start)
		if err := null(c, w.cpool, procNull); err != nil { // version 1 alone, and not at the server
			outcome = "none"
			w.close(c)
			return
		}
		n := c.Negotiated()
		switch outcome = fmt.Sprint(n.Version); {
		case n.Version == 1 && n.Configured:
			outcome += ", RFC 5666"
		case n.Dialect == wire.V2WorkingGroup:
			outcome += " WorkingGroup"
		case n.Version == 2:
			outcome += " RoundTrip"
		}
		if n.Extensions == allExtensions {
			outcome += ", all extensions"
		}
		outcome += fmt.Sprintf(" (%v)", trips)
		w.close(c)
	})
	return outcome
}

// TestPairs connects clients and servers of all settings: they agree on the best that both have, on
// one connection. The table in docs/protocol-v2-wg.md says so.
func TestPairs(t *testing.T) {
	var b strings.Builder
	b.WriteString("\n| client, server |")
	for _, s := range settings {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(settings)+1) + "\n")
	for _, c := range settings {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, s := range settings {
			t.Run(c.name+" to "+s.name, func(t *testing.T) { fmt.Fprintf(&b, " %s |", meet(t, s.change, c.change)) })
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	const doc = "../../docs/protocol-v2-wg.md"
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), "<!-- pairs -->\n")
	old, after, ok2 := strings.Cut(rest, "<!-- /pairs -->")
	if !ok || !ok2 {
		t.Fatal("the documentation has no place for the table of pairs")
	}
	switch {
	case *writePairs:
		if err := os.WriteFile(doc, []byte(before+"<!-- pairs -->\n"+b.String()+"<!-- /pairs -->"+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case old != b.String():
		t.Errorf("the table of pairs is\n%s, in the documentation\n%s(go test ./pkg/rpcrdma -run TestPairs -write-pairs)", b.String(), old)
	}
}
