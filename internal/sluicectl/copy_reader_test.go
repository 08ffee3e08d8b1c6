package sluicectl

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// TestCopyBetweenServers copies files and trees between exports of two servers, and within one.
func TestCopyBetweenServers(t *testing.T) {
	e, other := newEnv(t), newEnv(t)
	urls := map[string]string{"3": "nfs+tcp://" + other.tcp, "4.2": "nfs+rdma://" + other.four}
	data := randomBytes(20<<20 + 123)
	must(t, os.MkdirAll(filepath.Join(e.dir, "tree/sub"), 0o750))
	e.write("tree/large", data, 0o640)
	e.write("tree/sub/empty", nil, 0o644)
	must(t, os.Symlink("../large", filepath.Join(e.dir, "tree/sub/link")))
	stamp := time.Date(2021, 2, 3, 4, 5, 6, 7, time.UTC)
	must(t, os.Chtimes(filepath.Join(e.dir, "tree/large"), stamp, stamp))
	want := listTree(t, filepath.Join(e.dir, "tree"))
	same := func(dir string) {
		t.Helper()
		if got := listTree(t, dir); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "large")); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	for version, url := range urls {
		e.ok("cp", "-rp", "--checksum", "--nfs", version, "FOUR/tree", url+"/"+version)
		same(filepath.Join(other.dir, version))
		info, err := os.Stat(filepath.Join(other.dir, version, "large"))
		if must(t, err); !info.ModTime().Equal(stamp) || info.Mode() != 0o640 {
			t.Errorf("%v, %v", info.ModTime(), info.Mode())
		}
		if got := e.ok("sync", "-n", "TCP/tree", url+"/"+version); got != "" {
			t.Errorf("sync would %s", got)
		}
		if got := e.ok("sync", "-n", "--checksum", url+"/"+version, "FOUR/tree"); got != "" {
			t.Errorf("sync would %s", got)
		}
		must(t, os.WriteFile(filepath.Join(other.dir, version, "large"), data[1:], 0o644))
		e.ok("sync", "--resume", "RDMA/tree", url+"/"+version)
		same(filepath.Join(other.dir, version))
	}
	copies := func() (n uint64) {
		for _, o := range e.fourServer.NFS4Operations() {
			if o.Op == nfs4.OpCopy {
				n = o.OK
			}
		}
		return n
	}
	if n := copies(); n != 0 {
		t.Errorf("%d COPYs between servers", n)
	}
	e.ok("cp", "-r", "FOUR/tree", "FOUR/new")
	same(filepath.Join(e.dir, "new"))
	if n := copies(); n != 2 {
		t.Errorf("%d COPYs of at most 16 MiB for %d bytes", n, len(data))
	}
	e.ok("cp", "-r", "TCP/tree", "TCP/three")
	same(filepath.Join(e.dir, "three"))
	// Files of this host and of servers, to a server.
	local := filepath.Join(t.TempDir(), "local")
	must(t, os.WriteFile(local, []byte("x"), 0o644))
	e.ok("cp", local, "TCP/tree/l*", urls["3"]+"/3/sub/e*", "RDMA/new/sub")
	if got, want := listTree(t, filepath.Join(e.dir, "new/sub")), "empty= large="+string(data[:9])+" link->../large local=x"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	e.noParts(t, other.dir, filepath.Join(e.dir, "new"), filepath.Join(other.dir, "3"))
}
