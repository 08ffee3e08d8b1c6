package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseNetworks(t *testing.T) {
	for _, c := range []struct {
		annotation string
		want       []selection
		refused    string
	}{
		{annotation: " "},
		{annotation: "fabric", want: []selection{{"fabric", "pod", "net1"}}},
		{annotation: "fabric, other/slow@eth7,fabric", want: []selection{{"fabric", "pod", "net1"}, {"slow", "other", "eth7"}, {"fabric", "pod", "net3"}}},
		{annotation: `[{"name": "fabric", "interface": "rdma0"}, {"name": "slow", "namespace": "other"}]`,
			want: []selection{{"fabric", "pod", "rdma0"}, {"slow", "other", "net2"}}},
		{annotation: `[{"name": "fabric", "ips": ["10.77.0.9"]}]`, refused: `unknown field "ips"`},
		{annotation: `[{"name": "fabric"}] x`, refused: "after the list"},
		{annotation: `[{"name": "fabric"}`, refused: "EOF"},
		{annotation: "fabric,", refused: "network 2 has no name"},
	} {
		got, err := parseNetworks(c.annotation, "pod")
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v, want %q", c.annotation, err, c.refused)
			}
		} else if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%q: %v\n%s", c.annotation, err, d)
		}
	}
}

func TestPluginConfig(t *testing.T) {
	for _, c := range []struct{ definition, want, refused string }{
		{definition: `{"type": "macvlan", "ipam": {"type": "host-local"}}`,
			want: `{"cniVersion": "0.4.0", "name": "pod.fabric", "type": "macvlan", "ipam": {"type": "host-local", "dataDir": "/ipam"}}`},
		{definition: `{"cniVersion": "1.0.0", "name": "own", "type": "macvlan", "ipam": {"type": "host-local", "dataDir": "/own"}}`,
			want: `{"cniVersion": "1.0.0", "name": "own", "type": "macvlan", "ipam": {"type": "host-local", "dataDir": "/own"}}`},
		{definition: `{"plugins": []}`, refused: "want a single one"},
		{definition: ``, refused: "spec.config"},
	} {
		got, err := pluginConfig(c.definition, selection{"fabric", "pod", "net1"}, "/ipam")
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%q: %v, want %q", c.definition, err, c.refused)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(decoded(t, c.want), decoded(t, string(got))); d != "" {
			t.Errorf("%q:\n%s", c.definition, d)
		}
	}
}

func decoded(t *testing.T, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	script := "#!/bin/sh\n[ $CNI_COMMAND = ADD ] || { echo '{\"msg\": \"no '$CNI_COMMAND'\"}'; exit 1; }\nread conf\n" +
		`echo '{"interfaces": [{"name": "pods"}, {"name": "'$CNI_IFNAME'", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/x"}],` +
		` "ips": [{"interface": 1, "address": "10.77.0.100/24"}, {"interface": 0, "address": "10.0.0.1/8"}]}'`
	if err := os.WriteFile(filepath.Join(dir, "echo"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CNI_PATH", "/nowhere:"+dir)
	result, err := plugin("ADD", "rdma0", json.RawMessage(`{"type": "echo"}`))
	if err != nil {
		t.Fatal(err)
	}
	n := networkStatus{Name: "pod/fabric"}
	if err := n.fill(result, "rdma0"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(networkStatus{Name: "pod/fabric", Interface: "rdma0", IPs: []string{"10.77.0.100"}, MAC: "02:00:00:00:00:01"}, n); d != "" {
		t.Error(d)
	}
	for conf, want := range map[string]string{`{"type": "echo"}`: "no DEL", `{"type": "../echo/none"}`: "no CNI plugin of type"} {
		if _, err := plugin("DEL", "rdma0", json.RawMessage(conf)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", conf, err, want)
		}
	}
}
