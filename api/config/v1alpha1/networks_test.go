package v1alpha1

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// setsFile returns a file with a set and two exports. The second has a rule with more.
func setsFile(sets, more string) []byte {
	export := func(name, port, from string) string {
		return fmt.Sprintf("- {name: %s, listeners: [{network: tcp, address: ':%s'}], backend: {volume: {path: /srv/%[1]s}}, access: [{from: %[3]s}]}\n", name, port, from)
	}
	return []byte("apiVersion: " + APIVersion + "\nkind: " + Kind + "\n" + sets + "exports:\n" +
		export("plain", "2049", "{networks: [10.0.0.0/8]}") + export("sets", "2050", more))
}

// TestNetworkSets: rules contain the networks of their sets, and an export's hash depends on those.
func TestNetworkSets(t *testing.T) {
	const from = "{networks: [192.0.2.0/24], networkSets: [nodes, more]}"
	parse := func(nodes string) *File {
		t.Helper()
		f, err := Parse(setsFile("networkSets: [{name: nodes, networks: ["+nodes+"]}, {name: more, networks: ['fd00::/8']}]\n", from))
		if err != nil || len(f.Refused) > 0 {
			t.Fatal(err, f)
		}
		return f
	}
	a, b := parse("10.1.0.1/32, 10.1.0.2/32"), parse("10.1.0.1/32")
	var want []netip.Prefix
	for _, n := range []string{"192.0.2.0/24", "10.1.0.1/32", "10.1.0.2/32", "fd00::/8"} {
		want = append(want, netip.MustParsePrefix(n))
	}
	if got := a.Config.Exports[1].Access[0].From.All(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if a.Config.Exports[1].Hash() == b.Config.Exports[1].Hash() {
		t.Error("another set makes no other hash")
	}
	if a.Config.Exports[0].Hash() != b.Config.Exports[0].Hash() {
		t.Error("the hash of an export follows a set that it does not name")
	}
	made := a.Config.Exports[1]
	made.Access = slices.Clone(made.Access)
	made.Access[0].From.Sets = []*NetworkSet{NewNetworkSet("nodes", want[1:3]), NewNetworkSet("more", want[3:])}
	if made.Hash() != a.Config.Exports[1].Hash() {
		t.Error("an export that was made has another hash than the same in a file")
	}
}

// TestFormerFile: files without sets parse as in earlier releases.
func TestFormerFile(t *testing.T) {
	f, err := Parse(setsFile("", "{networks: [192.0.2.0/24]}"))
	if err != nil || len(f.Refused) > 0 || len(f.Config.Exports) != 2 {
		t.Fatal(err, f)
	}
	if got := f.Config.Exports[1].Access[0].From.All(); len(got) != 1 || got[0].String() != "192.0.2.0/24" {
		t.Errorf("%v", got)
	}
}

func TestNetworkSetProblems(t *testing.T) {
	const good = "{name: nodes, networks: [10.0.0.0/8]}"
	for _, c := range []struct {
		name, sets, from string
		problem          string // of the second export, or of the whole file
		whole            bool
	}{
		{"unknown", "networkSets: [" + good + "]\n", "{networkSets: [nodes, node]}",
			`exports[1].access[0].from.networkSets[1]: "node": no such set: want one of the file's networkSets: nodes`, false},
		{"none at all", "", "{networkSets: [nodes]}", `exports[1].access[0].from.networkSets[0]: "nodes": no such set: the file has none; want networkSets: [{name: nodes, networks: [10.0.0.0/8]}]`, false},
		{"nobody", "", "{networkSets: []}", "exports[1].access[0].from.networks: 0: want 1 to 1024 networks, such as 10.0.0.0/8; 0.0.0.0/0 and ::/0 are everyone", false},
		{"twice", "networkSets: [" + good + ", " + good + "]\n", "{networkSets: [nodes]}", `networkSets[1].name: "nodes": networkSets[0].name is the same: want a name for each set`, true},
		{"empty", "networkSets: [{name: nodes}]\n", "{networkSets: [nodes]}", "networkSets[0].networks: 0: want 1 to 65536 networks, such as 10.0.0.0/8; 0.0.0.0/0 and ::/0 are everyone", true},
		{"host bits", "networkSets: [{name: nodes, networks: [10.0.0.1/8]}]\n", "{networkSets: [nodes]}", `networkSets[0].networks[0]: "10.0.0.1/8": has host bits: want 10.0.0.0/8`, true},
		{"no field", "networkSets: [{name: nodes, networks: [10.0.0.0/8], '-': a}]\n", "{networkSets: [nodes]}", "networkSets[0].-: unknown field; the fields here are name, networks", true},
	} {
		f, err := Parse(setsFile(c.sets, c.from))
		got := ""
		switch {
		case c.whole && err != nil:
			got = err.Error()
		case !c.whole && err == nil && len(f.Refused) == 1 && len(f.Config.Exports) == 1:
			got = f.Refused[0].Problems.Error()
		}
		if _, text, _ := strings.Cut(got, ": "); text != c.problem {
			t.Errorf("%s:\n got %s (%v)\nwant %s", c.name, got, err, c.problem)
		}
	}
}
