//go:build kernel

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/kernel/pattern"
)

// connections are the kinds of connection that the requester tries on the kernel's server.
var connections = []struct {
	name  string
	flags []string // the same for sluicectl
	iwarp iwarp.Config
	rpc   rpcrdma.Config
	nfs   client.Version
}{
	{name: "crc", flags: []string{"--rpc-version", "auto"}, rpc: rpcrdma.Config{Versions: []int{1, 2}, Extensions: rpcrdma.TransportProperties}},
	{name: "plain", flags: plainFlags, iwarp: plainIWARP, rpc: plainRPC},
	{name: "plain-4.2", flags: plainFlags, iwarp: plainIWARP, rpc: plainRPC, nfs: client.V42},
}

var (
	plainFlags = []string{"--rpc-version", "1", "--crc", "off", "--fpdu", "segment", "--inline", "1024", "--credits", "3"}
	plainIWARP = iwarp.Config{CRC: iwarp.CRCOff, MaxFPDU: iwarp.FPDUSegment}
	plainRPC   = rpcrdma.Config{InlineCall: 1024, InlineReply: 1024, Credits: credit.Static(3)}
)

// TestLinuxServer runs our requester against the kernel's NFS/RDMA server: sluicectl, and the
// client package at depth.
func TestLinuxServer(t *testing.T) { onKernels(t, []string{linux61}, testLinuxServer) }

func testLinuxServer(t *testing.T, kernel string) {
	ports := freeport.Choose(t, 2)
	k := &knfsd{nfsServer: nfsServer{
		scheme: "nfs+rdma", port: ports[0], mount: ports[1], export: map[client.Version]string{client.V3: "/srv", client.V42: "/"},
		sluicectl: build(t).sluicectl,
	}}
	var names []string
	for _, c := range connections {
		names = append(names, c.name)
	}
	k.guest = boot(t, kernel, 20*time.Minute, "server.sh", []string{
		"-f", fmt.Sprintf("%d:20049", k.port), "-f", fmt.Sprintf("%d:20048", k.mount), "-e", "CONNECTIONS=" + strings.Join(names, " "),
	}, func(t *testing.T, _ []string) error { k.try(t); return nil })
	k.guest.follow(t)
}

// knfsd is the kernel's server in a guest.
type knfsd struct {
	nfsServer
	guest *guest
}

// nfsServer is a server for sluicectl and the client package, which a test fills with files.
type nfsServer struct {
	scheme      string // of its URLs
	port, mount int    // ports of 127.0.0.1 that lead to it
	export      map[client.Version]string
	sluicectl   string
	dir         string         // for files of the tests
	nfs         client.Version // of the tests
}

// with returns k with another version, and a directory for its tests.
func (k nfsServer) with(t *testing.T, v client.Version) nfsServer {
	k.nfs, k.dir = v, folder(t, "files")
	return k
}

func (k *knfsd) try(t *testing.T) {
	for _, v := range []client.Version{client.V3, client.V42} {
		t.Run(v.String(), func(t *testing.T) { (&knfsd{k.with(t, v), k.guest}).commands(t) })
	}
	for i, c := range connections {
		t.Run(c.name, func(t *testing.T) {
			k := &knfsd{k.with(t, c.nfs), k.guest}
			pool := bufpool.New(0)
			c.rpc.Pool, c.rpc.Bindings, c.rpc.RemoteInvalidation = pool, binding.For, true
			provider, err := iwarp.New(c.iwarp)
			if err != nil {
				t.Fatal(err)
			}
			var conn *rpcrdma.Client
			var d *depth
			connect := func(t *testing.T) {
				counted := &countedProvider{Provider: provider}
				made, err := rpcrdma.Dial(t.Context(), counted, fmt.Sprintf("127.0.0.1:%d", k.port), c.rpc)
				if err != nil {
					t.Fatal(err)
				}
				conn = made
				d = k.depth(t, conn, pool)
				if n := conn.Negotiated(); n.Version != 1 || counted.dials != 1 {
					t.Errorf("version %d by %d connections, must be 1 by one", n.Version, counted.dials)
				} else if want := c.rpc.InlineCall; want != 0 && (n.InlineCall != want || n.InlineReply != want) {
					t.Errorf("inline thresholds %d and %d, must be %d", n.InlineCall, n.InlineReply, want)
				}
			}
			end := func() { _ = conn.Close(); <-conn.Done() }
			connect(t)
			defer func() { end() }()
			t.Run("read", d.read)
			t.Run("write", func(t *testing.T) {
				said, _ := k.guest.read("dmesg")
				misread := misreadCRCs(said)
				err := d.write(t, c.name, i+1, nfs3.Guarded)
				for err != nil && k.misreads(misread) {
					t.Logf("once more, by another connection, since siw read a CRC wrong that had come in two parts: %v", err)
					misread++
					end()
					connect(t)
					err = d.write(t, c.name, i+1, nfs3.Unchecked)
				}
				if err != nil {
					t.Error(err)
				}
			})
			t.Run("list", d.list)
			t.Run("names", func(t *testing.T) { d.names(t, c.name) })
			t.Logf("%+v", conn.Negotiated())
			t.Logf("%+v", conn.Stats())
		})
	}
}

// commands runs sluicectl.
func (k *knfsd) commands(t *testing.T) {
	file := filepath.Join(k.dir, "requester.pcapng")
	capture, err := startCapture(t, file, k.port)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("ping", k.ping)
	t.Run("ls", k.ls)
	t.Run("stat", k.stat)
	t.Run("get-put-cat", k.getPutCat)
	if err := capture.stop(); err != nil {
		t.Fatal(err)
	}
	t.Run("bench", k.bench)
	t.Run("tshark", func(t *testing.T) { dissect(t, file, k.nfs.String(), nil) })
}

// misreads reports whether siw has misread more than most CRCs. The guest's kernel messages may
// arrive a moment later.
func (k *knfsd) misreads(most int) bool {
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(100 * time.Millisecond) {
		if said, err := k.guest.read("dmesg"); err == nil && misreadCRCs(said) > most {
			return true
		}
	}
	return false
}

// countedProvider counts dialed connections.
type countedProvider struct {
	rdma.Provider
	dials int
}

func (p *countedProvider) Dial(ctx context.Context, address string, o rdma.Options) (rdma.Endpoint, error) {
	p.dials++
	return p.Provider.Dial(ctx, address, o)
}

func (k *nfsServer) url(path string) string {
	return fmt.Sprintf("%s://127.0.0.1:%d/%s?export=%s&mountport=%d", k.scheme, k.port, path, k.export[k.nfs], k.mount)
}

// run runs sluicectl and returns its output.
func (k *nfsServer) run(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"--nfs", k.nfs.String()}, args...)
	cmd := exec.Command(k.sluicectl, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sluicectl %q: %v\n%s", args, err, stderr.Bytes())
	}
	return string(out)
}

func (k *nfsServer) ping(t *testing.T) {
	for _, c := range connections {
		said := k.run(t, append(c.flags, "ping", k.url(""))...)
		t.Logf("%s:\n%s", c.name, said)
		for _, want := range []string{"RPC-over-RDMA version 1", "iwarp", "credits", "IRD"} {
			if !strings.Contains(said, want) {
				t.Errorf("%s: ping says nothing of %s", c.name, want)
			}
		}
	}
}

func (k *nfsServer) ls(t *testing.T) {
	got := strings.Split(strings.TrimSpace(k.run(t, "ls", k.url("many"))), "\n")
	slices.Sort(got)
	if want := manyNames(); !slices.Equal(got, want) {
		t.Errorf("%d names, must be %d: %.200q", len(got), len(want), got)
	}
	t.Log(k.run(t, "ls", "-l", k.url("")))
}

func manyNames() []string {
	var names []string
	for i := range 5000 {
		names = append(names, fmt.Sprintf("entry %d", i))
	}
	slices.Sort(names)
	return names
}

func (k *nfsServer) stat(t *testing.T) {
	for path, want := range map[string]string{"files/1048581@0": "1048581", "link": "many/entry 7", "long": strings.Repeat("x", 4000)} {
		if said := k.run(t, "stat", k.url(path)); !strings.Contains(said, want) {
			t.Errorf("stat of %s does not say %.40s:\n%s", path, want, said)
		}
	}
}

// getPutCat copies files by commands. The smallest fit a message; the others need chunks, with and
// without a pad.
func (k *nfsServer) getPutCat(t *testing.T) {
	for i, f := range []pattern.File{{}, {Length: 1}, {Length: 70}, {Length: 4093}, {Length: 65537}, {Length: 1<<20 + 5}} {
		c := connections[i%len(connections)]
		local := filepath.Join(k.dir, f.Name())
		k.run(t, append(c.flags, "get", k.url("files/"+f.Name()), local)...)
		got, err := os.ReadFile(local)
		if d := pattern.Differ(got, f.Content(0)); err != nil || d != "" {
			t.Errorf("get: %s %s (%v)", f.Name(), d, err)
		}
		if d := pattern.Differ([]byte(k.run(t, "cat", k.url("files/"+f.Name()))), f.Content(0)); d != "" {
			t.Errorf("cat: %s %s", f.Name(), d)
		}
		put := k.url(fmt.Sprintf("put-%v-%s", k.nfs, f.Name()))
		k.run(t, append(c.flags, "put", local, put)...)
		if d := pattern.Differ([]byte(k.run(t, "cat", put)), f.Content(0)); d != "" {
			t.Errorf("put and cat: %s %s", f.Name(), d)
		}
	}
}

// bench has many calls of each kind at once, and files made and removed.
func (k *nfsServer) bench(t *testing.T) {
	for _, op := range []string{"GETATTR", "READ", "WRITE", "SETATTR", "RENAME", "CREATE", "REMOVE"} {
		said := k.run(t, "bench", "--op", op, "--count", "64", "--warmup", "0s", "--size", "64K", "--file-size", "1M", k.url(""))
		if !strings.Contains(said, "64 calls") {
			t.Errorf("%s: %s", op, said)
		}
	}
}

// depth uses one connection from many goroutines.
type depth struct {
	c    *client.Client
	root nfs3.Handle
}

func (k *nfsServer) depth(t *testing.T, conn oncrpc.Requester, pool *bufpool.Pool) *depth {
	t.Helper()
	cred, err1 := client.ProcessCred()
	mount, err2 := oncrpc.Dial(t.Context(), fmt.Sprintf("127.0.0.1:%d", k.mount), oncrpc.Config{Pool: pool})
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	d := &depth{c: client.New(client.Config{Version: k.nfs, Requester: conn, Mount: mount, Pool: pool, Cred: cred})}
	if d.root, err1 = d.c.Mount(t.Context(), k.export[k.nfs]); err1 != nil {
		t.Fatal(err1)
	}
	t.Logf("READs of %d bytes, WRITEs of %d", d.c.ReadSize(), d.c.WriteSize())
	_ = mount.Close()
	mount.Wait()
	return d
}

// all calls do for each file of package pattern, several at once.
func all(ctx context.Context, do func(context.Context, pattern.File) error) error {
	files := pattern.Files()
	queue, errs := make(chan int), make([]error, len(files))
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range queue {
				if err := do(ctx, files[i]); err != nil {
					errs[i] = fmt.Errorf("%s: %w", files[i].Name(), err)
				}
			}
		})
	}
	for i := range files {
		queue <- i
	}
	close(queue)
	wg.Wait()
	return errors.Join(errs...)
}

// read compares each file's data, leaving out the zeros before them.
func (d *depth) read(t *testing.T) {
	err := all(t.Context(), func(ctx context.Context, f pattern.File) error {
		o, err := d.c.Walk(ctx, d.root, "files/"+f.Name(), true)
		if err != nil {
			return err
		}
		got := make([]byte, f.Length)
		if n, err := d.c.ReadAt(ctx, o.Handle, got, uint64(f.Offset)); err != nil {
			return fmt.Errorf("%d of %d bytes at offset %d: %w", n, f.Length, f.Offset, err)
		}
		if differ := pattern.Differ(got, f.Data(0)); differ != "" {
			return fmt.Errorf("at offset %d: %s", f.Offset, differ)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// write makes each file, writing its data by one call where one can take them. The guest compares.
func (d *depth) write(t *testing.T, dir string, round int, how nfs3.CreateMode) error {
	at, err := d.c.Walk(t.Context(), d.root, dir, true)
	if err != nil {
		t.Fatal(err)
	}
	stabilities := []nfs3.Stability{nfs3.Unstable, nfs3.DataSync, nfs3.FileSync}
	return all(t.Context(), func(ctx context.Context, f pattern.File) error {
		o, err := d.c.Create(ctx, at.Handle, f.Name(), how, nfs3.SetAttrs{}, nfs3.Verifier{})
		if err != nil {
			return err
		}
		return d.c.WriteAt(ctx, o.Handle, f.Data(round), uint64(f.Offset), stabilities[f.Length%3])
	})
}

func (d *depth) list(t *testing.T) {
	dir, err := d.c.Walk(t.Context(), d.root, "many", true)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range d.c.ReadDirPlus(t.Context(), dir.Handle) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Name == "." || e.Name == ".." {
			continue
		}
		if !e.Attr.Present || e.Attr.Attr.Type != nfs3.Reg || e.Handle == nil {
			t.Fatalf("%q has no attributes or handle, or is no file: %+v", e.Name, e.Attr)
		}
		got = append(got, e.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, manyNames()) {
		t.Errorf("%d names: %.200q", len(got), got)
	}
}

// names tests operations on names and attributes.
func (d *depth) names(t *testing.T, dir string) {
	ctx := t.Context()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{"link": "many/entry 7", "long": strings.Repeat("x", 4000)} {
		link, err := d.c.Walk(ctx, d.root, path, false)
		ok(err)
		target, err := d.c.Readlink(ctx, link.Handle)
		ok(err)
		if target != want {
			t.Errorf("the target of %s is %.40q (%d bytes), must be %.40q", path, target, len(target), want)
		}
	}
	at, err := d.c.Mkdir(ctx, d.root, "names-"+dir, nfs3.SetAttrs{})
	ok(err)
	for _, n := range []int{1, 70, 1000, 3900, 4095} {
		name, target := fmt.Sprint(n), strings.Repeat(fmt.Sprint(n%10), n)
		link, err := d.c.Symlink(ctx, at.Handle, name, target, nfs3.SetAttrs{})
		ok(err)
		got, err := d.c.Readlink(ctx, link.Handle)
		ok(err)
		if got != target {
			t.Errorf("a target of %d bytes comes back as %.40q, %d bytes", n, got, len(got))
		}
		ok(d.c.Rename(ctx, at.Handle, name, at.Handle, name+" renamed"))
		ok(d.c.Remove(ctx, at.Handle, name+" renamed"))
	}
	if _, err := d.c.Lookup(ctx, at.Handle, "1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("LOOKUP of what was removed: %v, must be %v", err, fs.ErrNotExist)
	}
	ok(d.c.Rmdir(ctx, d.root, "names-"+dir))
}
