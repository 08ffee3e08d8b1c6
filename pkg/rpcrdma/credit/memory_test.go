package credit

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestReceiveMemory applies random operations to policies that share memory. They never exceed the
// limit, except by receives that cannot be recalled after a cut, and they use all available memory.
func TestReceiveMemory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(low, high int, what string) int { return rapid.IntRange(low, high).Draw(rt, what) }
		const size = 4096
		limit := int64(draw(leastCredits, 400, "limit")) * size
		var m Memory
		m.SetLimit(limit)
		var policies []*Adaptive
		for range 2 {
			n := draw(1, 200, "credits")
			p, err := NewAdaptive(Limits{Min: n, Max: n, Memory: math.MaxInt64, ReceiveSize: size}, nil)
			if err != nil {
				rt.Fatal(err)
			}
			p.Under(&m)
			policies = append(policies, p)
		}
		type conn struct {
			ReceiveAccount
			most int
		}
		var conns []conn
		for range draw(1, 80, "steps") {
			switch step := draw(0, 3, "step"); {
			case step == 0:
				p := policies[draw(0, 1, "policy")]
				if p.Room() {
					conns = append(conns, conn{p.Open().(ReceiveAccount), p.Stats().Max})
				} else if free := limit - m.Used(); free >= leastCredits*size {
					rt.Fatalf("there is no room, with %d bytes free", free)
				}
			case len(conns) == 0:
			case step == 1:
				i := draw(0, len(conns)-1, "close")
				conns[i].Close()
				conns = append(conns[:i:i], conns[i+1:]...)
			default:
				c := conns[draw(0, len(conns)-1, "answer")]
				asks := draw(1, 300, "asks")
				n := c.Credits(asks, 0)
				if want := min(leastCredits, c.most, asks); n < want || n > min(c.most, asks) {
					rt.Fatalf("granted %d of %d, to one that asks for %d", n, c.most, asks)
				}
				c.Posted(n, size)
			}
			if used := m.Used(); used < 0 || used > limit {
				rt.Fatalf("%d bytes are used, of %d", used, limit)
			}
		}
		for _, c := range conns {
			c.Close()
		}
		if used := m.Used(); used != 0 {
			rt.Fatalf("%d bytes are used without connections", used)
		}
	})
}

// TestReceiveMemoryGrows: a connection with less than its request gets it when memory is free
// again.
func TestReceiveMemoryGrows(t *testing.T) {
	var m Memory
	m.SetLimit(128 * 4096)
	p, err := NewAdaptive(Limits{Min: 128, Max: 128, Memory: math.MaxInt64, ReceiveSize: 4096}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Under(&m)
	a, b := p.Open(), p.Open()
	got := [4]int{a.Credits(128, 0), b.Credits(128, 0)}
	a.Close()
	got[2] = b.Credits(128, 0)
	m.SetLimit(0)
	got[3] = b.Credits(128, 0)
	if want := [4]int{88, 8, 96, 128}; got != want {
		t.Errorf("granted %v, want %v", got, want)
	}
}
