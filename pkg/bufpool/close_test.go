package bufpool

import (
	"errors"
	"sync"
	"testing"
)

func TestClose(t *testing.T) {
	p := New(0)
	b, err := p.Get(1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err == nil {
		t.Fatal("closed while a buffer is in use")
	}
	b.B[999] = 1 // still mapped
	b.Release()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s != (Stats{}) {
		t.Errorf("stats after Close: %+v", s)
	}
	if _, err := p.Get(1000); !errors.Is(err, ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// TestCloseWhileInUse: a buffer is handed out before Close, which then fails, or not at all.
func TestCloseWhileInUse(t *testing.T) {
	p := New(0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				b, err := p.Get(4096)
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				b.B[0], b.B[4095] = 1, 2 // faults if it is unmapped
				b.Release()
			}
		})
	}
	for p.Close() != nil {
	}
	wg.Wait()
}
