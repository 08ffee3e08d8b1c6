package state

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// env is a State with a clock, and a model of it: opens and locks of a few bytes, in maps.
type env struct {
	t    testing.TB
	s    *State
	now  time.Time
	peer map[string]*peer
	// opens and locks by client, owner and file.
	opens map[key]*modelOpen
	locks map[key]*modelLock
	held  map[any]bool // resources
	// delegations by client and file; recalled ones too.
	delegations map[key]*modelDelegation
	revoked     map[string][]nfs4.StateID
	recent      map[byte]time.Time // of the latest recall of a file
	next        int
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

type modelDelegation struct {
	id       nfs4.StateID
	d        *Delegation
	write    bool
	leased   bool
	recalled time.Time
}

type modelLock struct {
	id    nfs4.StateID
	open  key
	bytes [span]byte // 0, Read or Write
}

const span = 12

func newEnv(t testing.TB, cfg Config, owners ...string) *env {
	e := &env{t: t, now: time.Unix(1e9, 0), peer: map[string]*peer{}, opens: map[key]*modelOpen{}, locks: map[key]*modelLock{}, held: map[any]bool{},
		delegations: map[key]*modelDelegation{}, revoked: map[string][]nfs4.StateID{}, recent: map[byte]time.Time{}}
	var list [][]byte
	for _, o := range owners {
		list = append(list, []byte(o))
	}
	cfg.Boot = 77
	e.s = New(cfg, list, e.now)
	return e
}

func (e *env) must(what string, st, want nfs4.Status) {
	e.t.Helper()
	if st != want {
		e.t.Fatalf("%s: %v, must be %v", what, st, want)
	}
}

// join makes a client with a session.
func (e *env) join(name, verifier string) *peer {
	e.t.Helper()
	var v nfs4.Verifier
	copy(v[:], verifier)
	x, st := e.s.ExchangeID([]byte(name), v, Principal{}, netip.Addr{}, false, e.now)
	e.must("EXCHANGE_ID", st, nfs4.OK)
	ch := nfs4.ChannelAttrs{MaxRequestSize: 1 << 20, MaxResponseSize: 1 << 20, MaxOperations: 8, MaxRequests: 2}
	r, st := e.s.CreateSession(&nfs4.CreateSessionArgs{
		ClientID: x.ClientID, Sequence: x.Sequence, Flags: nfs4.SessionConnBackChan, Fore: ch, Back: ch,
	}, 2, Principal{}, name, e.now)
	e.must("CREATE_SESSION", st, nfs4.OK)
	probe, ok := e.s.Probe(r.Session)
	if !ok {
		e.t.Fatal("no back channel to probe")
	}
	e.s.Probed(&probe, true)
	p := &peer{name: name, session: r.Session, seen: e.now}
	e.peer[name] = p
	e.sequence(p)
	return p
}

// sequence renews the lease of p.
func (e *env) sequence(p *peer) {
	e.t.Helper()
	p.seq++
	r, st := e.s.Sequence(&nfs4.SequenceArgs{Session: p.session, Sequence: p.seq}, &Request{Ops: 1}, nil, e.now)
	e.must("SEQUENCE of "+p.name, st, nfs4.OK)
	p.c, p.seen = r.Slot.Session.Client(), e.now
	e.s.Finish(&r.Slot, nil, e.now)
}

func (e *env) complete(p *peer) *peer {
	e.t.Helper()
	e.must("RECLAIM_COMPLETE", e.s.ReclaimComplete(p.c, e.now), nfs4.OK)
	return p
}

func testFile(n byte) (f FileID) { f[0] = n; return f }

func (e *env) expired(name string) bool {
	return e.now.After(e.peer[name].seen.Add(e.s.cfg.Lease))
}

// lose ends a client in the model.
func (e *env) lose(name string) {
	for k := range e.opens {
		if k.client == name {
			delete(e.opens, k)
		}
	}
	for k := range e.locks {
		if k.client == name {
			delete(e.locks, k)
		}
	}
	for k := range e.delegations {
		if k.client == name {
			delete(e.delegations, k)
		}
	}
	delete(e.revoked, name)
	delete(e.peer, name)
}

// revoke ends delegations that were recalled a lease ago, as far as chosen.
func (e *env) revoke(chosen func(k key, d *modelDelegation) bool) {
	for k, d := range e.delegations {
		if !d.recalled.IsZero() && e.now.After(d.recalled.Add(e.s.cfg.Lease)) && chosen(k, d) {
			delete(e.delegations, k)
			e.revoked[k.client] = append(e.revoked[k.client], d.id)
		}
	}
}

// conflict is a use of a file by p, nil for version 3: it reports whether the use must wait.
func (e *env) conflict(p *peer, file byte, use Use) bool {
	concerns := func(k key, d *modelDelegation) bool {
		switch {
		case k.file != file:
			return false
		case p != nil && k.client == p.name:
			return use == UseWrite && d.leased && !d.write
		}
		return d.write || use != UseRead
	}
	e.revoke(concerns)
	var holders []string
	for k, d := range e.delegations {
		switch {
		case !concerns(k, d):
		case p != nil && k.client == p.name: // only the resource is in its way, and ends
			d.leased = false
			if d.recalled.IsZero() {
				d.recalled, e.recent[file] = e.now, e.now
			}
		default:
			holders = append(holders, k.client)
		}
	}
	if !slices.ContainsFunc(holders, func(n string) bool { return !e.expired(n) }) {
		for _, h := range holders {
			e.lose(h)
		}
		return false
	}
	for k, d := range e.delegations {
		if concerns(k, d) && d.recalled.IsZero() {
			d.recalled, e.recent[file] = e.now, e.now
		}
	}
	return true
}

func (e *env) resource() any { e.next++; return e.next }

// check compares the State with the model.
func (e *env) check() {
	e.t.Helper()
	released, _ := e.s.Released()
	for _, r := range released {
		if !e.held[r] {
			e.t.Fatalf("resource %v was released twice, or never held", r)
		}
		delete(e.held, r)
	}
	st := e.s.Stats(e.now)
	ranges := 0
	for _, l := range e.s.stateids {
		if l.lock != nil {
			ranges += len(l.lock.ranges)
		}
	}
	revoked, leased := 0, 0
	for _, list := range e.revoked {
		revoked += len(list)
	}
	for _, d := range e.delegations {
		if d.leased {
			leased++
		}
	}
	if st.Delegations != len(e.delegations) || st.Revoked != revoked {
		e.t.Fatalf("%d delegations, %d revoked; must be %d, %d", st.Delegations, st.Revoked, len(e.delegations), revoked)
	}
	if st.Opens != len(e.opens) || st.Locks != len(e.locks) || len(e.held) != len(e.opens)+leased || st.Ranges != ranges || st.Clients != len(e.peer) {
		e.t.Fatalf("%+v, %d resources; must be %d opens, %d locks, %d ranges, %d clients", st, len(e.held), len(e.opens), len(e.locks), ranges, len(e.peer))
	}
	if len(e.s.stateids) != len(e.opens)+len(e.locks)+len(e.delegations)+revoked {
		e.t.Fatalf("%d stateids", len(e.s.stateids))
	}
	used := map[byte]bool{}
	for k := range e.opens {
		used[k.file] = true
	}
	for k := range e.delegations {
		used[k.file] = true
	}
	if len(e.s.files) != len(used) {
		e.t.Fatalf("%d files, must be %d", len(e.s.files), len(used))
	}
}

// giveWay reports whether a request of mine ends the clients that hold something against it: all
// have expired.
func (e *env) giveWay(mine string, holders []string) bool {
	for _, h := range holders {
		if h == mine || !e.expired(h) {
			return false
		}
	}
	return true
}

func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := newEnv(t, Config{})
		names := []string{"a", "b", "c"}
		draw := func(list []string, what string) string { return rapid.SampledFrom(list).Draw(rt, what) }
		who := func() *peer {
			name := draw(names, "client")
			if e.peer[name] == nil {
				e.complete(e.join(name, "verifier"))
			} else {
				e.sequence(e.peer[name])
			}
			return e.peer[name]
		}
		drawKey := func(p *peer) key {
			return key{p.name, draw([]string{"x", "y"}, "owner"), byte(rapid.IntRange(0, 1).Draw(rt, "file"))}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { e.check() },
			"time": func(*rapid.T) {
				e.now = e.now.Add(time.Duration(rapid.IntRange(1, 200).Draw(rt, "seconds")) * time.Second)
			},
			"restart": func(*rapid.T) {
				p := who()
				e.lose(p.name)
				e.complete(e.join(p.name, fmt.Sprintf("%08d", e.resource())))
			},
			"open": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				access, deny := uint32(rapid.IntRange(1, 3).Draw(rt, "access")), uint32(rapid.IntRange(0, 3).Draw(rt, "deny"))
				var holders []string
				for o, m := range e.opens {
					if o.file == k.file && (o.client != k.client || o.owner != k.owner) && (m.deny&access != 0 || m.access&deny != 0) {
						holders = append(holders, o.client)
					}
				}
				res := e.resource()
				out, st := e.s.Open(&OpenRequest{Client: p.c, Owner: []byte(k.owner), File: testFile(k.file), Access: access, Deny: deny, Resource: res}, e.now)
				if !e.giveWay(p.name, holders) {
					e.must("OPEN", st, nfs4.ErrShareDenied)
					return
				}
				for _, h := range holders {
					e.lose(h)
				}
				if e.conflict(p, k.file, OpenUse(access, deny)) {
					e.must("OPEN", st, nfs4.ErrDelay)
					return
				}
				e.must("OPEN", st, nfs4.OK)
				m := e.opens[k]
				if out.New != (m == nil) {
					t.Fatalf("new %v, the model has %v", out.New, m)
				}
				if m == nil {
					m = &modelOpen{}
					e.opens[k] = m
					e.held[res] = true
				}
				if rapid.IntRange(0, 9).Draw(rt, "undo") == 0 {
					e.s.UndoOpen(&out)
					if out.New {
						delete(e.opens, k)
					}
					return
				}
				m.id, m.access, m.deny = out.ID, m.access|access, m.deny|deny
				m.modes = append(m.modes, [2]uint32{access, deny})
			},
			"downgrade": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				m := e.opens[k]
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
				id, st := e.s.Downgrade(p.c, &m.id, &f, access, deny)
				if a != access || d != deny {
					e.must("OPEN_DOWNGRADE", st, nfs4.ErrInval)
					return
				}
				e.must("OPEN_DOWNGRADE", st, nfs4.OK)
				m.id, m.access, m.deny, m.modes = id, access, deny, left
			},
			"close": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				m := e.opens[k]
				if m == nil {
					return
				}
				f := testFile(k.file)
				e.must("CLOSE", e.s.Close(p.c, &m.id, &f), nfs4.OK)
				delete(e.opens, k)
				for l, x := range e.locks {
					if x.open == k {
						delete(e.locks, l)
					}
				}
			},
			"lock": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				lk := k
				lk.owner = draw([]string{"l", "m"}, "lock owner")
				open, l := e.opens[k], e.locks[lk]
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
				for o, x := range e.locks {
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
				out, conflict, st := e.s.Lock(q, e.now)
				switch {
				case uint32(kind)&open.access == 0:
					e.must("LOCK", st, nfs4.ErrOpenMode)
					return
				case !e.giveWay(p.name, holders):
					e.must("LOCK", st, nfs4.ErrDenied)
					// Expired ones may be gone although a live one remains.
					for name, x := range e.peer {
						if e.s.confirmed[name] != x.c {
							e.lose(name)
						}
					}
					if conflict == nil || conflict.Last < uint64(first) || conflict.First > uint64(last) {
						t.Fatalf("conflict %+v", conflict)
					}
					return
				}
				e.must("LOCK", st, nfs4.OK)
				for _, h := range holders {
					e.lose(h)
				}
				if rapid.IntRange(0, 9).Draw(rt, "undo") == 0 {
					e.s.UndoLock(&out)
					return
				}
				if l == nil {
					l = &modelLock{open: k}
					e.locks[lk] = l
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
				l := e.locks[lk]
				if l == nil {
					return
				}
				first := rapid.IntRange(0, span-1).Draw(rt, "first")
				last := rapid.IntRange(first, span-1).Draw(rt, "last")
				f := testFile(lk.file)
				lock, st := e.s.LockOf(p.c, &l.id, &f)
				e.must("LOCKU", st, nfs4.OK)
				id, st := e.s.Unlock(lock, Range{First: uint64(first), Last: uint64(last)})
				e.must("LOCKU", st, nfs4.OK)
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
				l := e.locks[lk]
				if l == nil {
					return
				}
				want := nfs4.ErrLocksHeld
				if l.bytes == ([span]byte{}) {
					want = nfs4.OK
					delete(e.locks, lk)
				}
				e.must("FREE_STATEID", e.s.Free(p.c, &l.id), want)
			},
			"delegate": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				k.owner = ""
				write, leased := rapid.Bool().Draw(rt, "write"), rapid.Bool().Draw(rt, "leased")
				may := len(e.revoked[p.name]) == 0 && e.delegations[k] == nil && !e.now.Before(e.recent[k.file].Add(contention))
				open := false
				for o, m := range e.opens {
					if o.file != k.file {
						continue
					}
					open = true
					if m.access&Write != 0 && (!write || o.client != p.name) || o.client != p.name && (write || m.deny&Read != 0) {
						may = false
					}
				}
				for o, m := range e.delegations {
					if o.file == k.file {
						open = true
						may = may && !write && !m.write
					}
				}
				d, id, _ := e.s.Delegate(&DelegationRequest{Client: p.c, File: testFile(k.file), Write: write}, e.now)
				if (d != nil) != (may && open) {
					t.Fatalf("granted %v, must be %v", d != nil, may && open)
				}
				if d == nil {
					return
				}
				if rapid.IntRange(0, 9).Draw(rt, "undo") == 0 {
					e.s.Undelegate(d)
					return
				}
				m := &modelDelegation{id: id, d: d, write: write, leased: leased}
				if leased {
					res := e.resource()
					e.held[res] = true
					if !e.s.AttachDelegation(d, res) {
						t.Fatal("the delegation has ended")
					}
				}
				e.delegations[k] = m
			},
			"conflict": func(*rapid.T) {
				var p *peer
				var c *Client
				if rapid.Bool().Draw(rt, "version 4") {
					p = who()
					c = p.c
				}
				f := byte(rapid.IntRange(0, 1).Draw(rt, "file"))
				use := Use(rapid.IntRange(0, 2).Draw(rt, "use"))
				id := testFile(f)
				st := e.s.Conflict(&id, c, use, e.now)
				want := nfs4.OK
				if e.conflict(p, f, use) {
					want = nfs4.ErrDelay
				}
				e.must("a use", st, want)
				for _, d := range e.s.Recalls() {
					if _, ok := e.s.RecallOf(d); ok != (!d.ended && !d.revoked) {
						t.Fatal("a recall of nothing")
					}
				}
			},
			"return": func(*rapid.T) {
				p := who()
				k := drawKey(p)
				k.owner = ""
				f := testFile(k.file)
				if m := e.delegations[k]; m != nil {
					want := uint32(Read)
					if m.write {
						want = Write
					}
					if _, st := e.s.Check(p.c, &m.id, &f, want); st != nfs4.OK {
						t.Fatalf("a use of the delegation: %v", st)
					}
					e.must("FREE_STATEID of a delegation", e.s.Free(p.c, &m.id), nfs4.ErrLocksHeld)
					e.must("DELEGRETURN", e.s.ReturnDelegation(p.c, &m.id, &f), nfs4.OK)
					e.must("DELEGRETURN again", e.s.ReturnDelegation(p.c, &m.id, &f), nfs4.ErrBadStateID)
					delete(e.delegations, k)
				}
				for _, id := range e.revoked[p.name] {
					e.must("TEST_STATEID", e.s.Test(p.c, &id), nfs4.ErrDelegRevoked)
					e.must("FREE_STATEID", e.s.Free(p.c, &id), nfs4.OK)
				}
				delete(e.revoked, p.name)
			},
			"tick": func(*rapid.T) {
				e.s.Tick(e.now)
				e.revoke(func(key, *modelDelegation) bool { return true })
				for name := range e.peer {
					hasState := slices.ContainsFunc(keysOf(e.opens), func(k key) bool { return k.client == name }) ||
						slices.ContainsFunc(keysOf(e.delegations), func(k key) bool { return k.client == name })
					if e.expired(name) && (!hasState || e.now.Sub(e.peer[name].seen) > e.s.cfg.Lease+e.s.cfg.Courtesy) {
						e.lose(name)
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
	e := newEnv(t, Config{Grace: time.Minute}, "a", "b")
	a, new := e.join("a", "verifier"), e.join("new", "verifier")
	open := func(p *peer, reclaim bool) nfs4.Status {
		_, st := e.s.Open(&OpenRequest{Client: p.c, Owner: []byte(p.name), File: testFile(1), Access: Read, Reclaim: reclaim}, e.now)
		return st
	}
	e.must("a new open during the grace period", open(a, false), nfs4.ErrGrace)
	e.must("a reclaim", open(a, true), nfs4.OK)
	e.must("a reclaim by an unknown client", open(new, true), nfs4.ErrReclaimBad)
	e.complete(a)
	e.complete(new)
	e.must("a reclaim after its end", open(a, true), nfs4.ErrNoGrace)
	e.must("an open of a client that has completed", open(new, false), nfs4.ErrGrace)
	if owners := e.s.Unclaimed(e.now); owners != nil {
		t.Errorf("unclaimed during the grace period: %s", owners)
	}
	// b does not come, and the time passes.
	e.now = e.now.Add(time.Minute)
	e.must("an open afterwards", open(new, false), nfs4.OK)
	if owners := e.s.Unclaimed(e.now); len(owners) != 1 || string(owners[0]) != "b" {
		t.Errorf("unclaimed: %s", owners)
	}
}

// TestEarlyEndOfGrace: all recorded clients have completed.
func TestEarlyEndOfGrace(t *testing.T) {
	e := newEnv(t, Config{Grace: time.Hour}, "a", "b")
	e.complete(e.join("a", "verifier"))
	if !e.s.InGrace(e.now) {
		t.Error("the grace period ended although b may reclaim")
	}
	b := e.complete(e.join("b", "verifier"))
	if e.s.InGrace(e.now) {
		t.Error("the grace period goes on although all have reclaimed")
	}
	_, st := e.s.Open(&OpenRequest{Client: b.c, Owner: []byte("o"), File: testFile(1), Access: Read}, e.now)
	e.must("an open", st, nfs4.OK)
	if newEnv(t, Config{}).s.InGrace(time.Unix(1e9, 0)) {
		t.Error("there is a grace period without recorded clients")
	}
}

// TestRecords: a client whose state ended must not reclaim it after a restart.
func TestRecords(t *testing.T) {
	e := newEnv(t, Config{})
	a := e.complete(e.join("a", "verifier"))
	if e.s.Recorded(a.c) {
		t.Error("a new client is recorded")
	}
	if e.s.SetRecorded(a.c); !e.s.Recorded(a.c) {
		t.Error("SetRecorded did nothing")
	}
	e.complete(e.join("b", "verifier"))
	_, st := e.s.Open(&OpenRequest{Client: a.c, Owner: []byte("o"), File: testFile(1), Access: Write, Deny: Write}, e.now)
	e.must("open", st, nfs4.OK)
	e.now = e.now.Add(time.Hour)
	e.s.Tick(e.now) // ends b, which has no state
	if e.s.Ended() {
		t.Error("nothing recorded has ended yet")
	}
	b := e.complete(e.join("b", "verifier"))
	_, st = e.s.Open(&OpenRequest{Client: b.c, Owner: []byte("o"), File: testFile(1), Access: Write}, e.now)
	e.must("open against an expired client", st, nfs4.OK)
	if _, owners := e.s.Released(); len(owners) != 1 || string(owners[0]) != "a" {
		t.Errorf("obsolete: %s", owners)
	}
	// A restart of the client keeps its record.
	e.s.SetRecorded(b.c)
	old := b.c
	b = e.join("b", "VERIFIER")
	e.s.SetRecorded(old)
	if _, owners := e.s.Released(); len(owners) != 0 {
		t.Errorf("obsolete after a restart: %s", owners)
	}
	// The client ends while its record is written.
	e.must("DESTROY_SESSION", e.s.DestroySession(b.session, nil, nil), nfs4.OK)
	e.must("DESTROY_CLIENTID", e.s.DestroyClientID(b.c.ID()), nfs4.OK)
	e.s.Released()
	e.s.SetRecorded(b.c)
	if _, owners := e.s.Released(); len(owners) != 1 || string(owners[0]) != "b" {
		t.Errorf("obsolete: %s", owners)
	}
}

// TestLimits fills each table.
func TestLimits(t *testing.T) {
	e := newEnv(t, Config{MaxClients: 2, MaxSessions: 2, MaxOpens: 2, MaxLocks: 4})
	a := e.complete(e.join("a", "verifier"))
	e.complete(e.join("b", "verifier"))
	_, st := e.s.ExchangeID([]byte("c"), nfs4.Verifier{}, Principal{}, netip.Addr{}, false, e.now)
	e.must("a third client", st, nfs4.ErrDelay)
	open := func(c *Client, n byte) (Opened, nfs4.Status) {
		return e.s.Open(&OpenRequest{Client: c, Owner: []byte("o"), File: testFile(n), Access: Read}, e.now)
	}
	o, _ := open(a.c, 1)
	_, st = open(a.c, 2)
	e.must("a second open", st, nfs4.OK)
	_, st = open(a.c, 3)
	e.must("a third open", st, nfs4.ErrDelay)
	for i := range 3 {
		_, _, st = e.s.Lock(&LockRequest{Client: a.c, File: testFile(1), NewOwner: true, OpenID: o.ID, Owner: []byte("l"), Range: Range{uint64(2 * i), uint64(2 * i), false}}, e.now)
	}
	e.must("a range", st, nfs4.OK)
	_, _, st = e.s.Lock(&LockRequest{Client: a.c, File: testFile(1), NewOwner: true, OpenID: o.ID, Owner: []byte("l"), Range: Range{9, 9, false}}, e.now)
	e.must("a range too many", st, nfs4.ErrDelay)
	// An expired client makes room.
	e.now = e.now.Add(time.Hour)
	c := e.complete(e.join("c", "verifier"))
	e.sequence(e.peer["c"])
	_, st = open(c.c, 3)
	e.must("an open after a client's end", st, nfs4.OK)
}
