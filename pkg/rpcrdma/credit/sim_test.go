package credit

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// adaptiveSim is a policy with its own clock, and connections that count receives as package
// rpcrdma does.
type adaptiveSim struct {
	p     *Adaptive
	now   time.Duration
	size  int
	names []string
	conns map[string]*simConn
	// The backend's latency for calls of a kind; 0 means that none is reported.
	latency time.Duration
	kind    int
}

// simConn is a connection. A lower grant counts after lag further replies: replies in transit may
// grant more.
type simConn struct {
	account Account
	asks    int
	size    int // of receives
	lag     int
	credits int // credits with posted receives
	lower   []int
	there   int // receives, posted or held
}

func newAdaptiveSim(t testing.TB, l Limits) *adaptiveSim {
	t.Helper()
	s := &adaptiveSim{conns: map[string]*simConn{}, size: l.ReceiveSize, now: time.Hour}
	var err error
	if s.p, err = NewAdaptive(l, func() time.Duration { return s.now }); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *adaptiveSim) open(name string) *simConn {
	c := &simConn{account: s.p.Open(), asks: 128, size: s.size, credits: 1, there: 1}
	s.names, s.conns[name] = append(s.names, name), c
	return c
}

// answer replies to one call, and returns the grant.
func (c *simConn) answer() int {
	n := max(1, min(c.asks, c.account.Credits(c.asks, 0)))
	c.lower = append(c.lower, n)
	if len(c.lower) > c.lag+1 {
		c.lower = c.lower[1:]
	}
	c.credits = 1
	for _, l := range c.lower {
		c.credits = max(c.credits, l)
	}
	c.there = max(c.there-1, c.credits)
	c.account.(ReceiveAccount).Posted(max(c.credits, c.there), c.size)
	return n
}

// busy makes n calls on each connection, spread over d.
func (s *adaptiveSim) busy(names []string, n int, d time.Duration) {
	end := s.now + d
	for i := range n {
		s.now = end - d + d*time.Duration(i+1)/time.Duration(n)
		for _, name := range names {
			if s.latency > 0 {
				s.p.Latency(s.kind, s.latency)
			}
			s.conns[name].answer()
		}
	}
}

func (s *adaptiveSim) memory() (sum int64) {
	for _, c := range s.conns {
		sum += int64(c.there) * int64(c.size)
	}
	return sum
}

func (s *adaptiveSim) grants() string {
	var b strings.Builder
	for _, name := range s.names {
		fmt.Fprintf(&b, "%s %d, ", name, s.conns[name].account.(*account).grant)
	}
	st := s.p.Stats()
	fmt.Fprintf(&b, "%d of %d KiB", st.Promised>>10, st.Memory>>10)
	if st.Ceiling != st.Max {
		fmt.Fprintf(&b, ", at most %d", st.Ceiling)
	}
	return b.String()
}
