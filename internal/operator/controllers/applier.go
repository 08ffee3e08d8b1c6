package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// fieldManager owns the fields that the operator applies.
const fieldManager = "sluice-operator"

// annotationApplied is the hash of the applied object. It shows fields that are no longer wanted.
const annotationApplied = "sluice.dev/applied"

// cacheDelay is the longest time until the cache shows a write.
const cacheDelay = 3 * time.Second

// applier writes objects by server-side apply, and only if they differ. It never changes objects of
// others.
type applier struct {
	client.Client
	APIReader client.Reader

	mu     sync.Mutex
	writes map[objectKey]lastWrite
	// mutations are the objects that a webhook changed on write, so that they are not applied for
	// ever.
	mutations map[objectKey]mutation
}

// lastWrite is a write that the cache may not show yet.
type lastWrite struct {
	hash string
	at   time.Time
}

// mutation has the hashes of an applied object and of the API server's result, over the same
// fields.
type mutation struct{ applied, became string }

// apply writes desired. It returns a [report.Blocker] or another error. If early is true, the cache
// may be stale: call it again after cacheDelay.
func (a *applier) apply(ctx context.Context, desired client.Object) (early bool, err error) {
	u, err := a.toUnstructured(desired)
	if err != nil {
		return false, err
	}
	key := objectKey{u.GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(u)}
	hash, err := contentHash(u)
	if err != nil {
		return false, err
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[annotationApplied] = hash
	u.SetAnnotations(annotations)

	live, err := a.live(ctx, u)
	if err != nil {
		return false, err
	}
	if live != nil && live.GetAnnotations()[annotationApplied] == hash && (covers(live.Object, u.Object) || a.isMutated(key, live.Object, u.Object, hash)) {
		return false, nil
	}
	if a.cacheStale(key, hash) {
		return true, nil
	}
	answer := u.DeepCopy()
	if err := a.write(ctx, answer, live); err != nil {
		a.forgetWrite(key)
		return false, refusalError(u, err)
	}
	return true, a.recordMutation(key, answer, u.Object, hash)
}

// isMutated reports whether live is the result of applying desired before.
func (a *applier) isMutated(key objectKey, live, desired map[string]any, hash string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mutations[key] == mutation{hash, partHash(live, desired)}
}

// recordMutation stores the API server's result if it differs from desired.
func (a *applier) recordMutation(key objectKey, answer *unstructured.Unstructured, desired map[string]any, hash string) error {
	// in the form of the cache
	if typed, err := a.Scheme().New(answer.GroupVersionKind()); err == nil {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, typed); err != nil {
			return err
		}
		if answer.Object, err = runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err != nil {
			return err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if covers(answer.Object, desired) {
		delete(a.mutations, key)
		return nil
	}
	if a.mutations == nil {
		a.mutations = map[objectKey]mutation{}
	}
	a.mutations[key] = mutation{hash, partHash(answer.Object, desired)}
	return nil
}

// write applies u. It takes fields from other managers only if labels show that the object is the
// operator's.
func (a *applier) write(ctx context.Context, u, live *unstructured.Unstructured) error {
	options := []client.ApplyOption{client.FieldOwner(fieldManager)}
	var labels map[string]string
	exists := live != nil
	if exists {
		labels = live.GetLabels()
	} else {
		var m metav1.PartialObjectMetadata
		m.SetGroupVersionKind(u.GroupVersionKind())
		err := a.APIReader.Get(ctx, client.ObjectKeyFromObject(u), &m)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		labels, exists = m.Labels, err == nil
	}
	if exists {
		if !isOurs(labels, u.GetLabels()) {
			return &report.NameConflict{Kind: u.GetKind(), Name: client.ObjectKeyFromObject(u)}
		}
		options = append(options, client.ForceOwnership)
	}
	return a.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), options...)
}

// refusalError wraps an error of a write: in [report.Refused] if it needs an administrator.
func refusalError(o client.Object, err error) error {
	if err == nil {
		return nil
	}
	kind, name := o.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(o)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		switch s := answer.Status(); {
		// the API server's storage fails, for a while
		case s.Code == http.StatusInternalServerError && s.Reason != metav1.StatusReasonInternalError:
		case slices.Contains(refusalCodes, s.Code):
			return &report.Refused{Kind: kind, Name: name, Err: err}
		}
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// refusalCodes are the HTTP statuses that a retry does not change.
var refusalCodes = []int32{http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError}

// isOurs reports by labels whether the operator made an object. A Service of an export may have had
// another gateway.
func isOurs(have, desired map[string]string) bool {
	same := []string{plan.LabelManaged, plan.LabelGateway}
	if desired[plan.LabelExport] != "" {
		same = []string{plan.LabelManaged, plan.LabelExportNamespace, plan.LabelExport}
	}
	return !slices.ContainsFunc(same, func(l string) bool { return have[l] != desired[l] })
}

// cacheStale reports whether the same content was written within cacheDelay. Otherwise it records a
// write.
func (a *applier) cacheStale(key objectKey, hash string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if last := a.writes[key]; last.hash == hash && time.Since(last.at) < cacheDelay {
		return true
	}
	if a.writes == nil {
		a.writes = map[objectKey]lastWrite{}
	}
	maps.DeleteFunc(a.writes, func(_ objectKey, w lastWrite) bool { return time.Since(w.at) > cacheDelay })
	a.writes[key] = lastWrite{hash, time.Now()}
	return false
}

// forgetWrite makes the next apply write in any case.
func (a *applier) forgetWrite(key objectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.writes, key)
}

// toUnstructured converts an object for apply, without the fields of the API server.
func (a *applier) toUnstructured(o client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(o, a.Scheme())
	if err != nil {
		return nil, err
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.DeepCopyObject())
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: m}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(m, "spec", "template", "metadata", "creationTimestamp")
	return u, nil
}

// live returns the cached object; nil if there is none.
func (a *applier) live(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var o client.Object
	if typed, err := a.Scheme().New(u.GroupVersionKind()); err == nil {
		o = typed.(client.Object)
	} else {
		o = &unstructured.Unstructured{}
		o.GetObjectKind().SetGroupVersionKind(u.GroupVersionKind())
	}
	if err := a.Get(ctx, client.ObjectKeyFromObject(u), o); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, err
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: m}, nil
}

func contentHash(u *unstructured.Unstructured) (string, error) {
	b, err := json.Marshal(u.Object) // keys in order
	if err != nil {
		return "", err
	}
	return fileHash(string(b)), nil
}

// fileHash returns 16 hex digits of SHA-256, as a gateway reports its configuration file on
// /status.
func fileHash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:8])
}

// partHash returns a hash of live, over the fields of desired.
func partHash(live, desired any) string {
	b, err := json.Marshal(intersect(live, desired)) // keys in order
	if err != nil {
		panic(err) // it came from JSON
	}
	return fileHash(string(b))
}

// intersect returns live, reduced to the fields of desired. A list of another length stays whole.
func intersect(live, desired any) any {
	switch d := desired.(type) {
	case map[string]any:
		if l, ok := live.(map[string]any); ok {
			out := map[string]any{}
			for k, v := range d {
				if k != "apiVersion" && k != "kind" {
					out[k] = intersect(l[k], v)
				}
			}
			return out
		}
	case []any:
		if l, ok := live.([]any); ok && len(l) == len(d) {
			out := make([]any, len(d))
			for i := range d {
				out[i] = intersect(l[i], d[i])
			}
			return out
		}
	}
	return live
}

// covers reports whether live has all fields of desired, and lists of the same length. The API
// server adds fields, but no list items.
func covers(live, desired any) bool {
	switch d := desired.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return len(d) == 0 && live == nil
		}
		for k, v := range d {
			if k == "apiVersion" || k == "kind" {
				continue
			}
			if !covers(l[k], v) {
				return false
			}
		}
		return true
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(d) {
			return len(d) == 0 && live == nil
		}
		for i := range d {
			if !covers(l[i], d[i]) {
				return false
			}
		}
		return true
	case nil:
		return true
	}
	return reflect.DeepEqual(live, desired)
}
