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

// setting is a configuration of one side.
type setting struct {
	name   string
	change func(*Config)
}

// settings are those of which each pair meets.
var settings = []setting{
	{"`[1]`", func(*Config) {}},
	{"`[1]`, RFC 5666", oldForms(allRFC5666)},
	{"`[1, 2]`, RoundTrip", func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, TransportProperties }},
	{"`[1, 2]`, RoundTrip, all extensions", func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, allExtensions }},
	{"`[1, 2]`, RoundTrip, RFC 5666", func(cfg *Config) {
		cfg.Versions, cfg.Extensions, cfg.RFC5666 = []int{1, 2}, TransportProperties, allRFC5666
	}},
	{"`[2]`, RoundTrip", version2},
	{"`[1, 2]`, WorkingGroup", func(cfg *Config) { workingGroup(cfg); cfg.Versions = []int{1, 2} }},
	{"`[1, 2]`, WorkingGroup, RFC 5666", func(cfg *Config) {
		workingGroup(cfg)
		cfg.Versions, cfg.RFC5666 = []int{1, 2}, allRFC5666
	}},
	{"`[2]`, WorkingGroup", workingGroup},
}

func oldForms(f RFC5666) func(*Config) { return func(cfg *Config) { cfg.RFC5666 = f } }

// encounter is the connection of a client and a server of two settings.
type encounter struct {
	client *Client // nil if they have no version in common
	trips  float64 // round trips until a call could be made, and for calls
}

// meet connects a client to a server, makes calls, and describes the outcome. All of it has to
// happen on one connection.
func meet(t *testing.T, server, client setting, calls []move, describe func(encounter) string) (outcome string) {
	synctest.Test(t, func(t *testing.T) {
		w := newEnv(t, rdmatest.Options{Delay: time.Millisecond, Record: true}, server.change)
		cfg := w.clientConfig()
		client.change(&cfg)
		start := time.Now()
		c, err := Dial(t.Context(), w.p, w.address, cfg)
		if err != nil {
			outcome = describe(encounter{})
			w.close()
			return
		}
		trips := w.fabric.RoundTrips(start)
		if err := null(c, w.cpool, procNull); err != nil { // version 1 alone, and not at the server
			outcome = describe(encounter{})
			w.close(c)
			return
		}
		start = time.Now()
		for i, m := range calls {
			if err := m.do(c, w.cpool); err != nil {
				t.Errorf("call %d: %v", i, err)
			}
		}
		outcome = describe(encounter{c, trips + w.fabric.RoundTrips(start)})
		for _, e := range w.fabric.Events() {
			if e.Conn != w.fabric.Events()[0].Conn {
				t.Fatal("there is more than one connection")
			}
		}
		w.waitIdle()
		w.close(c)
	})
	return outcome
}

// describe describes versions, dialects, and whether there are extensions and old forms.
func describe(e encounter) (outcome string) {
	if e.client == nil {
		return "none"
	}
	n := e.client.Negotiated()
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
	return outcome + fmt.Sprintf(" (%v)", e.trips)
}

// TestPairs connects clients and servers of all settings: they agree on the best that both have, on
// one connection. The tables in docs/protocol-v2-wg.md say so.
func TestPairs(t *testing.T) {
	checkTable(t, "pairs", "client, server", settings, func(t *testing.T, server, client setting) string {
		return meet(t, server, client, nil, describe)
	})
}

// checkTable compares a table of all pairs with the one in the documentation.
func checkTable(t *testing.T, name, corner string, all []setting, cell func(t *testing.T, server, client setting) string) {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s |", corner)
	for _, s := range all {
		fmt.Fprintf(&b, " %s |", s.name)
	}
	b.WriteString("\n|" + strings.Repeat("---|", len(all)+1) + "\n")
	for _, c := range all {
		fmt.Fprintf(&b, "| %s |", c.name)
		for _, s := range all {
			t.Run(c.name+" to "+s.name, func(t *testing.T) { fmt.Fprintf(&b, " %s |", cell(t, s, c)) })
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	const doc = "../../docs/protocol-v2-wg.md"
	text, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	open, shut := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, ok := strings.Cut(string(text), open)
	old, after, ok2 := strings.Cut(rest, shut)
	if !ok || !ok2 {
		t.Fatalf("the documentation has no place for the table %q", name)
	}
	switch {
	case *writePairs:
		if err := os.WriteFile(doc, []byte(before+open+b.String()+shut+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case old != b.String():
		t.Errorf("the table is\n%s, in the documentation\n%s(go test ./pkg/rpcrdma -run TestPairs -write-pairs)", b.String(), old)
	}
}

// TestPairsExtensions connects sides with all sets of extensions: both use those that both have.
func TestPairsExtensions(t *testing.T) {
	sets := map[string]Extensions{
		"none": 0, "properties": TransportProperties, "continuation": TransportProperties | MessageContinuation,
		"placement": TransportProperties | SendBasedPlacement, "all": allExtensions,
	}
	names := map[Extensions]string{}
	var all []setting
	for _, name := range []string{"none", "properties", "continuation", "placement", "all"} {
		names[sets[name]] = name
		all = append(all, setting{name, func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{2}, sets[name] }})
	}
	checkTable(t, "extensions", "client, server", all, func(t *testing.T, server, client setting) string {
		return meet(t, server, client, []move{{args: []int{20_000}, results: []int{20_000}}}, func(e encounter) string {
			have, want := e.client.Negotiated().Extensions, sets[server.name]&sets[client.name]
			if have != want {
				t.Errorf("%s to %s: extensions %#x, both have %#x", client.name, server.name, have, want)
			}
			return fmt.Sprintf("%s (%v)", names[have], e.trips)
		})
	})
}

// TestPairsRFC5666 connects sides with all sets of forms of RFC 5666, and makes a call that may be
// padded and one with a long reply. Both sides use the forms that both have, but for Padding: where
// a client asks for the alignment it needs an answer.
func TestPairsRFC5666(t *testing.T) {
	sets := map[string]RFC5666{}
	var all []setting
	for f := range allRFC5666 + 1 {
		name := lettersOf(f)
		sets[name] = f
		all = append(all, setting{name, oldForms(f)})
	}
	calls := []move{{args: []int{1500}, inline: true}, {results: []int{20_000}}}
	checkTable(t, "rfc5666", "client, server", all, func(t *testing.T, server, client setting) string {
		return meet(t, server, client, calls, func(e encounter) string {
			var have RFC5666
			n := e.client.Negotiated()
			for f, used := range map[RFC5666]bool{Padding: n.Padding > 0, ReadRead: n.ReadRead, Configuration: n.Configured} {
				if used {
					have |= f
				}
			}
			want := sets[server.name] & sets[client.name]
			if sets[client.name]&Configuration != 0 && sets[server.name]&Configuration == 0 {
				want &^= Padding
			}
			if have != want {
				t.Errorf("%s to %s: %s are used, both have %s", client.name, server.name, lettersOf(have), lettersOf(want))
			}
			return fmt.Sprintf("%s (%v)", lettersOf(have), e.trips)
		})
	})
}

// lettersOf are the initials of forms of RFC 5666.
func lettersOf(f RFC5666) (s string) {
	for i, letter := range "PRC" {
		if f>>i&1 != 0 {
			s += string(letter)
		}
	}
	if s == "" {
		return "none"
	}
	return s
}
