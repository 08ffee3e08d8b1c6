package adminpage

import (
	"bytes"
	"net/http"
	"sync"

	"sluice.dev/sluice/internal/adminport"
)

// shared serves the output of render. Requests that arrive during a rendering wait for the next
// one, and share it. So one rendering runs at a time, and no response is older than its request.
type shared struct {
	render http.HandlerFunc // gets a request without headers

	mu      sync.Mutex
	next    *rendering // nil if no request waits
	running bool
}

// rendering is a response for several requests. It implements http.ResponseWriter.
type rendering struct {
	done   chan struct{} // closed when the rendering is complete
	header http.Header
	code   int
	body   bytes.Buffer
	failed any // value of a panic in render
}

func (r *rendering) Header() http.Header         { return r.header }
func (r *rendering) WriteHeader(code int)        { r.code = code }
func (r *rendering) Write(b []byte) (int, error) { return r.body.Write(b) }

// ServeHTTP implements http.Handler.
func (p *shared) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	adminport.SetWriteDeadline(w) // a busy machine may have rendered for longer than the timeout
	for name, values := range mine.header {
		w.Header()[name] = values
	}
	w.WriteHeader(mine.code)
	_, _ = w.Write(mine.body.Bytes())
}

// run renders until no request waits.
func (p *shared) run() {
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

func (p *shared) make(r *rendering) {
	defer close(r.done)
	defer func() { r.failed = recover() }()
	p.render(r, &http.Request{Method: http.MethodGet, Header: http.Header{}})
}
