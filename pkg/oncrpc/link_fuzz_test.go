package oncrpc

import (
	"io"
	"net"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

// script is a socket whose peer sends given pieces and takes everything.
type script struct {
	says []byte
	cut  int
}

func (s *script) read(r *reader) (int, error) {
	if len(s.says) == 0 {
		return 0, io.EOF
	}
	a, b, err := r.space()
	if err != nil {
		return 0, err
	}
	says := s.says[:min(len(s.says), s.cut)]
	n := copy(a, says)
	n += copy(b, says[n:])
	s.says = s.says[n:]
	r.filled(n)
	return n, nil
}

func (s *script) write(bufs [][]byte, wait bool, deadline time.Time) (n int, err error) {
	for _, b := range bufs[:min(len(bufs), maxVector)] {
		n += len(b)
	}
	return n, nil
}

func (s *script) closeWrite() error { return nil }
func (s *script) close() error      { return nil }

// FuzzLink lets a peer send anything to a connection with both roles: no panic, no leak.
func FuzzLink(f *testing.F) {
	echo := append(callBytes(7, procEcho, 5), "abcde\x00\x00\x00"...)
	sum := append(callBytes(8, procSum, 40_000), make([]byte, 40_000)...)
	f.Add(append(marked(echo), marked(callBytes(9, procNull))...), 100)
	f.Add(append(marked(sum, 5, 20_000), marked(echo, 1, 2)...), 1448)
	f.Add(marked(unhex(f, "00000001 00000001 00000000 00000000 00000000 00000000 00000010")), 1000)
	f.Add(append(marked(append(unhex(f, "00000001 00000001 00000000 00000000 00000000 00000000 00004e20"), make([]byte, 20_000)...)), marked(callBytes(9, 99))...), 9000)
	f.Add(append(marked([]byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4}), 0x80, 0, 0, 0), 3)
	f.Fuzz(func(t *testing.T, says []byte, cut int) {
		pool := bufpool.New(0)
		budget := bufpool.NewBudget(120_000, 120_000)
		cfg := Config{Pool: pool, Handler: &testService{held: make(chan *Call, 10)}, Budget: budget, MaxRecord: 60_000, MaxCalls: 1 << 20, Bindings: bulkBindings}
		if err := cfg.defaults(); err != nil {
			t.Fatal(err)
		}
		l := newLink(&cfg, &script{says, max(1, cut)}, &net.TCPAddr{}, &net.TCPAddr{})
		// Two requests wait for replies with XIDs 1 and 2.
		done := 0
		var requests []*Request
		for i := range uint32(2) {
			r, e, err := NewRequest(pool, testProgram, 1, procPool, Auth{}, 100)
			if err != nil {
				t.Fatal(err)
			}
			e.Uint32(100)
			if err := r.Seal(); err != nil {
				t.Fatal(err)
			}
			r.Plan.Results = append(r.Plan.Results, Result{Max: 60_000})
			r.Done = func(*Request) { done++ }
			r.SetXID(i + 1)
			l.Submit(r)
			requests = append(requests, r)
		}
		l.serve()
		if done != len(requests) || l.err() == nil {
			t.Fatalf("%d of %d requests are done, the connection ended with %v", done, len(requests), l.err())
		}
		for _, r := range requests {
			if d, err := r.Results(); err == nil {
				d.Bulk(60_000, nil)
			}
			r.Free()
		}
		for len(cfg.Handler.(*testService).held) > 0 { // answered after the connection's end
			c := <-cfg.Handler.(*testService).held
			c.ReplyAccept(Success)
		}
		for i := 0; pool.Stats().Bufs > 0 && i < 1000; i++ { // GET answers from another goroutine
			time.Sleep(time.Millisecond)
		}
		if err := pool.Close(); err != nil {
			t.Fatal(err)
		}
		if budget.Used() != 0 {
			t.Fatalf("%d bytes of the budget are left", budget.Used())
		}
	})
}
