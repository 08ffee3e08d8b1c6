package upstream

import (
	"sync"
)

// Source ports that a server may require of trusted clients. Lower ones are left to servers; the
// range is that of the Linux client.
const (
	firstPort = 665
	lastPort  = 1023
)

// ports allocates source ports. A backendConn keeps its port for life.
type ports struct {
	mu     sync.Mutex
	used   [lastPort - firstPort + 1]bool
	n      int
	next   int
	denied bool // this process may not use them
}

// take returns a free port, or 0 if none is free or permitted.
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

// put returns a port, if it came from take.
func (p *ports) put(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := port - firstPort; i >= 0 && i < len(p.used) && p.used[i] {
		p.used[i] = false
		p.n--
	}
}

// deny stops the allocation of ports. It reports whether that is a change.
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
