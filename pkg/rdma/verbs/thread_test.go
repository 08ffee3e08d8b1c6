//go:build verbs

package verbs

import (
	"sync/atomic"
	"testing"
)

// TestHelpers: a slow call of one connection delays no other's; threads that cannot write to the
// files are not used.
func TestHelpers(t *testing.T) {
	if startHelpers(3, func() bool { return false }) != nil {
		t.Error("there are helpers, though none is fit")
	}
	var tried atomic.Int32
	h := startHelpers(3, func() bool { return tried.Add(1) != 2 })
	if h == nil {
		t.Fatal("no helpers, though two are fit")
	}
	slow, begun, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		h.do(newCall(func() { close(begun); <-slow }))
		close(done)
	}()
	<-begun
	quick := false
	h.do(newCall(func() { quick = true })) // with one thread it would wait for ever
	if !quick {
		t.Error("a quick call was not done")
	}
	close(slow)
	<-done
	close(h.calls)
}
