package vfs

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSyncGroup: a caller waits for a sync that began after it came, and those that wait for the
// same one share it with its error.
func TestSyncGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g SyncGroup
		begin := time.Now()
		syncs := 0
		var mu sync.Mutex
		var ended []string
		var callers sync.WaitGroup
		call := func(name string, after time.Duration) {
			callers.Go(func() {
				time.Sleep(after)
				came := time.Since(begin)
				err := g.Do(func() error {
					syncs++
					n := syncs
					if time.Since(begin) < came {
						t.Error("a sync began before its caller came")
					}
					time.Sleep(10 * time.Millisecond)
					return fmt.Errorf("sync %d", n)
				})
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, fmt.Sprintf("%s: %v at %v", name, err, time.Since(begin)))
			})
		}
		call("a", 0)
		call("b", 1*time.Millisecond)
		call("c", 2*time.Millisecond)
		call("d", 15*time.Millisecond)
		call("e", 40*time.Millisecond)
		callers.Wait()
		slices.Sort(ended)
		want := []string{"a: sync 1 at 10ms", "b: sync 2 at 20ms", "c: sync 2 at 20ms", "d: sync 3 at 30ms", "e: sync 4 at 50ms"}
		if !slices.Equal(ended, want) {
			t.Errorf("%q, want %q", ended, want)
		}
	})
}

// TestSyncGroupAlone: a lone caller gets its own error, and a round is used again.
func TestSyncGroupAlone(t *testing.T) {
	var g SyncGroup
	failure := errors.New("failure")
	for range 3 {
		wantErr(t, "a failed sync", g.Do(func() error { return failure }), failure)
		wantErr(t, "a sync", g.Do(func() error { return nil }), nil)
	}
	if n := testing.AllocsPerRun(100, func() { _ = g.Do(func() error { return nil }) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
