package gateway

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// adminConns is the most connections to the admin page at once.
	adminConns = 256
	// adminTimeout bounds how long a request may take to come, and its answer to be taken.
	adminTimeout = 10 * time.Second
)

// page answers requests with the last output of render. All requests that come while it is being made wait for the next one, which they
// share: however many there are, one is made at a time, and it is never older than the request.
type page struct {
	render http.HandlerFunc // gets a request without headers

	mu      sync.Mutex
	next    *rendering // nil if nobody waits for one
	running bool
}

// rendering is an answer that is made once. It is an http.ResponseWriter.
type rendering struct {
	done   chan struct{} // closed when it is complete, and not changed any more
	header http.Header
	code   int
	body   bytes.Buffer
	failed any // the value of a panic in render
}

func (r *rendering) Header() http.Header         { return r.header }
func (r *rendering) WriteHeader(code int)        { r.code = code }
func (r *rendering) Write(b []byte) (int, error) { return r.body.Write(b) }

// ServeHTTP implements http.Handler.
func (p *page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.next == nil {
		p.next = &rendering{done: make(chan struct{}), header: http.Header{}, code: http.StatusOK}
	}
	mine := p.next
	if !p.running {
		p.running = true
		go p.run()
	}
	p.mu.Unlock()
	select {
	case <-mine.done:
	case <-r.Context().Done():
		return
	}
	if mine.failed != nil {
		panic(mine.failed) // net/http logs it, and ends the connection
	}
	for name, values := range mine.header {
		w.Header()[name] = values
	}
	w.WriteHeader(mine.code)
	_, _ = w.Write(mine.body.Bytes())
}

// run makes answers as long as somebody waits for one.
func (p *page) run() {
	for {
		p.mu.Lock()
		now := p.next
		p.next = nil
		if now == nil {
			p.running = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.make(now)
	}
}

func (p *page) make(r *rendering) {
	defer close(r.done)
	defer func() { r.failed = recover() }()
	p.render(r, &http.Request{Method: http.MethodGet, Header: http.Header{}})
}

// timely bounds how long an answer may take to be taken. It is not for profiles, which take as long as they are asked to.
func timely(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(adminTimeout))
		h.ServeHTTP(w, r)
	})
}

// crowd are the connections to the admin page. When there are too many, the oldest one ends of the address that has the most.
type crowd struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
	byIP  map[string]int
}

func hostOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return host
}

// changed is the server's ConnState.
func (k *crowd) changed(c net.Conn, s http.ConnState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch s {
	case http.StateNew:
		if k.byIP == nil {
			k.byIP = map[string]int{}
		}
		k.conns = append(k.conns, c)
		k.byIP[hostOf(c)]++
		if len(k.conns) > adminConns {
			k.evictLocked()
		}
	case http.StateClosed, http.StateHijacked:
		for i := range k.conns {
			if k.conns[i] == c {
				k.removeLocked(i)
				return
			}
		}
	}
}

func (k *crowd) evictLocked() {
	most := 0
	for _, n := range k.byIP {
		most = max(most, n)
	}
	for i, c := range k.conns {
		if k.byIP[hostOf(c)] == most {
			_ = c.Close()
			k.removeLocked(i)
			return
		}
	}
}

func (k *crowd) removeLocked(i int) {
	host := hostOf(k.conns[i])
	k.conns = append(k.conns[:i], k.conns[i+1:]...)
	if k.byIP[host]--; k.byIP[host] == 0 {
		delete(k.byIP, host)
	}
}
