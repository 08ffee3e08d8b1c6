package sluicectl

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

const (
	// commandVariable makes the test binary sluicectl, with its value as arguments.
	commandVariable = "SLUICECTL_TEST_COMMAND"
	// smallDiskVariable names a directory that becomes a disk of 4 MiB with an old file, in a mount
	// namespace of its own. Standard output ends with a list of its files.
	smallDiskVariable = "SLUICECTL_TEST_SMALL_DISK"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(commandVariable); args != "" {
		disk := os.Getenv(smallDiskVariable)
		if disk != "" {
			if err := mountSmallDisk(disk); err != nil {
				fmt.Fprintln(os.Stderr, "small disk:", err)
				os.Exit(3)
			}
		}
		code := Run(context.Background(), "test", strings.Fields(args), Streams{os.Stdin, os.Stdout, os.Stderr})
		if disk != "" {
			_ = filepath.WalkDir(disk, func(name string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					fmt.Println(strings.TrimPrefix(name, disk+"/"))
				}
				return err
			})
		}
		os.Exit(code)
	}
	goleak.VerifyTestMain(m)
}

func mountSmallDisk(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "file"), []byte("old"), 0o644)
}

// env is a directory that is served over TCP and iWARP.
type env struct {
	t         *testing.T
	dir       string
	server    oncrpc.Handler
	listen    func(oncrpc.Handler) string // serves on TCP until the test ends; returns host:port
	tcp, rdma string                      // host:port
	only      string                      // host:port of a server that has NFS but not MOUNT
	silent    string                      // the same, answers no READDIRPLUS before the end
	// host:port of servers of version 2 of RPC-over-RDMA: beside version 1, alone, and beside
	// version 1 without extensions. rdma has version 1 alone.
	both, two, base string
	old             string // host:port of a server with all forms of RFC 5666
	group           string // host:port of a server with the working group's dialect of version 2
	// host:port of a server with version 4.2 of NFS, by iWARP and TCP.
	four, fourTCP string
	fourServer    *server.Server
	others        []*server.Server
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{t: t, dir: t.TempDir()}
	pool := bufpool.New(0)
	config := func(nfs4 *server.NFS4Config) server.Config {
		return server.Config{
			Root: e.dir, Key: bytes.Repeat([]byte("k"), 32), NFS4: nfs4,
			Access: []server.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Squash: server.SquashNone}},
		}
	}
	s, err := server.New(config(nil))
	must(t, err)
	var running sync.WaitGroup
	var stop []func() error
	e.server = s
	listen := func(h oncrpc.Handler) string {
		srv, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: h, Bindings: binding.For})
		must(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		running.Go(func() { _ = srv.Serve(l) })
		stop = append(stop, srv.Close)
		return l.Addr().String()
	}
	e.listen = listen
	e.tcp = listen(s)
	var mux oncrpc.Mux
	mux.Handle(nfs3.Program, nfs3.Version, nfs3.Version, s)
	e.only = listen(&mux)
	silent := &silentHandler{Handler: s, procedure: nfs3.ProcReaddirPlus}
	stop = append(stop, silent.end)
	e.silent = listen(silent)

	p, err := iwarp.New(iwarp.Config{CRC: iwarp.CRCMirror})
	must(t, err)
	d, err := p.NewDomain()
	must(t, err)
	must(t, d.Register(pool))
	var forms rpcrdma.RFC5666
	var dialect wire.Dialect
	listenRDMA := func(h oncrpc.Handler, extensions rpcrdma.Extensions, versions ...int) string {
		l, err := p.Listen(context.Background(), "127.0.0.1:0")
		must(t, err)
		srv, err := rpcrdma.NewServer(rpcrdma.Config{
			Pool: pool, Domain: d, Handler: h, Bindings: binding.For, RemoteInvalidation: true, Credits: credit.Static(64), InlineCall: 8192,
			Versions: versions, Extensions: extensions, RFC5666: forms, Dialect: dialect,
		}, l)
		must(t, err)
		running.Go(func() { _ = srv.Serve() })
		stop = append(stop, srv.Close)
		return l.Addr().String()
	}
	e.rdma = listenRDMA(s, 0, 1)
	e.both = listenRDMA(s, names.AllExtensions(), 1, 2)
	e.two = listenRDMA(s, names.AllExtensions(), 2)
	e.base = listenRDMA(s, 0, 1, 2)
	forms = names.AllRFC5666()
	e.old = listenRDMA(s, 0, 1)
	forms = 0
	dialect = wire.V2WorkingGroup
	e.group = listenRDMA(s, 0, 1, 2)
	dialect = nil
	four, err := server.New(config(&server.NFS4Config{}))
	must(t, err)
	e.four, e.fourTCP, e.fourServer = listenRDMA(four, 0, 1), listen(four), four
	t.Cleanup(func() {
		for _, f := range stop {
			_ = f()
		}
		running.Wait()
		for _, x := range append(e.others, s, four) {
			_ = x.Close()
		}
		_ = d.Close()
	})
	return e
}

// export serves the directory by another rule, on TCP.
func (e *env) export(rule server.Rule) string {
	e.t.Helper()
	rule.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	s, err := server.New(server.Config{Root: e.dir, Key: bytes.Repeat([]byte("k"), 32), Access: []server.Rule{rule}})
	must(e.t, err)
	e.others = append(e.others, s)
	return "nfs+tcp://" + e.listen(s)
}

// silentHandler holds the calls of a procedure until it ends.
type silentHandler struct {
	oncrpc.Handler
	procedure uint32
	hook      func() // called with each, if set
	mu        sync.Mutex
	kept      []*oncrpc.Call
}

func (h *silentHandler) ServeRPC(c *oncrpc.Call) {
	if c.Program != nfs3.Program || c.Procedure != h.procedure {
		h.Handler.ServeRPC(c)
		return
	}
	if h.hook != nil {
		h.hook()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, c)
}

func (h *silentHandler) end() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.kept {
		c.Drop()
	}
	return nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a command line in which RDMA, BOTH, TWO, BASE, OLD, GROUP, FOUR, 4TCP, TCP and ONLY
// stand for the servers' URLs, and DIR for the exported directory. They replace them in its
// results, too.
func (e *env) run(stdin string, args ...string) (code int, stdout, stderr string) {
	var names, values, addresses []string
	for name, address := range map[string]string{"RDMA": e.rdma, "BOTH": e.both, "TWO": e.two, "BASE": e.base, "OLD": e.old, "GROUP": e.group, "TCP": e.tcp, "ONLY": e.only, "SILENT": e.silent, "FOUR": e.four, "4TCP": e.fourTCP} {
		url := "nfs+rdma://" + address
		if name == "TCP" || name == "ONLY" || name == "SILENT" || name == "4TCP" {
			url = "nfs+tcp://" + address
		}
		values = append(values, name, url)
		names = append(names, url, name)
		addresses = append(addresses, address, "ADDR")
	}
	values = append(values, "DIR", e.dir)
	names = append(append(names, addresses...), e.dir, "DIR")
	for i := range args {
		args[i] = strings.NewReplacer(values...).Replace(args[i])
	}
	var out, errs bytes.Buffer
	code = Run(context.Background(), "test", args, Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs})
	back := strings.NewReplacer(names...)
	return code, back.Replace(out.String()), back.Replace(errs.String())
}

// ok runs a command that must succeed, and returns its output.
func (e *env) ok(args ...string) string {
	e.t.Helper()
	code, out, errs := e.run("", args...)
	if code != 0 {
		e.t.Fatalf("%q: exit %d: %s", args, code, errs)
	}
	return out
}

func (e *env) write(name string, data []byte, mode os.FileMode) {
	e.t.Helper()
	must(e.t, os.WriteFile(filepath.Join(e.dir, name), data, mode))
	must(e.t, os.Chmod(filepath.Join(e.dir, name), mode))
}

func (e *env) read(name string) []byte {
	e.t.Helper()
	b, err := os.ReadFile(filepath.Join(e.dir, name))
	must(e.t, err)
	return b
}
