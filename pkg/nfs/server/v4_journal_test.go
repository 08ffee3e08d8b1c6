package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
)

// persistent gives the env's server persistent sessions.
func persistent(state string) func(*Config) {
	return func(c *Config) {
		withState(state)(c)
		c.NFS4 = &NFS4Config{PersistentSessions: true}
	}
}

// createPersistent makes the session, and returns the flags that were granted.
func (s *session4) createPersistent(slots int) uint32 {
	s.t.Helper()
	res := s.compound(1, createSession(s.client, s.sequence, nfs4.SessionPersist, nfs4test.Channel(32<<10, 16, slots), nfs4test.Channel(4096, 4, 2), 0x40000000, 0))
	expect(s.t, "CREATE_SESSION", res, nfs4.OK)
	var r nfs4.CreateSessionRes
	r.Decode(opResult(res, 0))
	s.sequence++
	s.id, s.slots, s.cache = slices.Clone(nfs4test.Raw(r.Session[:])), make([]uint32, slots), true
	return r.Flags
}

func (r *env) persistentSession(owner string) *session4 {
	r.t.Helper()
	s := r.client4(owner, "verifier")
	if flags := s.createPersistent(testSlots); flags != nfs4.SessionPersist {
		r.t.Fatalf("CREATE_SESSION granted the flags %#x", flags)
	}
	s.ok(op4(nfs4.OpReclaimComplete, false))
	return s
}

// retry repeats the latest call of slot 0.
func (s *session4) retry(ops ...nfs4test.Raw) *nfs4test.Results {
	s.t.Helper()
	return s.compound(2, append([]nfs4test.Raw{s.seq(0)}, ops...)...)
}

func TestSessionsSurviveRestart(t *testing.T) {
	keep := persistent(t.TempDir())
	r := newEnv(t, keep)
	r.put("a", "")
	s := r.persistentSession("owner")
	remove := []nfs4test.Raw{rootFH, op4(nfs4.OpRemove, "a")}
	first := s.ok(remove...)
	for range 3 {
		r.restart(keep)
		r.put("a", "made anew")
		again := s.retry(remove...)
		if !bytes.Equal(again.Bytes, first.Bytes) || r.content("a") != "made anew" {
			t.Errorf("the retry got\n%x, want\n%x", again.Bytes, first.Bytes)
		}
		expect(t, "another call in its place", s.retry(rootFH, op4(nfs4.OpRemove, "b")), nfs4.ErrSeqFalseRetry)
		other := *s
		other.env = r.as(17, 17)
		expect(t, "the call of another principal", other.retry(remove...), nfs4.ErrSeqFalseRetry)
		for _, sequence := range []uint32{1, 3, 4} {
			other := *s
			other.slots = []uint32{sequence}
			expect(t, fmt.Sprint("call ", sequence), other.retry(remove...), nfs4.ErrDeadsession)
		}
		n := *s
		n.slots = make([]uint32, testSlots)
		expect(t, "an unused slot", n.compound(2, nfs4test.Op(int(nfs4.OpSequence), s.id, 1, 1, 1, true)), nfs4.ErrDeadsession)
		expect(t, "a slot that the session has not", n.compound(2, nfs4test.Op(int(nfs4.OpSequence), s.id, 1, 9, 9, true)), nfs4.ErrDeadsession)
	}
	destroy := op4(nfs4.OpDestroySession, s.id)
	expect(t, "DESTROY_SESSION of the dead session", r.compound(1, destroy), nfs4.OK)
	expect(t, "DESTROY_SESSION again", r.compound(1, destroy), nfs4.ErrBadSession)
	expect(t, "a retry in the destroyed session", s.retry(remove...), nfs4.ErrBadSession)
	r.restart(keep)
	expect(t, "a retry after another restart", s.retry(remove...), nfs4.ErrBadSession)
}

// forget makes the latest requests of a journal's slots unanswered ones, begun a minute earlier,
// whose process died before they recorded a new object.
func forget(t testing.TB, state string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(state, "sessions-*"))
	if err != nil || len(paths) != 1 {
		t.Fatalf("journals %q, %v", paths, err)
	}
	content, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	for record := range int32(v4JournalRecords) {
		b := (*recordBuf)(content[recordAt(record):])
		old := *b
		var r slotRecord
		if !r.decode(old[:]) || r.index == 0 {
			continue
		}
		if r.target.state != present {
			r.target = target{state: absent}
		}
		r.begun -= int64(time.Minute)
		b.head(&r)
		clear(b[v4ReplyPage:])
	}
	if err := os.WriteFile(paths[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tick waits for the next time of the kernel's clock of new objects.
func tick() {
	for begun := coarseNow(); coarseNow().Equal(begun); {
		time.Sleep(time.Millisecond)
	}
}

// TestRetryOfStaleHandle: the directory of an unanswered request has gone. SEQUENCE has no
// NFS4ERR_STALE.
func TestRetryOfStaleHandle(t *testing.T) {
	state := t.TempDir()
	keep := persistent(state)
	r := newEnv(t, keep)
	r.must(os.Mkdir(r.path("dir"), 0o777))
	r.put("dir/a", "")
	s := r.persistentSession("owner")
	remove := []nfs4test.Raw{rootFH, op4(nfs4.OpLookup, "dir"), op4(nfs4.OpRemove, "a")}
	s.ok(remove...)
	r.restart(func(c *Config) {
		forget(t, state)
		r.must(os.Remove(r.path("dir")))
		keep(c)
	})
	expect(t, "the retry", s.retry(remove...), nfs4.ErrDeadsession)
}

// TestRetryAfterTwoRestarts: another process has made the object under a later server.
func TestRetryAfterTwoRestarts(t *testing.T) {
	for _, later := range []bool{false, true} {
		state := t.TempDir()
		keep := persistent(state)
		r := newEnv(t, keep)
		s := r.persistentSession("owner")
		mkdir := []nfs4test.Raw{rootFH, op4(nfs4.OpCreate, int(nfs4.Dir), "dir", noAttrs)}
		s.ok(mkdir...)
		tick()
		r.restart(func(c *Config) {
			forget(t, state)
			keep(c)
		})
		want := nfs4.OK
		if later {
			want = nfs4.ErrDelay
			r.must(os.Remove(r.path("dir")))
			r.must(os.Mkdir(r.path("dir"), 0o777))
			tick()
		}
		r.restart(keep)
		expect(t, fmt.Sprintf("made later %v", later), s.retry(mkdir...), want)
	}
}

// TestOneMaker: of two unanswered requests for a name, one has made the object.
func TestOneMaker(t *testing.T) {
	state := t.TempDir()
	keep := persistent(state)
	r := newEnv(t, keep)
	a, b := r.persistentSession("a"), r.persistentSession("b")
	mkdir := []nfs4test.Raw{rootFH, op4(nfs4.OpCreate, int(nfs4.Dir), "dir", noAttrs)}
	a.ok(mkdir...)
	b.fails(nfs4.ErrExist, mkdir...)
	tick()
	r.restart(func(c *Config) {
		forget(t, state)
		keep(c)
	})
	expect(t, "the first retry", a.retry(mkdir...), nfs4.OK)
	expect(t, "the other's", b.retry(mkdir...), nfs4.ErrDelay)
	expect(t, "the first again", a.retry(mkdir...), nfs4.OK)
}

// TestSessionsOfMany: a session that is being made keeps its records, although it is not live yet.
func TestSessionsOfMany(t *testing.T) {
	j, err := openSessionJournal(filepath.Join(t.TempDir(), "sessions"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	id := nfs4.SessionID{1}
	none := func(nfs4.SessionID) bool { return false }
	j.sync = func(int) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.makeRoomLocked(v4JournalRecords, none, 0); j.sessions[id] == nil {
			t.Error("the records were given away")
		}
		return nil
	}
	if !j.open(id, 4, none, 0) {
		t.Error("no records")
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.makeRoomLocked(v4JournalRecords, none, 0); j.sessions[id] != nil || len(j.free) != v4JournalRecords {
		t.Errorf("an ended session keeps records: %d are free", len(j.free))
	}
}

// TestVolatileSessions: the default is no persistence, whatever the client asks for.
func TestVolatileSessions(t *testing.T) {
	keep := func(c *Config) { withState(t.TempDir())(c); c.NFS4 = &NFS4Config{} }
	r := newEnv(t, keep)
	if flags := r.client4("owner", "verifier").createPersistent(4); flags != 0 {
		t.Errorf("CREATE_SESSION granted the flags %#x", flags)
	}
	r.restart(func(c *Config) { c.NFS4 = &NFS4Config{PersistentSessions: true} })
	if notes := r.s.Info().Notes; len(notes) == 0 || !strings.Contains(notes[len(notes)-1], "sessions are not persistent") {
		t.Errorf("notes without a state directory: %q", notes)
	}
	if flags := r.client4("owner", "verifier").createPersistent(4); flags != 0 {
		t.Errorf("without a state directory, CREATE_SESSION granted the flags %#x", flags)
	}
}

// TestPersistentInRoot has the records on the volume, beside those of clients.
func TestPersistentInRoot(t *testing.T) {
	keep := func(c *Config) {
		persistent("")(c)
		c.NFS4.RecordsInRoot = true
	}
	r := newEnv(t, keep)
	r.put("a", "")
	s := r.persistentSession("owner")
	remove := []nfs4test.Raw{rootFH, op4(nfs4.OpRemove, "a")}
	s.ok(remove...)
	for range 2 {
		r.restart(keep)
		r.put("a", "")
		expect(t, "the retry", s.retry(remove...), nfs4.OK)
		expect(t, "the hidden directory", r.session("other").do(rootFH, op4(nfs4.OpLookup, hiddenRecords)), nfs4.ErrNoEnt)
	}
	if owners, err := (&clientRecords{dir: filepath.Join(r.dir, hiddenRecords)}).load(); err != nil || len(owners) != 2 {
		t.Errorf("%d client records, %v", len(owners), err)
	}
}

// TestSessionJournalIsBounded: sessions beyond the journal's room are not persistent, until others
// end.
func TestSessionJournalIsBounded(t *testing.T) {
	state := t.TempDir()
	keep := persistent(state)
	r := newEnv(t, keep)
	var all []*session4
	for i := 0; ; i++ {
		if i > v4JournalRecords {
			t.Fatal("there is no end")
		}
		s := r.client4(fmt.Sprint("owner ", i), "verifier")
		if s.createPersistent(64) == 0 {
			break
		}
		all = append(all, s)
	}
	if len(all) == 0 {
		t.Fatal("no session is persistent")
	}
	for _, s := range all {
		expect(t, "DESTROY_SESSION", r.compound(1, op4(nfs4.OpDestroySession, s.id)), nfs4.OK)
	}
	r.persistentSession("late")
	info, err := os.Stat(r.s.v4.journal.file.Name())
	r.must(err)
	if info.Size() != v4JournalStart+v4JournalRecords*v4RecordSize || info.Mode() != 0o600 {
		t.Errorf("the journal has %d bytes, mode %v", info.Size(), info.Mode())
	}
}

// TestSessionJournalFails: an operation that cannot be recorded has no effect.
func TestSessionJournalFails(t *testing.T) {
	r := newEnv(t, persistent(t.TempDir()))
	s := r.persistentSession("owner")
	r.put("a", "kept")
	r.s.v4.journal.sync = func(int) error { return unix.EIO }
	s.fails(nfs4.ErrIO, rootFH, op4(nfs4.OpRemove, "a"))
	if r.content("a") != "kept" {
		t.Error("the file is gone")
	}
}

// TestSyncsOfSessions counts the journal's syncs.
func TestSyncsOfSessions(t *testing.T) {
	r := newEnv(t, persistent(t.TempDir()))
	s := r.persistentSession("owner")
	syncs := 0
	r.s.v4.journal.sync = func(int) error { syncs++; return nil }
	r.put("a", "")
	s.ok(rootFH, op4(nfs4.OpGetFH), op4(nfs4.OpLookup, "a"))
	if syncs != 0 {
		t.Errorf("%d syncs of a call that changes nothing", syncs)
	}
	s.ok(rootFH, op4(nfs4.OpRemove, "a"))
	if syncs != 2 {
		t.Errorf("%d syncs of a REMOVE, want 2", syncs)
	}
}

// TestSessionJournalOfDamage opens truncated, changed and foreign files.
func TestSessionJournalOfDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions")
	identity, log := []byte("a directory"), slog.New(slog.DiscardHandler)
	open := func(identity []byte) *sessionJournal {
		t.Helper()
		j, err := openSessionJournal(path, identity, log)
		if err != nil {
			t.Fatal(err)
		}
		j.sync = func(int) error { return nil }
		return j
	}
	id := nfs4.SessionID{1, 2, 3}
	j := open(identity)
	if !j.open(id, 2, nil, 0) {
		t.Fatal("no records")
	}
	in := &intent{slotRecord: slotRecord{session: id, slot: 1, sequence: 5}}
	if !j.use(in) {
		t.Fatal("no record")
	}
	at := recordAt(in.record)
	in.index, in.target, in.prefix = 2, target{state: absent}, []byte("results")
	if err := j.begin(in); err != nil {
		t.Fatal(err)
	}
	in.reply, in.kept = []byte("reply"), true
	j.end(in)
	if _, err := openSessionJournal(path, identity, log); err == nil {
		t.Error("a journal that is in use was opened")
	}
	j.close()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(identity []byte) (string, nfs4.Status) {
		j := open(identity)
		defer j.close()
		var in intent
		st := j.claim(id, 1, 5, &in)
		return fmt.Sprintf("%s %v %s", in.prefix, in.answered, in.reply), st
	}
	const whole = "results true reply"
	if got, st := claim(identity); got != whole || st != nfs4.OK {
		t.Errorf("%q, %v", got, st)
	}
	for what, change := range map[string]func(b []byte) []byte{
		"empty": func([]byte) []byte { return nil }, "cut off": func(b []byte) []byte { return b[:len(b)-1] }, "longer": func(b []byte) []byte { return append(b, 0) },
		"another version": func(b []byte) []byte { b[15] = '2'; return b },
	} {
		if err := os.WriteFile(path, change(bytes.Clone(content)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, st := claim(identity); st != nfs4.ErrBadSession {
			t.Errorf("%s: %v", what, st)
		}
	}
	// A changed byte loses the record, or its reply.
	for i := range v4RecordSize {
		if i > v4PrefixAt+len("results") && i < v4ReplyPage || i > v4ReplyAt+len("reply") || i%3 != 0 {
			continue
		}
		b := bytes.Clone(content[at : at+v4RecordSize])
		b[i] ^= 0x10
		var r slotRecord
		ok := r.decode(b)
		switch {
		case i < v4PrefixAt+len("results") && ok, i >= v4ReplyPage && (!ok || i < v4ReplyAt+len("reply") && r.answered):
			t.Fatalf("byte %d changed: %v, answered %v", i, ok, r.answered)
		}
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, st := claim([]byte("another directory")); st != nfs4.ErrBadSession {
		t.Errorf("another directory: %v", st)
	}
}

// FuzzSlotRecord decodes damaged records. A record that decodes survives another round.
func FuzzSlotRecord(f *testing.F) {
	var b recordBuf
	r := slotRecord{session: nfs4.SessionID{1}, slot: 2, sequence: 3, index: 4, offset: 5, cur: []byte("current"), prefix: []byte("prefix"), kept: true, reply: []byte("reply")}
	r.target = target{state: created, n: 3, handle: [64]byte{1, 2, 3}}
	b.head(&r)
	b.tail(&r)
	f.Add(b[:], uint64(0))
	f.Add(b[:100], uint64(1))
	f.Fuzz(func(t *testing.T, damage []byte, seal uint64) {
		var b, c recordBuf
		copy(b[:], damage)
		if seal&1 != 0 { // so that damage is not found by the checksums alone
			n := min(int(binary.LittleEndian.Uint16(b[4:])), v4MaxPrefix)
			seal4(b[:], 0, v4PrefixAt+n)
		}
		var r, again slotRecord
		if !r.decode(b[:]) {
			return
		}
		c.head(&r)
		if r.answered {
			c.tail(&r)
		}
		if !again.decode(c[:]) || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v", r, again)
		}
	})
}

// seal4 makes the checksum of a head right.
func seal4(b []byte, from, to int) {
	binary.LittleEndian.PutUint32(b[from:], crc32.Checksum(b[from+4:to], castagnoli))
}

// BenchmarkSessions makes and removes a directory, with real syncs, in sessions that are persistent
// or not.
func BenchmarkSessions(b *testing.B) {
	for _, depth := range []int{1, 16} {
		for _, persist := range []bool{false, true} {
			b.Run(fmt.Sprintf("persistent=%v/depth=%d", persist, depth), func(b *testing.B) {
				state := b.TempDir()
				r := newEnv(b, func(c *Config) {
					c.StateDir, c.NFS4 = state, &NFS4Config{PersistentSessions: persist}
				})
				var syncs atomic.Int64
				if j := r.s.v4.journal; j != nil {
					sync := j.sync
					j.sync = func(fd int) error { syncs.Add(1); return sync(fd) }
				}
				var all []*session4
				for i := range depth {
					s := r.as(0, 0).client4(fmt.Sprint("owner ", i), "verifier")
					s.createPersistent(testSlots)
					s.ok(op4(nfs4.OpReclaimComplete, false))
					all = append(all, s)
				}
				syncs.Store(0)
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				b.ResetTimer()
				for i, s := range all {
					name := fmt.Sprint("dir", i)
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							s.ok(rootFH, op4(nfs4.OpCreate, int(nfs4.Dir), name, noAttrs))
							s.ok(rootFH, op4(nfs4.OpRemove, name))
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(2*b.N)/b.Elapsed().Seconds(), "calls/s")
				b.ReportMetric(float64(syncs.Load())/float64(2*b.N), "syncs/call")
			})
		}
	}
}
