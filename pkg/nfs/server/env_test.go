package server

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
	"sluice.dev/sluice/test/prereq"
)

func TestMain(m *testing.M) {
	if os.Getenv(callsEnv) != "" { // a goroutine handles system calls to the end
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

var testKey = []byte("0123456789abcdef0123456789abcdef")

// everyone grants everything under the callers' own ids.
var everyone = []Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, Squash: SquashNone}}

// env is a server with a transport in memory, and a client of it.
type env struct {
	t    testing.TB
	dir  string
	s    *Server
	pool *bufpool.Pool
	xid  atomic.Uint32
	conn *oncrpc.Conn
	cred oncrpc.Auth
	root nfs3.Handle
}

// encoder and decoder are implemented by all types of nfs3.
type (
	encoder interface{ Encode(*xdr.Encoder) }
	decoder interface{ Decode(*xdr.Decoder) }
)

func newEnv(t testing.TB, change func(*Config)) *env {
	t.Helper()
	r := &env{t: t, dir: t.TempDir(), pool: bufpool.New(256 << 20), cred: sysCred(t, 0, 0)}
	r.conn = &oncrpc.Conn{Network: "tcp", Remote: netip.MustParseAddrPort("127.0.0.1:700")}
	r.start(change)
	t.Cleanup(func() {
		r.stop()
		if st := r.pool.Stats(); st.Bufs != 0 {
			t.Errorf("%d buffers were not released", st.Bufs)
		}
	})
	return r
}

func (r *env) start(change func(*Config)) {
	r.t.Helper()
	cfg := Config{Root: r.dir, Access: everyone, Key: testKey, Workers: 4, Files: vfs.Options{Recheck: 1}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.s = s
	r.root = bytes.Clone(s.fs.Root().Handle().Bytes())
}

func (r *env) stop() {
	r.t.Helper()
	if r.s == nil {
		return
	}
	if err := r.s.Close(); err != nil {
		r.t.Error(err)
	}
	r.s = nil
}

func sysCred(t testing.TB, uid, gid uint32, groups ...uint32) oncrpc.Auth {
	t.Helper()
	p := oncrpc.AuthSysParms{Stamp: 7, Machine: []byte("client"), UID: uid, GID: gid, GIDs: groups}
	a, err := p.Auth()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// as returns the env with another caller.
func (r *env) as(uid, gid uint32, groups ...uint32) *env {
	return r.with(sysCred(r.t, uid, gid, groups...), r.conn.Remote.String())
}

func (r *env) with(cred oncrpc.Auth, remote string) *env {
	n := &env{t: r.t, dir: r.dir, s: r.s, pool: r.pool, cred: cred, root: r.root}
	n.conn = &oncrpc.Conn{Network: "tcp", Remote: netip.MustParseAddrPort(remote)}
	n.xid.Store(r.xid.Add(1 << 16))
	return n
}

// wire is a call on its way.
type wire struct {
	env     *env
	call    *oncrpc.Call
	reply   []byte // the unreduced stream
	status  oncrpc.Status
	dropped bool
	done    chan struct{}
	keep    bool // the test ignores the reply
}

func (w *wire) Respond(c *oncrpc.Call) {
	if w.keep {
		c.Recycle()
		w.done <- struct{}{}
		return
	}
	w.reply, w.status = join(&c.Reply), c.Status
	c.Recycle()
	w.done <- struct{}{}
}

func (w *wire) Drop(c *oncrpc.Call) {
	w.dropped = true
	c.Recycle()
	w.done <- struct{}{}
}

func (w *wire) Supersede(c *oncrpc.Call) { w.Drop(c) }

// join returns the unreduced stream of m.
func join(m *oncrpc.Message) (b []byte) {
	stream := bytes.Join(m.Stream, nil)
	for _, it := range m.Items {
		n := it.Position - len(b)
		b = append(b, stream[:n]...)
		stream = stream[n:]
		b = append(b, bytes.Join(it.Data, nil)...)
		b = append(b, make([]byte, xdr.Pad(it.Length))...)
	}
	return append(b, stream...)
}

// prepare encodes a call. Its stream is cut into pieces of cut bytes if that is not 0.
func (r *env) prepare(xid, program, version, proc uint32, args encoder, cut int) *wire {
	w := &wire{env: r, call: &oncrpc.Call{}, done: make(chan struct{}, 2)}
	w.call.Init(r.pool, w)
	w.fill(xid, program, version, proc, args, cut)
	return w
}

func (w *wire) fill(xid, program, version, proc uint32, args encoder, cut int) {
	r, c := w.env, w.call
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 1<<17), nil)
	oncrpc.EncodeCallHeader(&e, xid, program, version, proc, r.cred, oncrpc.Auth{})
	if args != nil {
		args.Encode(&e)
	}
	if e.Overflow() {
		r.t.Fatal("a test's arguments are too long")
	}
	c.Items = append(c.Items[:0], e.Items()...)
	b := e.Bytes()
	for cut > 0 && len(b) > cut {
		c.Stream = append(c.Stream, b[:cut:cut])
		b = b[cut:]
	}
	c.Stream = append(c.Stream, b)
	c.Conn = r.conn
	if err := oncrpc.DecodeCall(c); err != nil {
		r.t.Fatal(err)
	}
}

// send passes the call to the server; wait takes the answer.
func (w *wire) send() *wire {
	w.env.s.ServeRPC(w.call)
	return w
}

func (w *wire) wait() *wire {
	<-w.done
	return w
}

// results decodes a successful reply.
func (w *wire) results(res decoder) {
	t := w.env.t
	t.Helper()
	if w.dropped {
		t.Fatal("the call was dropped")
	}
	if !w.status.OK() {
		t.Fatalf("the call was answered %v", w.status)
	}
	var d xdr.Decoder
	d.ResetBytes(w.reply)
	var h oncrpc.ReplyHeader
	if err := h.Decode(&d); err != nil {
		t.Fatal(err)
	}
	res.Decode(&d)
	if d.Err() != nil {
		t.Fatal(d.Err())
	}
	if d.Left() != 0 {
		if _, list := res.(*nfs3.ReaddirRes); !list {
			t.Fatalf("%d bytes follow the results", d.Left())
		}
	}
}

// do makes a call of NFS.
func (r *env) do(proc uint32, args encoder, res decoder) {
	r.t.Helper()
	r.prepare(r.xid.Add(1), nfs3.Program, nfs3.Version, proc, args, 0).send().wait().results(res)
}

// Calls with their results; only a status where there is nothing else.

func (r *env) getattr(h nfs3.Handle) nfs3.GetAttrRes {
	r.t.Helper()
	var res nfs3.GetAttrRes
	r.do(nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: h}, &res)
	return res
}

func (r *env) setattr(h nfs3.Handle, a nfs3.SetAttrs) nfs3.WccRes {
	r.t.Helper()
	var res nfs3.WccRes
	r.do(nfs3.ProcSetAttr, &nfs3.SetAttrArgs{Object: h, New: a}, &res)
	return res
}

func (r *env) lookup(dir nfs3.Handle, name string) nfs3.LookupRes {
	r.t.Helper()
	var res nfs3.LookupRes
	r.do(nfs3.ProcLookup, &nfs3.LookupArgs{Dir: dir, Name: []byte(name)}, &res)
	res.Object = bytes.Clone(res.Object)
	return res
}

// handle looks up an existing name in the root.
func (r *env) handle(name string) nfs3.Handle {
	r.t.Helper()
	res := r.lookup(r.root, name)
	if res.Status != nfs3.OK {
		r.t.Fatalf("lookup %s: %v", name, res.Status)
	}
	return res.Object
}

func (r *env) access(h nfs3.Handle, bits uint32) nfs3.AccessRes {
	r.t.Helper()
	var res nfs3.AccessRes
	r.do(nfs3.ProcAccess, &nfs3.AccessArgs{Object: h, Access: bits}, &res)
	return res
}

func (r *env) read(h nfs3.Handle, off uint64, count uint32) (nfs3.ReadRes, string) {
	r.t.Helper()
	var res nfs3.ReadRes
	r.do(nfs3.ProcRead, &nfs3.ReadArgs{File: h, Offset: off, Count: count}, &res)
	return res, string(bytes.Join(res.Data, nil))
}

func (r *env) write(h nfs3.Handle, off uint64, data string, how nfs3.Stability) nfs3.WriteRes {
	r.t.Helper()
	var res nfs3.WriteRes
	r.do(nfs3.ProcWrite, writeArgs(h, off, data, how), &res)
	return res
}

// writeArgs has its data in three slices, as an item.
func writeArgs(h nfs3.Handle, off uint64, data string, how nfs3.Stability) *nfs3.WriteArgs {
	b := []byte(data)
	k := len(b) / 3
	return &nfs3.WriteArgs{File: h, Offset: off, Count: uint32(len(b)), Stable: how, Data: [][]byte{b[:k], b[k : 2*k], b[2*k:]}}
}

func (r *env) commit(h nfs3.Handle, off uint64, count uint32) nfs3.CommitRes {
	r.t.Helper()
	var res nfs3.CommitRes
	r.do(nfs3.ProcCommit, &nfs3.CommitArgs{File: h, Offset: off, Count: count}, &res)
	return res
}

func (r *env) create(dir nfs3.Handle, name string, how nfs3.CreateMode, a nfs3.SetAttrs) nfs3.CreateRes {
	r.t.Helper()
	return r.createVerified(dir, name, how, a, nfs3.Verifier{})
}

func (r *env) createVerified(dir nfs3.Handle, name string, how nfs3.CreateMode, a nfs3.SetAttrs, v nfs3.Verifier) nfs3.CreateRes {
	r.t.Helper()
	return r.creating(nfs3.ProcCreate, &nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}, Mode: how, Attrs: a, Verf: v})
}

func (r *env) creating(proc uint32, args encoder) nfs3.CreateRes {
	r.t.Helper()
	var res nfs3.CreateRes
	r.do(proc, args, &res)
	res.Object.Handle = bytes.Clone(res.Object.Handle)
	return res
}

func (r *env) mkdir(dir nfs3.Handle, name string, mode uint32) nfs3.CreateRes {
	r.t.Helper()
	return r.creating(nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}, Attrs: nfs3.SetAttrs{SetMode: true, Mode: mode}})
}

func (r *env) symlink(dir nfs3.Handle, name, target string) nfs3.CreateRes {
	r.t.Helper()
	return r.creating(nfs3.ProcSymlink, &nfs3.SymlinkArgs{Where: nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}, Path: [][]byte{[]byte(target)}, Length: len(target)})
}

func (r *env) removing(proc uint32, dir nfs3.Handle, name string) nfs3.WccRes {
	r.t.Helper()
	var res nfs3.WccRes
	r.do(proc, &nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}, &res)
	return res
}

func (r *env) rename(from nfs3.Handle, a string, to nfs3.Handle, b string) nfs3.RenameRes {
	r.t.Helper()
	var res nfs3.RenameRes
	r.do(nfs3.ProcRename, &nfs3.RenameArgs{From: nfs3.DirOpArgs{Dir: from, Name: []byte(a)}, To: nfs3.DirOpArgs{Dir: to, Name: []byte(b)}}, &res)
	return res
}

func (r *env) link(file, dir nfs3.Handle, name string) nfs3.LinkRes {
	r.t.Helper()
	var res nfs3.LinkRes
	r.do(nfs3.ProcLink, &nfs3.LinkArgs{File: file, Link: nfs3.DirOpArgs{Dir: dir, Name: []byte(name)}}, &res)
	return res
}

// Helpers on the directory itself.

func (r *env) path(name string) string { return filepath.Join(r.dir, name) }

func (r *env) put(name, content string) {
	r.t.Helper()
	r.must(os.WriteFile(r.path(name), []byte(content), 0o644))
}

func (r *env) content(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.path(name))
	r.must(err)
	return string(b)
}

func (r *env) lstat(name string) (st unix.Stat_t) {
	r.t.Helper()
	r.must(unix.Lstat(r.path(name), &st))
	return st
}

func (r *env) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func wantStatus(t testing.TB, what string, got, want nfs3.Status) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		prereq.Missing(t, "it has to be root")
	}
}
