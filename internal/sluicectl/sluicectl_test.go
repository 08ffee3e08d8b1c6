package sluicectl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

func TestPing(t *testing.T) {
	e := newEnv(t)
	figure := regexp.MustCompile(`\d+ µs`)
	if got, want := figure.ReplaceAllString(e.ok("ping", "RDMA"), "N µs"), `RDMA answers NFS version 3
  round trip           N µs (and N µs to connect)
  transport            RPC-over-RDMA version 1
  provider             iwarp (software)
  inline thresholds    4096 bytes for calls, 4096 for replies
  credits              64 granted, 128 asked for
  RDMA Reads           16 at once from the server (IRD), 16 from here (ORD)
  CRC32C               on
  remote invalidation  on
`; got != want {
		t.Errorf("%s\nmust be\n%s", got, want)
	}
	if got, want := figure.ReplaceAllString(e.ok("ping", "TCP/some/path"), "N µs"), "TCP/some/path answers NFS version 3\n  round trip           N µs (and N µs to connect)\n  transport            TCP\n"; got != want {
		t.Errorf("%s\nmust be\n%s", got, want)
	}
	var p pingResult
	must(t, json.Unmarshal([]byte(e.ok("ping", "--json", "--crc", "off", "--inline", "1024", "--credits", "10", "--fpdu", "segment", "RDMA/")), &p))
	if p.CRC || p.InlineCall != 1024 || p.InlineReply != 1024 || p.Requested != 10 || p.Granted < 1 || p.Version != 1 || p.Provider != "iwarp" || p.RoundTripUS <= 0 {
		t.Errorf("%+v", p)
	}
}

func TestList(t *testing.T) {
	e := newEnv(t)
	e.write("file", []byte("0123456789"), 0o640)
	e.write(".hidden", nil, 0o600)
	e.write("odd\nname\x1b[1m", nil, os.ModeSetuid|0o755)
	must(t, os.Mkdir(filepath.Join(e.dir, "dir"), 0o700))
	must(t, os.Symlink("dir/../file", filepath.Join(e.dir, "link")))
	must(t, os.Symlink("dir", filepath.Join(e.dir, "linkdir")))
	e.write("dir/inner", nil, 0o600)
	stamp := time.Date(2024, 5, 6, 7, 8, 9, 0, time.Local)
	for _, n := range []string{"file", "dir", "odd\nname\x1b[1m"} {
		must(t, os.Chtimes(filepath.Join(e.dir, n), stamp, stamp))
	}
	for _, u := range []string{"RDMA", "TWO", "TCP", "FOUR", "4TCP"} {
		for args, want := range map[string]string{
			"ls URL":              "dir\nfile\nlink\nlinkdir\nodd\\nname\\x1b[1m\n",
			"ls URL/":             "dir\nfile\nlink\nlinkdir\nodd\\nname\\x1b[1m\n",
			"ls URL/dir":          "inner\n",
			"ls URL/linkdir":      "inner\n",
			"ls URL/dir/../file":  "file\n",
			"ls URL/?mountport=N": "dir\nfile\nlink\nlinkdir\nodd\\nname\\x1b[1m\n",
		} {
			args = strings.NewReplacer("URL", u, "N", e.tcp[strings.LastIndexByte(e.tcp, ':')+1:]).Replace(args)
			if got := e.ok(strings.Fields(args)...); got != want {
				t.Errorf("%s:\n%s\nmust be\n%s", args, got, want)
			}
		}
		got := e.ok("ls", "-la", u+"/")
		for _, want := range []string{
			`(?m)^drwx------ 2 +\d+ +\d+ +\d+ 2024-05-06 07:08 dir$`,
			`(?m)^-rw-r----- 1 +\d+ +\d+ +10 2024-05-06 07:08 file$`,
			`(?m)^lrwxrwxrwx 1 +\d+ +\d+ +11 .* link -> dir/../file$`,
			`(?m)^-rwsr-xr-x 1 +\d+ +\d+ +0 2024-05-06 07:08 odd\\nname\\x1b\[1m$`,
			`(?m)^-rw------- 1 .* \.hidden$`,
		} {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%s: no line like %s in\n%s", u, want, got)
			}
		}
		if got := e.ok("ls", "-l", u+"/link"); !strings.HasSuffix(got, " link -> dir/../file\n") {
			t.Errorf("%s", got)
		}
	}
}

func TestStat(t *testing.T) {
	e := newEnv(t)
	e.write("file", make([]byte, 4100), 0o644)
	must(t, os.Symlink("nowhere", filepath.Join(e.dir, "link")))
	got := e.ok("stat", "RDMA/file")
	for _, want := range []string{"RDMA/file: regular file\n", "  mode         -rw-r--r-- (0644)\n", "  size         4100 bytes (4 KiB), ", "  links        1\n", "  transfers    READ up to 1 MiB, WRITE up to 1 MiB\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := e.ok("stat", "TCP/link"); !strings.Contains(got, ": symbolic link\n") || !strings.Contains(got, "  target       nowhere\n") {
		t.Errorf("%s", got)
	}
}

func TestTransfers(t *testing.T) {
	e := newEnv(t)
	local := t.TempDir()
	must(t, os.Mkdir(filepath.Join(e.dir, "sub"), 0o755))
	for _, u := range []string{"RDMA", "TWO", "TCP", "FOUR", "4TCP"} {
		for _, n := range []int{0, 1, 5, 4097, 1 << 20, 3_000_001} {
			data := randomBytes(n)
			src := filepath.Join(local, "src")
			must(t, os.WriteFile(src, data, 0o600))
			must(t, os.Chmod(src, 0o640))
			e.ok("put", src, u+"/sub/dst")
			if !bytes.Equal(e.read("sub/dst"), data) {
				t.Fatalf("%s: put of %d bytes made others", u, n)
			}
			// shorter and longer than before, and into a directory
			e.ok("put", "--stability", "file_sync", src, u+"/sub/")
			if !bytes.Equal(e.read("sub/src"), data) {
				t.Fatalf("%s: put of %d bytes into a directory made others", u, n)
			}
			if code, _, errs := e.run(string(data), "put", "-", u+"/stdin"); code != 0 || !bytes.Equal(e.read("stdin"), data) {
				t.Fatalf("%s: put of %d bytes of standard input: %s", u, n, errs)
			}
			if got := e.ok("cat", u+"/sub/dst"); got != string(data) {
				t.Fatalf("%s: cat of %d bytes wrote %d others", u, n, len(got))
			}
			dst := filepath.Join(local, "dst")
			e.ok("get", u+"/sub/dst", dst)
			e.ok("get", u+"/sub/dst", local+"/") // again, over it
			got, err := os.ReadFile(dst)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%s: get of %d bytes: %d others, %v", u, n, len(got), err)
			}
			if info, err := os.Stat(filepath.Join(e.dir, "sub/src")); err != nil || info.Mode().Perm() != 0o640 {
				t.Errorf("mode is %v, %v", info.Mode(), err)
			}
		}
	}
	left, err := os.ReadDir(local)
	if err != nil || len(left) != 2 {
		t.Errorf("left over: %v, %v", left, err)
	}
	// Elsewhere than on a terminal, a transfer says one line when it is done.
	_, _, errs := e.run("", "get", "TCP/sub/dst", filepath.Join(local, "dst"))
	if !regexp.MustCompile(`^dst: 2\.9 MiB in .*s, .*/s\n$`).MatchString(errs) {
		t.Errorf("%q", errs)
	}
}

// TestErrors: errors are sentences with the attempt, the failure and the remedy.
func TestErrors(t *testing.T) {
	e := newEnv(t)
	e.write("file", []byte("x"), 0o644)
	must(t, os.Mkdir(filepath.Join(e.dir, "dir"), 0o755))
	must(t, os.Symlink("loop", filepath.Join(e.dir, "loop")))
	for _, c := range []struct{ args, want string }{
		{"ls TCP/none", "cannot list TCP/none: /none: no such file or directory (NFS3ERR_NOENT)."},
		{"cat RDMA/dir/none/x", "cannot read RDMA/dir/none/x: /dir/none: no such file or directory (NFS3ERR_NOENT)."},
		{"cat TCP/file/x", "cannot read TCP/file/x: /file/x: not a directory (NFS3ERR_NOTDIR)."},
		{"cat TCP/dir", "cannot read TCP/dir: it is a directory, not a regular file."},
		{"cat TCP/loop", "cannot read TCP/loop: /loop: too many levels of symbolic links."},
		{"get TCP/file /nonexistent/x", "cannot copy TCP/file: there is no directory /nonexistent."},
		{"put /nonexistent TCP/x", "cannot copy to TCP/x: /nonexistent: no such file or directory."},
		{"put DIR TCP/x", "cannot copy to TCP/x: DIR is a directory; only files can be copied."},
		{"put DIR/file TCP/no/", "cannot copy to TCP/no/: there is no directory /no."},
		{"put DIR/file TCP/no/x", "cannot copy to TCP/no/x: /no: no such file or directory (NFS3ERR_NOENT)."},
		{"put - TCP/dir", "cannot copy to TCP/dir: it is a directory, and standard input has no name."},
		{"put --stability never - TCP/x", `--stability is "never", must be unstable, data_sync or file_sync.`},
		{"ls ONLY/", "cannot mount / of ADDR: the server does not answer MOUNT on this connection; say on which TCP port it does by ?mountport=N."},
		{"ls TCP/?export=/secret", "cannot mount /secret of ADDR: no such file or directory (NFS3ERR_NOENT)."},
		{"ls TCP/?mountport=1", "cannot connect to 127.0.0.1:1 for MOUNT: nothing listens there (connection refused)."},
		{"ping nfs+tcp://127.0.0.1:1", "cannot connect to 127.0.0.1:1: nothing listens there (connection refused)."},
		{"ping nfs+rdma://127.0.0.1:1", "cannot connect to 127.0.0.1:1: nothing listens there (connection refused)."},
		{"ping --crc maybe RDMA", `--crc is "maybe", must be on or off.`},
		{"ping --inline 5000 RDMA", "--inline is 5000, must be a multiple of 1024 from 1024 to 262144."},
		{"ping --credits 0 RDMA", "--credits is 0, must be 1 to 4096."},
		{"ping --fpdu 100 RDMA", `--fpdu is "100", must be largest, segment, or 256 to 65535.`},
		{"ls --timeout 2s SILENT/", "cannot list SILENT/: no answer in time; --timeout says how long to wait."},
		{"ls --timeout 0s TCP", "--timeout is 0s, must be more than 0."},
		{"bench --op FROB TCP", `--op is "FROB", must be NULL, GETATTR, READ, WRITE, SETATTR, RENAME, CREATE, REMOVE, OPEN-READ or CREATE-WRITE.`},
		{"bench --connections 0 TCP", "--connections is 0, must be 1 to 16384."},
		{"bench --idle-connections -1 TCP", "--idle-connections is -1, must be 0 to 16384."},
		{"bench --op READ --size 2M TCP", "--size is 2097152, must be 1 to 1048576."},
		{"bench --op READ --size 64K --file-size 4K TCP", "--file-size is 4096, must be at least --size, 65536."},
		{"bench --depth 0 TCP", "--depth is 0, must be 1 to 4096."},
		{"bench --size 1X TCP", `invalid argument "1X" for "--size" flag: must be a number of bytes, like 4096, 64K or 1M.`},
		{"ls /tmp", `"/tmp" is no URL that I understand: it must begin with nfs+rdma:// or nfs+tcp://.`},
		{"frobnicate", `there is no command "frobnicate"; "sluicectl --help" lists them.`},
		{"statt", `there is no command "statt"; did you mean stat?`},
		{"ls", "ls was given 0 arguments, want: sluicectl ls URL..."},
		{"put x", "put was given 1 argument, want: sluicectl put FILE URL."},
		{"pv --inline 4096 -", `unknown flag: --inline; "sluicectl pv --help" lists them.`},
	} {
		code, out, errs := e.run("", strings.Fields(c.args)...)
		errs = regexp.MustCompile(`\.[0-9a-f]{8}\.part`).ReplaceAllString(errs, ".N.part")
		if code != 1 || out != "" || errs != "sluicectl: "+c.want+"\n" {
			t.Errorf("%s: exit %d, %q\n%q, must be\n%q", c.args, code, out, errs, "sluicectl: "+c.want+"\n")
		}
	}
	// A port of the other kind, or of another protocol: the end is the transports' own.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
			_ = conn.Close()
		}
	}()
	web := l.Addr().String()
	for _, c := range []struct{ url, other string }{
		{"nfs+rdma://" + e.tcp, "nfs+tcp"}, {"nfs+tcp://" + e.rdma, "nfs+rdma"}, {"nfs+tcp://" + web, "nfs+rdma"},
	} {
		scheme, address, _ := strings.Cut(c.url, "://")
		_, _, errs := e.run("", "ls", c.url)
		errs = strings.ReplaceAll(errs, address, "ADDR")
		if want := fmt.Sprintf("sluicectl: cannot connect to ADDR: the server does not answer as expected from %s://; %s:// may be right, or another port: ", scheme, c.other); !strings.HasPrefix(errs, want) {
			t.Errorf("%s: %q, must begin with %q", c.url, errs, want)
		}
	}
	if _, _, errs := e.run("", "ping", "nfs+tcp://"+e.rdma); !strings.HasPrefix(errs, "sluicectl: cannot ping nfs+tcp://ADDR: ") {
		t.Errorf("%q", errs)
	}
}

func TestBench(t *testing.T) {
	e := newEnv(t)
	for _, u := range []string{"RDMA", "TWO", "TCP"} {
		for _, op := range []string{"null", "GETATTR", "READ", "WRITE"} {
			for _, depth := range []string{"1", "7"} {
				var b benchResult
				out := e.ok("bench", "--results", "TBSN", "--op", op, "--size", "8K", "--depth", depth, "--count", "100", "--warmup", "1ms", "--file-size", "100K", "--json", u+"/")
				must(t, json.Unmarshal([]byte(out), &b))
				if b.Ops != 100 || b.Op != strings.ToUpper(op) || b.OpsPerSec <= 0 || b.P50 <= 0 || b.P99 < b.P50 || b.Messages != 2 || b.Syscalls <= 0 || b.CRC != (u != "TCP") {
					t.Errorf("%s %s: %+v", u, op, b)
				}
				if data := op == "READ" || op == "WRITE"; data != (b.Size == 8192) || data != (b.MBPerSec > 0) || (u == "RDMA" && data) != (b.RDMAOps == 1) {
					t.Errorf("%s %s: %+v", u, op, b)
				}
				if (op == "WRITE") != (b.Stability == "UNSTABLE") {
					t.Errorf("%s %s: %+v", u, op, b)
				}
			}
		}
	}
	if n := len(e.read(benchFile)); n != 100<<10 {
		t.Errorf("the file has %d bytes", n)
	}
	out := e.ok("bench", "--op", "WRITE", "--size", "4K", "--duration", "10ms", "--file-size", "64K", "--stability", "file_sync", "TCP/other.dat")
	if !regexp.MustCompile(`^WRITE 4 KiB FILE_SYNC, 16 at once: \d+ calls in [\d.]+ s\n  rate      \d+ calls/s, [\d.]+ MB/s\n  latency   [\d.]+ µs median, [\d.]+ µs p99, [\d.]+ µs at most\n  per call  [\d.]+ allocations, [\d.]+ system calls, 2.00 messages, 0.00 RDMA operations\n$`).MatchString(out) {
		t.Errorf("%s", out)
	}
	if n := len(e.read("other.dat")); n != 64<<10 {
		t.Errorf("the file has %d bytes", n)
	}
}
