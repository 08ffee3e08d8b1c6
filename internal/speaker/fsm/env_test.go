package fsm

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"time"
)

// env is a network, an API server and some speakers, in virtual time.
type env struct {
	now    Time
	rnd    *rand.Rand
	queue  queue
	seq    int
	leases map[string]Record
	rev    uint64
	nodes  []*node
	groups []Group
	lossy  bool // answers of the API server get lost
	report func(format string, a ...any)
	asked  map[MAC]*question // requests of the host that asks for every address again and again
}

const (
	askEvery = 200 * time.Millisecond
	hear     = 20 * time.Millisecond // a frame takes this long at most
)

// question is one request for an address, and who answered it in each segment.
type question struct {
	ip       netip.Addr
	answered [8]*node
}

// node is a pod: its interface outlives its speaker's processes.
type node struct {
	w      *env
	name   string
	mac    MAC
	m      *Machine // nil while no process runs
	life   int      // which process this is
	paused bool
	inbox  []func() // waits for a paused process
	left   []Action // a paused process's next actions,
	leftAt Time     // since this moment
	cut    bool     // off from the API server
	split  int      // hosts of one number hear each other
	on     map[netip.Addr]bool
	said   map[netip.Addr]Time // when it last answered a request
	full   bool                // no address can be added
	done   bool
}

type item struct {
	at  Time
	seq int
	do  func()
}

type queue []item

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(item)) }
func (q *queue) Pop() any     { o := *q; x := o[len(o)-1]; *q = o[:len(o)-1]; return x }

func newEnv(seed uint64, nodes, groups int, report func(format string, a ...any)) *env {
	w := &env{now: time.Hour, rnd: rand.New(rand.NewPCG(seed, 1)), leases: map[string]Record{}, report: report, asked: map[MAC]*question{}}
	for i := range groups {
		g := Group{Lease: "vip-" + strconv.Itoa(i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(2*i + 1)}), netip.AddrFrom4([4]byte{192, 0, 2, byte(2*i + 2)})}}
		w.groups = append(w.groups, g)
		w.rev++
		w.leases[g.Lease] = Record{Version: fmt.Sprint(w.rev), Order: w.rev, Duration: Default.Lease}
	}
	for i := range nodes {
		w.nodes = append(w.nodes, &node{w: w, name: "pod-" + strconv.Itoa(i), mac: MAC{2, 0, 0, 0, 0, byte(i + 1)}, on: map[netip.Addr]bool{}, said: map[netip.Addr]Time{}})
	}
	w.ask()
	return w
}

func (w *env) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, item{w.now + d, w.seq, do})
}

func (w *env) delay(most time.Duration) time.Duration {
	return time.Duration(w.rnd.Int64N(int64(most) + 1))
}

// run lets the time pass.
func (w *env) run(d time.Duration) {
	end := w.now + d
	for len(w.queue) > 0 && w.queue[0].at <= end {
		x := heap.Pop(&w.queue).(item)
		w.now = x.at
		x.do()
	}
	w.now = end
}

// ask has a host in every segment ask for every address. No request may have two answers.
func (w *env) ask() {
	w.after(askEvery, w.ask)
	for _, g := range w.groups {
		for _, ip := range g.Addresses {
			k := len(w.asked)
			from := MAC{0x0a, 0, byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}
			w.asked[from] = &question{ip: ip}
			for _, n := range w.nodes {
				n.deliver(Heard{Kind: Request, Address: ip, From: from})
			}
		}
	}
}

// answer takes note that n answered a question.
func (n *node) answer(q *question) {
	n.said[q.ip] = n.w.now
	if o := q.answered[n.split]; o != nil && o != n {
		n.w.report("at %v, %s and %s answer the same request for %v:\n%v", n.w.now, o.name, n.name, q.ip, n.w)
	}
	q.answered[n.split] = n
}

func (w *env) String() (s string) {
	for _, n := range w.nodes {
		if n.m != nil {
			s += fmt.Sprintf("%s paused=%v cut=%v %+v\n", n.name, n.paused, n.cut, n.m.Status(w.now))
		}
	}
	return s
}

// answers reports whether n answered the latest request for ip.
func (n *node) answers(ip netip.Addr) bool {
	said, ok := n.said[ip]
	return ok && n.m != nil && !n.paused && n.w.now-said <= askEvery+hear
}

// start runs a new process.
func (n *node) start() {
	w := n.w
	n.life++
	n.paused, n.inbox, n.left, n.done = false, nil, nil, false
	clear(n.said)
	n.m = New(Default, n.name, w.now, w.delay)
	var present []netip.Addr
	for _, g := range w.groups {
		for _, ip := range g.Addresses {
			if n.on[ip] {
				present = append(present, ip)
			}
		}
	}
	n.step(Present{present})
	n.step(Configure{w.groups})
	n.step(Fit{Take: true, Keep: true})
	n.reread()
	n.ticking(n.life)
}

func (n *node) ticking(life int) {
	if n.life != life || n.m == nil || n.done {
		return
	}
	if !n.paused {
		n.step(Tick{})
	}
	n.w.after(Default.Probe/8+n.w.delay(Default.Probe/8), func() { n.ticking(life) })
}

// later delivers something to the process that there is now, once it runs.
func (n *node) later(d time.Duration, do func()) {
	life := n.life
	n.w.after(d, func() {
		switch {
		case n.life != life || n.m == nil:
		case n.paused:
			n.inbox = append(n.inbox, do)
		default:
			do()
		}
	})
}

func (n *node) step(e Event) {
	if n.m != nil && !n.done {
		n.carryOut(n.m.Step(n.w.now, e), n.w.now)
	}
}

func (n *node) carryOut(actions []Action, since Time) {
	for i, a := range actions {
		if n.paused {
			n.left, n.leftAt = append(n.left, actions[i:]...), since
			return
		}
		late := n.w.now-since > Default.Probe/2
		switch a := a.(type) {
		case Write:
			n.write(a)
		case Ask:
			if !late {
				n.send(Heard{Kind: Probe, Address: a.Address})
			}
		case Announce:
			if !late {
				n.send(Heard{Kind: Claim, Address: a.Address})
			}
		case Reply:
			switch {
			case late:
			case n.w.asked[a.To.From] != nil:
				n.answer(n.w.asked[a.To.From])
			default:
				n.send(Heard{Kind: Claim, Address: a.To.Address})
			}
		case Add:
			if !n.full {
				n.on[a.Address] = true
			}
			n.step(Added{a.Address, n.full})
		case Remove:
			delete(n.on, a.Address)
		case Done:
			n.done = true
		}
	}
}

func (n *node) send(h Heard) {
	h.From = n.mac
	for _, o := range n.w.nodes {
		if o != n && o.m != nil && o.split == n.split {
			o.deliver(h)
		}
	}
}

// deliver has the present process hear a frame, once it runs.
func (n *node) deliver(h Heard) {
	at := n.w.now + n.w.delay(hear)
	n.later(at-n.w.now, func() { h.Age = n.w.now - at; n.step(h) })
}

// write reaches the server or not, and its answer comes back or not.
func (n *node) write(a Write) {
	fail := func() { n.later(3*time.Second, func() { n.step(Written{Lease: a.Lease, Failed: true}); n.reread() }) }
	if n.cut {
		fail()
		return
	}
	n.w.after(n.w.delay(100*time.Millisecond), func() {
		if n.cut {
			fail()
			return
		}
		r := n.w.leases[a.Lease]
		if r.Version != a.Version {
			n.later(n.w.delay(100*time.Millisecond), func() { n.step(Written{Lease: a.Lease, Failed: true}); n.reread() })
			return
		}
		r = n.w.put(a.Lease, a.Holder, a.Transitions)
		if n.w.lossy && n.w.rnd.IntN(20) == 0 {
			fail() // the answer was lost
			return
		}
		n.later(n.w.delay(100*time.Millisecond), func() { n.step(Written{Lease: a.Lease, Record: r}) })
	})
}

func (w *env) put(lease, holder string, transitions int) Record {
	w.rev++
	r := Record{Version: fmt.Sprint(w.rev), Order: w.rev, Holder: holder, EverHeld: true, Transitions: transitions, Duration: Default.Lease}
	w.leases[lease] = r
	for _, o := range w.nodes {
		if !o.cut && o.m != nil {
			o.later(w.delay(200*time.Millisecond), func() {
				if !o.cut {
					o.step(Observed{lease, r})
				}
			})
		}
	}
	return r
}

// reread lists the Leases, as at the start and after an error.
func (n *node) reread() {
	n.later(n.w.delay(200*time.Millisecond), func() {
		if n.cut {
			return
		}
		for _, g := range n.w.groups {
			n.step(Observed{g.Lease, n.w.leases[g.Lease]})
		}
	})
}

func (n *node) pause() { n.paused = n.m != nil }

func (n *node) wake() {
	if !n.paused {
		return
	}
	n.paused = false
	left, inbox := n.left, n.inbox
	n.left, n.inbox = nil, nil
	n.carryOut(left, n.leftAt)
	for _, do := range inbox {
		do()
	}
}

func (n *node) kill() {
	n.m, n.paused = nil, false
	n.life++
}

func (n *node) connect() {
	n.cut = false
	if n.m != nil {
		n.reread()
	}
}

// holder returns the node that answers for ip, nil if none does.
func (w *env) holder(ip netip.Addr) *node {
	for _, n := range w.nodes {
		if n.answers(ip) {
			return n
		}
	}
	return nil
}
