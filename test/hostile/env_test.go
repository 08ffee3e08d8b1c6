//go:build kernel

package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/prereq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Names and content beside the exported directory.
const (
	secretName   = "secret-beside"
	secretDir    = "closed-beside"
	secretInside = "closed-file"
	secretText   = "this is nobody's business"
)

// env is a backend, the tree that it exports, and a relay in front of it. The proxy exports
// "exported":
//
//	secret-beside             closed-beside/closed-file
//	other/file                exported by a second proxy
//	exported/file             exported/shut   of root, for root alone
//	exported/dir/deep/leaf    exported/open   for everybody
//	exported/up -> ..         exported/top -> /       exported/in -> dir
type env struct {
	*testing.T
	dir, exported string
	port          int
	mountPort     int
	relay         *relay
	direct        *nfs4test.Caller // to the backend
	direct3       *client.Client   // the same, for version 3
	// leaks is the content that no client may see: names, bytes, handles and fileids from outside.
	leaks   map[string][]byte
	outside map[string]string // handles from outside, and their paths
}

func newEnv(t *testing.T) *env {
	t.Helper()
	if _, err := exec.LookPath("ganesha.nfsd"); err != nil {
		prereq.Missing(t, "NFS-Ganesha is not installed: %v", err)
	}
	h := newTree(t)
	h.startGanesha()
	h.directly()
	h.learn()
	h.relay = startRelay(h)
	h.unchanged()
	return h
}

// newTree makes the directories of an environment.
func newTree(t *testing.T) *env {
	t.Helper()
	if os.Geteuid() != 0 {
		prereq.Missing(t, "a server of files has to be root")
	}
	h := &env{T: t, dir: t.TempDir(), leaks: map[string][]byte{}, outside: map[string]string{}}
	if err := os.Chmod(h.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h.exported = filepath.Join(h.dir, "exported")
	for _, d := range []string{secretDir, "other", "exported/dir/deep", "exported/open"} {
		check(t, os.MkdirAll(filepath.Join(h.dir, d), 0o755))
	}
	check(t, os.Chmod(filepath.Join(h.exported, "open"), 0o777))
	for name, text := range map[string]string{
		secretName: secretText, filepath.Join(secretDir, secretInside): secretText, "other/file": "of the other export",
		"exported/file": "of the export", "exported/dir/deep/leaf": "deep down", "exported/shut": "for root",
	} {
		check(t, os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o644))
	}
	check(t, os.Chmod(filepath.Join(h.exported, "shut"), 0o600))
	for name, target := range map[string]string{"up": "..", "top": "/", "in": "dir"} {
		check(t, os.Symlink(target, filepath.Join(h.exported, name)))
	}
	return h
}

// unchanged checks at the end of the test that the tree outside of the export is as it is now.
func (h *env) unchanged() {
	before := h.snapshot()
	h.Cleanup(func() {
		if after := h.snapshot(); after != before {
			h.Errorf("what lies outside was:\n%sand is:\n%s", before, after)
		}
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (h *env) startGanesha() {
	h.Helper()
	ports := freeport.Choose(h, 2)
	script, state := filepath.Join("..", "..", "hack", "ganesha", "run"), h.TempDir()
	run := func(args ...string) {
		if out, err := exec.Command(script, append(args, "--state", state)...).CombinedOutput(); err != nil {
			h.Errorf("%s: %v\n%s", script, err, out)
		}
	}
	run("--dir", h.dir, "--port", fmt.Sprint(ports[0]), "--mount-port", fmt.Sprint(ports[1]))
	h.Cleanup(func() { run("--stop") })
	if h.Failed() {
		h.FailNow()
	}
	h.port = ports[0]
	h.mountPort = ports[1]
}

// snapshot describes the tree outside of the export, without the times of directories, which change
// with their entries.
func (h *env) snapshot() string {
	var b strings.Builder
	check(h, filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == h.exported {
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := []byte(nil)
		if !d.IsDir() {
			if text, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %v %d:%d %d links, %v: %q\n", path, info.Mode(), st.Uid, st.Gid, st.Nlink, info.ModTime(), text)
		return nil
	}))
	return b.String()
}

// directly connects to the backend itself.
func (h *env) directly() {
	h.direct = &nfs4test.Caller{Pool: h.pool(), Cred: cred(h, "direct", 0)}
	h.direct.Requester = h.dialTCP(h.address(h.port), h.direct.Pool)
	h.direct3 = client.New(client.Config{
		Requester: h.direct.Requester, Mount: h.dialTCP(h.address(h.mountPort), h.direct.Pool), Pool: h.direct.Pool, Cred: h.direct.Cred,
	})
}

// paths are those outside of the export, relative to the tree.
var paths = []string{"", secretName, secretDir, filepath.Join(secretDir, secretInside), "other", "other/file"}

// secrets adds names, content and fileids from outside to leaks.
func (h *env) secrets() {
	for _, s := range []string{secretName, secretDir, secretInside, secretText} {
		h.leaks[s] = []byte(s)
	}
	for _, path := range paths {
		var st syscall.Stat_t
		check(h, syscall.Stat(filepath.Join(h.dir, path), &st))
		h.leaks["the fileid of /"+path] = binary.BigEndian.AppendUint64(nil, st.Ino)
	}
}

func (h *env) dialTCP(address string, pool *bufpool.Pool) oncrpc.Requester {
	h.Helper()
	conn, err := oncrpc.Dial(h.Context(), address, oncrpc.Config{Pool: pool})
	check(h, err)
	h.Cleanup(func() { _ = conn.Close(); conn.Wait() })
	return conn
}

// learn fills leaks and outside.
func (h *env) learn() {
	h.secrets()
	root3, err := h.direct3.Mount(h.Context(), "/")
	check(h, err)
	for _, path := range paths {
		ops := []nfs4test.Raw{nfs4test.Op(schema.OpPutRootFH)}
		for name := range strings.SplitSeq(path, "/") {
			if name != "" {
				ops = append(ops, nfs4test.Op(schema.OpLookup, name))
			}
		}
		res, err := h.direct.Compound(h.Context(), 0, append(ops, nfs4test.Op(schema.OpGetFH))...)
		check(h, err)
		h.hide("/"+path, res.Handle(h, len(ops)))
		at := root3
		for name := range strings.SplitSeq(path, "/") {
			if name != "" {
				object, err := h.direct3.Lookup(h.Context(), at, name)
				check(h, err)
				at = object.Handle
			}
		}
		h.hide("/"+path, at)
	}
}

// hide adds a handle to leaks and outside.
func (h *env) hide(path string, handle []byte) {
	h.leaks[fmt.Sprintf("the handle %x of %s", handle, path)] = bytes.Clone(handle)
	h.outside[string(handle)] = path
}

// fileID asks the backend for the fileid of a handle, of either version.
func (h *env) fileID(handle []byte) (uint64, error) {
	if attr, err := h.direct3.GetAttr(h.Context(), handle); err == nil {
		return attr.FileID, nil
	}
	res, err := h.direct.Compound(h.Context(), 0, nfs4test.Op(schema.OpPutFH, handle),
		nfs4test.Op(schema.OpGetAttr, nfs4test.Bitmap(schema.AttrFileID)))
	if err != nil {
		return 0, err
	}
	if res.Status != 0 {
		return 0, fmt.Errorf("status %d", res.Status)
	}
	b := res.Op(1)
	return binary.BigEndian.Uint64(b[len(b)-8:]), nil
}

// isInside reports whether a handle of the backend leads into the export.
func (h *env) isInside(handle []byte) bool {
	id, err := h.fileID(handle)
	if err != nil {
		h.Errorf("a client got the handle %x, of which the backend says: %v", handle, err)
		return false
	}
	found := false
	check(h, filepath.WalkDir(h.exported, func(path string, _ fs.DirEntry, err error) error {
		var st syscall.Stat_t
		if err == nil {
			err = syscall.Lstat(path, &st)
		}
		found = found || st.Ino == id
		return err
	}))
	return found
}

func (h *env) pool() *bufpool.Pool {
	p := bufpool.New(0)
	h.Cleanup(func() {
		if err := p.Close(); err != nil {
			h.Error(err)
		}
	})
	return p
}

func (h *env) address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// cred is an AUTH_SYS credential.
func cred(t testing.TB, machine string, uid uint32) oncrpc.Auth {
	t.Helper()
	a, err := (&oncrpc.AuthSysParms{Machine: []byte(machine), UID: uid, GID: uid}).Auth()
	check(t, err)
	return a
}

// gate is a proxy in front of the environment, or a server of a volume.
type gate struct {
	h         *env
	signer    *sign.Signer // of a proxy
	tcp, rdma string       // addresses
}

// guard is the configuration of a gate.
type guard struct {
	uid, path string
	readOnly  bool
	squash    access.Squash
}

// secret is the key that signs handles.
var secret = func() []byte { b := make([]byte, sign.MinKey); rand.Read(b); return b }()

// open starts a proxy.
func (h *env) open(by guard) *gate {
	h.Helper()
	pool := h.pool()
	s, err := sign.New([][]byte{secret}, []byte(by.uid), sign.Required)
	check(h, err)
	log := slog.New(slog.NewTextHandler(h.Output(), nil))
	p, err := proxy.New(proxy.Config{
		UID: []byte(by.uid), Network: "tcp", Server: "127.0.0.1", Port: h.relay.port(), MountPort: h.mountPort, Path: by.path,
		V3: true, Minor: [3]bool{true, true, true}, Signer: s, Pool: pool, Logger: log,
		Access: []access.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ReadOnly: by.readOnly, Squash: by.squash}},
	})
	check(h, err)
	h.Cleanup(func() { _ = p.Close() })
	h.relay.watch(s)
	g := h.listen(p, pool)
	g.signer = s
	return g
}

// listen serves calls over TCP and RPC-over-RDMA until the test ends.
func (h *env) listen(p oncrpc.Handler, pool *bufpool.Pool) *gate {
	h.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(h, err)
	ts, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: p, Bindings: binding.For})
	check(h, err)
	h.serve(func() error { return ts.Serve(l) }, ts.Shutdown)

	provider, err := iwarp.New(iwarp.Config{})
	check(h, err)
	domain, err := provider.NewDomain()
	check(h, err)
	h.Cleanup(func() { _ = domain.Close() })
	check(h, domain.Register(pool))
	rl, err := provider.Listen(h.Context(), "127.0.0.1:0")
	check(h, err)
	rs, err := rpcrdma.NewServer(rpcrdma.Config{Pool: pool, Domain: domain, Handler: p, Bindings: binding.For}, rl)
	check(h, err)
	h.serve(rs.Serve, rs.Shutdown)
	return &gate{h: h, tcp: l.Addr().String(), rdma: rl.Addr().String()}
}

// serve runs a server until the test ends.
func (h *env) serve(run func() error, shutdown func(context.Context) error) {
	done := make(chan struct{})
	go func() { defer close(done); _ = run() }()
	h.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			h.Errorf("shutdown: %v", err)
		}
		<-done
	})
}
