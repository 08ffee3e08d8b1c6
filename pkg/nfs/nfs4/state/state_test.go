package state

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// world is a State with a clock, and a model of it: opens and locks of a few bytes, in maps.
type world struct {
	t    testing.TB
	s    *State
	now  time.Time
	peer map[string]*peer
	// opens and locks by client, owner and file.
	opens map[key]*modelOpen
	locks map[key]*modelLock
	held  map[any]bool // resources
	next  int
}

type peer struct {
	name    string
	c       *Client
	session nfs4.SessionID
	seq     uint32
	seen    time.Time
}

type key struct {
	client, owner string
	file          byte
}

type modelOpen struct {
	id           nfs4.StateID
	access, deny uint32
	modes        [][2]uint32
}

type modelLock struct {
	id    nfs4.StateID
	open  key
	bytes [span]byte // 0, Read or Write
}

const span = 12

func newWorld(t testing.TB, cfg Config, owners ...string) *world {
	w := &world{t: t, now: time.Unix(1e9, 0), peer: map[string]*peer{}, opens: map[key]*modelOpen{}, locks: map[key]*modelLock{}, held: map[any]bool{}}
	var list [][]byte
	for _, o := range owners {
		list = append(list, []byte(o))
	}
	cfg.Boot = 77
	w.s = New(cfg, list, w.now)
	return w
}

func (w *world) must(what string, st, want nfs4.Status) {
	w.t.Helper()
	if st != want {
		w.t.Fatalf("%s: %v, must be %v", what, st, want)
	}
}

// join makes a client with a session.
func (w *world) join(name, verifier string) *peer {
	w.t.Helper()
	var v nfs4.Verifier
	copy(v[:], verifier)
	x, st := w.s.ExchangeID([]byte(name), v, Principal{}, false, w.now)
	w.must("EXCHANGE_ID", st, nfs4.OK)
	ch := nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 1 << 20, MaxOperations: 8, MaxRequests: 2}
	r, st := w.s.CreateSession(&nfs4.CreateSessionArgs{ClientID: x.ClientID, Sequence: x.Sequence, Fore: ch, Back: ch}, Principal{}, nil, w.now)
	w.must("CREATE_SESSION", st, nfs4.OK)
	p := &peer{name: name, session: r.Session, seen: w.now}
	w.peer[name] = p
	w.sequence(p)
	return p
}

// sequence renews the lease of p.
func (w *world) sequence(p *peer) {
	w.t.Helper()
	p.seq++
	r, st := w.s.Sequence(&nfs4.SequenceArgs{Session: p.session, Sequence: p.seq}, &Request{Ops: 1}, nil, w.now)
	w.must("SEQUENCE of "+p.name, st, nfs4.OK)
	p.c, p.seen = r.Slot.Session.Client(), w.now
	w.s.Finish(&r.Slot, nil, w.now)
}

func (w *world) complete(p *peer) *peer {
	w.t.Helper()
	w.must("RECLAIM_COMPLETE", w.s.ReclaimComplete(p.c, w.now), nfs4.OK)
	return p
}

func testFile(n byte) (f FileID) { f[0] = n; return f }

func (w *world) expired(name string) bool {
	return w.now.After(w.peer[name].seen.Add(w.s.cfg.Lease))
}

// lose ends a client in the model.
func (w *world) lose(name string) {
	for k := range w.opens {
		if k.client == name {
			delete(w.opens, k)
		}
	}
	for k := range w.locks {
		if k.client == name {
			delete(w.locks, k)
		}
	}
	delete(w.peer, name)
}

func (w *world) resource() any { w.next++; return w.next }

// check compares the State with the model.
func (w *world) check() {
	w.t.Helper()
	released, _ := w.s.Released()
	for _, r := range released {
		if !w.held[r] {
			w.t.Fatalf("resource %v was released twice, or never held", r)
		}
		delete(w.held, r)
	}
	st := w.s.Stats(w.now)
	ranges := 0
	for _, l := range w.s.stateids {
		if l.lock != nil {
			ranges += len(l.lock.ranges)
		}
	}
	if st.Opens != len(w.opens) || st.Locks != len(w.locks) || len(w.held) != len(w.opens) || st.Ranges != ranges || st.Clients != len(w.peer) {
		w.t.Fatalf("%+v, %d resources; must be %d opens, %d locks, %d ranges, %d clients", st, len(w.held), len(w.opens), len(w.locks), ranges, len(w.peer))
	}
	if len(w.s.stateids) != len(w.opens)+len(w.locks) {
		w.t.Fatalf("%d stateids", len(w.s.stateids))
	}
	used := map[byte]bool{}
	for k := range w.opens {
		used[k.file] = true
	}
	if len(w.s.files) != len(used) {
		w.t.Fatalf("%d files, must be %d", len(w.s.files), len(used))
	}
}

// giveWay reports whether a request of mine ends the clients that hold something against it: all
// have expired.
func (w *world) giveWay(mine string, holders []string) bool {
	for _, h := range holders {
		if h == mine || !w.expired(h) {
			return false
		}
	}
	return true
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, Config{})
		names := []string{"a", "b", "c"}
		draw := func(list []string, what string) string { return rapid.SampledFrom(list).Draw(rt, what) }
		who := func() *peer {
			name := draw(names, "client")
			if w.peer[name] == nil {
				w.complete(w.join(name, "verifier"))
			} else {
				w.sequence(w.peer[name])
			}
			return w.peer[name]
		}
		drawKey := func(p *peer) key {
			return key{p.name, draw([]string{"x", "y"}, "owner"), byte(rapid.IntRange(0, 1).Draw(rt, "file"))}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { w.check() },
			"time": func(*rapid.T) {
				w.now = w.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(rt, "seconds")) * time.Second)
			},
			"restart": func(*rapid.T) {
				p := who()
				w.lose(p.name)
				w.complete(w.join(p.name, fmt.Sprintf("%08d", w.resource())))
			},
			"open": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				access, deny := uint32(rapid.IntRange(1, 3).Draw(rt, "access")), uint32(rapid.IntRange(0, 3).Draw(rt, "deny"))
				var holders []string
				for o, m := range w.opens {
					if o.file == k.file && (o.client != k.client || o.owner != k.owner) && (m.deny&access != 0 || m.access&deny != 0) {
						holders = append(holders, o.client)
					}
				}
				res := w.resource()
				out, st := w.s.Open(&OpenRequest{Client: p.c, Owner: []byte(k.owner), File: testFile(k.file), Access: access, Deny: deny, Resource: res}, w.now)
				if !w.giveWay(p.name, holders) {
					w.must("OPEN", st, nfs4.ErrShareDenied)
					return
				}
				w.must("OPEN", st, nfs4.OK)
				for _, h := range holders {
					w.lose(h)
				}
				m := w.opens[k]
				if out.New != (m == nil) {
					t.Fatalf("new %v, the model has %v", out.New, m)
				}
				if m == nil {
					m = &modelOpen{}
					w.opens[k] = m
					w.held[res] = true
				}
				if rapid.IntRange(0, 9).Draw(rt, "undo") == 0 {
					w.s.UndoOpen(&out)
					if out.New {
						delete(w.opens, k)
					}
					return
				}
				m.id, m.access, m.deny = out.ID, m.access|access, m.deny|deny
				m.modes = append(m.modes, [2]uint32{access, deny})
			},
			"downgrade": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				m := w.opens[k]
				if m == nil {
					return
				}
				access, deny := uint32(rapid.IntRange(1, 3).Draw(rt, "access")), uint32(rapid.IntRange(0, 3).Draw(rt, "deny"))
				var a, d uint32
				var left [][2]uint32
				for _, x := range m.modes {
					if x[0]&^access == 0 && x[1]&^deny == 0 {
						a, d, left = a|x[0], d|x[1], append(left, x)
					}
				}
				f := testFile(k.file)
				id, st := w.s.Downgrade(p.c, &m.id, &f, access, deny)
				if a != access || d != deny {
					w.must("OPEN_DOWNGRADE", st, nfs4.ErrInval)
					return
				}
				w.must("OPEN_DOWNGRADE", st, nfs4.OK)
				m.id, m.access, m.deny, m.modes = id, access, deny, left
			},
			"close": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				m := w.opens[k]
				if m == nil {
					return
				}
				f := testFile(k.file)
				w.must("CLOSE", w.s.Close(p.c, &m.id, &f), nfs4.OK)
				delete(w.opens, k)
				for l, x := range w.locks {
					if x.open == k {
						delete(w.locks, l)
					}
				}
			},
			"lock": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				lk := k
				lk.owner = draw([]string{"l", "m"}, "lock owner")
				open, l := w.opens[k], w.locks[lk]
				if open == nil || l != nil && l.open != k {
					return
				}
				first := rapid.IntRange(0, span-1).Draw(rt, "first")
				last := rapid.IntRange(first, span-1).Draw(rt, "last")
				write := rapid.Bool().Draw(rt, "write")
				kind := byte(Read)
				if write {
					kind = Write
				}
				q := &LockRequest{Client: p.c, File: testFile(k.file), NewOwner: true, OpenID: open.id, Owner: []byte(lk.owner), Range: Range{uint64(first), uint64(last), write}}
				if l != nil && rapid.Bool().Draw(rt, "by lock stateid") {
					q.NewOwner, q.ID = false, l.id
				}
				var holders []string
				for o, x := range w.locks {
					if o == lk || o.file != k.file {
						continue
					}
					for b := first; b <= last; b++ {
						if x.bytes[b] != 0 && (write || x.bytes[b] == Write) {
							holders = append(holders, o.client)
							break
						}
					}
				}
				out, conflict, st := w.s.Lock(q, w.now)
				switch {
				case uint32(kind)&open.access == 0:
					w.must("LOCK", st, nfs4.ErrOpenMode)
					return
				case !w.giveWay(p.name, holders):
					w.must("LOCK", st, nfs4.ErrDenied)
					// Expired ones may be gone although a live one remains.
					for name, x := range w.peer {
						if w.s.confirmed[name] != x.c {
							w.lose(name)
						}
					}
					if conflict == nil || conflict.Last < uint64(first) || conflict.First > uint64(last) {
						t.Fatalf("conflict %+v", conflict)
					}
					return
				}
				w.must("LOCK", st, nfs4.OK)
				for _, h := range holders {
					w.lose(h)
				}
				if rapid.IntRange(0, 9).Draw(rt, "undo") == 0 {
					w.s.UndoLock(&out)
					return
				}
				if l == nil {
					l = &modelLock{open: k}
					w.locks[lk] = l
				}
				l.id = out.ID
				for b := first; b <= last; b++ {
					l.bytes[b] = kind
				}
			},
			"unlock": func(*rapid.T) {
				p := who()
				lk := drawKey(p)
				lk.owner = draw([]string{"l", "m"}, "lock owner")
				l := w.locks[lk]
				if l == nil {
					return
				}
				first := rapid.IntRange(0, span-1).Draw(rt, "first")
				last := rapid.IntRange(first, span-1).Draw(rt, "last")
				f := testFile(lk.file)
				lock, st := w.s.LockOf(p.c, &l.id, &f)
				w.must("LOCKU", st, nfs4.OK)
				id, st := w.s.Unlock(lock, Range{First: uint64(first), Last: uint64(last)})
				w.must("LOCKU", st, nfs4.OK)
				l.id = id
				for b := first; b <= last; b++ {
					l.bytes[b] = 0
				}
				if got := bytesOf(lock); got != l.bytes {
					t.Fatalf("locked %v, must be %v", got, l.bytes)
				}
			},
			"free": func(*rapid.T) {
				p := who()
				lk := drawKey(p)
				lk.owner = draw([]string{"l", "m"}, "lock owner")
				l := w.locks[lk]
				if l == nil {
					return
				}
				want := nfs4.ErrLocksHeld
				if l.bytes == ([span]byte{}) {
					want = nfs4.OK
					delete(w.locks, lk)
				}
				w.must("FREE_STATEID", w.s.Free(p.c, &l.id), want)
			},
			"tick": func(*rapid.T) {
				w.s.Tick(w.now)
				for name := range w.peer {
					hasState := slices.ContainsFunc(keysOf(w.opens), func(k key) bool { return k.client == name })
					if w.expired(name) && (!hasState || w.now.Sub(w.peer[name].seen) > w.s.cfg.Lease+w.s.cfg.Courtesy) {
						w.lose(name)
					}
				}
			},
		})
	})
}

func keysOf[V any](m map[key]V) (list []key) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// bytesOf spreads ranges, which must be sorted, disjoint and joined.
func bytesOf(l *Lock) (b [span]byte) {
	for i, r := range l.ranges {
		if i > 0 {
			if before := l.ranges[i-1]; before.Last >= r.First || before.Last+1 == r.First && before.Write == r.Write {
				panic(fmt.Sprint(l.ranges))
			}
		}
		for at := r.First; at <= r.Last; at++ {
			b[at] = Read
			if r.Write {
				b[at] = Write
			}
		}
	}
	return b
}

// TestGrace restarts a server with two recorded clients (RFC 8881 section 8.4.2).
func TestGrace(t *testing.T) {
	w := newWorld(t, Config{Grace: time.Minute}, "a", "b")
	a, new := w.join("a", "verifier"), w.join("new", "verifier")
	open := func(p *peer, reclaim bool) nfs4.Status {
		_, st := w.s.Open(&OpenRequest{Client: p.c, Owner: []byte(p.name), File: testFile(1), Access: Read, Reclaim: reclaim}, w.now)
		return st
	}
	w.must("a new open during the grace period", open(a, false), nfs4.ErrGrace)
	w.must("a reclaim", open(a, true), nfs4.OK)
	w.must("a reclaim by an unknown client", open(new, true), nfs4.ErrReclaimBad)
	w.complete(a)
	w.complete(new)
	w.must("a reclaim after its end", open(a, true), nfs4.ErrNoGrace)
	w.must("an open of a client that has completed", open(new, false), nfs4.ErrGrace)
	if owners := w.s.Unclaimed(w.now); owners != nil {
		t.Errorf("unclaimed during the grace period: %s", owners)
	}
	// b does not come, and the time passes.
	w.now = w.now.Add(time.Minute)
	w.must("an open afterwards", open(new, false), nfs4.OK)
	if owners := w.s.Unclaimed(w.now); len(owners) != 1 || string(owners[0]) != "b" {
		t.Errorf("unclaimed: %s", owners)
	}
}

// TestEarlyEndOfGrace: all recorded clients have completed.
func TestEarlyEndOfGrace(t *testing.T) {
	w := newWorld(t, Config{Grace: time.Hour}, "a", "b")
	w.complete(w.join("a", "verifier"))
	if !w.s.InGrace(w.now) {
		t.Error("the grace period ended although b may reclaim")
	}
	b := w.complete(w.join("b", "verifier"))
	if w.s.InGrace(w.now) {
		t.Error("the grace period goes on although all have reclaimed")
	}
	_, st := w.s.Open(&OpenRequest{Client: b.c, Owner: []byte("o"), File: testFile(1), Access: Read}, w.now)
	w.must("an open", st, nfs4.OK)
	if newWorld(t, Config{}).s.InGrace(time.Unix(1e9, 0)) {
		t.Error("there is a grace period without recorded clients")
	}
}

// TestRecords: a client whose state ended must not reclaim it after a restart.
func TestRecords(t *testing.T) {
	w := newWorld(t, Config{})
	a := w.complete(w.join("a", "verifier"))
	if w.s.Recorded(a.c) || !w.s.Recorded(a.c) {
		t.Error("Recorded must report the first call")
	}
	b := w.complete(w.join("b", "verifier"))
	_, st := w.s.Open(&OpenRequest{Client: a.c, Owner: []byte("o"), File: testFile(1), Access: Write, Deny: Write}, w.now)
	w.must("open", st, nfs4.OK)
	w.now = w.now.Add(time.Hour)
	w.s.Tick(w.now) // ends b, which has no state
	if w.s.Ended() {
		t.Error("nothing recorded has ended yet")
	}
	b = w.complete(w.join("b", "verifier"))
	_, st = w.s.Open(&OpenRequest{Client: b.c, Owner: []byte("o"), File: testFile(1), Access: Write}, w.now)
	w.must("open against an expired client", st, nfs4.OK)
	if _, owners := w.s.Released(); len(owners) != 1 || string(owners[0]) != "a" {
		t.Errorf("obsolete: %s", owners)
	}
	// A restart of the client keeps its record.
	w.s.Recorded(b.c)
	w.join("b", "VERIFIER")
	if _, owners := w.s.Released(); len(owners) != 0 {
		t.Errorf("obsolete after a restart: %s", owners)
	}
}

// TestLimits fills each table.
func TestLimits(t *testing.T) {
	w := newWorld(t, Config{MaxClients: 2, MaxSessions: 2, MaxOpens: 2, MaxLocks: 4})
	a := w.complete(w.join("a", "verifier"))
	w.complete(w.join("b", "verifier"))
	_, st := w.s.ExchangeID([]byte("c"), nfs4.Verifier{}, Principal{}, false, w.now)
	w.must("a third client", st, nfs4.ErrDelay)
	open := func(c *Client, n byte) (Opened, nfs4.Status) {
		return w.s.Open(&OpenRequest{Client: c, Owner: []byte("o"), File: testFile(n), Access: Read}, w.now)
	}
	o, _ := open(a.c, 1)
	open(a.c, 2)
	_, st = open(a.c, 3)
	w.must("a third open", st, nfs4.ErrDelay)
	for i := range 3 {
		_, _, st = w.s.Lock(&LockRequest{Client: a.c, File: testFile(1), NewOwner: true, OpenID: o.ID, Owner: []byte("l"), Range: Range{uint64(2 * i), uint64(2 * i), false}}, w.now)
	}
	w.must("a range", st, nfs4.OK)
	_, _, st = w.s.Lock(&LockRequest{Client: a.c, File: testFile(1), NewOwner: true, OpenID: o.ID, Owner: []byte("l"), Range: Range{9, 9, false}}, w.now)
	w.must("a range too many", st, nfs4.ErrDelay)
	// An expired client makes room.
	w.now = w.now.Add(time.Hour)
	c := w.complete(w.join("c", "verifier"))
	w.sequence(w.peer["c"])
	_, st = open(c.c, 3)
	w.must("an open after a client's end", st, nfs4.OK)
}
