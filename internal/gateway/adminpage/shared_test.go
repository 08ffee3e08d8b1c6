package adminpage

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/internal/adminport"
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

// TestSlowRendering checks that the time to write a response does not include its rendering.
func TestSlowRendering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &shared{render: func(w http.ResponseWriter, _ *http.Request) {
			time.Sleep(time.Minute)
			fmt.Fprint(w, "late")
		}}
		w := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		adminport.WriteTimeout(p).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if w.Body.String() != "late" {
			t.Errorf("body %q, want all of it; the deadline was %v before the write", w.Body, time.Since(w.deadline))
		}
	})
}

// deadlineWriter drops bytes written after the deadline.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

func (w *deadlineWriter) Write(b []byte) (int, error) {
	if !time.Now().Before(w.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return w.ResponseRecorder.Write(b)
}
