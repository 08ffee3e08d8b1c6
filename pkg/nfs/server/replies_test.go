package server

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
)

func removeCall(r *env, xid uint32, name string) *wire {
	return r.prepare(xid, nfs3.Program, nfs3.Version, nfs3.ProcRemove, &nfs3.RemoveArgs{Dir: r.root, Name: []byte(name)}, 0)
}

func (w *wire) removeStatus() nfs3.Status {
	w.env.t.Helper()
	var res nfs3.WccRes
	w.results(&res)
	return res.Status
}

func TestReplay(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	first := removeCall(r, 77, "file").send().wait()
	wantStatus(t, "REMOVE", first.removeStatus(), nfs3.OK)

	// From another port of the same client, in other slices, with another stamp: the same reply.
	other := r.with(r.cred, "127.0.0.1:999")
	other.conn.Network = "rdma"
	p := oncrpc.AuthSysParms{Stamp: 8, Machine: []byte("renamed")}
	other.cred, _ = p.Auth()
	again := other.prepare(77, nfs3.Program, nfs3.Version, nfs3.ProcRemove, &nfs3.RemoveArgs{Dir: r.root, Name: []byte("file")}, 5).send().wait()
	if !bytes.Equal(again.reply, first.reply) {
		t.Errorf("the retransmission got\n%x, want\n%x", again.reply, first.reply)
	}
	if n := r.s.Stats().Replays; n != 1 {
		t.Errorf("%d replays are counted", n)
	}
	// Any other difference makes another call.
	for what, w := range map[string]*wire{
		"XID":        removeCall(r, 78, "file"),
		"arguments":  removeCall(r, 77, "filf"),
		"client":     removeCall(r.with(r.cred, "127.0.0.2:700"), 77, "file"),
		"credential": removeCall(r.as(0, 5), 77, "file"),
		"procedure":  r.prepare(77, nfs3.Program, nfs3.Version, nfs3.ProcRmdir, &nfs3.RemoveArgs{Dir: r.root, Name: []byte("file")}, 0),
	} {
		wantStatus(t, "another "+what, w.send().wait().removeStatus(), nfs3.ErrNoEnt)
	}
	// Idempotent calls always run.
	for range 2 {
		w := r.prepare(79, nfs3.Program, nfs3.Version, nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: r.root}, 0).send().wait()
		var res nfs3.GetAttrRes
		w.results(&res)
	}
	if n := r.s.Stats().Replays; n != 1 {
		t.Errorf("%d replays are counted", n)
	}
}

// TestReplayOfWrites sends the data as an item and inline: both count as the first 256 bytes of the
// arguments.
func TestReplayOfWrites(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	h := r.handle("file")
	item := writeArgs(h, 0, "some data of a write", nfs3.Unstable)
	first := r.prepare(5, nfs3.Program, nfs3.Version, nfs3.ProcWrite, item, 0).send().wait()
	var res nfs3.WriteRes
	first.results(&res)
	wantStatus(t, "WRITE", res.Status, nfs3.OK)
	r.put("file", "another client was here in between")
	for _, args := range []encoder{item, streamed{h, "some data of a write"}} {
		again := r.prepare(5, nfs3.Program, nfs3.Version, nfs3.ProcWrite, args, 9).send().wait()
		if !bytes.Equal(again.reply, first.reply) || r.content("file") != "another client was here in between" {
			t.Errorf("%T: the retransmission ran again", args)
		}
	}
	for what, args := range map[string]encoder{"data": streamed{h, "some data of b write"}, "length": streamed{h, "some data of a write."}} {
		r.prepare(5, nfs3.Program, nfs3.Version, nfs3.ProcWrite, args, 0).send().wait().results(&res)
		if r.content("file") == "another client was here in between" {
			t.Errorf("a WRITE with other %s did not run", what)
		}
		r.put("file", "another client was here in between")
	}
}

// gate is a sync that waits to be released.
type gate struct{ entered, leave chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 16), make(chan struct{})} }

func (g *gate) sync(int, vfs.SyncKind) error {
	g.entered <- struct{}{}
	<-g.leave
	return nil
}

func TestRetransmissionInProgress(t *testing.T) {
	g := newGate()
	r := newEnv(t, func(c *Config) { c.Files.Sync = g.sync })
	r.put("file", "")
	first := removeCall(r, 5, "file").send()
	<-g.entered
	second := removeCall(r, 5, "file").send()
	third := removeCall(r.with(r.cred, "127.0.0.1:701"), 5, "file").send()
	for _, w := range []*wire{first, second, third} {
		select {
		case <-w.done:
			t.Errorf("answered %v while the first call is running", w.status)
		default:
		}
	}
	close(g.leave)
	for _, w := range []*wire{first, second, third} {
		wantStatus(t, "REMOVE", w.wait().removeStatus(), nfs3.OK)
	}
}

func TestGarbageIsNotKept(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	garbage(r)
	if n := r.s.Stats().CachedReplies; n != 0 {
		t.Errorf("%d replies are kept", n)
	}
	if n := len(r.s.replies.clients); n != 0 {
		t.Errorf("%d clients are remembered", n)
	}
}

// garbage sends calls with truncated arguments.
func garbage(r *env) {
	r.t.Helper()
	bad := r.prepare(5, nfs3.Program, nfs3.Version, nfs3.ProcRemove, &nfs3.HandleArgs{Object: r.root}, 0).send().wait()
	if bad.status.Accept != oncrpc.GarbageArgs {
		r.t.Errorf("answered %v", bad.status)
	}
}

// TestGarbageOnReceiveLoop sends truncated arguments to procedures of the receive loop.
func TestGarbageOnReceiveLoop(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "content")
	h := r.handle("file")
	for range 2 { // from the second time on
		_, _ = r.read(h, 0, 10)
		_ = r.access(h, nfs3.AccessRead)
	}
	for _, proc := range []uint32{nfs3.ProcRead, nfs3.ProcAccess} {
		bad := r.prepare(5, nfs3.Program, nfs3.Version, proc, &nfs3.HandleArgs{Object: h}, 0).send().wait()
		if bad.status.Accept != oncrpc.GarbageArgs {
			t.Errorf("%s was answered %v", nfs3.ProcedureName(proc), bad.status)
		}
	}
}

func TestReplyCacheBounds(t *testing.T) {
	r := newEnv(t, func(c *Config) { c.ReplyCache = ReplyCacheLimits{PerClient: 4, Bytes: 10_000} })
	status := func(r *env, xid uint32) nfs3.Status {
		return removeCall(r, xid, "nothing").send().wait().removeStatus()
	}
	quiet := r.with(r.cred, "127.0.0.9:1")
	_ = status(quiet, 1)
	for xid := range uint32(20) {
		_ = status(r, xid)
	}
	if n := r.s.Stats().CachedReplies; n != 4+1 {
		t.Errorf("%d replies are kept, want 4 of the busy client and 1 of the quiet one", n)
	}
	replays := func() uint64 { return r.s.Stats().Replays }
	before := replays()
	_ = status(r, 19)
	_ = status(r, 16)
	_ = status(quiet, 1)
	if replays() != before+3 {
		t.Errorf("%d of 3 retransmissions were answered from the cache", replays()-before)
	}
	_ = status(r, 15)
	if replays() != before+3 {
		t.Error("the fifth last call is still kept")
	}
	// Many clients: those silent for longest are evicted.
	for i := range 100 {
		// A client that sends only garbage is neither kept nor evicts others.
		garbage(r.with(r.cred, fmt.Sprintf("127.0.2.%d:1", i)))
		_ = status(r.with(r.cred, fmt.Sprintf("127.0.1.%d:1", i)), 1)
		if st := r.s.Stats(); st.CachedBytes > 10_000 {
			t.Fatalf("%d bytes are kept", st.CachedBytes)
		}
	}
	before = replays()
	_ = status(r.with(r.cred, "127.0.1.99:7"), 1)
	_ = status(quiet, 1)
	if replays() != before+1 {
		t.Errorf("%d retransmissions were answered, want that of the last client alone", replays()-before)
	}
	if clients := len(r.s.replies.clients); clients > 40 {
		t.Errorf("%d clients are remembered", clients)
	}
}

func TestWorkersAreBounded(t *testing.T) {
	g := newGate()
	r := newEnv(t, func(c *Config) { c.Workers = 2; c.Files.Sync = g.sync })
	r.put("file", "content")
	h := r.handle("file")
	r.read(h, 0, 100) // opens it
	var calls []*wire
	for i := range 5 { // of a file each: those of one would share a sync
		name := string(rune('a' + i))
		r.put(name, "")
		calls = append(calls, r.prepare(uint32(i), nfs3.Program, nfs3.Version, nfs3.ProcCommit, &nfs3.CommitArgs{File: r.handle(name)}, 0))
	}
	for _, w := range calls {
		w.send()
	}
	<-g.entered
	<-g.entered
	if st := r.s.Stats(); st.Busy != 2 || st.Queued != 3 {
		t.Errorf("%+v", st)
	}
	// Nonblocking calls are answered meanwhile.
	if res := r.getattr(h); res.Status != nfs3.OK {
		t.Errorf("GETATTR: %v", res.Status)
	}
	if _, got := r.read(h, 0, 100); got != "content" {
		t.Errorf("READ: %q", got)
	}
	close(g.leave)
	for _, w := range calls {
		var res nfs3.CommitRes
		w.wait().results(&res)
		wantStatus(t, "COMMIT", res.Status, nfs3.OK)
	}
}

func TestCloseWaits(t *testing.T) {
	g := newGate()
	r := newEnv(t, func(c *Config) { c.Files.Sync = g.sync; c.Workers = 1 })
	r.put("file", "")
	h := r.handle("file")
	first := r.prepare(1, nfs3.Program, nfs3.Version, nfs3.ProcCommit, &nfs3.CommitArgs{File: h}, 0).send()
	queued := r.prepare(2, nfs3.Program, nfs3.Version, nfs3.ProcCommit, &nfs3.CommitArgs{File: h}, 0).send()
	<-g.entered
	closed := make(chan error, 1)
	s := r.s
	r.s = nil
	go func() { closed <- s.Close() }()
	for !s.closed.Load() {
		runtime.Gosched()
	}
	late := &wire{env: r, call: &oncrpc.Call{}, done: make(chan struct{}, 1)}
	late.call.Init(r.pool, late)
	late.fill(3, nfs3.Program, nfs3.Version, nfs3.ProcNull, nil, 0)
	s.ServeRPC(late.call)
	if late.wait(); !late.dropped {
		t.Error("a call after Close was answered")
	}
	select {
	case err := <-closed:
		t.Errorf("Close did not wait: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	close(g.leave)
	for _, w := range []*wire{first, queued} {
		var res nfs3.CommitRes
		w.wait().results(&res)
		wantStatus(t, "COMMIT", res.Status, nfs3.OK)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if s.Close() == nil {
		t.Error("a second Close is no error")
	}
}

// TestSlowWriteAndItsRetry: a client gives up a connection, sends its WRITE again, and then other
// data for the same place. The first WRITE must not come last.
func TestSlowWriteAndItsRetry(t *testing.T) {
	g := newGate()
	r := newEnv(t, func(c *Config) { c.Files.Sync = g.sync })
	r.put("file", "")
	h := r.handle("file")
	slow := r.prepare(1, nfs3.Program, nfs3.Version, nfs3.ProcWrite, writeArgs(h, 0, "first", nfs3.FileSync), 0).send()
	<-g.entered
	retry := r.with(r.cred, "127.0.0.1:701").prepare(1, nfs3.Program, nfs3.Version, nfs3.ProcWrite, writeArgs(h, 0, "first", nfs3.FileSync), 0).send()
	close(g.leave)
	var res nfs3.WriteRes
	slow.wait().results(&res)
	retry.wait().results(&res)
	r.write(h, 0, "then!", nfs3.Unstable)
	if got := r.content("file"); got != "then!" {
		t.Errorf("the file is %q", got)
	}
}

func TestDirectoryIsNoPlaceForState(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/state", 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := New(Config{Root: dir, StateDir: dir + "/state", Access: everyone})
	if err == nil {
		t.Error("the key of handles was put where clients can read it")
	}
	state := t.TempDir()
	handle := func() []byte {
		s, err := New(Config{Root: dir, StateDir: state, Access: everyone})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return bytes.Clone(s.fs.Root().Handle().Bytes())
	}
	if a, b := handle(), handle(); !bytes.Equal(a, b) {
		t.Error("handles did not survive a restart")
	}
	var st unix.Stat_t
	if err := unix.Stat(state+"/handle.key", &st); err != nil || st.Mode&0o777 != 0o600 || st.Size != 32 {
		t.Errorf("the key's file: %v, mode %o, %d bytes", err, st.Mode, st.Size)
	}
	if err := os.WriteFile(state+"/handle.key", []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Root: dir, StateDir: state, Access: everyone}); err == nil {
		t.Error("a short key was taken")
	}
	for what, cfg := range map[string]Config{
		"no directory": {Root: dir + "/nothing", Key: testKey}, "a file": {Root: state + "/handle.key", Key: testKey}, "short key": {Root: dir, Key: []byte("x")},
		"name": {Root: dir, Key: testKey, Name: "a/b"}, "workers": {Root: dir, Key: testKey, Workers: -1}, "no state directory": {Root: dir, StateDir: dir + "/nothing"},
		"squash": {Root: dir, Key: testKey, Access: []Rule{{Squash: 9}}}, "network": {Root: dir, Key: testKey, Access: []Rule{{Networks: everyone[0].Networks[:1:1]}, {Networks: make([]prefix, 1)}}},
	} {
		if s, err := New(cfg); err == nil {
			s.Close()
			t.Errorf("%s: no error", what)
		}
	}
}
