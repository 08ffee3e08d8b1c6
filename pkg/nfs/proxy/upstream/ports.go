package upstream

import "sync"

// Source ports that a backend may demand of a client that is to be believed. Those below are left to servers; the range is that of
// the Linux kernel's client.
const (
	firstPort = 665
	lastPort  = 1023
)

// ports hands out source ports. Each line keeps its own as long as it lives.
type ports struct {
	mu     sync.Mutex
	used   [lastPort - firstPort + 1]bool
	n      int
	next   int
	denied bool // this process may not use them
}

// take returns a port that no line has, 0 if there is none, or if none may be used.
func (p *ports) take() (port int, denied bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.denied {
		return 0, true
	}
	for range p.used {
		i := p.next
		p.next = (i + 1) % len(p.used)
		if !p.used[i] {
			p.used[i] = true
			p.n++
			return firstPort + i, false
		}
	}
	return 0, false
}

// put gives a port back, if it was taken.
func (p *ports) put(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := port - firstPort; i >= 0 && i < len(p.used) && p.used[i] {
		p.used[i] = false
		p.n--
	}
}

// deny ends all handing out. It reports whether that is news.
func (p *ports) deny() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	news := !p.denied
	p.denied = true
	return news
}

func (p *ports) inUse() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.n
}
