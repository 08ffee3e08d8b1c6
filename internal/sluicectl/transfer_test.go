package sluicectl

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

// relay passes connections on to a server, and cuts all of them each time that some bytes have come
// from the client, a limited number of times.
type relay struct {
	l       net.Listener
	to      string
	running sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	left  int   // cuts
	every int64 // bytes
	moved int64
	hook  func() // called after each cut, before the next connection
}

func newRelay(t *testing.T, to string, cuts int, every int64) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	r := &relay{l: l, to: to, left: cuts, every: every}
	r.running.Go(r.serve)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		r.cutLocked()
		r.mu.Unlock()
		r.running.Wait()
	})
	return r
}

func (r *relay) serve() {
	for {
		in, err := r.l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock() // after a hook
		out, err := net.Dial("tcp", r.to)
		if err != nil {
			r.mu.Unlock()
			_ = in.Close()
			continue
		}
		r.conns = append(r.conns, in, out)
		r.mu.Unlock()
		for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
			r.running.Go(func() {
				defer way[0].Close()
				defer way[1].Close()
				_, _ = io.Copy(way[1], io.TeeReader(way[0], r))
			})
		}
	}
}

// Write counts bytes.
func (r *relay) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved += int64(len(b))
	if r.left > 0 && r.moved > r.every {
		r.moved = 0
		r.left--
		r.cutLocked()
		if r.hook != nil {
			r.hook()
		}
	}
	return len(b), nil
}

func (r *relay) cutLocked() {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *relay) cutsLeft() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.left
}

// TestReconnect: get, put and ls go on after lost connections.
func TestReconnect(t *testing.T) {
	e := newEnv(t)
	local := t.TempDir()
	data := randomBytes(20 << 20)
	must(t, os.WriteFile(filepath.Join(local, "file"), data, 0o644))
	for name, address := range map[string]string{"nfs+tcp": e.tcp, "nfs+rdma": e.rdma} {
		t.Run(name, func(t *testing.T) {
			const cuts = 3
			via := newRelay(t, address, cuts, 9<<20)
			url := name + "://" + via.l.Addr().String() + "/file"
			var errs bytes.Buffer
			for _, args := range [][]string{{"put", filepath.Join(local, "file"), url}, {"get", url, filepath.Join(local, "back")}} {
				if code := Run(context.Background(), "test", args, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs}); code != 0 {
					t.Fatalf("%q: exit %d: %s", args, code, &errs)
				}
			}
			back, err := os.ReadFile(filepath.Join(local, "back"))
			must(t, err)
			if !bytes.Equal(back, data) || !bytes.Equal(e.read("file"), data) {
				t.Error("the data differ")
			}
			if left := via.cutsLeft(); left > 0 {
				t.Errorf("%d cuts are left", left)
			}
			// A cut before the first answer belongs to the outage before.
			n := strings.Count(errs.String(), "connecting again, for up to 2m0s\n")
			if n < 1 || n > cuts || strings.Count(errs.String(), "the server answers again") != n {
				t.Errorf("%d outages were reported:\n%s", n, &errs)
			}
		})
	}
	t.Run("off", func(t *testing.T) {
		via := newRelay(t, e.tcp, 1, 9<<20)
		code, _, errs := e.run("", "get", "--reconnect", "0", "nfs+tcp://"+via.l.Addr().String()+"/file", filepath.Join(local, "none"))
		if code != 1 || !strings.Contains(errs, "the connection ended") {
			t.Errorf("exit %d, %q", code, errs)
		}
		e.noParts(t, local)
	})
}

// noParts checks that no incomplete files are left.
func (e *env) noParts(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range append(dirs, e.dir) {
		left, err := filepath.Glob(filepath.Join(dir, ".sluicectl*"))
		if must(t, err); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestPutReplaces: the target's mode and links are as documented, and symbolic links are followed.
func TestPutReplaces(t *testing.T) {
	e := newEnv(t)
	local := filepath.Join(t.TempDir(), "new")
	data := randomBytes(3 << 20)
	must(t, os.WriteFile(local, data, 0o755))
	mode := func(name string) fs.FileMode {
		info, err := os.Stat(filepath.Join(e.dir, name))
		must(t, err)
		return info.Mode()
	}
	e.write("old", []byte("old"), 0o640)
	must(t, os.Link(filepath.Join(e.dir, "old"), filepath.Join(e.dir, "other")))
	must(t, os.Symlink("old", filepath.Join(e.dir, "link")))
	must(t, os.Symlink("fresh", filepath.Join(e.dir, "dangling")))

	e.ok("put", local, "TCP/link")
	if !bytes.Equal(e.read("old"), data) || mode("old") != 0o640 || string(e.read("other")) != "old" {
		t.Errorf("mode %v, the other name has %d bytes", mode("old"), len(e.read("other")))
	}
	if target, err := os.Readlink(filepath.Join(e.dir, "link")); err != nil || target != "old" {
		t.Errorf("the link was replaced: %q, %v", target, err)
	}
	e.ok("put", local, "RDMA/dangling")
	if !bytes.Equal(e.read("fresh"), data) || mode("fresh") != 0o755 {
		t.Errorf("a new file has mode %v", mode("fresh"))
	}
	e.ok("put", "--inplace", local, "TCP/other")
	if !bytes.Equal(e.read("other"), data) || mode("other") != 0o640 {
		t.Error("not written in place")
	}
	must(t, os.WriteFile(local, nil, 0o644))
	before := time.Now().Add(-time.Hour)
	e.ok("put", local, "TCP/empty")
	e.ok("put", local, "4TCP/empty4")
	for _, name := range []string{"empty", "empty4"} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(e.dir, name), &st))
		if st.Atim.Sec < before.Unix() || st.Mtim.Sec < before.Unix() {
			t.Errorf("%s: times %d and %d are older than %v", name, st.Atim.Sec, st.Mtim.Sec, before)
		}
	}
	must(t, os.WriteFile(local, data[:10], 0o400))
	must(t, os.Chmod(local, 0o400))
	e.ok("put", local, "TCP/readonly")
	if !bytes.Equal(e.read("readonly"), data[:10]) || mode("readonly") != 0o400 {
		t.Errorf("a read-only file has mode %v", mode("readonly"))
	}
	e.noParts(t)
}

// fullHandler answers each WRITE after the first few by a status, at first NFS3ERR_NOSPC.
type fullHandler struct {
	oncrpc.Handler
	mu   sync.Mutex
	room int
	hook func() // called once, when there is no room
	full nfs3.Status
}

func (h *fullHandler) ServeRPC(c *oncrpc.Call) {
	if c.Program == nfs3.Program && c.Procedure == nfs3.ProcWrite {
		h.mu.Lock()
		h.room--
		full, hook := h.room < 0, h.hook
		if full {
			h.hook = nil
		}
		h.mu.Unlock()
		if full && hook != nil {
			hook()
		}
		if e, err := c.BeginReply(64); full && err == nil {
			e.Uint32(uint32(cmp.Or(h.full, nfs3.ErrNoSpc)))
			e.Uint64(0) // no attributes
			c.Respond()
			return
		}
	}
	h.Handler.ServeRPC(c)
}

// countingHandler calls hook once, after a number of READs and WRITEs of version 3.
type countingHandler struct {
	oncrpc.Handler
	mu   sync.Mutex
	left int
	hook func()
}

func (h *countingHandler) ServeRPC(c *oncrpc.Call) {
	data := c.Program == nfs3.Program && c.Version == nfs3.Version && (c.Procedure == nfs3.ProcRead || c.Procedure == nfs3.ProcWrite)
	h.Handler.ServeRPC(c)
	if !data {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left--; h.left == 0 {
		h.hook()
	}
}

// TestPutFails: a put that fails or is interrupted leaves the old target, and nothing beside it.
func TestPutFails(t *testing.T) {
	e := newEnv(t)
	local := filepath.Join(t.TempDir(), "new")
	must(t, os.WriteFile(local, randomBytes(16<<20), 0o644))
	old := []byte("old")
	e.write("file", old, 0o644)
	for _, target := range []string{"/file", "/new"} {
		for _, from := range []string{local, "-"} {
			address := e.listen(&fullHandler{Handler: e.server, room: 3})
			code, _, errs := e.run(strings.Repeat("standard input", 1<<20), "put", from, "nfs+tcp://"+address+target)
			if code != 1 || !strings.HasSuffix(errs, ": no space left (NFS3ERR_NOSPC).\n") {
				t.Errorf("exit %d, %q", code, errs)
			}
		}
		for _, full := range []nfs3.Status{nfs3.ErrNoSpc, nfs3.ErrJukebox} {
			ctx, cancel := context.WithCancel(context.Background())
			address := e.listen(&fullHandler{Handler: e.server, room: 3, hook: cancel, full: full})
			var errs bytes.Buffer
			code := Run(ctx, "test", []string{"put", local, "nfs+tcp://" + address + target}, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
			if code != 1 || errs.String() != "sluicectl: interrupted\n" {
				t.Errorf("interrupted: exit %d, %s", code, &errs)
			}
			cancel()
		}
	}
	if !bytes.Equal(e.read("file"), old) {
		t.Error("the old file is gone")
	}
	if _, err := os.Stat(filepath.Join(e.dir, "new")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a part was left as the target")
	}
	e.noParts(t)
}

// restartable is a server of version 4.2 of a directory.
type restartable struct {
	t   *testing.T
	cfg server.Config
	s   atomic.Pointer[server.Server]
}

func (r *restartable) start() {
	s, err := server.New(r.cfg)
	if err != nil {
		r.t.Error(err)
		return
	}
	r.s.Store(s)
}

func (r *restartable) restart() {
	_ = r.s.Load().Close()
	time.Sleep(40 * time.Millisecond) // instances of a server differ after 16 ms
	r.start()
}

func (r *restartable) ServeRPC(c *oncrpc.Call) { r.s.Load().ServeRPC(c) }

// TestInterruptions: SIGINT, SIGKILL, a lost connection and a restart of the server, in the middle
// of each transfer.
func TestInterruptions(t *testing.T) {
	const size = 8 << 20
	src := t.TempDir()
	data := map[string][]byte{}
	must(t, os.Mkdir(filepath.Join(src, "tree"), 0o755))
	for _, name := range []string{"file", "tree/a", "tree/b"} {
		data[name] = randomBytes(size)
		must(t, os.WriteFile(filepath.Join(src, name), data[name], 0o644))
	}
	copied := map[string]string{"tree/a": "tree/a", "tree/b": "tree/b"}
	for _, c := range []struct {
		args    string
		files   map[string]string // by name in the target
		inPlace bool
		resume  bool
	}{
		{args: "put SRC/file URL/file", files: map[string]string{"file": "file"}},
		{args: "put --inplace SRC/file URL/file", files: map[string]string{"file": "file"}, inPlace: true},
		{args: "get URL/file DST/file", files: map[string]string{"file": "file"}},
		{args: "cp -r SRC/tree URL/", files: copied},
		{args: "cp -r URL/tree DST/", files: copied},
		{args: "cp -r --resume SRC/tree URL/", files: copied, resume: true},
		{args: "cp -r --resume URL/tree DST/", files: copied, resume: true},
		{args: "sync SRC/tree URL/tree", files: copied},
		{args: "sync URL/tree DST/tree", files: copied},
	} {
		for _, event := range []string{"SIGINT", "SIGKILL", "lost connection", "restart"} {
			t.Run(c.args+" "+event, func(t *testing.T) {
				dst := t.TempDir()
				exported := src
				if strings.Contains(c.args, " URL/") && strings.Contains(c.args, "SRC/") {
					exported = dst
				}
				for name := range c.files {
					must(t, os.MkdirAll(filepath.Dir(filepath.Join(dst, name)), 0o755))
					must(t, os.WriteFile(filepath.Join(dst, name), []byte("old"), 0o644))
				}
				s := &restartable{t: t, cfg: server.Config{
					Root: exported, StateDir: t.TempDir(), NFS4: &server.NFS4Config{},
					Access: []server.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Squash: server.SquashNone}},
				}}
				s.start()
				rpc, err := oncrpc.NewServer(oncrpc.Config{Pool: bufpool.New(0), Handler: s, Bindings: binding.For})
				must(t, err)
				l, err := net.Listen("tcp", "127.0.0.1:0")
				must(t, err)
				var serving sync.WaitGroup
				serving.Go(func() { _ = rpc.Serve(l) })
				t.Cleanup(func() {
					_ = rpc.Close()
					serving.Wait()
					_ = s.s.Load().Close()
				})
				via := newRelay(t, l.Addr().String(), 1, size/2)
				args := strings.NewReplacer("SRC", src, "DST", dst, "URL", "nfs+tcp://"+via.l.Addr().String()).Replace(c.args)
				ctx, interrupt := context.WithCancel(context.Background())
				defer interrupt()
				var errs bytes.Buffer
				var code int
				switch event {
				case "SIGINT":
					via.hook = interrupt
				case "restart":
					via.hook = s.restart
				}
				if event == "SIGKILL" {
					p := exec.Command(os.Args[0])
					p.Env = append(os.Environ(), commandVariable+"="+args)
					p.Stderr = &errs
					via.mu.Lock() // the process is known to the hook
					must(t, p.Start())
					via.hook = func() { _ = p.Process.Kill() }
					via.mu.Unlock()
					_ = p.Wait()
					code = p.ProcessState.ExitCode()
				} else {
					code = Run(ctx, "test", strings.Fields(args), Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
				}
				survives := event == "lost connection" || event == "restart"
				if want := map[string]int{"SIGINT": 1, "SIGKILL": -1}[event]; code != want {
					t.Fatalf("exit %d, want %d: %s", code, want, &errs)
				}
				if survives && (!strings.Contains(errs.String(), "; connecting again, for up to 2m0s\n") || !strings.Contains(errs.String(), "the server answers again, after ")) {
					t.Errorf("the outage was not reported:\n%s", &errs)
				}
				for name, from := range c.files {
					got, err := os.ReadFile(filepath.Join(dst, name))
					must(t, err)
					whole := bytes.Equal(got, data[from])
					switch {
					case survives && !whole:
						t.Errorf("%s has %d bytes, or other ones", name, len(got))
					case survives || whole || c.inPlace: // in place, any part may be there
					case string(got) != "old":
						t.Errorf("%s has %d bytes", name, len(got))
					}
				}
				left, err := filepath.Glob(filepath.Join(dst, "*/.sluicectl*.part"))
				must(t, err)
				beside, err := filepath.Glob(filepath.Join(dst, ".sluicectl*.part"))
				must(t, err)
				left = append(left, beside...)
				if stays := !survives && !c.inPlace && (c.resume || event == "SIGKILL"); stays != (len(left) > 0) {
					t.Errorf("left: %q", left)
				}
				if c.resume && !survives {
					code := Run(context.Background(), "test", strings.Fields(args), Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
					for name, from := range c.files {
						if got, err := os.ReadFile(filepath.Join(dst, name)); code != 0 || err != nil || !bytes.Equal(got, data[from]) {
							t.Errorf("resumed: exit %d, %s has %d bytes, %v: %s", code, name, len(got), err, &errs)
						}
					}
					if left, _ := filepath.Glob(filepath.Join(dst, "*/.sluicectl*.part")); len(left) > 0 {
						t.Errorf("left after it was resumed: %q", left)
					}
				}
			})
		}
	}
}

// TestFullDisk: a full disk of the server, or of this host, leaves the old files. Only with
// --resume incomplete files stay.
func TestFullDisk(t *testing.T) {
	e := newEnv(t)
	e.write("file", randomBytes(6<<20), 0o644)
	must(t, os.Mkdir(filepath.Join(e.dir, "tree"), 0o755))
	e.write("tree/file", randomBytes(6<<20), 0o644)
	for _, args := range []string{"get TCP/file SMALL/file", "cp TCP/file SMALL/file", "cp -r TCP/tree SMALL", "sync RDMA/tree SMALL", "cp --resume FOUR/file SMALL/file"} {
		small := t.TempDir()
		p := exec.Command(os.Args[0])
		p.Env = append(os.Environ(), smallDiskVariable+"="+small, commandVariable+"="+
			strings.NewReplacer("SMALL", small, "TCP", "nfs+tcp://"+e.tcp, "RDMA", "nfs+rdma://"+e.rdma, "FOUR", "nfs+rdma://"+e.four).Replace(args))
		p.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
		if os.Geteuid() != 0 {
			p.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
			p.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
			p.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
		}
		var errs bytes.Buffer
		p.Stderr = &errs
		left, _ := p.Output()
		if code := p.ProcessState.ExitCode(); code != 1 || !strings.HasSuffix(errs.String(), ": no space left on device.\n") {
			t.Errorf("%s: exit %d, %s", args, code, &errs)
		}
		want := regexp.MustCompile(`^file\n$`)
		if strings.Contains(args, "--resume") {
			want = regexp.MustCompile(`^\.sluicectl\.\w+\.part\nfile\n$`)
		}
		if !want.Match(left) {
			t.Errorf("%s: left %q, want %v", args, left, want)
		}
	}

	local := t.TempDir()
	must(t, os.Mkdir(filepath.Join(local, "tree"), 0o755))
	must(t, os.WriteFile(filepath.Join(local, "tree/new"), randomBytes(6<<20), 0o644))
	for _, args := range []string{"cp LOCAL/tree/new URL/tree", "cp -r LOCAL/tree URL/", "sync LOCAL/tree URL/tree", "cp --resume LOCAL/tree/new URL/tree"} {
		address := e.listen(&fullHandler{Handler: e.server, room: 3})
		args := strings.NewReplacer("LOCAL", local, "URL", "nfs+tcp://"+address).Replace(args)
		code, _, errs := e.run("", strings.Fields(args)...)
		if code != 1 || !strings.HasSuffix(errs, ": no space left (NFS3ERR_NOSPC).\n") {
			t.Errorf("%s: exit %d, %q", args, code, errs)
		}
		got := regexp.MustCompile(`\.sluicectl\.\w+\.part=\S+`).ReplaceAllString(listTree(t, filepath.Join(e.dir, "tree")), "PART")
		if want := map[bool]string{false: "file=", true: "PART file="}[strings.Contains(args, "--resume")]; !strings.HasPrefix(got, want) || strings.Contains(got, "new") {
			t.Errorf("%s: left %q, want %q", args, got, want)
		}
	}
}

// TestGetInterrupted: a get that is interrupted leaves no part, even if the server never answers.
func TestGetInterrupted(t *testing.T) {
	e := newEnv(t)
	e.write("file", randomBytes(4<<20), 0o644)
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	silent := &silentHandler{Handler: e.server, procedure: nfs3.ProcRead, hook: cancel}
	address := e.listen(silent)
	var errs bytes.Buffer
	code := Run(ctx, "test", []string{"get", "nfs+tcp://" + address + "/file", dir}, Streams{In: strings.NewReader(""), Out: io.Discard, Err: &errs})
	if code != 1 || errs.String() != "sluicectl: interrupted\n" {
		t.Errorf("exit %d, %q", code, &errs)
	}
	must(t, silent.end())
	left, err := os.ReadDir(dir)
	if must(t, err); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
