package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

func TestCommandLine(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "state")
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	head := "apiVersion: " + config.APIVersion + "\nkind: GatewayConfig\n"
	good := write("good.yaml", head+"stateDir: "+state+"\nexports: []\n")
	bad := write("bad.yaml", head+"exports:\n- name: a\n  listeners: [{network: tcp, address: \":1\"}]\n  backend: {volume: {path: /a}}\n  acces: []\n")
	broken := write("broken.yaml", head+"exports: {\n")
	const more = "\nSee gateway --help.\n"
	for _, tt := range []struct {
		args   string
		code   int
		stdout string // regular expression for the whole output
		stderr string // likewise
	}{
		{"--version", 0, `Sluice gateway v1 go1.*\n`, ``},
		{"--help", 0, ``, `(?s)Sluice gateway: .*--rdma ADDRESS +.*\(127.0.0.1:20049\)\n.*--volume DIR +export the directory.*`},
		{"", 2, ``, `gateway: nothing to export: want --volume DIR, --nfs HOST:/PATH or --config FILE` + more},
		{"--volume /srv --config x", 2, ``, `gateway: --volume and --config exclude each other: want one of them` + more},
		{"/srv", 2, ``, `gateway: "/srv": unexpected argument: want --volume DIR, --nfs HOST:/PATH or --config FILE` + more},
		{"--check-config --volume /srv", 2, ``, `gateway: --check-config needs --config FILE` + more},
		{"--config x --tcp :1", 2, ``, `gateway: --tcp needs --volume or --nfs: the configuration file has a field for it` + more},
		{"--volume /srv --squash some", 2, ``, `gateway: --squash: "some": want None or Root or All` + more},
		{"--volume /srv --tcp 1", 2, ``, `gateway: --tcp: "1": want "IP:port", such as .*` + more},
		{"--volume /srv --tcp 127.0.0.1:1 --rdma :1", 2, ``, `gateway: --tcp: "127.0.0.1:1": --rdma is ":1": want an address or port of its own` + more},
		{"--volume /srv --tcp= --rdma=", 2, ``, `gateway: want an address for --rdma or --tcp` + more},
		{"--volume /srv --allow 10.0.0.1", 2, ``, `gateway: --allow "10.0.0.1": want networks such as 10.0.0.0/8 or fd00::/8, separated by commas` + more},
		{"--volume /srv --allow 10.0.0.1/8", 2, ``, `gateway: --allow: "10.0.0.1/8": has host bits: want 10.0.0.0/8` + more},
		{"--volume /srv --admin :x", 2, ``, `gateway: --admin: ":x": the port "x" is not a number from 0 to 65535` + more},
		{"--volume /srv --log-level loud", 2, ``, `gateway: --log-level: "loud": want debug or info or warn or error` + more},
		{"--nfs a:/ --volume /srv", 2, ``, `gateway: --volume and --nfs exclude each other: want one of them` + more},
		{"--nfs-mount-port 1 --volume /srv", 2, ``, `gateway: --nfs-mount-port needs --nfs` + more},
		{"--nfs-mount-port 1 --config x", 2, ``, `gateway: --nfs-mount-port needs --volume or --nfs: the configuration file has a field for it` + more},
		{"--nfs-mount-port x --nfs a:/", 2, ``, `(?s)invalid value "x" for flag -nfs-mount-port: parse error\n.*`},
		{"--nfs-mount-port 65536 --nfs a:/", 2, ``, `gateway: --nfs-mount-port: 65536: want 0 to 65535` + more},
		{"--nfs filer", 2, ``, `gateway: --nfs "filer": want HOST:/PATH or HOST:PORT:/PATH, such as .*` + more},
		{"--nfs filer:x:/vol", 2, ``, `gateway: --nfs "filer:x:/vol": want HOST:/PATH or HOST:PORT:/PATH, such as .*` + more},
		{"--nfs fd00::1:/vol", 2, ``, `gateway: --nfs "fd00::1:/vol": want HOST:/PATH or .*: \[fd00::1\]:/vol/data` + more},
		{"--nfs :/vol", 2, ``, `gateway: --nfs: missing: want a host's name, .*` + more},
		{"--nfs filer:0:/vol", 2, ``, `gateway: --nfs: 0: want 1 to 65535` + more},
		{"--nfs filer:/vol/..", 2, ``, `gateway: --nfs: "/vol/..": want "/": .*` + more},
		{"--host example --volume /srv", 2, ``, `(?s)invalid value "example" for flag -host: .*unable to parse IP\n.*`},
		{"--nonsense", 2, ``, `(?s)flag provided but not defined: -nonsense\n.*`},
		{"--volume " + dir + "/missing --tcp 127.0.0.1:0 --rdma= --admin= --state-dir " + state, 1, ``,
			`(?s).*gateway: backend.volume.path: open .*/missing: no such file or directory\n`},
		{"--volume " + dir + " --tcp 192.0.2.1:1 --rdma= --admin= --state-dir /dev/null/x", 1, ``, `gateway: stateDir: "/dev/null/x": .*not a directory\n`},
		{"--volume " + dir + " --tcp 192.0.2.1:1 --rdma= --admin= --state-dir " + t.TempDir(), 1, ``,
			`(?s).*gateway: listen tcp 192.0.2.1:1: .*cannot assign requested address\n`},
		{"--config " + dir + "/missing", 1, ``, `gateway: stat .*: no such file or directory\ngateway: invalid configuration\n`},
		{"--config " + dir, 1, ``, `gateway: read .*: not a regular file\ngateway: invalid configuration\n`},
		{"--config " + broken, 1, ``, `.*broken.yaml: line 4: not YAML: .*\ngateway: invalid configuration\n`},
		{"--check-config --config " + broken, 1, ``, `.*broken.yaml: line 4: not YAML: .*\n`},
		{"--check-config --config " + good, 0, `.*good.yaml is valid: 0 exports\n`, ``},
		{"--check-config --config " + bad, 1, ``, `.*bad.yaml: line 7: exports\[0\].acces: unknown field \(did you mean "access"\?\); the fields here are .*
.*bad.yaml: line 4: exports\[0\].access: 0: want 1 to 1024 rules; without one no client may mount
`},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := Main(strings.Fields(tt.args), "v1", &stdout, &stderr)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			for _, o := range []struct {
				name, got, want string
			}{{"stdout", stdout.String(), tt.stdout}, {"stderr", stderr.String(), tt.stderr}} {
				if !regexp.MustCompile(`^` + o.want + `$`).MatchString(o.got) {
					t.Errorf("%s is\n%s\nwant\n%s", o.name, o.got, o.want)
				}
			}
		})
	}
}

func TestNFSFlag(t *testing.T) {
	for _, tt := range []struct {
		args string
		want config.NFSServer // apart from defaults
	}{
		{"--nfs filer.example:/vol/data", config.NFSServer{Server: "filer.example", Port: 2049, Path: "/vol/data"}},
		{"--nfs 10.0.0.1:20490:/ --nfs-mount-port 635", config.NFSServer{Server: "10.0.0.1", Port: 20490, MountPort: 635, Path: "/"}},
		{"--nfs [fd00::1]:/a:/b", config.NFSServer{Server: "fd00::1", Port: 2049, Path: "/a:/b"}},
		{"--nfs [fe80::1%eth0]:1:/a", config.NFSServer{Server: "fe80::1%eth0", Port: 1, Path: "/a"}},
	} {
		var c cli
		if code, done := c.parse(strings.Fields(tt.args), "v1", io.Discard, testWriter{t}); code != 0 || done {
			t.Errorf("%s: exit code %d", tt.args, code)
			continue
		}
		tt.want.Versions = []config.NFSVersion{config.NFSv3, config.NFSv41, config.NFSv42}
		e := c.config.Exports[0]
		if d := cmp.Diff(&tt.want, e.Backend.NFS); d != "" {
			t.Errorf("%s: %s", tt.args, d)
		}
		if e.Backend.Volume != nil || e.SignHandles != config.SignAuto {
			t.Errorf("%s: %+v", tt.args, e)
		}
	}
}

// process is a gateway in its own process.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	out    *bufio.Reader
	gate   string // slow calls wait while this file exists
	admin  string
	status status.Status
}

func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, gate: filepath.Join(t.TempDir(), "closed")}
	p.cmd = exec.Command(os.Args[0], args...)
	p.cmd.Env = append(os.Environ(), "SLUICE_TEST_GATEWAY=1", "SLUICE_TEST_GATE="+p.gate)
	p.cmd.Stderr = testWriter{t}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.cmd.Process.Kill()
			_ = p.cmd.Wait()
		}
	})
	p.out = bufio.NewReader(out)
	for {
		l, err := p.out.ReadString('\n')
		if err != nil {
			t.Fatal("the gateway said no more:", err)
		}
		t.Log(strings.TrimSpace(l))
		if a, ok := strings.CutPrefix(l, "admin page: http://"); ok {
			p.admin = strings.TrimSuffix(strings.TrimSpace(a), "/")
		}
		if strings.HasPrefix(l, "off: ") {
			break
		}
	}
	p.look()
	return p
}

// look reads /status.
func (p *process) look() *status.Status {
	p.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.admin + "/status")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	p.status = status.Status{}
	if err := json.NewDecoder(resp.Body).Decode(&p.status); err != nil {
		p.t.Fatal(err)
	}
	return &p.status
}

func (p *process) connect(network config.Network) *testClient {
	p.t.Helper()
	for _, l := range p.status.Exports[0].Listeners {
		if l.Network == network {
			c, err := dial(p.t, network, l.Address)
			if err != nil {
				p.t.Fatal(err)
			}
			if c.root, err = c.Mount(context.Background(), "/"); err != nil {
				p.t.Fatal(err)
			}
			return c
		}
	}
	p.t.Fatal("no such listener")
	return nil
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exits waits for the end and returns the exit code.
func (p *process) exits() int {
	p.t.Helper()
	kill := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_, _ = io.Copy(io.Discard, p.out)
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) close() {
	p.t.Helper()
	if err := os.WriteFile(p.gate, nil, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) open() {
	p.t.Helper()
	if err := os.Remove(p.gate); err != nil {
		p.t.Fatal(err)
	}
}

// slow makes a call that waits for open. It returns when the gateway has the call.
func (p *process) slow(c *testClient) <-chan error {
	p.t.Helper()
	outcome := c.slow()
	eventually(p.t, "the gateway has the slow call", func() bool {
		for _, cl := range p.look().Exports[0].Clients {
			if cl.RDMA != nil && cl.RDMA.InUse > 0 {
				return true
			}
		}
		return false
	})
	return outcome
}

func volumeArgs(t *testing.T) []string {
	return []string{"--volume", t.TempDir(), "--rdma", "127.0.0.1:0", "--tcp", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--state-dir", t.TempDir()}
}

// TestSIGTERM checks that the process drains and exits with 0.
func TestSIGTERM(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := startProcess(t, volumeArgs(t)...)
		c := p.connect(config.RDMA)
		p.close()
		outcome := p.slow(c)
		p.signal(sig)
		eventually(t, "the gateway drains", func() bool { return p.look().Draining })
		select {
		case err := <-outcome:
			t.Error("the call in flight ended:", err)
		default:
		}
		p.open()
		if err := <-outcome; err != nil {
			t.Error("the call in flight failed:", err)
		}
		c.ends()
		if code := p.exits(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestLinger checks that after the drain the process refuses connections for its time, or until a
// second signal.
func TestLinger(t *testing.T) {
	p := startProcess(t, append(volumeArgs(t), "--linger", "1h")...)
	c := p.connect(config.RDMA)
	address := p.status.Exports[0].Listeners[0].Address
	p.signal(syscall.SIGTERM)
	c.ends()
	eventually(t, "connections are refused", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
	p.signal(syscall.SIGTERM)
	if code := p.exits(); code != exitKill {
		t.Errorf("exit code %d, want %d", code, exitKill)
	}
}

// TestSecondSignal checks that the process ends at once.
func TestSecondSignal(t *testing.T) {
	p := startProcess(t, volumeArgs(t)...)
	c := p.connect(config.RDMA)
	p.close()
	outcome := p.slow(c)
	p.signal(syscall.SIGTERM)
	eventually(t, "the gateway drains", func() bool { return p.look().Draining })
	p.signal(syscall.SIGTERM)
	if code := p.exits(); code != exitKill {
		t.Errorf("exit code %d, want %d", code, exitKill)
	}
	if err := <-outcome; err == nil {
		t.Error("the call was answered")
	}
}

// TestSIGHUP checks that an unchanged file is reloaded, and that failures are retried.
func TestSIGHUP(t *testing.T) {
	r := newEnv(t)
	file := filepath.Join(r.dir, "sluice.yaml")
	if err := os.WriteFile(file, []byte(r.yaml(exportYAML{name: "a"})), 0o644); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, "--config", file)
	loaded := p.status.Config.Loaded
	p.connect(config.TCP).works()
	p.signal(syscall.SIGHUP)
	eventually(t, "the file is read again", func() bool { return p.look().Config.Loaded.After(loaded) })
	if e := p.status.Exports[0]; e.State != status.Serving {
		t.Errorf("%+v", e)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exits(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
