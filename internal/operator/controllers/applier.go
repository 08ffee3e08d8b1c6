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

// fieldManager owns what the operator applies.
const fieldManager = "sluice-operator"

// annotationApplied is a hash of what was applied, so that a field which is no longer wanted is noticed too.
const annotationApplied = "sluice.dev/applied"

// cacheDelay is how long the cache may take to show what was written.
const cacheDelay = 3 * time.Second

// applier writes objects by server-side apply, and nothing where nothing would change. What somebody else made it leaves alone.
type applier struct {
	client.Client
	APIReader client.Reader

	mu     sync.Mutex
	writes map[objectKey]lastWrite
	// mutations has what became of objects that are not as they were applied, since a webhook alters what is written: applied again they would be the same.
	mutations map[objectKey]mutation
}

// lastWrite is what was applied last, which the cache may not have yet.
type lastWrite struct {
	hash string
	at   time.Time
}

// mutation is what was applied, and the hash of what the API server made of the fields that it has.
type mutation struct{ applied, became string }

// apply makes an object as desired, or returns a [report.Blocker] or another error. early says that the cache is not to be trusted yet: whoever calls looks once more after settle.
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

// isMutated tells whether an object is what the API server made of what is desired when that was applied last.
func (a *applier) isMutated(key objectKey, live, desired map[string]any, hash string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mutations[key] == mutation{hash, partHash(live, desired)}
}

// recordMutation notes what the API server made of an object, if that is not what was applied.
func (a *applier) recordMutation(key objectKey, answer *unstructured.Unstructured, desired map[string]any, hash string) error {
	if typed, err := a.Scheme().New(answer.GroupVersionKind()); err == nil { // as the cache has it
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

// write applies an object that the cache lacks or has otherwise. Fields are taken from others only if the object is known to be ours, and the cache has no
// others.
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

// refusalError is the error of writing an object: [report.Refused] where trying again is of use only after somebody has changed something, or where a webhook failed.
func refusalError(o client.Object, err error) error {
	if err == nil {
		return nil
	}
	kind, name := o.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(o)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		switch s := answer.Status(); {
		case s.Code == http.StatusInternalServerError && s.Reason != metav1.StatusReasonInternalError: // its store does not answer, which passes
		case slices.Contains(refusalCodes, s.Code):
			return &report.Refused{Kind: kind, Name: name, Err: err}
		}
	}
	return fmt.Errorf("%s %s: %w", kind, name, err)
}

// refusalCodes are the answers that a request meets again if nobody changes anything.
var refusalCodes = []int32{http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError}

// isOurs tells by its labels whether an object is the one that we made. That of an export is so too if the export had another gateway then.
func isOurs(have, desired map[string]string) bool {
	same := []string{plan.LabelManaged, plan.LabelGateway}
	if desired[plan.LabelExport] != "" {
		same = []string{plan.LabelManaged, plan.LabelExportNamespace, plan.LabelExport}
	}
	return !slices.ContainsFunc(same, func(l string) bool { return have[l] != desired[l] })
}

// cacheStale tells whether the same was written so shortly before that the cache may not have it yet, and notes it if not.
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

// forgetWrite has the next apply write, whatever was written before.
func (a *applier) forgetWrite(key objectKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.writes, key)
}

// toUnstructured is an object as it is applied: without what only the API server writes.
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

// live reads the object as the cache has it; nil if it does not exist.
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

// fileHash identifies a configuration file's content, as a gateway does on /status: 16 hex digits of SHA-256.
func fileHash(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:8])
}

// partHash identifies what live has of the fields that desired has.
func partHash(live, desired any) string {
	b, err := json.Marshal(intersect(live, desired)) // keys in order
	if err != nil {
		panic(err) // it came from JSON
	}
	return fileHash(string(b))
}

// intersect is what live has of the fields that desired has. A list of another length is taken whole.
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

// covers tells whether live has all that desired says. Lists have to be as long: what the API server adds are fields.
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
