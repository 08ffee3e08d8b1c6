package rpcrdma

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The race windows of draft-cel-nfsv4-rfc5666-implementation-experience section 4.5: moments at
// which posted receives and messages in process are fewer than the credits that the other side has.
// The raw peer uses every credit in the moment that it gets it, before the message that brings it
// has left the sender's hands. The fabric ends the connection when a message finds no receive.

// eager sends messages within a limit. Its methods run on the raw peer's goroutine.
type eager struct {
	p           *rawPeer
	sent, under int
	bufs        [][]byte
	make        func(xid int) []byte
}

func newEager(p *rawPeer, first int, message func(xid int) []byte) *eager {
	g := &eager{p: p, sent: first, make: message}
	for range rawReceives {
		g.bufs = append(g.bufs, p.mem(256))
	}
	return g
}

// fill sends as many messages as the limit allows.
func (g *eager) fill(limit int) {
	for ; g.under < min(limit, rawReceives); g.under++ {
		b := g.make(g.sent)
		m := g.bufs[g.sent%len(g.bufs)]
		g.p.post(m[:copy(m, b)])
		g.sent++
	}
}

// TestServerWindow: the client has as many calls under way as the server granted, all the time,
// while grants rise and fall.
func TestServerWindow(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) {
			policy := new(wish)
			policy.n.Store(3)
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Credits = policy })
			w.handler.async = async
			p := w.rawDial(rawPrivate(4096))
			g := newEager(p, 1, func(xid int) []byte { return append(words(xid, 1, 60, 0, 0, 0, 0), rpcCall(xid, procNull)...) })
			answers, done := 0, make(chan struct{})
			take := func(b []byte) {
				g.under--
				answers++
				if answers%50 == 0 { // a grant counts from the next answer on
					policy.n.Store([]int32{1, 60, 2, 33, 60, 7}[answers/50%6])
				}
				switch {
				case answers < 3000:
					g.fill(int(binary.BigEndian.Uint32(b[8:])))
				case g.under == 0:
					close(done)
				}
			}
			p.take.Store(&take)
			g.under = 1
			p.send(plainMsg(0, rpcCall(0, procNull)))
			p.await(done)
			p.take.Store(nil)
			policy.n.Store(7)
			for xid := range 200 { // each answer may give back one receive
				p.null(10_000 + xid)
			}
			w.waitIdle()
			p.close()
			w.close()
		})
	}
}

// TestClientWindow: the server answers at once, and has as many calls of the reverse direction
// under way as the client granted.
func TestClientWindow(t *testing.T) {
	callbacks := &testHandler{}
	c, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) {
		cfg.Credits, cfg.Handler, cfg.ReverseCredits = credit.Static(20), callbacks, 5
	}, nil)
	calls, answers := 0, newEager(p, 0, nil)
	reverse := newEager(p, 1<<20, func(xid int) []byte { return plainMsg(xid, rpcCall(xid, procNull)) })
	var ended atomic.Bool
	idle := make(chan struct{})
	take := func(b []byte) {
		xid, credits, isReply := binary.BigEndian.Uint32(b), int(binary.BigEndian.Uint32(b[8:])), binary.BigEndian.Uint32(b[32:]) == oncrpc.MsgReply
		if !isReply {
			calls++
			answers.make = func(int) []byte {
				return words(xid, 1, 1+calls*7%20, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0)
			}
			answers.under = 0
			answers.fill(1)
			if calls == 1 {
				reverse.fill(1)
			}
			return
		}
		reverse.under--
		switch {
		case !ended.Load():
			reverse.fill(credits)
		case reverse.under == 0:
			close(idle)
		}
	}
	p.take.Store(&take)
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range 50 {
				if err := null(c, w.cpool, procNull); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	ended.Store(true)
	p.await(idle)
	p.close()
	w.close(c)
}

// windowEnv is a client of a server that first grants it 20 credits, and then 1. The client had 20
// calls under way when it learned of that: 4 were answered meanwhile, 16 are still to come.
type windowEnv struct {
	*env
	p       *rawPeer
	dialect wire.Dialect
	sent    int
	limit   int // the last grant
}

const windowLeft = 16

// eachWindowEnv runs test with each dialect.
func eachWindowEnv(t *testing.T, test func(w *windowEnv)) {
	for _, d := range []wire.Dialect{wire.V1, wire.V2RoundTrip, wire.V2WorkingGroup} {
		t.Run(d.String(), func(t *testing.T) {
			policy := new(wish)
			policy.n.Store(20)
			w := &windowEnv{dialect: d, env: newEnv(t, rdmatest.Options{}, func(cfg *Config) {
				cfg.Credits, cfg.ReverseCredits = policy, 5
				switch d {
				case wire.V2RoundTrip:
					version2(cfg)
				case wire.V2WorkingGroup:
					workingGroup(cfg)
				}
			})}
			w.p = w.rawDial(rawPrivate(4096))
			if d == wire.V2WorkingGroup { // so that the server may make calls
				w.sent++
				w.p.send(words(1, 2, 128, 7, 1, int(wire.WGReverse), 4, wire.WGReverseSimple))
				w.get()
			}
			for xid := range 5 {
				w.call(xid, 0, rpcCall(xid, procNull))
				if got, _ := w.get(); got != xid {
					t.Fatalf("an answer with XID %d, want %d", got, xid)
				}
				// Lower credits count when the answers before have been sent.
				eventually(t, "the answer is sent", func() bool { return w.server.only().responder.active.Load() == 0 })
				policy.n.Store(1)
			}
			test(w)
			for xid := range 10 { // receives of past reverse calls are used up
				w.call(300+xid, 0, rpcCall(300+xid, procNull))
				w.get()
			}
			w.waitIdle()
			w.p.close()
			w.close()
		})
	}
}

// call sends a call with a Reply chunk of room bytes, if there are any.
func (w *windowEnv) call(xid, room int, payload []byte) {
	w.sent++
	b := wire.AppendEnd(wire.AppendEnd(w.dialect.AppendCall(nil, wire.XID(xid), 128, wire.Msg)))
	if room > 0 {
		b = append(b, words(1, 1, w.p.expose(w.p.mem(room), rdma.RemoteWrite))...)
	} else {
		b = wire.AppendEnd(b)
	}
	w.p.send(append(b, payload...))
}

// reply answers a call of the server.
func (w *windowEnv) reply(xid int) {
	w.sent++
	b := w.dialect.AppendReplyChunk(wire.AppendEnd(w.dialect.AppendReply(nil, wire.XID(xid), 5, wire.Msg)), new(wire.Header), 0)
	if w.dialect == wire.V2WorkingGroup {
		wire.SetLimit(b, 128)
	}
	w.p.send(append(b, words(xid, 1, 0, 0, 0, 0)...))
}

// get returns the XID and the bytes of the next message with more than credits.
func (w *windowEnv) get() (xid int, b []byte) {
	for xid == 0 && (b == nil || w.dialect == wire.V2WorkingGroup && binary.BigEndian.Uint32(b[12:]) == 5) {
		b = w.p.get().b
		xid, w.limit = int(binary.BigEndian.Uint32(b)), int(binary.BigEndian.Uint32(b[8:]))
	}
	return xid, b
}

// reverse makes n calls of the server. They have come when it returns. finish waits for their ends.
func (w *windowEnv) reverse(n int) (xids []int, finish func()) {
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = null(w.back(), w.pool, procNull) })
	}
	for range n {
		xid, _ := w.get()
		xids = append(xids, xid)
	}
	return xids, func() {
		w.t.Helper()
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		w.p.await(done)
		if err := errors.Join(errs...); err != nil {
			w.t.Error(err)
		}
	}
}

// mayStill checks that n more messages are within the limit, in the dialect that counts them all.
func (w *windowEnv) mayStill(n int) {
	w.t.Helper()
	if left := w.limit - w.sent; w.dialect == wire.V2WorkingGroup && left < n {
		w.t.Errorf("the client may send %d messages, want %d", left, n)
	}
}

// TestServerWindowReverse: the server makes calls of its own while the client's calls under an
// earlier grant are still to come. The replies to them have receives of their own.
func TestServerWindowReverse(t *testing.T) {
	eachWindowEnv(t, func(w *windowEnv) {
		first, finish := w.reverse(1) // its reply grants credits
		w.reply(first[0])
		finish()
		xids, finish := w.reverse(5)
		w.mayStill(windowLeft + len(xids))
		for xid := range windowLeft {
			w.call(100+xid, 0, rpcCall(100+xid, procHang))
		}
		for _, xid := range xids {
			w.reply(xid)
		}
		finish()
		eventually(t, "all calls are here", func() bool { return w.handler.hanging() == windowLeft })
		w.handler.release()
		for range windowLeft {
			w.get()
		}
	})
}

// TestServerWindowRetry: some of the calls that are still to come do not fit. Their requester keeps
// the credits, and sends them again with more room; their replies are still there.
func TestServerWindowRetry(t *testing.T) {
	const retries, size = 6, 150_000
	eachWindowEnv(t, func(w *windowEnv) {
		if w.dialect == wire.V1 {
			return // a call that does not fit is executed again
		}
		send := func(room int) {
			for xid := range retries {
				w.call(100+xid, room, rpcCall(100+xid, procPlain, 0, size))
			}
			for range retries {
				w.get()
			}
		}
		send(0)
		calls := w.handler.calls
		for xid := range windowLeft - retries {
			w.call(200+xid, 0, rpcCall(200+xid, procHang))
		}
		eventually(t, "the other calls are here", func() bool { return w.handler.hanging() == windowLeft-retries })
		w.mayStill(retries)
		send(size + oncrpc.MinReplyLen + 8)
		if n := w.handler.calls - calls; n != windowLeft-retries {
			t.Errorf("%d calls were executed again", n-(windowLeft-retries))
		}
		w.handler.release()
		for range windowLeft - retries {
			w.get()
		}
	})
}

// TestServerWindowModel: whatever a client does within its grants, and in whatever order answers
// are sent, each message finds a receive. Calls of the server go on meanwhile.
func TestServerWindowModel(t *testing.T) {
	pool := bufpool.New(0)
	for seed := range uint64(300) {
		newWindowModel(t, seed, pool).run(300)
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

// windowModel is a server's account of receives, with a client, and all that is between them.
type windowModel struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	pool   *bufpool.Pool
	device device
	r      recvCredits

	granted, underWay  int
	arriving           []bool // messages that are replies
	held               []*oncrpc.Message
	made, posted, sent []modelAnswer
	reverse            int // calls of the server without a reply
}

// modelAnswer is an answer: with again an error, after which the client sends the call again.
type modelAnswer struct {
	grant creditGrant
	again bool
}

func newWindowModel(t *testing.T, seed uint64, pool *bufpool.Pool) *windowModel {
	m := &windowModel{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), pool: pool, granted: 1}
	m.r = recvCredits{queue: newRecvQueue(pool, [][]int{{64}}), credits: 1}
	rs, err := m.r.prepare()
	m.must(err)
	m.device.queue = append(m.device.queue, rs...)
	m.r.queue.to = &m.device
	return m
}

func (m *windowModel) must(err error) {
	if err != nil {
		m.t.Fatalf("seed %d: %v", m.seed, err)
	}
}

func (m *windowModel) run(steps int) {
	for range steps {
		credits := 1 + m.random.IntN(12)
		switch m.random.IntN(8) {
		case 0:
			m.some(m.granted-m.underWay, func() {
				m.underWay++
				m.arriving = append(m.arriving, false)
			})
		case 1:
			m.some(len(m.arriving), m.arrive)
		case 2:
			m.some(len(m.held), func() { m.answer(credits) })
		case 3:
			m.some(len(m.made), func() {
				i := m.random.IntN(len(m.made))
				m.posted = append(m.posted, m.made[i])
				m.made = slices.Delete(m.made, i, i+1)
			})
		case 4:
			m.some(len(m.posted), func() {
				m.r.grantSent(m.posted[0].grant)
				m.sent, m.posted = append(m.sent, m.posted[0]), m.posted[1:]
			})
		case 5:
			m.some(len(m.sent), m.answered)
		case 6:
			m.some(20-m.reverse, func() {
				if m.r.reserve(1) {
					m.reverse++
				}
			})
		case 7:
			m.some(m.reverse, func() {
				m.reverse--
				m.arriving = append(m.arriving, true)
			})
		}
		if r := &m.r; r.credits+r.extra > r.posted+r.held || r.posted != len(m.device.queue) {
			m.t.Fatalf("seed %d: %d credits and %d further receives, %d are posted, %d held; the device has %d",
				m.seed, r.credits, r.extra, r.posted, r.held, len(m.device.queue))
		}
	}
	m.r.close()
	for _, c := range m.held {
		c.Release()
	}
}

// some does something at most n times.
func (m *windowModel) some(n int, do func()) {
	if n > 0 {
		for range 1 + m.random.IntN(n) {
			do()
		}
	}
}

// arrive takes the next message.
func (m *windowModel) arrive() {
	isReply := m.arriving[0]
	m.arriving = m.arriving[1:]
	if len(m.device.queue) == 0 {
		m.t.Fatalf("seed %d: a message finds no receive", m.seed)
	}
	s, c := m.r.queue.completed(m.device.queue[0].ID), new(oncrpc.Message)
	m.device.queue = m.device.queue[1:]
	s.moveTo(nil, 50, c, m.pool)
	m.r.consume(s, !isReply)
	if isReply {
		c.Release()
		m.must(m.r.giveBack(1, 0))
	} else {
		m.held = append(m.held, c)
		m.must(m.r.fill())
	}
}

// answer makes the answer to a call.
func (m *windowModel) answer(credits int) {
	m.held[0].Release()
	m.held = m.held[1:]
	a, returned := modelAnswer{again: m.random.IntN(2) == 0}, 1
	if a.again {
		returned = 0
	}
	var err error
	a.grant, err = m.r.answer(credit.Static(credits), credit.Max, 1, returned)
	m.must(err)
	m.made = append(m.made, a)
}

// answered has the client take an answer.
func (m *windowModel) answered() {
	a := m.sent[0]
	m.sent = m.sent[1:]
	if m.granted = a.grant.credits; a.again {
		m.arriving = append(m.arriving, false)
	} else {
		m.underWay--
	}
}

// await waits for c, or the connection's end.
func (p *rawPeer) await(c <-chan struct{}) {
	p.t.Helper()
	select {
	case <-c:
	case err := <-p.ended:
		p.t.Fatalf("connection ended: %v", err)
	case <-time.After(patience):
		p.t.Fatal("nothing came for a minute")
	}
}
