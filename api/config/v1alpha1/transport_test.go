package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parseTransport parses a file with this transport. If the transport is refused, the file is nil,
// and each line of refused has a problem and its path below transport.
func parseTransport(t *testing.T, text string) (f *File, refused string) {
	t.Helper()
	head, _, _ := strings.Cut(good, "  transport:")
	f, err := Parse([]byte(head + "  transport: " + text + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Refused) > 0 {
		return nil, strings.ReplaceAll(f.Refused[0].Problems.Error(), "line 11: exports[0].transport.", "")
	}
	return f, ""
}

// TestVersions checks the accepted and refused versions of RPC-over-RDMA.
func TestVersions(t *testing.T) {
	both := []Extension{TransportProperties}
	for _, tt := range []struct {
		text       string
		versions   []int
		extensions []Extension
		refused    string // problems, one per line, after their paths below transport
	}{
		{"{}", []int{1}, nil, ""},
		{"{rpcRDMAVersions: [1]}", []int{1}, nil, ""},
		{"{rpcRDMAVersions: [1], extensions: []}", []int{1}, []Extension{}, ""},
		{"{rpcRDMAVersions: [2]}", []int{2}, both, ""},
		{"{rpcRDMAVersions: [1, 2]}", []int{1, 2}, both, ""},
		{"{rpcRDMAVersions: [1, 2], extensions: }", []int{1, 2}, both, ""},
		{"{rpcRDMAVersions: [1, 2], extensions: []}", []int{1, 2}, []Extension{}, ""},
		{"{rpcRDMAVersions: [1, 2], extensions: [TransportProperties]}", []int{1, 2}, both, ""},

		{"{rpcRDMAVersions: [2], extensions: [MessageContinuation, TransportProperties]}", []int{2}, []Extension{MessageContinuation, TransportProperties}, ""},

		{"{rpcRDMAVersions: []}", nil, nil, "rpcRDMAVersions: []: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: [2, 1]}", nil, nil, "rpcRDMAVersions: [2 1]: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: [1, 1]}", nil, nil, "rpcRDMAVersions: [1 1]: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: [1, 2, 3]}", nil, nil, "rpcRDMAVersions: [1 2 3]: want [1], [2] or [1, 2]"},
		{"{rpcRDMAVersions: 2}", nil, nil, "rpcRDMAVersions: 2: want a list"},
		{"{extensions: [TransportProperties]}", nil, nil,
			"extensions: [TransportProperties]: are of version 2: want rpcRDMAVersions: [1, 2], or leave them out"},
		{"{rpcRDMAVersions: [2], extensions: [TransportProperties, TransportProperties]}", nil, nil,
			`extensions[1]: "TransportProperties": is listed twice: want each extension once`},
		{"{rpcRDMAVersions: [2], extensions: [MessageContinuation, SendBasedPlacement]}", nil, nil,
			"extensions[0]: \"MessageContinuation\": needs TransportProperties: want both\n" +
				`extensions[1]: "SendBasedPlacement": needs TransportProperties: want both`},
		{"{rpcRDMAVersions: [2], extensions: [Placement]}", nil, nil,
			`extensions[0]: "Placement": want TransportProperties or MessageContinuation or SendBasedPlacement`},
		{"{rpcRDMAVersions: [2], extensions: TransportProperties}", nil, nil, `extensions: "TransportProperties": want a list`},
	} {
		t.Run(tt.text, func(t *testing.T) {
			f, got := parseTransport(t, tt.text)
			if f == nil {
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

// TestDialect checks the dialects of version 2 with versions and extensions.
func TestDialect(t *testing.T) {
	for _, tt := range []struct {
		transport  string
		extensions []Extension
		want       string
	}{
		{"{rpcRDMAVersions: [1, 2], version2Dialect: WorkingGroup}", nil, ""},
		{"{rpcRDMAVersions: [2], version2Dialect: WorkingGroup, extensions: []}", []Extension{}, ""},
		{"{rpcRDMAVersions: [2], version2Dialect: RoundTrip}", []Extension{TransportProperties}, ""},
		{"{version2Dialect: WorkingGroup}", nil,
			`version2Dialect: "WorkingGroup": is of version 2: want rpcRDMAVersions: [1, 2], or leave it out`},
		{"{rpcRDMAVersions: [2], version2Dialect: Dutch}", nil, `version2Dialect: "Dutch": want RoundTrip or WorkingGroup`},
		{"{rpcRDMAVersions: [2], version2Dialect: WorkingGroup, extensions: [TransportProperties]}", nil,
			"extensions: [TransportProperties]: are of dialect RoundTrip: want version2Dialect: RoundTrip, or leave them out"},
	} {
		t.Run(tt.transport, func(t *testing.T) {
			f, got := parseTransport(t, tt.transport)
			if got != tt.want {
				t.Fatalf("got  %s\nwant %s", got, tt.want)
			}
			if f != nil {
				if d := cmp.Diff(tt.extensions, f.Config.Exports[0].Transport.Extensions); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// TestRFC5666 checks the accepted and refused forms of RFC 5666.
func TestRFC5666(t *testing.T) {
	for _, tt := range []struct {
		text    string
		forms   []RFC5666Form
		refused string
	}{
		{"{}", nil, ""},
		{"{rfc5666: []}", []RFC5666Form{}, ""},
		{"{rfc5666: [Padding]}", []RFC5666Form{Padding}, ""},
		{"{rpcRDMAVersions: [1, 2], rfc5666: [Padding]}", []RFC5666Form{Padding}, ""},
		{"{rpcRDMAVersions: [2], rfc5666: [Padding]}", nil,
			"rfc5666: [Padding]: are of version 1: want rpcRDMAVersions: [1] or [1, 2], or leave them out"},
		{"{rfc5666: [Padding, Padding]}", nil, `rfc5666[1]: "Padding": is listed twice: want each form once`},
		{"{rfc5666: [Speed]}", nil, `rfc5666[0]: "Speed": want Padding or ReadRead or Configuration`},
		{"{rfc5666: [ReadRead, Padding]}", []RFC5666Form{ReadRead, Padding}, ""},
	} {
		t.Run(tt.text, func(t *testing.T) {
			f, got := parseTransport(t, tt.text)
			if got != tt.refused {
				t.Fatalf("got  %s\nwant %s", got, tt.refused)
			}
			if f != nil {
				if d := cmp.Diff(tt.forms, f.Config.Exports[0].Transport.RFC5666); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

// TestExtensions checks the settings of the extensions: defaults and refusals.
func TestExtensions(t *testing.T) {
	const head = "{rpcRDMAVersions: [1, 2], extensions: "
	sixteen, buffer := &Continuation{16, 16}, &Placement{64 << 10, 4 << 10}
	for _, tt := range []struct {
		text         string
		continuation *Continuation
		placement    *Placement
		refused      string
	}{
		{head + "[TransportProperties]}", nil, nil, ""},
		{head + "[TransportProperties, MessageContinuation]}", sixteen, nil, ""},
		{head + "[TransportProperties, SendBasedPlacement]}", nil, buffer, ""},
		{head + "[TransportProperties, MessageContinuation, SendBasedPlacement]}", sixteen, buffer, ""},
		{head + "[TransportProperties, MessageContinuation], continuation: {}}", sixteen, nil, ""},
		{head + "[TransportProperties, MessageContinuation], continuation: {maxReplyTransmissions: 1}}", &Continuation{16, 1}, nil, ""},
		{head + "[TransportProperties, MessageContinuation], continuation: {maxCallTransmissions: 256, maxReplyTransmissions: 17}}", &Continuation{256, 17}, nil, ""},
		{head + "[TransportProperties, SendBasedPlacement], placement: {minLength: 1}}", nil, &Placement{64 << 10, 1}, ""},
		{head + "[TransportProperties, SendBasedPlacement], placement: {receiveBuffer: 1Mi, minLength: 8Ki}}", nil, &Placement{1 << 20, 8 << 10}, ""},

		{"{continuation: {}}", nil, nil, "continuation: is only for extension MessageContinuation: leave it out"},
		{head + "[], placement: {}}", nil, nil, "placement: is only for extension SendBasedPlacement: leave it out"},
		{head + "[TransportProperties, MessageContinuation], placement: {}}", nil, nil, "placement: is only for extension SendBasedPlacement: leave it out"},
		{head + "[TransportProperties, MessageContinuation], continuation: {maxCallTransmissions: 0, maxReplyTransmissions: 257}}", nil, nil,
			"continuation.maxCallTransmissions: 0: want 1 to 256\ncontinuation.maxReplyTransmissions: 257: want 1 to 256"},
		{head + "[TransportProperties, SendBasedPlacement], placement: {receiveBuffer: 2Ki, minLength: 0}}", nil, nil,
			"placement.receiveBuffer: 2Ki: want a power of two from 4Ki to 1Mi\nplacement.minLength: 0: want 1 to 1Mi"},
		{head + "[TransportProperties, SendBasedPlacement], placement: {receiveBuffer: 12Ki}}", nil, nil, "placement.receiveBuffer: 12Ki: want a power of two from 4Ki to 1Mi"},
		{head + "[TransportProperties, SendBasedPlacement], placement: {receiveBuffer: 2Mi}}", nil, nil, "placement.receiveBuffer: 2Mi: want a power of two from 4Ki to 1Mi"},
		{head + "[TransportProperties, SendBasedPlacement], credits: {policy: Adaptive, memory: 543Ki}}", nil, nil,
			"credits.memory: 543Ki: want at least 544Ki: one connection has 8 receives (min) of 68Ki (inlineThreshold.call, placement.receiveBuffer)"},
		{"{rpcRDMAVersions: [2], inlineThreshold: {call: 1Ki}, credits: {policy: Adaptive, memory: 31Ki}}", nil, nil,
			"credits.memory: 31Ki: want at least 32Ki: one connection has 8 receives (min) of 4Ki (the least with version 2)"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			f, got := parseTransport(t, tt.text)
			if got != tt.refused {
				t.Fatalf("got  %s\nwant %s", got, tt.refused)
			}
			if f == nil {
				return
			}
			x := f.Config.Exports[0].Transport
			if d := cmp.Diff(tt.continuation, x.Continuation) + cmp.Diff(tt.placement, x.Placement); d != "" {
				t.Error(d)
			}
		})
	}
}
