//go:build operator

package lease

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	rbac "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	"sluice.dev/sluice/internal/speaker/fsm"
	"sluice.dev/sluice/test/apiserver"
)

// TestAPIServer: the real API server grants a speaker the required access to its own Leases, and
// none to others.
func TestAPIServer(t *testing.T) {
	admin, stop, err := apiserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	leases := typed.NewForConfigOrDie(admin).Leases("default")
	for _, name := range []string{"vip-0", "other"} {
		_, err := leases.Create(ctx, &coordination.Lease{ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{"whose": "operator"}}}, meta.CreateOptions{})
		must(err)
	}
	roles := rbacclient.NewForConfigOrDie(admin)
	_, err = roles.Roles("default").Create(ctx, &rbac.Role{ObjectMeta: meta.ObjectMeta{Name: "speaker"}, Rules: []rbac.PolicyRule{{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"vip-0"}, Verbs: []string{"get", "watch", "patch"},
	}}}, meta.CreateOptions{})
	must(err)
	_, err = roles.RoleBindings("default").Create(ctx, &rbac.RoleBinding{ObjectMeta: meta.ObjectMeta{Name: "speaker"}, RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: "speaker"},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: "User", Name: "speaker"}}}, meta.CreateOptions{})
	must(err)

	config := rest.CopyConfig(admin)
	config.Impersonate = rest.ImpersonationConfig{UserName: "speaker"}
	c, err := New(config, "default", 10*time.Second)
	must(err)
	var first fsm.Record
	for { // until the authorizer has seen the role
		if first, err = c.Get(ctx, "vip-0"); err == nil {
			break
		} else if !apierrors.IsForbidden(err) {
			t.Fatal(err)
		}
	}
	if _, err := c.Get(ctx, "other"); !apierrors.IsForbidden(err) {
		t.Errorf("another's Lease: %v", err)
	}
	seen := make(chan fsm.Record, 16)
	go c.Follow(ctx, "vip-0", func(r fsm.Record) { seen <- r }, func(err error) {
		if err != nil {
			t.Errorf("following: %v", err)
		}
	})
	next := func(holder string, ever bool) fsm.Record {
		t.Helper()
		r := <-seen
		if r.Holder != holder || r.EverHeld != ever || r.Order == 0 {
			t.Fatalf("seen %+v, want holder %q, ever held %v", r, holder, ever)
		}
		return r
	}
	next("", false)
	r, err := c.Write(ctx, fsm.Write{Lease: "vip-0", Version: first.Version, Holder: "gw-0_1", Acquire: true, Transitions: 1}, time.Now())
	must(err)
	if got := next("gw-0_1", true); got != r || r.Duration != 10*time.Second || r.Order <= first.Order {
		t.Errorf("written %+v, seen %+v", r, got)
	}
	if _, err := c.Write(ctx, fsm.Write{Lease: "vip-0", Version: first.Version, Holder: "gw-1_1", Acquire: true, Transitions: 1}, time.Now()); !apierrors.IsConflict(err) {
		t.Errorf("a Lease that somebody wrote in between: %v, want a conflict", err)
	}
	_, err = c.Write(ctx, fsm.Write{Lease: "vip-0", Version: r.Version, Transitions: 1}, time.Now())
	must(err)
	next("", true)
	l, err := leases.Get(ctx, "vip-0", meta.GetOptions{})
	must(err)
	if l.Labels["whose"] != "operator" || l.Spec.HolderIdentity != nil || *l.Spec.LeaseTransitions != 1 {
		t.Errorf("the Lease is now %+v", l)
	}
}
