//go:build operator

package operator

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
)

// Limits of writes for each export.
const (
	manyExports  = 200
	writesToMake = 8
)

// writesToEdit is the limit for an edit, besides statuses and their events.
var writesToEdit = map[string]int{"patch configmaps/": 1, "patch pods/": 2}

// logged returns the writes since a time, once the API server has logged all that it answered.
func logged(t *testing.T, namespace string, since time.Time) []write {
	t.Helper()
	n := -1
	for {
		all := writes(t, namespace, since)
		if len(all) == n {
			return all
		}
		n = len(all)
		time.Sleep(300 * time.Millisecond)
	}
}

func summary(all []write) map[string]int {
	m := map[string]int{}
	for _, w := range all {
		m[w.Verb+" "+w.ObjectRef.Resource+"/"+w.ObjectRef.Subresource]++
	}
	return m
}

// reports returns the most status writes of any one object.
func reports(all []write) (most int) {
	times := map[write]int{}
	for _, w := range all {
		if w.ObjectRef.Subresource == "status" {
			times[w]++
			most = max(most, times[w])
		}
	}
	return most
}

// TestMany makes many exports with few writes each and changes them with fewer. Nothing is written
// when nothing changes.
func TestMany(t *testing.T) {
	ns := newNamespace(t)
	startNodes(t, ns)
	start(t, ns, false, nil)
	ctx, began := t.Context(), time.Now()
	gw := newGateway(ns, "fast")
	must(t, kube.Create(ctx, gw))
	all := make([]*v1alpha1.NFSExport, manyExports)
	var wg sync.WaitGroup
	for i := range all {
		all[i] = newExport(ns, fmt.Sprintf("export-%03d", i), "fast")
	}
	for part := range 4 {
		wg.Go(func() {
			for i := part; i < len(all); i += 4 {
				if err := kube.Create(ctx, all[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all are ready", func() error {
		var list v1alpha1.NFSExportList
		if err := kube.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err
		}
		for i := range list.Items {
			if c := find(&list.Items[i], v1alpha1.ConditionReady); c == nil || c.Status != metav1.ConditionTrue {
				return fmt.Errorf("%s: %+v", list.Items[i].Name, c)
			}
		}
		return nil
	})
	ready := time.Since(began)
	made := logged(t, ns, began)
	t.Logf("%d exports: ready after %v, %d writes: %v", manyExports, ready.Round(time.Second), len(made), summary(made))
	if len(made) > writesToMake*manyExports {
		t.Errorf("%d writes for %d exports, want at most %d each", len(made), manyExports, writesToMake)
	}

	const edits = 5
	began = time.Now()
	for i := range edits {
		x := all[i*7]
		must(t, kube.Get(ctx, client.ObjectKeyFromObject(x), x))
		x.Spec.Transport.Credits.Max = 64
		must(t, kube.Update(ctx, x))
		eventually(t, "the change is applied", condition(x, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed))
	}
	edited := logged(t, ns, began)
	t.Logf("%d edits: %d writes: %v", edits, len(edited), summary(edited))
	for what, n := range summary(edited) {
		if most := writesToEdit[what] * edits; n > most && !strings.HasSuffix(what, "/status") && what != "create events/" {
			t.Errorf("%s: %d times for %d edits, want at most %d", what, n, edits, most)
		}
	}
	if n := reports(edited); n > 2 { // twice where a pod takes longer than the status waits for it
		t.Errorf("a status was written %d times", n)
	}

	rest := time.Now()
	time.Sleep(2*resync + time.Second)
	idle := logged(t, ns, rest)
	said := summary(idle)
	for what, n := range said {
		if !strings.HasSuffix(what, "/status") && what != "create events/" {
			t.Errorf("while nothing changed: %d times %s", n, what)
		}
	}
	if n := said["create events/"]; n > len(idle)/2 { // each belongs to a status that was written
		t.Errorf("while nothing changed: %d events, %d writes in all", n, len(idle))
	}
	if n := reports(idle); n > 1 { // once where a message was held back until now
		t.Errorf("a status was written %d times while nothing changed", n)
	}
}

// TestTwo runs two operators: one acts, and the other takes over when it ends.
func TestTwo(t *testing.T) {
	ns := newNamespace(t)
	startNodes(t, ns)
	ctx := t.Context()
	first := start(t, ns, true, nil)
	gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
	must(t, kube.Create(ctx, gw))
	eventually(t, "the gateway is ready", isReady(gw))
	var count atomic.Int32
	count.Store(1 << 20)
	second := start(t, ns, true, &count)
	must(t, kube.Create(ctx, x))
	eventually(t, "the export is ready", isReady(x))
	if n := 1<<20 - count.Load(); n != 0 {
		t.Errorf("%d writes of the second operator while the first acted", n)
	}
	first.stop()
	y := newExport(ns, "more", "fast")
	must(t, kube.Create(ctx, y))
	eventually(t, "the second operator's export is ready", isReady(y))
	second.stop()
}
