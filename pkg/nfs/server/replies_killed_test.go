package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	killedEnv = "SERVER_TEST_KILLED"
	exportDir = "export"
	stateDir  = "state"
	// A file of a name with hold stops the child at that point; it answers with held.
	holdIntended, holdSync, held = "hold-intended", "hold-sync", "held"
	holdMaking, holdAnswered     = "hold-making", "hold-answered"
)

// TestKilledChild is the server for TestKilled.
func TestKilledChild(t *testing.T) {
	top := os.Getenv(killedEnv)
	if top == "" {
		return
	}
	hold := func(name string) {
		if _, err := os.Stat(filepath.Join(top, name)); err == nil {
			_ = os.WriteFile(filepath.Join(top, held), nil, 0o600)
			select {}
		}
	}
	cfg := Config{Root: filepath.Join(top, exportDir), StateDir: filepath.Join(top, stateDir), Access: everyone, NFS4: &NFS4Config{PersistentSessions: true}}
	cfg.intended, cfg.making, cfg.answered = func() { hold(holdIntended) }, func() { hold(holdMaking) }, func() { hold(holdAnswered) }
	cfg.Files.Sync = func(int, vfs.SyncKind) error { hold(holdSync); return nil }
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rpc, err := oncrpc.NewServer(oncrpc.Config{Pool: bufpool.New(64 << 20), Handler: s, Bindings: binding.For})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("serve %s %x\n", l.Addr(), s.fs.Root().Handle().Bytes())
	t.Fatal(rpc.Serve(l))
}

// killable is a server in a process of its own.
type killable struct {
	t    *testing.T
	top  string
	cmd  *exec.Cmd
	conn net.Conn
	root nfs3.Handle
}

func (k *killable) start() {
	k.t.Helper()
	k.cmd = exec.Command("/proc/self/exe", "-test.run=^TestKilledChild$")
	k.cmd.Env = append(os.Environ(), killedEnv+"="+k.top)
	k.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	k.cmd.Stderr = os.Stderr
	out, err := k.cmd.StdoutPipe()
	if err == nil {
		err = k.cmd.Start()
	}
	if err != nil {
		k.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var address string
	if _, err2 := fmt.Sscanf(line, "serve %s %x\n", &address, &k.root); err != nil || err2 != nil {
		k.kill()
		k.t.Fatalf("the server says %q: %v, %v", line, err, err2)
	}
	if k.conn, err = net.Dial("tcp", address); err != nil {
		k.kill()
		k.t.Fatal(err)
	}
}

// kill ends the process as kill -9 does.
func (k *killable) kill() {
	if k.conn != nil {
		_ = k.conn.Close()
	}
	_ = k.cmd.Process.Kill()
	_ = k.cmd.Wait()
}

func (k *killable) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *killable) path(name string) string { return filepath.Join(k.top, exportDir, name) }

// put replaces or makes a file, as another process would.
func (k *killable) put(name, content string) {
	k.t.Helper()
	k.must(os.WriteFile(k.path(name), []byte(content), 0o644))
}

// call encodes a call with its record mark.
func (k *killable) call(xid, proc uint32, args encoder) []byte {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 4096), nil)
	oncrpc.EncodeCallHeader(&e, xid, nfs3.Program, nfs3.Version, proc, sysCred(k.t, 0, 0), oncrpc.Auth{})
	args.Encode(&e)
	b := join(&oncrpc.Message{Stream: [][]byte{e.Bytes()}, Items: e.Items()})
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))|1<<31), b...)
}

func (k *killable) send(b []byte) {
	k.t.Helper()
	_, err := k.conn.Write(b)
	k.must(err)
}

// receive returns the results of the next reply.
func (k *killable) receive() *xdr.Decoder {
	k.t.Helper()
	var mark [4]byte
	_, err := io.ReadFull(k.conn, mark[:])
	k.must(err)
	b := make([]byte, binary.BigEndian.Uint32(mark[:])&^(1<<31))
	_, err = io.ReadFull(k.conn, b)
	k.must(err)
	var d xdr.Decoder
	d.ResetBytes(b)
	var h oncrpc.ReplyHeader
	k.must(h.Decode(&d))
	return &d
}

// status receives a reply, and returns the first word of its results.
func (k *killable) status() nfs3.Status {
	k.t.Helper()
	d := k.receive()
	status := nfs3.Status(d.Uint32())
	k.must(d.Err())
	return status
}

// lookup returns the handle of a name in the root.
func (k *killable) lookup(name string) nfs3.Handle {
	k.t.Helper()
	k.send(k.call(1<<20, nfs3.ProcLookup, &nfs3.LookupArgs{Dir: k.root, Name: []byte(name)}))
	d := k.receive()
	var res nfs3.LookupRes
	res.Decode(d)
	k.must(d.Err())
	if res.Status != nfs3.OK {
		k.t.Fatalf("lookup %s: %v", name, res.Status)
	}
	return bytes.Clone(res.Object)
}

// TestKilled kills a server with SIGKILL before it runs a call, while it syncs the effect, or after
// the answer. Others change the directory in between. The client sends its call again, to the next
// process by another connection.
func TestKilled(t *testing.T) {
	at := func(k *killable, name string) nfs3.DirOpArgs { return nfs3.DirOpArgs{Dir: k.root, Name: []byte(name)} }
	remove := func(k *killable) []byte {
		return k.call(7, nfs3.ProcRemove, &nfs3.RemoveArgs{Dir: k.root, Name: []byte("file")})
	}
	create := func(mode nfs3.CreateMode) func(*killable) []byte {
		return func(k *killable) []byte {
			return k.call(7, nfs3.ProcCreate, &nfs3.CreateArgs{Where: at(k, "file"), Mode: mode, Attrs: nfs3.SetAttrs{SetMode: true, Mode: 0o644, SetSize: true}})
		}
	}
	truncate := func(k *killable) []byte {
		return k.call(7, nfs3.ProcSetAttr, &nfs3.SetAttrArgs{Object: k.lookup("file"), New: nfs3.SetAttrs{SetSize: true}})
	}
	rename := func(k *killable) []byte {
		return k.call(7, nfs3.ProcRename, &nfs3.RenameArgs{From: at(k, "file"), To: at(k, "other")})
	}
	link := func(k *killable) []byte {
		return k.call(7, nfs3.ProcLink, &nfs3.LinkArgs{File: k.lookup("file"), Link: at(k, "other")})
	}
	mkdir := func(k *killable) []byte { return k.call(7, nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: at(k, "dir")}) }
	rmdir := func(k *killable) []byte {
		return k.call(7, nfs3.ProcRmdir, &nfs3.RemoveArgs{Dir: k.root, Name: []byte("dir")})
	}

	symlink := func(k *killable) []byte {
		return k.call(7, nfs3.ProcSymlink, &nfs3.SymlinkArgs{Where: at(k, "link"), Path: [][]byte{[]byte("target")}, Length: len("target")})
	}
	mknod := func(k *killable) []byte {
		return k.call(7, nfs3.ProcMknod, &nfs3.MknodArgs{Where: at(k, "fifo"), Type: nfs3.FIFO})
	}

	none := func(*killable) {}
	old := func(k *killable) { k.put("file", "old") }
	written := func(k *killable) { k.put("file", "new") }
	replaced := func(k *killable) {
		k.put("new", "new")
		k.must(os.Rename(k.path("new"), k.path("file")))
	}
	moved := func(k *killable) { k.must(os.Rename(k.path("dir"), k.path("elsewhere"))) }
	removed := func(k *killable) { k.must(os.Remove(k.path("dir"))) }
	dir := func(k *killable) { k.must(os.Mkdir(k.path("dir"), 0o755)) }

	for _, c := range []struct {
		name    string
		before  func(*killable)
		call    func(*killable) []byte
		when    string // the file that stops the server; empty kills it after the reply
		between func(*killable)
		status  nfs3.Status
		files   string
	}{
		{name: "REMOVE answered, made anew", before: old, call: remove, between: written, files: "file=new"},
		{name: "REMOVE done, made anew", before: old, call: remove, when: holdSync, between: written, files: "file=new"},
		{name: "REMOVE done", before: old, call: remove, when: holdSync, between: none},
		{name: "REMOVE not done", before: old, call: remove, when: holdIntended, between: none},
		{name: "REMOVE not done, replaced", before: old, call: remove, when: holdIntended, between: replaced, files: "file=new"},
		{name: "REMOVE of nothing answered, made anew", before: none, call: remove, between: written, status: nfs3.ErrNoEnt, files: "file=new"},
		{name: "CREATE over answered, written", before: old, call: create(nfs3.Unchecked), between: written, files: "file=new"},
		{name: "CREATE over done, written", before: old, call: create(nfs3.Unchecked), when: holdSync, between: written, files: "file=new"},
		{name: "CREATE over not done", before: old, call: create(nfs3.Unchecked), when: holdIntended, between: none, files: "file="},
		{name: "CREATE over not done, replaced", before: old, call: create(nfs3.Unchecked), when: holdIntended, between: replaced, files: "file=new"},
		{name: "CREATE answered, written", before: none, call: create(nfs3.Unchecked), between: written, files: "file=new"},
		{name: "CREATE done, written", before: none, call: create(nfs3.Unchecked), when: holdSync, between: written, files: "file=new"},
		{name: "CREATE not done", before: none, call: create(nfs3.Unchecked), when: holdIntended, between: none, files: "file="},
		{name: "CREATE guarded answered, written", before: none, call: create(nfs3.Guarded), between: written, files: "file=new"},
		{name: "SETATTR answered, written", before: old, call: truncate, between: written, files: "file=new"},
		{name: "SETATTR done, written", before: old, call: truncate, when: holdSync, between: written, files: "file=new"},
		{name: "SETATTR not done", before: old, call: truncate, when: holdIntended, between: none, files: "file="},
		{name: "RENAME answered, made anew", before: old, call: rename, between: written, files: "file=new other=old"},
		{name: "RENAME done, made anew", before: old, call: rename, when: holdSync, between: written, files: "file=new other=old"},
		{name: "RENAME done", before: old, call: rename, when: holdSync, between: none, files: "other=old"},
		{name: "RENAME not done", before: old, call: rename, when: holdIntended, between: none, files: "other=old"},
		{name: "LINK answered", before: old, call: link, between: none, files: "file=old other=old"},
		{name: "LINK done", before: old, call: link, when: holdSync, between: none, files: "file=old other=old"},
		{name: "LINK not done", before: old, call: link, when: holdIntended, between: none, files: "file=old other=old"},
		{name: "MKDIR answered", before: none, call: mkdir, between: none, files: "dir/"},
		{name: "MKDIR done", before: none, call: mkdir, when: holdSync, between: none, files: "dir/"},
		{name: "MKDIR done, moved", before: none, call: mkdir, when: holdSync, between: moved, files: "elsewhere/"},
		{name: "MKDIR done, removed", before: none, call: mkdir, when: holdSync, between: removed, files: "dir/"},
		{name: "MKDIR of what exists", before: dir, call: mkdir, between: none, status: nfs3.ErrExist, files: "dir/"},
		{name: "CREATE guarded done, written", before: none, call: create(nfs3.Guarded), when: holdSync, between: written, files: "file=new"},
		{name: "CREATE exclusive done, written", before: none, call: create(nfs3.Exclusive), when: holdSync, between: written, files: "file=new"},
		{name: "SYMLINK done", before: none, call: symlink, when: holdSync, between: none, files: "link>target"},
		{name: "MKNOD done", before: none, call: mknod, when: holdSync, between: none, files: "fifo|"},
		{name: "RMDIR answered, made anew", before: dir, call: rmdir, between: dir, files: "dir/"},
		{name: "RMDIR done, made anew", before: dir, call: rmdir, when: holdSync, between: dir, files: "dir/"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			k := &killable{t: t, top: t.TempDir()}
			k.must(os.Mkdir(filepath.Join(k.top, exportDir), 0o755))
			k.must(os.Mkdir(filepath.Join(k.top, stateDir), 0o700))
			c.before(k)
			k.start()
			call := c.call(k)
			if c.when != "" {
				k.must(os.WriteFile(filepath.Join(k.top, c.when), nil, 0o600))
			}
			k.send(call)
			want := c.status
			if c.when == "" {
				if got := k.status(); got != want {
					t.Errorf("answered %v, want %v", got, want)
				}
			} else {
				for start := time.Now(); ; time.Sleep(time.Millisecond) {
					if _, err := os.Stat(filepath.Join(k.top, held)); err == nil {
						break
					}
					if time.Since(start) > time.Minute {
						k.kill()
						t.Fatal("the call does not get so far")
					}
				}
				k.must(os.Remove(filepath.Join(k.top, c.when)))
			}
			c.between(k)
			k.kill()
			k.start()
			defer k.kill()
			for range 2 {
				k.send(call)
				if got := k.status(); got != want {
					t.Errorf("sent again: answered %v, want %v", got, want)
				}
				if got := k.files(); got != c.files {
					t.Errorf("sent again: the directory has %q, want %q", got, c.files)
				}
			}
			// A call with another XID is another call.
			if c.files == "file=new" {
				other := bytes.Clone(remove(k))
				binary.BigEndian.PutUint32(other[4:], 8)
				k.send(other)
				if got := k.status(); got != nfs3.OK || k.files() != "" {
					t.Errorf("another REMOVE: %v, %q", got, k.files())
				}
			}
		})
	}
}

// files describes the directory.
func (k *killable) files() string {
	k.t.Helper()
	entries, err := os.ReadDir(k.path(""))
	k.must(err)
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name()+"/")
			continue
		}
		if e.Type() == os.ModeNamedPipe {
			out = append(out, e.Name()+"|")
			continue
		}
		if target, err := os.Readlink(k.path(e.Name())); err == nil {
			out = append(out, e.Name()+">"+target)
			continue
		}
		b, err := os.ReadFile(k.path(e.Name()))
		k.must(err)
		out = append(out, e.Name()+"="+string(b))
	}
	return strings.Join(out, " ")
}
