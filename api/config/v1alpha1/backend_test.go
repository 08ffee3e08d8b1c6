package v1alpha1

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// remote is an export with an NFS backend. Its own fields are on line 6, its access on line 7.
const remote = `apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
exports:
- name: data
  listeners: [{network: tcp, address: ":2049"}]
  backend: {nfs: {server: filer.example, path: /vol/data}}
  access: [{from: {networks: ["10.0.0.0/8"]}, mode: ReadWrite, squash: None}]
`

func parseOne(t *testing.T, text string) Export {
	t.Helper()
	f, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Refused) > 0 {
		t.Fatal(f.Refused[0].Problems)
	}
	return f.Config.Exports[0]
}

func TestRemoteBackends(t *testing.T) {
	const all = `server: "fd00::1", port: 1, path: /, within: /, versions: ["4.2", "4.0"], softTimeout: 1m30s`
	versions := []NFSVersion{NFSv3, NFSv41, NFSv42}
	for _, tt := range []struct {
		backend string // and fields of its export
		want    Backend
		sign    SignHandles
		gss     GSS
		network Network
	}{
		{"{nfs: {server: filer.example, path: /vol/data}}",
			Backend{NFS: &NFSServer{Server: "filer.example", Port: 2049, Path: "/vol/data", Versions: versions}}, SignAuto, GSSRefuse, TCP},
		{"{nfs: {" + all + ", mountPort: 65535}}\n  signHandles: Off\n  gss: PassThrough",
			Backend{NFS: &NFSServer{"fd00::1", 1, 65535, "/", "/", []NFSVersion{NFSv42, NFSv40}, Duration(90 * time.Second)}}, SignOff, GSSPassThrough, TCP},
		{"{rdma: {server: 192.0.2.1}}",
			Backend{RDMA: &RDMAServer{Server: "192.0.2.1", Port: 20049, Path: "/", Versions: versions}}, SignAuto, GSSRefuse, RDMA},
		{"{rdma: {" + all + "}}\n  signHandles: Required",
			Backend{RDMA: &RDMAServer{"fd00::1", 1, "/", "/", "", "", nil, nil, []NFSVersion{NFSv42, NFSv40}, Duration(90 * time.Second)}}, SignRequired, GSSRefuse, RDMA},
		{`{rdma: {server: filer, versions: ["3"], rfc5666: [ReadRead, Padding]}}`,
			Backend{RDMA: &RDMAServer{Server: "filer", Port: 20049, Path: "/", RFC5666: []RFC5666Form{ReadRead, Padding}, Versions: []NFSVersion{NFSv3}}}, SignAuto, GSSRefuse, RDMA},
	} {
		t.Run(tt.backend, func(t *testing.T) {
			e := parseOne(t, strings.Replace(remote, "{nfs: {server: filer.example, path: /vol/data}}", tt.backend, 1))
			if d := cmp.Diff(tt.want, e.Backend); d != "" {
				t.Error(d)
			}
			if e.SignHandles != tt.sign || e.GSS != tt.gss {
				t.Errorf("signHandles %s, gss %s, want %s and %s", e.SignHandles, e.GSS, tt.sign, tt.gss)
			}
			s, network, ok := e.Backend.Remote()
			if !ok || network != tt.network || s.Server == "" || s.Port == 0 || s.Path == "" || len(s.Versions) == 0 {
				t.Errorf("Remote returns %+v, %s, %v", s, network, ok)
			}
			c := Default()
			c.APIVersion, c.Kind, c.Exports = APIVersion, Kind, []Export{e}
			b, err := json.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(e, parseOne(t, string(b)), comparePrefix); d != "" {
				t.Errorf("marshaled and parsed again it differs: %s", d)
			}
		})
	}
}

// TestBackendRefusals changes one place of the export for each case.
func TestBackendRefusals(t *testing.T) {
	const (
		nfs      = "{nfs: {server: filer.example, path: /vol/data}}"
		wantHost = "want a host's name, such as filer.example, or its IP address"
		gss      = "gss is PassThrough, which forwards calls unread: want "
	)
	long := "/" + strings.Repeat("a", 1024)
	for _, tt := range []struct {
		old, new string
		want     string // all problems, one per line, without the export's path
	}{
		{nfs, "{}", `line 6: backend: want one of volume: {path: DIRECTORY}, nfs: {server: HOST, path: /PATH} and rdma: {server: HOST, path: /PATH}`},
		{nfs, "{nfs: {server: a, path: /}, rdma: {server: a}}", `line 6: backend: nfs, rdma: want one of them for each export`},
		{nfs, "{nfs: {server: a, path: /}, volume: {path: /a}}", `line 6: backend: volume, nfs: want one of them for each export`},
		{nfs, "{nfs: }", `line 6: backend: want one of volume: {path: DIRECTORY}, nfs: {server: HOST, path: /PATH} and rdma: {server: HOST, path: /PATH}`},
		{nfs, "{nfs: {}}", "line 6: backend.nfs.server: missing: " + wantHost +
			"\nline 6: backend.nfs.path: missing: want the absolute path of the server's export, such as /vol/data"},
		{nfs, "{rdma: {}}", "line 6: backend.rdma.server: missing: " + wantHost},
		{nfs, "{rdma: {server: a, mountPort: 1}}", `line 6: backend.rdma.mountPort: unknown field; the fields here are server, port, path, within, provider, device, verbs, rfc5666, versions, softTimeout`},
		{nfs, "{rdma: {server: a, provider: tcp}}", `line 6: backend.rdma.provider: "tcp": want iwarp or verbs`},
		{nfs, "{rdma: {server: a, device: mlx5_4}}", `line 6: backend.rdma.device: "mlx5_4": is only for provider verbs: leave it out`},
		{nfs, "{rdma: {server: a, provider: verbs, device: a/b}}", `line 6: backend.rdma.device: "a/b": want the name of an RDMA device, such as mlx5_4 (rdma link lists them)`},
		{nfs, "{rdma: {server: a, rfc5666: [Speed]}}", `line 6: backend.rdma.rfc5666[0]: "Speed": want Padding or ReadRead or Configuration`},
		{nfs, "{rdma: {server: a, rfc5666: [Padding, Padding]}}", `line 6: backend.rdma.rfc5666[1]: "Padding": is listed twice: want each form once`},
		{nfs, "{rdma: {server: a, rfc5666: [ReadRead]}}",
			`line 6: backend.rdma.rfc5666: "ReadRead": may have a call executed twice, which sessions and opens do not bear: want versions: ["3"], or leave it out`},

		{"filer.example", "a:2049", `line 6: backend.nfs.server: "a:2049": ` + wantHost + `, without brackets and port`},
		{"filer.example", `"[::1]"`, `line 6: backend.nfs.server: "[::1]": ` + wantHost + `, without brackets and port`},
		{"filer.example", "a..b", `line 6: backend.nfs.server: "a..b": ` + wantHost + `, without brackets and port`},
		{"filer.example", "-a", `line 6: backend.nfs.server: "-a": ` + wantHost + `, without brackets and port`},
		{"filer.example", "a-.b", `line 6: backend.nfs.server: "a-.b": ` + wantHost + `, without brackets and port`},
		{"filer.example", "\u212Aelvin", "line 6: backend.nfs.server: \"\u212Aelvin\": " + wantHost + `, without brackets and port`},
		{"filer.example", strings.Repeat("a", 64), `line 6: backend.nfs.server: "` + strings.Repeat("a", 64) + `": ` + wantHost + `, without brackets and port`},
		{"filer.example", strings.Repeat("a.", 127), `line 6: backend.nfs.server: "` + strings.Repeat("a.", 39) + `…: ` + wantHost + `, of at most 253 characters`},
		{"filer.example", "10.0.0.256", `line 6: backend.nfs.server: "10.0.0.256": ` + wantHost + `; this looks like an address, but is not one`},
		{"filer.example", "0.0.0.0", `line 6: backend.nfs.server: "0.0.0.0": is no host's address: ` + wantHost},
		{"filer.example", `"ff02::1"`, `line 6: backend.nfs.server: "ff02::1": is no host's address: ` + wantHost},
		{"filer.example", "10.5", `line 6: backend.nfs.server: 10.5: want a string; put it in quotes if it is one`},

		{"path: /vol/data", "path: /vol/data, port: 0", `line 6: backend.nfs.port: 0: want 1 to 65535`},
		{"path: /vol/data", "path: /vol/data, port: 65536", `line 6: backend.nfs.port: 65536: want 1 to 65535`},
		{"path: /vol/data", "path: /vol/data, mountPort: -1", `line 6: backend.nfs.mountPort: -1: want 0 to 65535`},
		{"path: /vol/data", "path: /vol/data, mountPort: 65536", `line 6: backend.nfs.mountPort: 65536: want 0 to 65535`},

		{"path: /vol/data", "path: vol", `line 6: backend.nfs.path: "vol": want an absolute path, such as /vol/data`},
		{"path: /vol/data", "path: /vol/../etc", `line 6: backend.nfs.path: "/vol/../etc": want "/etc": no "..", ".", repeated or trailing slash`},
		{"path: /vol/data", "path: /vol/", `line 6: backend.nfs.path: "/vol/": want "/vol": no "..", ".", repeated or trailing slash`},
		{"path: /vol/data", "path: //vol", `line 6: backend.nfs.path: "//vol": want "/vol": no "..", ".", repeated or trailing slash`},
		{"path: /vol/data", `path: "/vol\0"`, `line 6: backend.nfs.path: "/vol\x00": want a path without zero bytes`},
		{"path: /vol/data", "path: " + long, `line 6: backend.nfs.path: "` + long[:78] + `…: has 1025 bytes: want at most 1024`},

		{"path: /vol/data", "path: /vol/data, versions: []", `line 6: backend.nfs.versions: 0: want one or more of "3", "4.0", "4.1" and "4.2"`},
		{"path: /vol/data", "path: /vol/data, versions: [4.1]", `line 6: backend.nfs.versions[0]: 4.1: want a string; put it in quotes if it is one`},
		{"path: /vol/data", `path: /vol/data, versions: ["4"]`, `line 6: backend.nfs.versions[0]: "4": want 3 or 4.0 or 4.1 or 4.2`},
		{"path: /vol/data", `path: /vol/data, versions: ["3", "4.1", "3"]`, `line 6: backend.nfs.versions[2]: "3": is listed twice: want each version once`},
		{nfs + "\n  access: [{from: {networks: [\"10.0.0.0/8\"]}, mode: ReadWrite, squash: None}]",
			"{rdma: {server: a, versions: [\"4.1\", \"4.0\"]}}\n  access: [{from: {networks: [\"10.0.0.0/8\"]}, mode: ReadWrite}, {from: {networks: [\"::/0\"]}}]",
			`line 6: backend.rdma.versions[1]: "4.0": access[1].mode is ReadOnly, but 4.0 needs the owner's seqid to advance also where a call is refused, ` +
				`which only the backend could do: remove 4.0, or use ReadWrite in every rule`},

		{"path: /vol/data", "path: /vol/data, within: vol", `line 6: backend.nfs.within: "vol": want an absolute path, such as /vol/data
line 6: backend.nfs.within: "vol": path is /vol/data: want it, or a directory above it`},
		{"path: /vol/data", "path: /vol/data, within: /vol/", `line 6: backend.nfs.within: "/vol/": want "/vol": no "..", ".", repeated or trailing slash`},
		{"path: /vol/data", "path: /vol/data, within: /vol/dat", `line 6: backend.nfs.within: "/vol/dat": path is /vol/data: want it, or a directory above it`},
		{"path: /vol/data", "path: /vol/data, softTimeout: 999ms", `line 6: backend.nfs.softTimeout: 999ms: want 1s to 10m, or 0s for no limit`},
		{"path: /vol/data", "path: /vol/data, softTimeout: 601s", `line 6: backend.nfs.softTimeout: 10m1s: want 1s to 10m, or 0s for no limit`},
		{"path: /vol/data", "path: /vol/data, softTimeout: -1s", `line 6: backend.nfs.softTimeout: -1s: want 1s to 10m, or 0s for no limit`},

		{"  backend", "  uid: seventh\n  backend", `line 6: uid: "seventh": want 8 to 64 printable ASCII characters without spaces`},
		{"  backend", "  uid: the eighth\n  backend", `line 6: uid: "the eighth": want 8 to 64 printable ASCII characters without spaces`},
		{"  backend", "  uid: " + strings.Repeat("u", 65) + "\n  backend", `line 6: uid: "` + strings.Repeat("u", 65) + `": want 8 to 64 printable ASCII characters without spaces`},
		{"  backend", "  signHandles: auto\n  backend", `line 6: signHandles: "auto": want Required or Auto or Off`},
		{"  backend", "  gss: Pass\n  backend", `line 6: gss: "Pass": want Refuse or PassThrough`},
		{"  backend", "  gss: PassThrough\n  backend", `line 4: signHandles: "Auto": ` + gss + `Off, or gss: Refuse
line 7: backend.nfs.path: "/vol/data": ` + gss + `"/", the backend's own root, or gss: Refuse`},
		{nfs + "\n  access: [{from: {networks: [\"10.0.0.0/8\"]}, mode: ReadWrite, squash: None}]",
			"{rdma: {server: a}}\n  signHandles: Off\n  gss: PassThrough\n  access: [{from: {networks: [\"::/0\"]}, mode: ReadWrite, squash: All}, {from: {networks: [\"10.0.0.0/8\"]}}]",
			`line 9: access[0].squash: "All": ` + gss + `None, or gss: Refuse
line 9: access[1].mode: "ReadOnly": ` + gss + `ReadWrite, or gss: Refuse
line 9: access[1].squash: "Root": ` + gss + `None, or gss: Refuse`},

		{nfs, "{volume: {path: /a}}\n  uid: 12345678-1234\n  signHandles: Auto\n  gss: Refuse",
			`line 7: uid: "12345678-1234": is only for nfs and rdma backends, since an export's name identifies its volume: leave it out
line 8: signHandles: "Auto": is only for nfs and rdma backends, since handles of a volume are always signed: leave it out
line 9: gss: "Refuse": is only for nfs and rdma backends, since volumes do not support RPCSEC_GSS: leave it out`},
	} {
		t.Run(tt.new, func(t *testing.T) {
			if !strings.Contains(remote, tt.old) {
				t.Fatalf("the file has no %q", tt.old)
			}
			f, err := Parse([]byte(strings.Replace(remote, tt.old, tt.new, 1)))
			if err != nil || len(f.Refused) != 1 {
				t.Fatalf("%v, %+v", err, f)
			}
			if got := strings.ReplaceAll(f.Refused[0].Problems.Error(), ": exports[0].", ": "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestHandleKeys(t *testing.T) {
	f, err := Parse([]byte("handleKeys: {file: /keys/handles}\n" + remote))
	if err != nil || f.Config.HandleKeys.File != "/keys/handles" {
		t.Errorf("%v, %+v", err, f)
	}
}

// TestIdentity: an identity depends on name and uid only.
func TestIdentity(t *testing.T) {
	a := parseOne(t, remote)
	b := parseOne(t, strings.Replace(remote, "name: data", "name: other", 1))
	moved := parseOne(t, strings.Replace(remote, "filer.example", "other.example", 1))
	if len(a.Identity()) < 8 || bytes.Equal(a.Identity(), b.Identity()) || !bytes.Equal(a.Identity(), moved.Identity()) {
		t.Errorf("%x, another name %x, another server %x", a.Identity(), b.Identity(), moved.Identity())
	}
	a.UID = "12345678"
	if string(a.Identity()) != a.UID {
		t.Errorf("%x, want the uid", a.Identity())
	}
	two := strings.ReplaceAll(remote, "  backend", "  uid: \"12345678\"\n  backend")
	_, other, _ := strings.Cut(strings.NewReplacer("name: data", "name: other", ":2049", ":2050").Replace(two), "exports:\n")
	f, err := Parse([]byte(two + other))
	if err != nil || len(f.Refused) != 1 {
		t.Fatalf("%v, %+v", err, f)
	}
	if got, want := f.Refused[0].Problems.Error(), `line 11: exports[1].uid: "12345678": exports[0].uid is the same: want one for each export`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
