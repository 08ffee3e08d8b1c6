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

// takePort takes a source port below 1024; 0, that is any, when there is none. tries is how many were tried in vain: those that others have
// (the backend of another export on the same server, say) are found out in this way.
func (b *Backend) takePort(tries int) int {
	denied := false
	if tries <= lastPort-firstPort {
		var p int
		if p, denied = b.ports.take(); p != 0 {
			return p
		}
	}
	if !denied && b.counts.otherPorts.Add(1) == 1 {
		b.cfg.Logger.Warn("backend: no source port below 1024 is left, others are taken; some servers refuse them")
	}
	return 0
}

// setPortsDenied takes note that this process may not use source ports below 1024.
func (b *Backend) setPortsDenied() {
	if b.ports.deny() {
		b.cfg.Logger.Info("backend: this process may not use source ports below 1024, others are taken; some servers refuse them")
	}
}
