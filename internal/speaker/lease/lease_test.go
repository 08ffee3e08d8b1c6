package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"sluice.dev/sluice/internal/speaker/fsm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPatch(t *testing.T) {
	now := time.Date(2026, 11, 22, 6, 0, 0, 123456000, time.UTC)
	for name, c := range map[string]struct {
		w    fsm.Write
		want string
	}{
		"taken":   {fsm.Write{Lease: "vip-0", Version: "7", Holder: "gw-0_1", Acquire: true, Transitions: 3}, `{"metadata":{"resourceVersion":"7"},"spec":{"acquireTime":"2026-11-22T06:00:00.123456Z","holderIdentity":"gw-0_1","leaseDurationSeconds":10,"leaseTransitions":3,"renewTime":"2026-11-22T06:00:00.123456Z"}}`},
		"renewed": {fsm.Write{Lease: "vip-0", Version: "8", Holder: "gw-0_1", Transitions: 3}, `{"metadata":{"resourceVersion":"8"},"spec":{"holderIdentity":"gw-0_1","leaseDurationSeconds":10,"leaseTransitions":3,"renewTime":"2026-11-22T06:00:00.123456Z"}}`},
		"freed":   {fsm.Write{Lease: "vip-0", Version: "9", Transitions: 3}, `{"metadata":{"resourceVersion":"9"},"spec":{"holderIdentity":null,"leaseDurationSeconds":10,"leaseTransitions":3,"renewTime":"2026-11-22T06:00:00.123456Z"}}`},
	} {
		b, err := json.Marshal(patch(c.w, now, 10*time.Second))
		if err != nil || string(b) != c.want {
			t.Errorf("%s: %s, %v\nwant %s", name, b, err, c.want)
		}
	}
}

// server answers with one Lease, and with the test's events as a watch.
func server(t *testing.T, lease string, events <-chan string) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_, _ = io.WriteString(w, lease)
			return
		}
		if got, want := r.URL.Query().Get("fieldSelector"), "metadata.name=vip-0"; got != want {
			t.Errorf("watch with the selector %q, want %q", got, want)
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case e, ok := <-events:
				if !ok {
					return
				}
				fmt.Fprintln(w, e)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}))
	t.Cleanup(s.Close)
	c, err := New(&rest.Config{Host: s.URL}, "default", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func leaseJSON(version, spec string) string {
	return fmt.Sprintf(`{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "vip-0", "resourceVersion": %q}, "spec": %s}`, version, spec)
}

func TestRecord(t *testing.T) {
	for spec, want := range map[string]fsm.Record{
		`{}`: {Version: "5", Order: 5, Duration: 10 * time.Second},
		`{"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 4, "acquireTime": "2026-11-22T06:00:00.000000Z"}`: {Version: "5", Order: 5, Holder: "a", EverHeld: true, Transitions: 4, Duration: 15 * time.Second},
		`{"leaseDurationSeconds": 0}`: {Version: "5", Order: 5, Duration: 10 * time.Second},
	} {
		got, err := server(t, leaseJSON("5", spec), nil).Get(t.Context(), "vip-0")
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", spec, err, d)
		}
	}
	if got, err := server(t, leaseJSON("x9", `{}`), nil).Get(t.Context(), "vip-0"); err != nil || got.Order != 0 || got.Version != "x9" {
		t.Errorf("a version that is no number: %+v, %v", got, err)
	}
}

// TestFollow: a watch that ends is restarted with the present state.
func TestFollow(t *testing.T) {
	events := make(chan string)
	c := server(t, leaseJSON("5", `{}`), events)
	ctx, cancel := context.WithCancel(t.Context())
	seen, done := make(chan fsm.Record), make(chan struct{})
	go func() {
		defer close(done)
		c.Follow(ctx, "vip-0", func(r fsm.Record) { seen <- r }, func(err error) {
			if err != nil {
				t.Errorf("trouble: %v", err)
			}
		})
	}()
	want := func(version, holder string) {
		t.Helper()
		if r := <-seen; r.Version != version || r.Holder != holder {
			t.Errorf("seen %+v, want version %s, holder %q", r, version, holder)
		}
	}
	want("5", "")
	events <- `{"type": "MODIFIED", "object": ` + leaseJSON("6", `{"holderIdentity": "a"}`) + `}`
	want("6", "a")
	events <- `{"type": "DELETED", "object": ` + leaseJSON("7", `{}`) + `}`
	events <- `{"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status", "code": 410}}`
	want("5", "")
	cancel()
	<-done
}

func TestTroubleIsTold(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	c, err := New(&rest.Config{Host: s.URL}, "default", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var reported error
	c.Follow(ctx, "vip-0", func(r fsm.Record) { t.Errorf("seen %+v", r) }, func(err error) { reported = err; cancel() })
	if reported == nil || errors.Is(reported, context.Canceled) {
		t.Errorf("reported %v", reported)
	}
	if _, err := c.Write(t.Context(), fsm.Write{Lease: "vip-0", Version: "1"}, time.Now()); err == nil {
		t.Error("a Lease that is not there was written")
	}
}
