package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVersions: what is offered of RPC-over-RDMA, and what is refused.
func TestVersions(t *testing.T) {
	both := []Extension{TransportProperties}
	for _, tt := range []struct {
		text       string
		versions   []int
		extensions []Extension
		refused    string // problems, one a line, each behind its path from transport on
	}{
		{"{}", []int{1}, nil, ""},
		{"{rpcRDMAVersions: [1]}", []int{1}, nil, ""},
		{"{rpcRDMAVersions: [1], extensions: []}", []int{1}, []Extension{}, ""},
		{"{rpcRDMAVersions: [2]}", []int{2}, both, ""},
		{"{rpcRDMAVersions: [1, 2]}", []int{1, 2}, both, ""},
		{"{rpcRDMAVersions: [1, 2], extensions: }", []int{1, 2}, both, ""},
		{"{rpcRDMAVersions: [1, 2], extensions: []}", []int{1, 2}, []Extension{}, ""},
		{"{rpcRDMAVersions: [1, 2], extensions: [TransportProperties]}", []int{1, 2}, both, ""},

		{"{rpcRDMAVersions: []}", nil, nil, "rpcRDMAVersions: []: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: [2, 1]}", nil, nil, "rpcRDMAVersions: [2 1]: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: [1, 1]}", nil, nil, "rpcRDMAVersions: [1 1]: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: [1, 2, 3]}", nil, nil, "rpcRDMAVersions: [1 2 3]: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: 2}", nil, nil, "rpcRDMAVersions: 2: want a list"},
		{"{extensions: [TransportProperties]}", nil, nil,
			"extensions: [TransportProperties]: are of version 2: want rpcRDMAVersions: [1, 2], or leave them out"},
		{"{rpcRDMAVersions: [2], extensions: [TransportProperties, TransportProperties]}", nil, nil,
			`extensions[1]: "TransportProperties": is there twice: want each extension once`},
		{"{rpcRDMAVersions: [2], extensions: [MessageContinuation, SendBasedPlacement]}", nil, nil,
			"extensions[0]: \"MessageContinuation\": want TransportProperties, the one extension that is offered\n" +
				`extensions[1]: "SendBasedPlacement": want TransportProperties, the one extension that is offered`},
		{"{rpcRDMAVersions: [2], extensions: TransportProperties}", nil, nil, `extensions: "TransportProperties": want a list`},
	} {
		t.Run(tt.text, func(t *testing.T) {
			at := strings.Index(good, "  transport:")
			f, err := Parse([]byte(good[:at] + "  transport: " + tt.text + "\n"))
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Refused) > 0 {
				got := strings.ReplaceAll(f.Refused[0].Problems.Error(), "line 11: exports[0].transport.", "")
				if got != tt.refused {
					t.Errorf("got  %s\nwant %s", got, tt.refused)
				}
				return
			}
			x := f.Config.Exports[0].Transport
			if d := cmp.Diff(tt.versions, x.RPCRDMAVersions) + cmp.Diff(tt.extensions, x.Extensions); d != "" || tt.refused != "" {
				t.Errorf("accepted: %s\nwant %s", d, tt.refused)
			}
			b, err := json.Marshal(f.Config)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(f.Config, again.Config, comparePrefix); d != "" {
				t.Errorf("marshaled and parsed again it differs: %s", d)
			}
		})
	}
}
