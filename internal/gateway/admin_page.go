package gateway

import (
	"bytes"
	"net/http"
	"sync"
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
