package credit

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var full = flag.Bool("full", false, "run the model of cumulative credits for longer")

// modelPeer is one side of a connection with cumulative credits. It has messages to send, and keeps
// some that came for a while, which takes their receives.
type modelPeer struct {
	sends    Sends
	receives Receives
	posted   int // receives
	kept     int // messages whose receives are not posted again
	room     int // receives, posted or kept
	want     int // messages to send
	sent     int
	got      int
	grants   int
	line     []uint32 // the limits in messages on their way to the other side
	grant    []bool   // which of them are grants
}

func newModelPeer(room int) *modelPeer {
	return &modelPeer{sends: NewSends(), receives: NewReceives(), room: room, posted: room}
}

func (p *modelPeer) send(grant bool) {
	p.sends.Send(1)
	p.line = append(p.line, p.receives.Announce(p.posted))
	p.grant = append(p.grant, grant)
}

// step lets p do one thing. It returns false if there was nothing to do.
func (p *modelPeer) step(t *testing.T, from *modelPeer, r *rand.Rand) bool {
	var can []func()
	if p.want > 0 && p.sends.Free() > 0 {
		can = append(can, func() { p.want--; p.sent++; p.send(false) })
	}
	if p.sends.MayGrant() && p.receives.Due(p.posted) {
		can = append(can, func() { p.grants++; p.send(true) })
	}
	if p.kept > 0 {
		can = append(can, func() { p.kept--; p.posted++ })
	}
	if len(from.line) > 0 {
		can = append(can, func() {
			if p.posted == 0 {
				t.Fatal("a message came, and no receive is posted")
			}
			p.posted--
			p.receives.Receive()
			if p.receives.Overrun() {
				t.Fatal("the peer sent more than it may")
			}
			p.sends.Allow(from.line[0])
			if from.grant[0] {
				p.posted++
			} else {
				p.got++
				p.kept++
			}
			from.line, from.grant = from.line[1:], from.grant[1:]
		})
	}
	if len(can) == 0 {
		return false
	}
	can[r.IntN(len(can))]()
	return true
}

// TestCumulativeModel runs two sides with all orders of sending, receiving and granting: no message
// comes without a receive for it, all messages arrive, and then both fall silent. The counters wrap
// on the way.
func TestCumulativeModel(t *testing.T) {
	steps := 1_000_000
	if *full {
		steps *= 100
	}
	done := 0
	for seed := uint64(1); done < steps; seed++ {
		r := rand.New(rand.NewPCG(seed, 7))
		a, b := newModelPeer(3+r.IntN(6)), newModelPeer(2+r.IntN(40))
		if seed%2 == 0 { // near the wrap
			start := uint32(r.IntN(100)) - 50
			for _, p := range []*modelPeer{a, b} {
				p.sends = Sends{start, start + 1}
				p.receives = Receives{start, start + 1, 1}
			}
		}
		a.want, b.want = r.IntN(400), 0
		for total := a.want; ; done++ {
			// b speaks after the first message, as servers do
			if b.got == 1 && b.sent+b.want == 0 {
				b.want = r.IntN(400)
				total += b.want
			}
			first, second := a, b
			if r.IntN(2) == 0 {
				first, second = b, a
			}
			if first.step(t, second, r) || second.step(t, first, r) {
				continue
			}
			if a.got+b.got != total {
				t.Fatalf("seed %d: %d of %d messages came, and nothing moves: %+v %+v", seed, a.got+b.got, total, a, b)
			}
			break
		}
		if n := a.grants + b.grants; n > 2*(a.sent+b.sent)+8 {
			t.Fatalf("seed %d: %d grants for %d messages", seed, n, a.sent+b.sent)
		}
	}
}

// TestCumulativeLowered lowers a limit: the sender waits.
func TestCumulativeLowered(t *testing.T) {
	s := NewSends()
	s.Allow(5)
	s.Send(3)
	s.Allow(2)
	if s.Free() != -1 || s.MayGrant() {
		t.Errorf("%d may be sent", s.Free())
	}
	s.Allow(3)
	if s.Free() != 0 || !s.MayGrant() {
		t.Errorf("%d may be sent", s.Free())
	}
}
