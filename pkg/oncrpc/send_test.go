package oncrpc

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/xdr"
)

// fakeSocket takes any number of bytes at a time, and keeps them.
type fakeSocket struct {
	mu    sync.Mutex
	rnd   *rand.Rand
	most  int
	got   []byte
	calls int
	busy  bool
	fails int // after so many calls; 0: never
}

var errFake = errors.New("the socket broke")

func (s *fakeSocket) read(*reader) (int, error) { panic("not called") }
func (s *fakeSocket) closeWrite() error         { return nil }
func (s *fakeSocket) close() error              { return nil }

func (s *fakeSocket) write(bufs [][]byte, wait bool, deadline time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy {
		panic("two writers")
	}
	s.busy = true
	s.mu.Unlock()
	runtime.Gosched() // lets others come in between
	s.mu.Lock()
	s.busy = false
	s.calls++
	if s.fails > 0 && s.calls > s.fails {
		return 0, errFake
	}
	n := s.rnd.IntN(s.most + 1)
	if wait {
		n++
	}
	took := 0
	for i, b := range bufs {
		if n == took || i == maxVector {
			break
		}
		k := min(len(b), n-took)
		s.got = append(s.got, b[:k]...)
		took += k
	}
	return took, nil
}

// parcel is an outgoing message that counts its ends.
type parcel struct {
	m    Message
	mark [4]byte
	want []byte
	mu   sync.Mutex
	ends []error
}

func (p *parcel) outgoing() (*Message, *[4]byte) { return &p.m, &p.mark }
func (p *parcel) sent(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, err)
}

func newParcel(rnd *rand.Rand, id int) *parcel {
	p := &parcel{}
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 500), nil)
	e.Uint32(uint32(id))
	for range rnd.IntN(4) {
		b := fill(rnd.IntN(3000), id)
		cut := rnd.IntN(len(b) + 1)
		e.Bulk([][]byte{b[:cut], b[cut:]}, len(b))
		e.Uint32(7)
	}
	p.m.Stream, p.m.Items = [][]byte{e.Bytes()}, e.Items()
	p.want = marked(join(&p.m))
	return p
}

// TestSender: whatever a socket takes at a time, and from any goroutine, each message leaves whole
// and is finished once.
func TestSender(t *testing.T) {
	for seed := range uint64(24) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		sock := &fakeSocket{rnd: rnd, most: 50 << rnd.IntN(12)}
		if seed%4 == 3 {
			sock.fails = rnd.IntN(200) + 1
		}
		done := make(chan struct{})
		var running sync.WaitGroup
		var stats counters
		s := &sender{sock: sock, timeout: time.Minute, stats: &stats, done: done, running: &running, wake: make(chan struct{}, 1)}
		var once sync.Once
		s.fail = func(err error) {
			once.Do(func() { s.close(err); close(done) })
		}
		var parcels [4][]*parcel
		var senders sync.WaitGroup
		for g := range parcels {
			own := rand.New(rand.NewPCG(seed, uint64(g)))
			senders.Go(func() {
				for i := range 40 {
					if i%10 == 0 && g == 0 {
						s.Cork()
					}
					p := newParcel(own, g<<16|i)
					parcels[g] = append(parcels[g], p)
					s.send(p, p.m.Len())
					if i%10 == 9 && g == 0 {
						s.Uncork()
					}
				}
			})
		}
		senders.Wait()
		waitFor(t, func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return !s.flushing || s.closed != nil && len(s.queue) == 0
		})
		s.fail(errFake)
		running.Wait()

		byID := map[int]*parcel{}
		for g := range parcels {
			for i, p := range parcels[g] {
				byID[g<<16|i] = p
			}
		}
		got, n := sock.got, 0
		for len(got) > 0 {
			if sock.fails > 0 && len(got) < 8 {
				break // cut by the failure, before the XID ended
			}
			p := byID[int(got[4])<<24|int(got[5])<<16|int(got[6])<<8|int(got[7])]
			if sock.fails > 0 && p != nil && len(got) < len(p.want) {
				break // cut by the failure
			}
			if p == nil || !bytes.HasPrefix(got, p.want) {
				t.Fatalf("seed %d: message %d is garbled", seed, n)
			}
			if len(p.ends) != 1 || p.ends[0] != nil {
				t.Fatalf("seed %d: message %d is whole, but its ends are %v", seed, n, p.ends)
			}
			p.ends[0] = errors.ErrUnsupported // seen
			got, n = got[len(p.want):], n+1
		}
		if sock.fails == 0 && n != len(byID) {
			t.Fatalf("seed %d: %d of %d messages left", seed, n, len(byID))
		}
		for _, p := range byID {
			if len(p.ends) != 1 || !errors.Is(p.ends[0], errors.ErrUnsupported) && !errors.Is(p.ends[0], errFake) {
				t.Fatalf("seed %d: a message that did not leave has the ends %v", seed, p.ends)
			}
		}
	}
}

// TestSenderGathers: corked messages gather, but with a bound.
func TestSenderGathers(t *testing.T) {
	sock := &fakeSocket{rnd: rand.New(rand.NewPCG(1, 1)), most: 0}
	var running sync.WaitGroup
	var stats counters
	s := &sender{sock: takesAll{sock}, stats: &stats, done: make(chan struct{}), running: &running, wake: make(chan struct{}, 1)}
	send := func(n int) {
		s.send(&parcel{m: Message{Stream: [][]byte{make([]byte, n)}}}, n)
	}
	for _, tt := range []struct{ size, count, writes int }{
		{100, gatherMessages - 1, 1},
		{100, 3*gatherMessages - 1, 3},
		{gatherBytes / 2, 5, 3},
	} {
		before := stats.writeCalls.Load()
		s.Cork()
		for range tt.count {
			send(tt.size)
		}
		s.Uncork()
		if n := int(stats.writeCalls.Load() - before); n != tt.writes {
			t.Errorf("%d messages of %d bytes left in %d writes, want %d", tt.count, tt.size, n, tt.writes)
		}
	}
}

// takesAll is a socket that takes whatever fits into a vector.
type takesAll struct{ *fakeSocket }

func (takesAll) write(bufs [][]byte, wait bool, deadline time.Time) (n int, err error) {
	for _, b := range bufs[:min(len(bufs), maxVector)] {
		n += len(b)
	}
	return n, nil
}
