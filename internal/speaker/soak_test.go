package speaker

import (
	"flag"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

var (
	soak     = flag.Duration("soak", 0, "how long TestSoak disturbs three speakers")
	soakSeed = flag.Uint64("soak.seed", 1, "what is disturbed, and when")
)

// TestSoak: whatever happens to the speakers, in any order, two never answer. When it is over all
// addresses are served.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("NOT RUN: -soak says for how long")
	}
	r := newEnv(t, 3)
	rnd := rand.New(rand.NewPCG(*soakSeed, 0))
	wait := func(most int) { time.Sleep(time.Duration(rnd.IntN(most)) * time.Millisecond) }
	start := func(p *pod, fresh bool) {
		p.start(fresh)
		r.eventually(p.name+" runs", func() bool { _, err := p.status(); return err == nil })
	}
	for _, p := range r.pods {
		start(p, true)
	}
	for end := time.Now().Add(*soak); time.Now().Before(end); wait(2500) {
		p := r.pods[rnd.IntN(len(r.pods))]
		what := []string{"stop", "stop", "kill", "cut", "cut", "end", "end"}[rnd.IntN(7)]
		t.Logf("%s: %s", p.name, what)
		switch what {
		case "stop":
			p.signal(syscall.SIGSTOP)
			wait([]int{500, 2000, 9000}[rnd.IntN(3)])
			p.signal(syscall.SIGCONT)
		case "kill":
			p.kill()
			wait(9000)
			start(p, false)
		case "cut":
			p.cut(rnd.IntN(2) == 0)
		case "end":
			p.signal(syscall.SIGTERM)
			if err := p.process.Wait(); err != nil {
				t.Errorf("%s ended with %v", p.name, err)
			}
			wait(9000)
			start(p, true)
		}
	}
	for _, p := range r.pods {
		p.cut(false)
	}
	r.eventually("all addresses are served", func() bool {
		for _, ip := range r.vips {
			if len(r.who(ip)) != len("gw-0") {
				return false
			}
		}
		return true
	})
}
