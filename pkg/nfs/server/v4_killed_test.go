package server

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// killable4 is a client of a killable server with a persistent session.
type killable4 struct {
	*killable
	session  nfs4test.Raw
	sequence uint32
}

// compound encodes a COMPOUND with its record mark.
func (k *killable4) compound(ops ...nfs4test.Raw) []byte {
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 4096), nil)
	oncrpc.EncodeCallHeader(&e, 7, nfs4.Program, nfs4.Version, nfs4.ProcCompound, sysCred(k.t, 0, 0), oncrpc.Auth{})
	args := nfs4test.Fields("tag", 2, len(ops), slices.Concat(ops...))
	copy(e.Grow(len(args)), args)
	b := e.Bytes()
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))|1<<31), b...)
}

// next is a COMPOUND in the session's slot.
func (k *killable4) next(ops ...nfs4test.Raw) []byte {
	k.sequence++
	return k.compound(append([]nfs4test.Raw{op4(nfs4.OpSequence, k.session, k.sequence, 0, 0, true)}, ops...)...)
}

func (k *killable4) results() *nfs4test.Results {
	k.t.Helper()
	d := k.receive()
	res, err := nfs4test.Read(slices.Clone(d.Fixed(d.Left())))
	k.must(err)
	return res
}

func (k *killable4) ask(b []byte) *nfs4test.Results {
	k.t.Helper()
	k.send(b)
	return k.results()
}

// connect makes a client and its session, and completes its recovery.
func (k *killable4) connect() {
	k.t.Helper()
	ok := func(b []byte) *nfs4test.Results {
		k.t.Helper()
		res := k.ask(b)
		expect(k.t, "a call of the set-up", res, nfs4.OK)
		return res
	}
	var x nfs4.ExchangeIDRes
	x.Decode(opResult(ok(k.compound(op4(nfs4.OpExchangeID, nfs4test.Raw("verifier"), "owner", 0, 0, 0))), 0))
	var s nfs4.CreateSessionRes
	s.Decode(opResult(ok(k.compound(createSession(x.ClientID, x.Sequence, nfs4.SessionPersist, nfs4test.Channel(32<<10, 16, 4), nfs4test.Channel(4096, 4, 2), 0x40000000, 0))), 0))
	if s.Flags != nfs4.SessionPersist {
		k.t.Fatalf("CREATE_SESSION granted the flags %#x", s.Flags)
	}
	k.session, k.sequence = slices.Clone(nfs4test.Raw(s.Session[:])), 0
	ok(k.next(op4(nfs4.OpReclaimComplete, false)))
}

// awaitHeld waits until the server stops at the point of a file, and removes the file.
func (k *killable) awaitHeld(name string) {
	k.t.Helper()
	for start := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(k.top, held)); err == nil {
			break
		}
		if time.Since(start) > time.Minute {
			k.kill()
			k.t.Fatal("the call does not get so far")
		}
	}
	k.must(os.Remove(filepath.Join(k.top, name)))
	k.must(os.Remove(filepath.Join(k.top, held)))
}

// TestKilled4 kills a server with SIGKILL at each step of a call in a persistent session. Others
// change the directory in between. The client sends the call again in the same session; where that
// is asked to come later, it has had no effect, and the client sends it in a new session.
func TestKilled4(t *testing.T) {
	getFH := op4(nfs4.OpGetFH)
	name := func(s string) nfs4test.Raw { return op4(nfs4.OpLookup, s) }
	attrs := func(mask nfs4.Bitmap, list ...any) nfs4test.Raw {
		return nfs4test.Fields(2, mask[0], mask[1], string(nfs4test.Fields(list...)))
	}
	mode := attrs(nfs4.BitmapOf(nfs4.AttrMode), 0o755)
	cut := attrs(nfs4.BitmapOf(nfs4.AttrSize), uint64(0))
	openAs := func(how ...any) []nfs4test.Raw {
		list := append([]any{0, nfs4.ShareAccessBoth, 0, uint64(1), "open owner", 1}, how...)
		return []nfs4test.Raw{rootFH, op4(nfs4.OpOpen, append(list, int(nfs4.ClaimNull), "file")...), getFH}
	}
	remove := []nfs4test.Raw{rootFH, op4(nfs4.OpRemove, "file")}
	rename := []nfs4test.Raw{rootFH, op4(nfs4.OpSaveFH), op4(nfs4.OpRename, "file", "other")}
	link := []nfs4test.Raw{rootFH, name("file"), op4(nfs4.OpSaveFH), rootFH, op4(nfs4.OpLink, "other")}
	mkdir := []nfs4test.Raw{rootFH, op4(nfs4.OpCreate, int(nfs4.Dir), "dir", mode), getFH}
	symlink := []nfs4test.Raw{rootFH, op4(nfs4.OpCreate, int(nfs4.Lnk), "target", "link", mode), getFH}
	guarded, unchecked := openAs(int(nfs4.Guarded), mode), openAs(int(nfs4.Unchecked), cut)
	exclusive := openAs(int(nfs4.Exclusive1), nfs4test.Raw("verifier"), mode)
	truncate := []nfs4test.Raw{rootFH, name("file"), op4(nfs4.OpSetAttr, nfs4test.Raw(make([]byte, 16)), cut)}
	two := []nfs4test.Raw{rootFH, op4(nfs4.OpCreate, int(nfs4.Dir), "dir", mode), rootFH, op4(nfs4.OpRemove, "file"), op4(nfs4.OpGetFH)}
	setXattr := []nfs4test.Raw{rootFH, name("file"), op4(nfs4.OpSetXattr, nfs4.XattrCreate, "a", "value")}
	delXattr := []nfs4test.Raw{rootFH, name("file"), op4(nfs4.OpRemoveXattr, "a")}

	none := func(*killable) {}
	old := func(k *killable) { k.put("file", "old") }
	written := func(k *killable) { k.put("file", "new") }
	other := func(k *killable) { k.put("file", "other's") }
	dir := func(k *killable) { k.must(os.Mkdir(k.path("dir"), 0o755)) }
	moved := func(k *killable) { k.must(os.Rename(k.path("dir"), k.path("elsewhere"))) }
	marked := func(k *killable) { old(k); k.xattr("a") }

	for _, c := range []struct {
		name    string
		before  func(*killable)
		call    []nfs4test.Raw
		when    string // the file that stops the server; empty kills it after the reply
		between func(*killable)
		late    func(*killable) // changes by others after the restart, before the retry
		delay   bool            // the retry is asked to come later
		status  nfs4.Status
		files   string
	}{
		{name: "REMOVE answered, made anew", before: old, call: remove, between: written, files: "file=new"},
		{name: "REMOVE answered, reply not sent", before: old, call: remove, when: holdAnswered, between: written, files: "file=new"},
		{name: "REMOVE done, made anew", before: old, call: remove, when: holdSync, between: written, files: "file=new"},
		{name: "REMOVE done", before: old, call: remove, when: holdSync},
		{name: "REMOVE not done", before: old, call: remove, when: holdIntended, delay: true},
		{name: "REMOVE of nothing answered", call: remove, between: written, status: nfs4.ErrNoEnt, files: "file=new"},
		{name: "RENAME reply not sent, made anew", before: old, call: rename, when: holdAnswered, between: written, files: "file=new other=old"},
		{name: "RENAME done, made anew", before: old, call: rename, when: holdSync, between: written, files: "file=new other=old"},
		{name: "RENAME done", before: old, call: rename, when: holdSync, files: "other=old"},
		{name: "RENAME not done", before: old, call: rename, when: holdIntended, delay: true, files: "other=old"},
		{name: "RENAME not done, another's", before: old, call: rename, when: holdIntended, delay: true, status: nfs4.ErrNoEnt, files: "taken=old",
			between: func(k *killable) { k.must(os.Rename(k.path("file"), k.path("taken"))) }},
		{name: "LINK reply not sent", before: old, call: link, when: holdAnswered, files: "file=old other=old"},
		{name: "LINK done", before: old, call: link, when: holdSync, files: "file=old other=old"},
		{name: "LINK not done", before: old, call: link, when: holdIntended, delay: true, files: "file=old other=old"},
		{name: "CREATE reply not sent", call: mkdir, when: holdAnswered, files: "dir/"},
		{name: "CREATE done", call: mkdir, when: holdSync, files: "dir/"},
		{name: "CREATE done, moved", call: mkdir, when: holdSync, between: moved, files: "elsewhere/"},
		{name: "CREATE done, object not recorded", call: mkdir, when: holdMaking, files: "dir/"},
		{name: "CREATE not done", call: mkdir, when: holdIntended, delay: true, files: "dir/"},
		{name: "CREATE not done, made by another later", call: mkdir, when: holdIntended, late: dir, delay: true, status: nfs4.ErrExist, files: "dir/"},
		{name: "CREATE of what exists", before: dir, call: mkdir, status: nfs4.ErrExist, files: "dir/"},
		{name: "CREATE of what exists, not answered", before: dir, call: mkdir, when: holdIntended, delay: true, status: nfs4.ErrExist, files: "dir/"},
		{name: "CREATE of a link done", call: symlink, when: holdSync, files: "link>target"},
		{name: "CREATE of a link done, not recorded", call: symlink, when: holdMaking, files: "link>target"},
		{name: "OPEN guarded answered, written", call: guarded, between: written, files: "file=new"},
		{name: "OPEN guarded reply not sent", call: guarded, when: holdAnswered, files: "file="},
		{name: "OPEN guarded done, written", call: guarded, when: holdSync, between: written, files: "file=new"},
		{name: "OPEN guarded done, not recorded", call: guarded, when: holdMaking, files: "file="},
		{name: "OPEN guarded not done", call: guarded, when: holdIntended, delay: true, files: "file="},
		{name: "OPEN guarded not done, made by another later", call: guarded, when: holdIntended, late: other, delay: true, status: nfs4.ErrExist, files: "file=other's"},
		{name: "OPEN exclusive done, written", call: exclusive, when: holdSync, between: written, files: "file=new"},
		{name: "OPEN unchecked done, written", call: unchecked, when: holdSync, between: written, files: "file=new"},
		{name: "OPEN unchecked not done", call: unchecked, when: holdIntended, delay: true, files: "file="},
		{name: "OPEN unchecked over answered, written", before: old, call: unchecked, between: written, files: "file=new"},
		{name: "OPEN unchecked over done, written", before: old, call: unchecked, when: holdSync, between: written, files: "file=new"},
		{name: "SETATTR of size reply not sent, written", before: old, call: truncate, when: holdAnswered, between: written, files: "file=new"},
		{name: "SETATTR of size done, written", before: old, call: truncate, when: holdSync, between: written, files: "file=new"},
		{name: "SETATTR of size not done", before: old, call: truncate, when: holdIntended, delay: true, files: "file="},
		{name: "SETXATTR done", before: old, call: setXattr, when: holdSync, files: "file=old"},
		{name: "SETXATTR not done", before: old, call: setXattr, when: holdIntended, delay: true, files: "file=old"},
		{name: "REMOVEXATTR done", before: marked, call: delXattr, when: holdSync, files: "file=old"},
		{name: "REMOVEXATTR not done", before: marked, call: delXattr, when: holdIntended, delay: true, files: "file=old"},
		{name: "two changes answered", before: old, call: two, between: written, files: "dir/ file=new"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			for _, f := range [...]*func(*killable){&c.before, &c.between, &c.late} {
				if *f == nil {
					*f = none
				}
			}
			k := &killable4{killable: &killable{t: t, top: t.TempDir()}}
			k.must(os.Mkdir(filepath.Join(k.top, exportDir), 0o755))
			k.must(os.Mkdir(filepath.Join(k.top, stateDir), 0o700))
			c.before(k.killable)
			k.start()
			k.connect()
			call := k.next(c.call...)
			if c.when != "" {
				k.must(os.WriteFile(filepath.Join(k.top, c.when), nil, 0o600))
			}
			if k.send(call); c.when == "" {
				expect(t, "the answer", k.results(), c.status)
			} else {
				k.awaitHeld(c.when)
			}
			c.between(k.killable)
			k.kill()
			k.start()
			defer func() { k.kill() }()
			c.late(k.killable)
			want := c.status
			if c.delay {
				want = nfs4.ErrDelay
			}
			for range 2 {
				res := k.ask(call)
				expect(t, "sent again", res, want)
				if done := len(res.Ops); want == nfs4.OK && done != len(c.call)+1 {
					t.Errorf("sent again: %d results", done)
				}
			}
			expect(t, "a new call", k.ask(k.next(rootFH)), nfs4.ErrDeadsession)
			if c.delay {
				k.connect()
				expect(t, "in a new session", k.ask(k.next(c.call...)), c.status)
			}
			if got := k.files(); got != c.files {
				t.Errorf("the directory has %q, want %q", got, c.files)
			}
		})
	}
}

// xattr gives the file an attribute.
func (k *killable) xattr(name string) {
	k.t.Helper()
	k.must(unix.Setxattr(k.path("file"), "user."+name, []byte("value"), 0))
}
