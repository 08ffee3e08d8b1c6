package blocking

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// model is connections without sockets. A step is one millisecond, in which each busy connection
// reads once.
type model struct {
	t      *testing.T
	s      slots
	limit  int
	now    int64
	claims []*modelClaim
}

type modelClaim struct {
	claim
	busy, blocks bool
	steps, wakes int
}

func newModel(t *testing.T, limit, n int) *model {
	m := &model{t: t, limit: limit, now: int64(time.Hour)}
	for range n {
		c := &modelClaim{}
		c.limit = limit
		c.wake = func() { c.wakes++ }
		m.claims = append(m.claims, c)
		if m.s.begin(&c.claim, m.now) {
			m.begin(c)
		}
	}
	return m
}

func (m *model) begin(c *modelClaim) {
	c.blocks = m.s.accept(&c.claim, m.now)
	c.idle.Store(c.blocks && !c.busy)
}

// step follows the calls of Conn.Read.
func (m *model) step() {
	m.now += int64(time.Millisecond)
	blocked := 0
	for _, c := range m.claims {
		if c.blocks && c.revoked.Load() && (c.busy || c.wakes > 0) {
			c.blocks, c.wakes = false, 0
			c.idle.Store(false)
			m.s.giveBack(&c.claim, m.now)
		}
		if c.busy && !c.blocks && m.s.ask(&c.claim, m.now) {
			m.begin(c)
		}
		c.idle.Store(c.blocks && !c.busy)
		if c.blocks {
			blocked++
			if c.busy {
				c.steps++
			}
		}
	}
	if blocked > m.limit || len(m.s.holders) > m.limit || int(m.s.held.Load()) != len(m.s.holders) {
		m.t.Fatalf("%d connections block, %d hold, %d count; the limit is %d", blocked, len(m.s.holders), m.s.held.Load(), m.limit)
	}
	revoked := 0
	for _, h := range m.s.holders {
		if h.revoked.Load() {
			revoked++
		}
	}
	if revoked != m.s.revoked {
		m.t.Fatalf("%d threads are revoked, %d counted", revoked, m.s.revoked)
	}
}

func (m *model) steps(n int) {
	for range n {
		m.step()
	}
}

// TestIdleHolders: busy connections have the threads of idle ones within some reads.
func TestIdleHolders(t *testing.T) {
	m := newModel(t, 3, 10)
	for _, busy := range [][]int{{3, 4, 5}, {9}, {0, 3, 9}, {1, 2}} {
		for _, c := range m.claims {
			c.busy = false
		}
		for _, i := range busy {
			m.claims[i].busy = true
		}
		m.steps(busyReads + 2*int(quantum/time.Millisecond))
		for _, i := range busy {
			if !m.claims[i].blocks {
				t.Errorf("of the busy connections %v, %d has no thread", busy, i)
			}
		}
		before := len(m.s.queue)
		if before != 0 {
			t.Errorf("%d claims wait, and holders are idle", before)
		}
	}
}

// TestQuanta: busy connections share too few threads evenly.
func TestQuanta(t *testing.T) {
	for _, busy := range []int{3, 5, 12} {
		m := newModel(t, 2, 20)
		for _, c := range m.claims[:busy] {
			c.busy = true
		}
		const n = 20_000
		m.steps(n)
		lowest, highest, sum := n, 0, 0
		for _, c := range m.claims[:busy] {
			lowest, highest, sum = min(lowest, c.steps), max(highest, c.steps), sum+c.steps
		}
		if lowest < highest*8/10 {
			t.Errorf("%d busy connections: %d to %d steps with a thread", busy, lowest, highest)
		}
		if sum < 2*n*8/10 {
			t.Errorf("%d busy connections: threads were used for %d of %d steps", busy, sum, 2*n)
		}
	}
}

// TestAlone: a connection that others do not compete with keeps its thread.
func TestAlone(t *testing.T) {
	m := newModel(t, 2, 2)
	for _, c := range m.claims {
		c.busy = true
	}
	m.steps(1000)
	for i, c := range m.claims {
		if c.steps != 1000 {
			t.Errorf("connection %d had a thread in %d of 1000 steps", i, c.steps)
		}
	}
}

// TestAnyOrder: whatever connections do, threads are counted, and in the end two busy ones have
// them.
func TestAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	m := newModel(t, 2, 8)
	for range 50_000 {
		c := m.claims[random.IntN(len(m.claims))]
		switch random.IntN(40) {
		case 0:
			c.busy = !c.busy
		case 1: // closed, and another one in its place
			c.blocks = false
			m.s.release(&c.claim, m.now)
			if c.queued || c.granted.Load() || c.revoked.Load() {
				t.Fatal("a closed connection has a claim")
			}
			c.wakes = 0
			c.idle.Store(false)
		}
		m.step()
	}
	for i, c := range m.claims {
		c.busy = i < 2
	}
	m.steps(100)
	for i, c := range m.claims {
		if c.blocks != (i < 2) {
			t.Errorf("connection %d: busy %v, blocks %v", i, c.busy, c.blocks)
		}
	}
}

// TestReaders: readers ask at the same time, each at moments of its own, so that threads which were
// granted and not taken are given to others. Only the race detector can find a fault.
func TestReaders(t *testing.T) {
	var s slots
	var readers sync.WaitGroup
	for i := range 4 {
		c := &claim{limit: 1, wake: func() {}}
		readers.Go(func() {
			at := int64(time.Hour)
			for n := range 20_000 {
				if at += int64(time.Microsecond); n%200 == i {
					at += int64(3 * quantum)
				}
				if s.ask(c, at) && n%3 == 0 && s.accept(c, at) {
					s.giveBack(c, at)
				}
			}
			s.release(c, at)
		})
	}
	readers.Wait()
	if len(s.holders) != 0 || s.held.Load() != 0 || len(s.queue) != 0 {
		t.Errorf("%d hold, %d are counted, %d wait", len(s.holders), s.held.Load(), len(s.queue))
	}
}
