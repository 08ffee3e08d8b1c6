package server

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// withState gives the env's server a state directory, without syncs.
func withState(state string) func(*Config) {
	return func(c *Config) {
		c.StateDir = state
		c.Files.Sync = func(int, vfs.SyncKind) error { return nil }
	}
}

func (r *env) restart(change func(*Config)) {
	r.t.Helper()
	r.stop()
	r.start(change)
}

func TestRepliesSurviveRestart(t *testing.T) {
	state := t.TempDir()
	keep := withState(state)
	r := newEnv(t, keep)
	r.put("a", "")
	first := removeCall(r, 1, "a").send().wait()
	wantStatus(t, "REMOVE", first.removeStatus(), nfs3.OK)
	kept := r.create(r.root, "kept", nfs3.Unchecked, nfs3.SetAttrs{})
	for range 3 {
		r.restart(keep)
		r.put("a", "made anew")
		again := removeCall(r.with(r.cred, "127.0.0.1:1234"), 1, "a").send().wait()
		if !bytes.Equal(again.reply, first.reply) || r.content("a") != "made anew" {
			t.Errorf("the retransmission got\n%x, want\n%x", again.reply, first.reply)
		}
		if got := r.getattr(kept.Object.Handle); got.Status != nfs3.OK {
			t.Errorf("the handle of a file that was made before: %v", got.Status)
		}
		wantStatus(t, "another client's call", removeCall(r.with(r.cred, "127.0.0.2:1"), 1, "b").send().wait().removeStatus(), nfs3.ErrNoEnt)
	}
	// A WRITE is not kept: to repeat it is harmless.
	if n := r.s.Stats().CachedReplies; n != 3 {
		t.Errorf("%d replies are kept, want 3", n)
	}
	h := r.handle("a")
	r.write(h, 0, "x", nfs3.FileSync)
	r.restart(keep)
	if n := r.s.Stats().CachedReplies; n != 3 {
		t.Errorf("%d replies are kept after a WRITE, want 3", n)
	}
	// With another key, the handles in replies are invalid.
	r.restart(func(c *Config) { keep(c); c.Key = []byte("another key of file handles") })
	if n := r.s.Stats().CachedReplies; n != 0 {
		t.Errorf("%d replies are kept with another key", n)
	}
}

// TestJournalAfterSetKeys: after a change of keys, earlier and later replies survive a restart.
func TestJournalAfterSetKeys(t *testing.T) {
	state := t.TempDir()
	oldKey, newKey := testKey, []byte("another key of file handles")
	keep := withState(state)
	newer := func(c *Config) { keep(c); c.Key, c.OlderKeys = newKey, [][]byte{oldKey} }
	r := newEnv(t, keep)
	for _, name := range []string{"a", "b"} {
		r.put(name, "")
	}
	first := removeCall(r, 1, "a").send().wait()
	wantStatus(t, "REMOVE", first.removeStatus(), nfs3.OK)
	if err := r.s.SetKeys([][]byte{newKey, oldKey}); err != nil {
		t.Fatal(err)
	}
	second := removeCall(r, 2, "b").send().wait()
	wantStatus(t, "REMOVE with a handle of the old key", second.removeStatus(), nfs3.OK)
	root := r.root
	r.restart(newer)
	r.root = root // a retransmission has the old handle
	for i, before := range []*wire{first, second} {
		again := removeCall(r.with(r.cred, "127.0.0.1:1234"), uint32(i+1), []string{"a", "b"}[i]).send().wait()
		if !bytes.Equal(again.reply, before.reply) {
			t.Errorf("the retransmission of call %d got\n%x, want\n%x", i+1, again.reply, before.reply)
		}
	}
	if n := r.s.Stats().CachedReplies; n != 2 {
		t.Errorf("%d replies are kept, want 2", n)
	}
}

// TestJournalIsBounded exceeds the journal's room with calls and clients. The last calls of each
// survive.
func TestJournalIsBounded(t *testing.T) {
	state := t.TempDir()
	change := func(c *Config) {
		withState(state)(c)
		c.ReplyCache.PerClient = 1000
	}
	r := newEnv(t, change)
	status := func(r *env, xid uint32) nfs3.Status {
		return removeCall(r, xid, "nothing").send().wait().removeStatus()
	}
	const clients, calls = 6, 1100
	client := func(i int) *env { return r.with(r.cred, fmt.Sprintf("127.0.1.%d:1", i)) }
	for i := range clients {
		c := client(i)
		for xid := range uint32(calls) {
			_ = status(c, xid)
		}
	}
	files, err := filepath.Glob(filepath.Join(state, "replies-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	for range 2 {
		info, err := os.Stat(files[0])
		r.must(err)
		if info.Size() != journalStart+journalSlots*slotSize || info.Mode() != 0o600 {
			t.Errorf("the journal has %d bytes, mode %v", info.Size(), info.Mode())
		}
		r.restart(change)
		st := r.s.Stats()
		if st.CachedReplies > journalSlots || st.CachedReplies < journalSlots-1000 {
			t.Errorf("%d replies are kept", st.CachedReplies)
		}
		for i := clients - 3; i < clients; i++ {
			c := client(i)
			before := r.s.Stats().Replays
			_, _ = status(c, calls-1), status(c, calls-1000)
			if n := r.s.Stats().Replays - before; n != 2 {
				t.Errorf("%d of 2 retransmissions of client %d were answered from the journal", n, i)
			}
		}
	}
}

// TestJournalTakesFewBlocks: consecutive calls of one client reuse few slots.
func TestJournalTakesFewBlocks(t *testing.T) {
	state := t.TempDir()
	r := newEnv(t, func(c *Config) {
		withState(state)(c)
		c.ReplyCache.PerClient = 8
	})
	for xid := range uint32(200) {
		_ = removeCall(r, xid, "nothing").send().wait()
	}
	files, err := filepath.Glob(filepath.Join(state, "replies-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	var st unix.Stat_t
	r.must(unix.Stat(files[0], &st))
	if st.Blocks*512 > 64<<10 {
		t.Errorf("the journal takes %d bytes", st.Blocks*512)
	}
}

// TestJournalOfDamage opens truncated, changed and foreign files.
func TestJournalOfDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "replies")
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	identity := []byte("a directory")
	fill := func() []byte {
		t.Helper()
		_ = os.Remove(path)
		j, records, err := openJournal(path, identity, log)
		if err != nil || len(records) != 0 {
			t.Fatalf("a new journal: %d records, %v", len(records), err)
		}
		var b slotBuf
		for i := range int32(3) {
			e := &cachedReply{slot: i, sequence: uint64(i + 1), key: replyKey{xid: uint32(i), procedure: nfs3.ProcRemove}}
			to := &target{state: present, ctime: 5, n: 2, handle: [64]byte{1, 2}}
			if i != 1 {
				j.begin(e, to, &b)
			}
			if i != 2 {
				j.end(e, [][]byte{[]byte("re"), []byte("ply")}, &b)
			}
		}
		if _, _, err := openJournal(path, identity, log); err == nil {
			t.Error("a journal that is in use was opened")
		}
		if err := j.close(); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	load := func(identity []byte) string {
		t.Helper()
		j, records, err := openJournal(path, identity, log)
		if err != nil {
			t.Fatal(err)
		}
		defer j.close()
		var out []string
		for _, s := range records {
			out = append(out, fmt.Sprintf("%d:%d:%d:%s:%d:%x", s.slot, s.key.xid, s.target.state, s.reply, s.target.ctime, s.target.handle[:s.target.n]))
		}
		return strings.Join(out, " ")
	}
	const whole = "0:0:2:reply:5:0102 1:1:0:reply:0: 2:2:2::5:0102"
	content := fill()
	if got := load(identity); got != whole {
		t.Errorf("records %q, want %q", got, whole)
	}
	if got := load([]byte("another directory")); got != "" {
		t.Errorf("another directory has the records %q", got)
	}
	for what, change := range map[string]func(b []byte) []byte{
		"empty": func([]byte) []byte { return nil }, "cut off": func(b []byte) []byte { return b[:len(b)-1] }, "longer": func(b []byte) []byte { return append(b, 0) },
		"another version": func(b []byte) []byte { b[15] = '2'; return b },
	} {
		if err := os.WriteFile(path, change(bytes.Clone(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := load(identity); got != "" {
			t.Errorf("%s: records %q", what, got)
		}
	}
	// A changed byte loses one record or its reply.
	for at := 0; at < slotSize; at += 3 {
		b := bytes.Clone(content)
		b[journalStart+at] ^= 0x10
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		got := load(identity)
		rest := strings.TrimPrefix(whole, "0:0:2:reply:5:0102")
		switch want := whole; {
		case at < headSize:
			if got != strings.TrimPrefix(rest, " ") {
				t.Fatalf("byte %d changed: %q", at, got)
			}
		case at < 164, at < replyAt+len("reply"):
			if got != "0:0:2::5:0102"+rest {
				t.Fatalf("byte %d changed: %q", at, got)
			}
		case got != want:
			t.Fatalf("byte %d changed: %q", at, got)
		}
	}
}

// TestNoJournal has unusable state directories: the server works, with a note.
func TestNoJournal(t *testing.T) {
	state := t.TempDir()
	r := newEnv(t, withState(state))
	files, err := filepath.Glob(filepath.Join(state, "replies-*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	r.stop()
	r.must(os.Remove(files[0]))
	r.must(os.Mkdir(files[0], 0o700))
	r.start(withState(state))
	if notes := r.s.Info().Notes; len(notes) == 0 || !strings.Contains(notes[len(notes)-1], "replies do not survive a restart") {
		t.Errorf("notes: %q", notes)
	}
	r.put("file", "")
	wantStatus(t, "REMOVE", removeCall(r, 1, "file").send().wait().removeStatus(), nfs3.OK)
	wantStatus(t, "REMOVE again", removeCall(r, 1, "file").send().wait().removeStatus(), nfs3.OK)
	// The journal must be out of clients' reach, also with a key of its own.
	inside := r.path("state")
	r.must(os.Mkdir(inside, 0o700))
	if s, err := New(Config{Root: r.dir, StateDir: inside, Key: testKey, Access: everyone}); err == nil {
		s.Close()
		t.Error("a state directory inside the export was taken")
	}
}

// TestJournalTogether runs many clients with a small cache, for the race detector.
func TestJournalTogether(t *testing.T) {
	state := t.TempDir()
	change := func(c *Config) {
		withState(state)(c)
		c.ReplyCache = ReplyCacheLimits{PerClient: 5, Bytes: 20 * entrySize}
	}
	r := newEnv(t, change)
	for round := range uint32(2) {
		var wg sync.WaitGroup
		for k := range 6 {
			c := r.with(r.cred, fmt.Sprintf("127.0.3.%d:1", k))
			wg.Go(func() {
				for i := range uint32(40) {
					i += 1000 * round
					name := fmt.Sprint("file-", k, "-", i)
					w := c.prepare(2*i, nfs3.Program, nfs3.Version, nfs3.ProcCreate, &nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: c.root, Name: []byte(name)}}, 0)
					var res nfs3.CreateRes
					w.send().wait().results(&res)
					if st := removeCall(c, 2*i+1, name).send().wait().removeStatus(); res.Status != nfs3.OK || st != nfs3.OK {
						t.Errorf("%s: CREATE %v, REMOVE %v", name, res.Status, st)
					}
				}
			})
		}
		wg.Wait()
		free := len(r.s.replies.free)
		used := map[int32]bool{}
		for _, c := range r.s.replies.clients {
			for e := c.oldest; e != nil; e = e.newer {
				if e.slot != noSlot {
					if used[e.slot] {
						t.Fatalf("slot %d is used twice", e.slot)
					}
					used[e.slot] = true
				}
			}
		}
		if free+len(used) != journalSlots {
			t.Errorf("%d slots are free and %d used, want %d together", free, len(used), journalSlots)
		}
		r.restart(change)
	}
}

// BenchmarkNames makes and removes a file, with and without the journal. It does not sync, which
// would dominate.
func BenchmarkNames(b *testing.B) {
	for _, journal := range []bool{false, true} {
		b.Run(fmt.Sprintf("journal=%v", journal), func(b *testing.B) {
			state := b.TempDir()
			r := newEnv(b, func(c *Config) {
				withState(state)(c)
				if !journal {
					c.StateDir = ""
				}
			})
			create := r.repeated(nfs3.ProcCreate, &nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: r.root, Name: []byte("file")}})
			remove := r.repeated(nfs3.ProcRemove, &nfs3.RemoveArgs{Dir: r.root, Name: []byte("file")})
			for b.Loop() {
				create.run()
				remove.run()
			}
		})
	}
}

// BenchmarkJournal records a call and its reply.
func BenchmarkJournal(b *testing.B) {
	j, _, err := openJournal(filepath.Join(b.TempDir(), "replies"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer j.close()
	var buf slotBuf
	e := &cachedReply{}
	reply := [][]byte{make([]byte, 300)}
	for b.Loop() {
		e.slot = (e.slot + 1) % journalSlots
		e.sequence++
		j.begin(e, &target{state: present, n: 32}, &buf)
		j.end(e, reply, &buf)
	}
}
