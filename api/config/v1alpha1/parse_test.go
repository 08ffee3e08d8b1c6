package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

const good = `apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: "127.0.0.1:9180"}        # /metrics, /healthz, /readyz, /status
exports:
- name: data
  listeners:
  - {network: rdma, provider: iwarp, address: "127.0.0.1:20049"}
  - {network: tcp, address: "127.0.0.1:2049"}
  backend: {volume: {path: /srv/data}}
  access: [{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]
  transport: {rpcRDMAVersions: [1], inlineThreshold: {call: 4Ki, reply: 8192}, credits: {policy: Static, max: 128}, remoteInvalidation: true}
`

func wantGood() GatewayConfig {
	return GatewayConfig{
		APIVersion: APIVersion, Kind: Kind,
		Admin:        Admin{"127.0.0.1:9180"},
		DrainTimeout: Duration(20 * time.Second),
		StateDir:     "/var/lib/sluice",
		Log:          Log{"info", "text"},
		Limits:       TotalLimits{ReceiveMemory: 2 << 30},
		Exports: []Export{{
			Name: "data",
			Listeners: []Listener{
				{Network: RDMA, Provider: IWARP, Address: "127.0.0.1:20049", Options: &ListenerOptions{CRC: true}},
				{Network: TCP, Address: "127.0.0.1:2049"},
			},
			Backend: Backend{Volume: &Volume{"/srv/data", NFS4{Lease: Duration(90 * time.Second), Grace: Duration(90 * time.Second), Clients: 1024, Shared: true, Sessions: SessionsVolatile}}},
			Access:  []AccessRule{{AccessFrom{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, ReadWrite, SquashNone}},
			Transport: Transport{
				RPCRDMAVersions: []int{1}, InlineThreshold: InlineThreshold{4096, 8192},
				Credits: Credits{Policy: Static, Max: 128}, RemoteInvalidation: true, OnChange: Reconnect,
			},
			Limits: Limits{1024, 256, 256 << 20, 64 << 20, 2 << 20, 64 << 10, IdleTimeout{Duration(30 * time.Second), Duration(time.Hour)}},
		}},
	}
}

var comparePrefix = cmpopts.EquateComparable(netip.Prefix{})

func TestParse(t *testing.T) {
	f, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wantGood(), f.Config, comparePrefix); d != "" {
		t.Error(d)
	}
	if len(f.Refused) != 0 || len(f.Hash) != 16 {
		t.Errorf("refused %v, hash %q", f.Refused, f.Hash)
	}
}

func TestParseDefaultsAndExplicitValues(t *testing.T) {
	f, err := Parse([]byte(`
apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: ""}
drainTimeout: 1m30s
stateDir: /state
log: {level: debug, format: json}
tracing: {ratio: 0.25, endpoint: "http://192.0.2.9:4318"}
limits: {connections: 1000, memory: 2Gi, receiveMemory: 1Gi}
exports:
- name: a.b-1
  listeners:
  - network: rdma
    address: ":20049"
    options: {crc: false, maxFPDU: 32Ki, spin: 200us}
    rpcbind: true
  - network: tcp
    address: "[::1]:0"
  - {network: rdma, provider: verbs, device: mlx5_4, address: "10.0.0.1:2050"}
  backend: {volume: {path: /, nfs4: {lease: 1m, grace: 2m, clients: 10, opens: 20, locks: 30, delegations: 40, shared: false, sessions: Persistent, idDomain: example.com}}}
  access:
  - from: {networks: [0.0.0.0/0, '::/0']}
  transport:
    remoteInvalidation: false
    onChange: NextConnection
    credits: {max: 8}
  limits: {connections: 2, connectionsPerClient: 3, memory: 8Mi, memoryPerClient: 1Mi, minProgress: 0, idleTimeout: {beforeFirstCall: 0s, afterCall: 10m}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Refused) > 0 {
		t.Fatal(f.Refused[0].Problems)
	}
	want := GatewayConfig{
		APIVersion: APIVersion, Kind: Kind, DrainTimeout: Duration(90 * time.Second), StateDir: "/state", Log: Log{"debug", "json"}, Tracing: Tracing{0.25, "http://192.0.2.9:4318"}, Limits: TotalLimits{1000, 2 << 30, 1 << 30},
		Exports: []Export{{
			Name: "a.b-1",
			Listeners: []Listener{
				{Network: RDMA, Provider: IWARP, Address: ":20049", Options: &ListenerOptions{MaxFPDU: 32 << 10, Spin: Duration(200 * time.Microsecond)}, RPCBind: true},
				{Network: TCP, Address: "[::1]:0"},
				{Network: RDMA, Provider: Verbs, Device: "mlx5_4", Address: "10.0.0.1:2050"},
			},
			Backend: Backend{Volume: &Volume{"/", NFS4{Lease: Duration(time.Minute), Grace: Duration(2 * time.Minute), Clients: 10, Opens: 20, Locks: 30, Delegations: 40, Sessions: SessionsPersistent, IDDomain: "example.com"}}},
			Access: []AccessRule{{
				AccessFrom{Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}}, ReadOnly, SquashRoot,
			}},
			Transport: Transport{
				RPCRDMAVersions: []int{1}, InlineThreshold: InlineThreshold{4096, 4096}, Credits: Credits{Policy: Static, Max: 8}, OnChange: NextConnection,
			},
			Limits: Limits{2, 3, 8 << 20, 1 << 20, 2 << 20, 0, IdleTimeout{0, Duration(10 * time.Minute)}},
		}},
	}
	if d := cmp.Diff(want, f.Config, comparePrefix); d != "" {
		t.Error(d)
	}
}

// TestRefusals changes one place of the valid file for each case and compares the problems.
func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		old, new string
		want     string // all problems, one per line
		whole    bool   // refuses the whole file
	}{
		// The frame of the file.
		{"apiVersion: config.sluice.dev/v1alpha1", "apiVersion: v2", `line 1: apiVersion: "v2": want config.sluice.dev/v1alpha1`, true},
		{"kind: GatewayConfig", "", `line 1: kind: want GatewayConfig`, true},
		{"kind:", "kindd:", `line 2: kindd: unknown field (did you mean "kind"?); the fields here are apiVersion, kind, admin, drainTimeout, stateDir, handleKeys, log, tracing, limits, memory, networkSets, exports
line 1: kind: want GatewayConfig`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\nexports[1]: {}", `line 3: exports[1]: unknown field; the fields here are apiVersion, kind, admin, drainTimeout, stateDir, handleKeys, log, tracing, limits, memory, networkSets, exports`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\nexports[-1].name: a", `line 3: exports[-1].name: unknown field; the fields here are apiVersion, kind, admin, drainTimeout, stateDir, handleKeys, log, tracing, limits, memory, networkSets, exports`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\nkind: GatewayConfig", `line 3: kind: duplicate field, first on line 2`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\ndrainTimeout: 20", `line 3: drainTimeout: "20": want a number and its unit, such as 20s, 1m30s or 500ms`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\ndrainTimeout: 61m", `line 3: drainTimeout: 1h1m0s: want 0s to 1h`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\nstateDir: state", `line 3: stateDir: "state": want an absolute path, such as /srv/data`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\nhandleKeys: {file: keys}", `line 3: handleKeys.file: "keys": want an absolute path, such as /srv/data`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\nlog:\n  level: loud\n  format: xml", `line 4: log.level: "loud": want debug or info or warn or error
line 5: log.format: "xml": want text or json`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\ntracing:\n  ratio: 1.5\n  endpoint: collector:4318", `line 4: tracing.ratio: 1.5: want 0 to 1
line 5: tracing.endpoint: "collector:4318": want the URL of an OTLP receiver, such as http://collector:4318`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\ntracing: {ratio: .nan}", `line 3: tracing.ratio: NaN: want 0 to 1`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\ntracing: {ratio: half}", `line 3: tracing.ratio: "half": want a number`, true},
		{`"127.0.0.1:9180"`, "9180", `line 3: admin.address: 9180: want a string; put it in quotes if it is one`, true},
		{`{address: "127.0.0.1:9180"}`, "127.0.0.1", `line 3: admin: "127.0.0.1": want a mapping of fields`, true},
		{"- name: data", "- - name: data", `line 6: not YAML: did not find expected '-' indicator`, true},
		{good, "", `the file is empty: want apiVersion: config.sluice.dev/v1alpha1, kind: GatewayConfig, and exports`, true},
		{"kind: GatewayConfig", "kind: GatewayConfig\n---\nkind: GatewayConfig", `line 3: second document: want one`, true},
		{good, "[1, 2]", `line 1: a list: want a mapping of fields`, true},
		{good, "apiVersion: config.sluice.dev/v1alpha1\nkind: GatewayConfig\nexports: {}", `line 3: exports: a mapping: want a list`, true},

		// An export.
		{"- name: data", "- nam: data", `line 5: exports[0].nam: unknown field (did you mean "name"?); the fields here are name, listeners, uid, backend, signHandles, gss, access, transport, limits
line 5: exports[0].name: missing: want at most 253 of a to z, 0 to 9, '-' and '.', beginning and ending with a letter or digit`, false},
		{"name: data", "name: Data", `line 5: exports[0].name: "Data": want at most 253 of a to z, 0 to 9, '-' and '.', beginning and ending with a letter or digit`, false},
		{"name: data", "name: data\n  name: data", `line 6: exports[0].name: duplicate field, first on line 5`, false},
		{"name: data", "name: 42", `line 5: exports[0].name: 42: want a string; put it in quotes if it is one`, false},
		{"backend: {volume: {path: /srv/data}}", "backend: {iscsi: {server: a}}", `line 9: exports[0].backend.iscsi: unknown field; the fields here are volume, nfs, rdma
line 9: exports[0].backend: want one of volume: {path: DIRECTORY}, nfs: {server: HOST, path: /PATH} and rdma: {server: HOST, path: /PATH}`, false},
		{"path: /srv/data", "path: data", `line 9: exports[0].backend.volume.path: "data": want an absolute path, such as /srv/data`, false},
		{"path: /srv/data", "path: /srv/data, nfs4: {lease: 5s, grace: 2h, clients: 0, opens: -1, locks: 2000000}", `line 9: exports[0].backend.volume.nfs4.lease: 5s: want 10s to 1h
line 9: exports[0].backend.volume.nfs4.grace: 2h0m0s: want 10s to 1h
line 9: exports[0].backend.volume.nfs4.clients: 0: want 1 to 65536
line 9: exports[0].backend.volume.nfs4.opens: -1: want 0 to 1048576
line 9: exports[0].backend.volume.nfs4.locks: 2000000: want 0 to 1048576`, false},
		{"path: /srv/data", "path: /srv/data, nfs4: {sessions: Eternal}", `line 9: exports[0].backend.volume.nfs4.sessions: "Eternal": want Volatile or Persistent`, false},
		{"path: /srv/data", "path: /srv/data, nfs4: {idDomain: a b}", `line 9: exports[0].backend.volume.nfs4.idDomain: "a b": want a domain, such as example.com`, false},
		{"path: /srv/data", "path: /srv/data, nfs4: {lease: 2m, grace: 90s}", `line 9: exports[0].backend.volume.nfs4.grace: 1m30s: want 2m0s to 1h`, false},
		{"path: /srv/data", "", `line 9: exports[0].backend.volume.path: missing: want an absolute path, such as /srv/data`, false},

		// Listeners.
		{"network: tcp", "network: udp", `line 8: exports[0].listeners[1].network: "udp": want rdma or tcp`, false},
		{"network: tcp", "network: tcp, provider: iwarp", `line 8: exports[0].listeners[1].provider: "iwarp": is only for network rdma: leave it out`, false},
		{"network: tcp", "network: tcp, options: {crc: true}", `line 8: exports[0].listeners[1].options: are only for network rdma: leave them out`, false},
		{"network: tcp", "network: tcp, device: mlx5_4", `line 8: exports[0].listeners[1].device: "mlx5_4": is only for network rdma: leave it out`, false},
		{"provider: iwarp", "provider: fabric", `line 7: exports[0].listeners[0].provider: "fabric": want iwarp or verbs`, false},
		{"provider: iwarp", "provider: verbs, device: ../mlx5_4", `line 7: exports[0].listeners[0].device: "../mlx5_4": want the name of an RDMA device, such as mlx5_4 (rdma link lists them)`, false},
		{"provider: iwarp", "provider: verbs, options: {crc: true}", `line 7: exports[0].listeners[0].options: are only for provider iwarp: leave them out`, false},
		{"network: tcp", "network: tcp, verbs: {spin: 1}", `line 8: exports[0].listeners[1].verbs: are only for provider verbs: leave them out`, false},
		{"provider: iwarp", "provider: iwarp, verbs: {spin: 1}", `line 7: exports[0].listeners[0].verbs: are only for provider verbs: leave them out`, false},
		{"provider: iwarp", "provider: verbs, verbs: {keepAlive: 100ms}", `line 7: exports[0].listeners[0].verbs.keepAlive: 100ms: want 1s to 1h`, false},
		{"provider: iwarp", "provider: verbs, verbs: {ackTimeout: 1m}", `line 7: exports[0].listeners[0].verbs.ackTimeout: 1m0s: want 0s to 10s`, false},
		{"provider: iwarp", "provider: verbs, verbs: {tos: 104}", `line 7: exports[0].listeners[0].verbs.tos: 104: is only for backends, since the client chooses: leave it out`, false},
		{"provider: iwarp", "provider: verbs, verbs: {retryCount: 5}", `line 7: exports[0].listeners[0].verbs.retryCount: 5: is only for backends, since the client chooses: leave it out`, false},
		{"provider: iwarp", "provider: verbs, verbs: {completionVectors: [0, -1]}", `line 7: exports[0].listeners[0].verbs.completionVectors[1]: -1: want 0 to 4095`, false},
		{"provider: iwarp", "provider: verbs, verbs: {moderationCount: 16}", `line 7: exports[0].listeners[0].verbs.moderationPeriod: 0s: requires moderationCount: want both or neither`, false},
		{"provider: iwarp", "provider: verbs, verbs: {inline: 4096}", `line 7: exports[0].listeners[0].verbs.inline: 4096: want 0 to 1024`, false},
		{"provider: iwarp", "device: mlx5_4", `line 7: exports[0].listeners[0].device: "mlx5_4": is only for provider verbs: leave it out`, false},
		{"provider: iwarp", "provider: iwarp, options: {crc: yes please}", `line 7: exports[0].listeners[0].options.crc: "yes please": want true or false`, false},
		{"provider: iwarp", "provider: iwarp, options: {maxFPDU: 64Ki}", `line 7: exports[0].listeners[0].options.maxFPDU: 64Ki: want 256 to 65535`, false},
		{"provider: iwarp", "provider: iwarp, options: {spin: 2ms}", `line 7: exports[0].listeners[0].options.spin: 2ms: want 0s to 1ms`, false},
		{"provider: iwarp", "provider: iwarp, options: {spin: -1ms}", `line 7: exports[0].listeners[0].options.spin: -1ms: want 0s to 1ms`, false},
		{"127.0.0.1:2049", "127.0.0.1", `line 8: exports[0].listeners[1].address: "127.0.0.1": want "IP:port", such as "127.0.0.1:2049" or "[::1]:2049"`, false},
		{"127.0.0.1:2049", "127.0.0.1:70000", `line 8: exports[0].listeners[1].address: "127.0.0.1:70000": the port "70000" is not a number from 0 to 65535`, false},
		{"127.0.0.1:2049", "filer:2049", `line 8: exports[0].listeners[1].address: "filer:2049": "filer" is not an IP address: want one of this host's, localhost, or nothing before the colon for all`, false},
		{`, address: "127.0.0.1:2049"`, ``, `line 8: exports[0].listeners[1].address: missing: want "IP:port", such as "127.0.0.1:2049"`, false},
		{"127.0.0.1:2049", "0.0.0.0:20049", `line 8: exports[0].listeners[1].address: "0.0.0.0:20049": exports[0].listeners[0].address is "127.0.0.1:20049": want an address or port of its own`, false},
		{"127.0.0.1:2049", "localhost:9180", `line 8: exports[0].listeners[1].address: "localhost:9180": admin.address is "127.0.0.1:9180": want an address or port of its own`, false},
		{"127.0.0.1:2049\"", "127.0.0.1:2049\", bind: Any", `line 8: exports[0].listeners[1].bind: "Any": want Wildcard, or leave it out`, false},
		{"127.0.0.1:2049\"", ":2049\", bind: Wildcard", `line 8: exports[0].listeners[1].address: ":2049": bind Wildcard distinguishes exports by address: want an IP and a port, such as 192.0.2.10:20049`, false},
		{"127.0.0.1:2049\"", "[::]:2049\", bind: Wildcard", `line 8: exports[0].listeners[1].address: "[::]:2049": bind Wildcard distinguishes exports by address: want an IP and a port, such as 192.0.2.10:20049`, false},
		{"127.0.0.1:2049\"", "10.0.0.1:0\", bind: Wildcard", `line 8: exports[0].listeners[1].address: "10.0.0.1:0": bind Wildcard distinguishes exports by address: want an IP and a port, such as 192.0.2.10:20049`, false},
		{"127.0.0.1:2049\"", "10.0.0.1:20049\", bind: Wildcard", `line 8: exports[0].listeners[1].address: "10.0.0.1:20049": exports[0].listeners[0].address is "127.0.0.1:20049": want an address or port of its own`, false},

		// Access.
		{`access: [{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]`, "access: []", `line 10: exports[0].access: 0: want 1 to 1024 rules; without one no client may mount`, false},
		{`["127.0.0.0/8"]`, `["127.0.0.1"]`, `line 10: exports[0].access[0].from.networks[0]: "127.0.0.1": want a network: the address alone is 127.0.0.1/32`, false},
		{`["127.0.0.0/8"]`, `["127.0.0.1/8"]`, `line 10: exports[0].access[0].from.networks[0]: "127.0.0.1/8": has host bits: want 127.0.0.0/8`, false},
		{`["127.0.0.0/8"]`, `["::ffff:10.0.0.0/104"]`, `line 10: exports[0].access[0].from.networks[0]: "::ffff:10.0.0.0/104": want IPv4 clients as IPv4 networks: 10.0.0.0/8, not ::ffff:10.0.0.0/104`, false},
		{`["127.0.0.0/8"]`, `[localnet]`, `line 10: exports[0].access[0].from.networks[0]: "localnet": want a network such as 10.0.0.0/8 or fd00::/8`, false},
		{`["127.0.0.0/8"]`, `"127.0.0.0/8"`, `line 10: exports[0].access[0].from.networks: "127.0.0.0/8": want a list`, false},
		{`["127.0.0.0/8"]`, `[]`, `line 10: exports[0].access[0].from.networks: 0: want 1 to 1024 networks, such as 10.0.0.0/8; 0.0.0.0/0 and ::/0 are everyone`, false},
		{"{from: {networks: [\"127.0.0.0/8\"]}, mode: ReadWrite, squash: None}", "everyone", `line 10: exports[0].access[0]: "everyone": want a mapping of fields`, false},
		{"mode: ReadWrite", "mode: readwrite", `line 10: exports[0].access[0].mode: "readwrite": want ReadOnly or ReadWrite`, false},
		{"squash: None", "squash: Some", `line 10: exports[0].access[0].squash: "Some": want None or Root or All`, false},

		// Transport.
		{"rpcRDMAVersions: [1]", "rpcRDMAVersions: [one]", `line 11: exports[0].transport.rpcRDMAVersions[0]: "one": want a whole number
line 11: exports[0].transport.rpcRDMAVersions: [0]: want [1], [2] or [1, 2]`, false},
		{"call: 4Ki", "call: 4K", `line 11: exports[0].transport.inlineThreshold.call: "4K": want a whole number of bytes, optionally followed by Ki, Mi, Gi or Ti, such as 4096 or 4Ki`, false},
		{"call: 4Ki", "call: 99999999999Gi", `line 11: exports[0].transport.inlineThreshold.call: "99999999999Gi": is too large: want less than 8388608Ti`, false},
		{"call: 4Ki", "call: 4000", `line 11: exports[0].transport.inlineThreshold.call: 4000: want a multiple of 1Ki from 1Ki to 256Ki`, false},
		{"call: 4Ki", "call: 0", `line 11: exports[0].transport.inlineThreshold.call: 0: want a multiple of 1Ki from 1Ki to 256Ki`, false},
		{"reply: 8192", "reply: 257Ki", `line 11: exports[0].transport.inlineThreshold.reply: 257Ki: want a multiple of 1Ki from 1Ki to 256Ki`, false},
		{"reply: 8192", "replay: 8192", `line 11: exports[0].transport.inlineThreshold.replay: unknown field (did you mean "reply"?); the fields here are call, reply`, false},
		{"policy: Static", "policy: Dynamic", `line 11: exports[0].transport.credits.policy: "Dynamic": want Static or Adaptive`, false},
		{"policy: Static", "policy: Static, min: 4, memory: 1Mi", `line 11: exports[0].transport.credits.min: 4: is only for policy Adaptive: leave it out
line 11: exports[0].transport.credits.memory: 1Mi: is only for policy Adaptive: leave it out`, false},
		{"policy: Static", "policy: Adaptive", `line 11: exports[0].transport.credits.memory: missing: want the budget for the receives of all connections, such as 256Mi`, false},
		{"policy: Static", "policy: Adaptive, min: -1, memory: 1Mi", `line 11: exports[0].transport.credits.min: -1: want 1 to 128 (max)`, false},
		{"policy: Static", "policy: Adaptive, min: 129, memory: 1Mi", `line 11: exports[0].transport.credits.min: 129: want 1 to 128 (max)`, false},
		{"policy: Static", "policy: Adaptive, min: 10, memory: 39Ki", `line 11: exports[0].transport.credits.memory: 39Ki: want at least 40Ki: one connection has 10 receives (min) of 4Ki (inlineThreshold.call)`, false},
		{"policy: Static", "policy: Adaptive, memory: 1025Gi", `line 11: exports[0].transport.credits.memory: 1025Gi: want at most 1Ti`, false},
		{"max: 128", "max: 0", `line 11: exports[0].transport.credits.max: 0: want 1 to 4096`, false},
		{"max: 128", "max: 1.5", `line 11: exports[0].transport.credits.max: 1.5: want a whole number`, false},
		{"remoteInvalidation: true", "remoteInvalidation: 1", `line 11: exports[0].transport.remoteInvalidation: 1: want true or false`, false},
		{"remoteInvalidation: true", "extension: []", `line 11: exports[0].transport.extension: unknown field (did you mean "extensions"?); the fields here are rpcRDMAVersions, version2Dialect, extensions, continuation, placement, rfc5666, inlineThreshold, credits, remoteInvalidation, onChange`, false},
		{"exports:", "limits: {connections: -1, memory: 1Mi, receiveMemory: 0}\nexports:", `line 4: limits.connections: -1: want 1 to 1048576
line 4: limits.memory: 1Mi: want 8Mi to 1Ti
line 4: limits.receiveMemory: 0: want 8Mi to 1Ti`, true},
		{"remoteInvalidation: true", "onChange: Never", `line 11: exports[0].transport.onChange: "Never": want Reconnect or NextConnection`, false},
		{"  transport:", "  limits: {connections: 0, memory: 1Mi}\n  transport:", `line 11: exports[0].limits.connections: 0: want 1 to 65536
line 11: exports[0].limits.memory: 1Mi: want 8Mi to 1Ti`, false},
		{"  transport:", "  limits: {connectionsPerClient: 0, memoryPerClient: 1Ki, minProgress: 2Gi}\n  transport:", `line 11: exports[0].limits.connectionsPerClient: 0: want 1 to 65536
line 11: exports[0].limits.memoryPerClient: 1Ki: want 64Ki to 1Ti
line 11: exports[0].limits.minProgress: 2Gi: want 0 to 1Gi`, false},
		{"  transport:", "  limits: {idleTimeout: {beforeFirstCall: 10ms, afterCall: 200h}}\n  transport:", `line 11: exports[0].limits.idleTimeout.beforeFirstCall: 10ms: want 1s to 168h, or 0s for no limit
line 11: exports[0].limits.idleTimeout.afterCall: 200h0m0s: want 1s to 168h, or 0s for no limit`, false},
	} {
		t.Run(tt.new, func(t *testing.T) {
			if strings.Count(good, tt.old) < 1 {
				t.Fatalf("the file has no %q", tt.old)
			}
			f, err := Parse([]byte(strings.Replace(good, tt.old, tt.new, 1)))
			got := ""
			switch {
			case err != nil && tt.whole:
				got = err.Error()
			case err != nil:
				t.Fatalf("the whole file is refused: %v", err)
			case tt.whole:
				t.Fatalf("the file is not refused, its exports are: %v", f.Refused)
			case len(f.Refused) != 1:
				t.Fatalf("refused: %v", f.Refused)
			default:
				got = f.Refused[0].Problems.Error()
				if len(f.Config.Exports) != 0 {
					t.Error("the export is accepted too")
				}
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

const export = `
- name: NAME
  listeners: [{network: tcp, address: "ADDRESS"}]
  backend: {volume: {path: PATH}}
  access: [{from: {networks: [10.0.0.0/8]}}]`

func exports(nameAddressPath ...string) string {
	s := "apiVersion: " + APIVersion + "\nkind: " + Kind + "\nexports:"
	for i := 0; i < len(nameAddressPath); i += 3 {
		s += strings.NewReplacer("NAME", nameAddressPath[i], "ADDRESS", nameAddressPath[i+1], "PATH", nameAddressPath[i+2]).Replace(export)
	}
	return s + "\n"
}

func TestExportsAreJudgedOneByOne(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		accepted   []string
		refused    []string // names and problems
	}{
		{"the middle one is bad", exports("a", ":1", "/a", "b", ":2", "b", "c", ":3", "/c"), []string{"a", "c"},
			[]string{`b line 10: exports[1].backend.volume.path: "b": want an absolute path, such as /srv/data`}},
		{"one is no export", exports("a", ":1", "/a") + "- 42\n" + "-\n", []string{"a"},
			[]string{` line 8: exports[1]: 42: want a mapping of fields`, ` line 9: exports[2].name: missing: want at most 253 of a to z, 0 to 9, '-' and '.', beginning and ending with a letter or digit
line 9: exports[2].listeners: 0: want 1 to 16 listeners
line 9: exports[2].backend: want one of volume: {path: DIRECTORY}, nfs: {server: HOST, path: /PATH} and rdma: {server: HOST, path: /PATH}
line 9: exports[2].access: 0: want 1 to 1024 rules; without one no client may mount`}},
		{"two have one name", exports("a", ":1", "/a", "b", ":2", "/b", "a", ":3", "/c"), []string{"b"},
			[]string{`a line 4: exports[0].name: "a": exports[2].name is the same: want a name for each export`, `a line 12: exports[2].name: "a": exports[0].name is the same: want a name for each export`}},
		{"two have one address", exports("a", ":1", "/a", "b", "127.0.0.1:1", "/b"), []string{"a"},
			[]string{`b line 9: exports[1].listeners[0].address: "127.0.0.1:1": exports[0].listeners[0].address is ":1": want an address or port of its own`}},
		{"two have free ports", exports("a", ":0", "/a", "b", ":0", "/b"), []string{"a", "b"}, nil},
		{"two have one port on two addresses", exports("a", "127.0.0.1:1", "/a", "b", "127.0.0.2:1", "/b", "c", "[::1]:1", "/c"), []string{"a", "b", "c"}, nil},
		{"two share a port", exports("a", `10.0.0.1:1", bind: "Wildcard`, "/a", "b", `[fd00::1]:1", bind: "Wildcard`, "/b"), []string{"a", "b"}, nil},
		{"two share an address", exports("a", `10.0.0.1:1", bind: "Wildcard`, "/a", "b", `10.0.0.1:1", bind: "Wildcard`, "/b"), []string{"a"},
			[]string{`b line 9: exports[1].listeners[0].address: "10.0.0.1:1": exports[0].listeners[0].address is "10.0.0.1:1": want an address or port of its own`}},
		{"two have one volume", exports("a", ":1", "/a", "b", ":2", "/b/../a/"), []string{"a"},
			[]string{`b line 10: exports[1].backend.volume.path: "/b/../a/": exports[0] serves this directory: want one export for each`}},
		{"an anchor is used", exports("a", ":1", "&v /a", "b", ":2", "/b") + "- &c {name: c, listeners: [{network: tcp, address: ':3'}], backend: {volume: {path: /c}}, access: [{from: {networks: ['::/0']}}]}\n", []string{"a", "b", "c"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Parse([]byte(tt.file))
			if err != nil {
				t.Fatal(err)
			}
			var accepted, refused []string
			for _, e := range f.Config.Exports {
				accepted = append(accepted, e.Name)
			}
			for _, r := range f.Refused {
				refused = append(refused, r.Name+" "+r.Problems.Error())
			}
			if d := cmp.Diff(tt.accepted, accepted); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tt.refused, refused); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestCutOff: a file that ends before its list of exports is refused. Only an empty list means no
// exports.
func TestCutOff(t *testing.T) {
	lines := strings.SplitAfter(good, "\n")
	for n := range len(lines) {
		text := strings.Join(lines[:n], "")
		if strings.Contains(text, "- name:") {
			break
		}
		if f, err := Parse([]byte(text)); err == nil {
			t.Errorf("a file that ends behind line %d is taken, with %d exports", n, len(f.Config.Exports))
		}
	}
	head := "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"
	const want = `exports: missing: want a list of exports, or [] for none`
	for text, want := range map[string]string{head: "line 1: " + want, head + "exports:\n": "line 3: " + want, head + "exports: null\n": "line 3: " + want, head + "exports: []\n": ""} {
		got := ""
		if _, err := Parse([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestLargeFile(t *testing.T) {
	_, err := Parse([]byte(strings.Repeat("#", MaxFile) + "\n"))
	if err == nil || err.Error() != "the file has 8388609 bytes: want 8388608 at most" {
		t.Error(err)
	}
}

func TestHash(t *testing.T) {
	f, err := Parse([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	e := &f.Config.Exports[0]
	h := e.Hash()
	same := wantGood().Exports[0]
	same.Listeners[0].Options, same.Listeners[0].Provider = nil, "" // the defaults, absent
	if got := same.Hash(); got != h {
		t.Errorf("an equal export has hash %s, not %s", got, h)
	}
	if same.Listeners[0].Provider != "" {
		t.Error("Hash changed the export")
	}
	seen := map[string]bool{h: true}
	for name, change := range map[string]func(){
		"credits": func() { e.Transport.Credits.Max++ },
		"access":  func() { e.Access[0].Mode = ReadOnly },
		"address": func() { e.Listeners[1].Address = ":1" },
		"crc":     func() { e.Listeners[0].Options.CRC = false },
	} {
		change()
		if h := e.Hash(); seen[h] {
			t.Errorf("%s: the hash stays", name)
		} else {
			seen[h] = true
		}
	}
}

// TestRoundTrip: the gateway reads the operator's marshaled configuration unchanged.
func TestRoundTrip(t *testing.T) {
	c := wantGood()
	c.Exports[0].Transport.RemoteInvalidation = false
	c.Exports[0].Listeners[0].Options.CRC = false
	b, err := json.Marshal(c) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	f, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, f.Config, comparePrefix); d != "" {
		t.Error(d)
	}
}

// TestHashOfMarshaled: the writer of a file computes the same export hashes as the gateway, even if
// it omits defaults.
func TestHashOfMarshaled(t *testing.T) {
	net := AccessRule{From: AccessFrom{Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, Mode: ReadWrite, Squash: SquashNone}
	export := func(name string, change func(*Export)) Export {
		e := DefaultExport()
		e.Name, e.Access = name, []AccessRule{net}
		port := 20049
		for _, c := range name {
			port += int(c)
		}
		e.Listeners = []Listener{{Network: RDMA, Address: fmt.Sprintf(":%d", port)}, {Network: TCP, Address: fmt.Sprintf("10.0.0.1:%d", port+1000)}}
		change(&e)
		return e
	}
	server := DefaultNFSServer()
	server.Server, server.Path = "filer.example", "/vol"
	c := Default()
	c.APIVersion, c.Kind = APIVersion, Kind
	c.Exports = []Export{
		export("volume", func(e *Export) { e.Backend.Volume = DefaultVolume("/srv") }),
		export("nfs", func(e *Export) { e.Backend.NFS, e.UID = &server, "5e0c4f8e-vol" }),
		export("rdma", func(e *Export) {
			e.Backend.RDMA = &RDMAServer{Server: "other", Port: 20049, Path: "/", Versions: []NFSVersion{NFSv42}, SoftTimeout: Duration(time.Minute)}
			e.SignHandles = SignRequired
		}),
		export("verbs", func(e *Export) {
			e.Backend.Volume = DefaultVolume("/srv2")
			e.Listeners[0].Provider, e.Listeners[0].Device = Verbs, "mlx5_4"
			t := &e.Transport
			t.RPCRDMAVersions, t.OnChange = []int{1, 2}, NextConnection
			t.Extensions = []Extension{TransportProperties, MessageContinuation, SendBasedPlacement}
			t.Credits = Credits{Policy: Adaptive, Max: 64, Memory: 64 << 20}
		}),
		export("v2", func(e *Export) { e.Backend.Volume, e.Transport.RPCRDMAVersions = DefaultVolume("/srv3"), []int{2} }),
		export("base", func(e *Export) {
			e.Backend.Volume, e.Transport.RPCRDMAVersions, e.Transport.Extensions = DefaultVolume("/srv4"), []int{2}, []Extension{}
		}),
	}
	for name, marshal := range map[string]func(any) ([]byte, error){"JSON": json.Marshal, "YAML": yaml.Marshal} {
		b, err := marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(b)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, r := range f.Refused {
			t.Errorf("%s: %s: %v", name, r.Name, r.Problems)
		}
		if len(f.Config.Exports) != len(c.Exports) {
			t.Fatalf("%s: %d exports, want %d", name, len(f.Config.Exports), len(c.Exports))
		}
		for i := range c.Exports {
			if got, want := f.Config.Exports[i].Hash(), c.Exports[i].Hash(); got != want {
				t.Errorf("%s: %s: hash %s, want %s", name, c.Exports[i].Name, got, want)
			}
		}
	}
}

func TestQuantity(t *testing.T) {
	for s, want := range map[string]Quantity{"0": 0, "1": 1, "4096": 4096, "4Ki": 4096, "3Mi": 3 << 20, "2Gi": 2 << 30, "8388607Ti": 8388607 << 40} {
		if got, err := ParseQuantity(s); err != nil || got != want {
			t.Errorf("%s is %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "Ki", "-1", "+1", "1.5Ki", "4K", "4kB", "4 Ki", "0x10", "4Kii", "8388608Ti", "9223372036854775808"} {
		if got, err := ParseQuantity(s); err == nil {
			t.Errorf("%s is %d", s, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		q := Quantity(rapid.Int64Min(0).Draw(t, "q"))
		if got, err := ParseQuantity(q.String()); err != nil || got != q {
			t.Errorf("%d is written %s and read %d, %v", q, q, got, err)
		}
	})
}

// FuzzParse: any input yields a valid configuration, or problems with reasons.
func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte(exports("a", ":1", "/a", "a", "x", "b")))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("exports: [&e {name: x}, *e, *e]\n---\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Parse(b)
		if err != nil {
			var ps Problems
			if !errors.As(err, &ps) {
				t.Fatalf("%T: %v", err, err)
			}
			for _, p := range ps {
				if p.Reason == "" {
					t.Errorf("%#v", p)
				}
			}
			return
		}
		for _, p := range got.Config.Validate() {
			t.Error("accepted with", p)
		}
		for _, r := range got.Refused {
			if len(r.Problems) == 0 {
				t.Errorf("exports[%d] is refused without a problem", r.Index)
			}
		}
	})
}

// TestDocumentedFields: each field has a JSON name and a comment.
func TestDocumentedFields(t *testing.T) {
	src, err := os.ReadFile("types.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(src), "\n")
	for i, l := range lines {
		if strings.Contains(l, "`json:") && !strings.Contains(lines[i-1], "//") {
			t.Errorf("types.go:%d: no comment above %s", i+1, strings.TrimSpace(l))
		}
	}
}

// TestDocumentation: the configuration files in the documentation are valid.
func TestDocumentation(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, part := range strings.Split(string(doc), "```yaml\n") {
		if text, _, ok := strings.Cut(part, "```"); ok && i > 0 && strings.HasPrefix(text, "apiVersion:") {
			found++
			f, err := Parse([]byte(text))
			if err != nil {
				t.Error(err)
				continue
			}
			for _, r := range f.Refused {
				t.Error(r.Problems)
			}
		}
	}
	if found == 0 {
		t.Error("docs/gateway.md shows no configuration file")
	}
}

// TestAdaptiveCredits: the default of min depends on max, and the minimum memory is the need of one
// connection.
func TestAdaptiveCredits(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Credits
	}{
		{"policy: Adaptive, min: 8, max: 128, memory: 256Mi", Credits{Adaptive, 8, 128, 256 << 20}},
		{"policy: Adaptive, max: 128, memory: 32Ki", Credits{Adaptive, 8, 128, 32 << 10}},
		{"policy: Adaptive, max: 3, memory: 12Ki", Credits{Adaptive, 3, 3, 12 << 10}},
		{"policy: Adaptive, min: 4096, max: 4096, memory: 1Ti", Credits{Adaptive, 4096, 4096, 1 << 40}},
	} {
		f, err := Parse([]byte(strings.Replace(good, "policy: Static, max: 128", tt.text, 1)))
		if err != nil || len(f.Refused) > 0 {
			t.Fatal(tt.text, err, f.Refused)
		}
		if d := cmp.Diff(tt.want, f.Config.Exports[0].Transport.Credits); d != "" {
			t.Error(tt.text, d)
		}
	}
}
