package adminpage

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestShared checks that requests during a rendering share the next one.
func TestShared(t *testing.T) { synctest.Test(t, testShared) }

func testShared(t *testing.T) {
	var made, at, most atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	p := &shared{render: func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		n := made.Add(1)
		if n == 1 {
			close(begun)
			<-goOn
		}
		w.Header().Set("X", "y")
		fmt.Fprint(w, n)
	}}
	get := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w
	}
	var all sync.WaitGroup
	all.Go(func() {
		if got := get(t.Context()).Body.String(); got != "1" {
			t.Errorf("the first request got answer %s", got)
		}
	})
	<-begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	get(gone) // does not wait
	for range 100 {
		all.Go(func() {
			if w := get(t.Context()); w.Body.String() != "2" || w.Header().Get("X") != "y" || w.Code != http.StatusOK {
				t.Errorf("a request during the first one got answer %s, %v", w.Body, w.Header())
			}
		})
	}
	synctest.Wait()
	close(goOn)
	all.Wait()
	if made.Load() != 2 || most.Load() != 1 {
		t.Errorf("%d answers were made, %d at once", made.Load(), most.Load())
	}
}
