// Package report tells what became of NFSGateways and NFSExports: their conditions and the rest of their status. It is pure: it looks at the plan, and at the
// pods as they were last seen.
//
// Conditions have no times here; [sluice.dev/sluice/internal/operator/condition.Merge] gives them theirs.
package report

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
)

// Observed is what was seen of a gateway last.
type Observed struct {
	// Pods are those of all its workloads.
	Pods []Pod
	// Refused are the words of admission, by workload, where pods could not be made.
	Refused map[string]string
	// Updated is how many pods have the present template, by workload, where that is fewer than wanted.
	Updated map[string]int32
	// Services are those of its exports, by name.
	Services map[string]*corev1.Service
	// Failed is why Services of exports could not be made, by name: [NameConflict], [Refused], or another error.
	Failed map[string]error
	// Blocked is why other objects cannot be made, by workload, the first of each; those of no workload are at "".
	Blocked map[string]Blocker
	// Nodes are the cluster's.
	Nodes []corev1.Node

	shared *shared
}

// shared is the common part of the reports on all exports of a gateway. It is made once for them, so that their cost does not grow with exports times nodes.
type shared struct {
	workloads map[string]workload
	holders   map[string]string // names of the pods that carry virtual addresses
	own       map[netip.Addr]bool
	lost      map[string]bool // nodes that Kubernetes does not hear from
	offers    map[string]bool // extended resources that nodes offer
}

// Prepare makes the common part of the reports on a plan's exports. Without it each of them makes it for itself. What was seen is not to be changed after it.
func (s *Observed) Prepare(p *plan.Plan) {
	h := &shared{workloads: map[string]workload{}, holders: holders(s.Pods), own: addresses(s.Nodes), lost: map[string]bool{}, offers: map[string]bool{}}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnreachable }) {
			h.lost[n.Name] = true
		}
		for resource, q := range n.Status.Allocatable {
			h.offers[string(resource)] = h.offers[string(resource)] || !q.IsZero()
		}
	}
	s.shared = h
	pods := map[string][]*Pod{}
	for i := range s.Pods {
		name := s.Pods[i].Labels[plan.LabelWorkload]
		pods[name] = append(pods[name], &s.Pods[i])
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		h.workloads[w.Name] = look(p, w, pods[w.Name], s)
	}
}

// prepared returns the observations, prepared.
func (s *Observed) prepared(p *plan.Plan) *Observed {
	if s.shared != nil {
		return s
	}
	alone := *s
	alone.Prepare(p)
	return &alone
}

// of returns a workload of the plan that was prepared for; one without pods if the plan lacks it.
func (s *Observed) of(p *plan.Plan, name string) workload {
	if w, there := s.shared.workloads[name]; there {
		return w
	}
	return workload{provider: p.Gateway.Spec.Provider}
}

// Pod is a pod as it was seen last.
type Pod struct {
	*corev1.Pod
	// Status is what its gateway answered, its exports by name; nil if it did not, and then Error says why; both are empty if it was not polled yet.
	Status *status.Status
	Error  string
	// Speaker is what its speaker answered; nil if it has none, or it did not answer.
	Speaker *api.Status
}

// words are a reason and what is said with it.
type words struct{ reason, text string }

// gravity orders the reasons why a pod does not serve: what an administrator has to change comes before what passes.
var gravity = []string{
	v1alpha1.ReasonNotApplied, v1alpha1.ReasonNameTaken, v1alpha1.ReasonObjectRefused, v1alpha1.ReasonPodsRefused, v1alpha1.ReasonImageNotPulled, v1alpha1.ReasonPodsCrashing,
	v1alpha1.ReasonNoNodeOffersResource, v1alpha1.ReasonNodeLost, v1alpha1.ReasonPodsUnreachable, v1alpha1.ReasonNoReplicas, v1alpha1.ReasonApplying, v1alpha1.ReasonPodsPending,
}

// gravest picks one of several troubles, and counts the others.
func gravest(troubles []words) words {
	w := slices.MinFunc(troubles, func(a, b words) int {
		return cmp.Compare(slices.Index(gravity, a.reason), slices.Index(gravity, b.reason))
	})
	if n := len(troubles) - 1; n > 0 {
		w.text += fmt.Sprintf("; and %d more", n)
	}
	return w
}

// workload are the pods of a workload that are not about to go, and why those do not serve that do not.
type workload struct {
	plan     *plan.Workload
	provider v1alpha1.Provider
	serving  []*Pod
	trouble  []words
}

// look sorts the pods of a workload.
func look(p *plan.Plan, of *plan.Workload, pods []*Pod, seen *Observed) workload {
	w, name := workload{provider: p.Gateway.Spec.Provider, plan: of}, of.Name
	if w.plan.Replicas == 0 {
		w.trouble = append(w.trouble, words{v1alpha1.ReasonNoReplicas, "no pod serves, because spec.replicas of the NFSGateway is 0: set it to 1 or more"})
	}
	var ended []words
	for _, pod := range pods {
		// One of a claim that is about to go from a lost node is not replaced until somebody says that it is gone.
		if pod.DeletionTimestamp != nil && (w.plan.Claim == nil || !pod.lost(seen.shared)) {
			continue
		}
		t := pod.trouble(p.Gateway, seen.shared)
		if _, behind := seen.Updated[name]; behind && w.plan.Claim != nil && t.reason != "" {
			t.text += fmt.Sprintf("; its StatefulSet does not update a pod that is not ready: run kubectl delete pod --namespace %s %s", p.Gateway.Namespace, pod.Name)
		}
		switch {
		case t.reason == "":
			w.serving = append(w.serving, pod)
		case pod.Pod.Status.Phase == corev1.PodFailed:
			ended = append(ended, t)
		default:
			w.trouble = append(w.trouble, t)
		}
	}
	// A Deployment leaves a pod that failed to be looked at. It is no trouble any more when all that are wanted serve.
	if len(w.serving) < int(w.plan.Replicas) {
		w.trouble = append(w.trouble, ended...)
	}
	if refused := seen.Refused[name]; refused != "" {
		w.trouble = append(w.trouble, words{v1alpha1.ReasonPodsRefused, fmt.Sprintf("cannot create a pod of %s: %q", name, condition.Quote(refused))})
	}
	if missing := int(w.plan.Replicas) - len(w.serving) - len(w.trouble); missing > 0 {
		w.trouble = append(w.trouble, words{v1alpha1.ReasonPodsPending, fmt.Sprintf("%d of %d pods of %s are not created yet", missing, w.plan.Replicas, name)})
	}
	if o := seen.Blocked[name]; o != nil {
		w.trouble = append(w.trouble, o.words())
	}
	return w
}

// of returns what a pod's gateway says of an export; nil if it says nothing.
func (p *Pod) of(export string) *status.Export {
	if p.Status == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(p.Status.Exports, export, func(e status.Export, name string) int { return cmp.Compare(e.Name, name) })
	if !found {
		return nil
	}
	return &p.Status.Exports[i]
}

// ready tells whether Kubernetes sends clients to the pod.
func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// addresses are those that nodes' traffic may come from: their own, and those that plugins give to the bridge or tunnel in front of their pods.
func addresses(nodes []corev1.Node) map[netip.Addr]bool {
	m := map[netip.Addr]bool{}
	for i := range nodes {
		for _, a := range plan.NodeAddresses(&nodes[i]) {
			m[a] = true
		}
	}
	return m
}

// failing returns the first condition that is not True.
func failing(cs []metav1.Condition) *metav1.Condition {
	for i := range cs {
		if cs[i].Status != metav1.ConditionTrue {
			return &cs[i]
		}
	}
	return nil
}

// as is another condition of kind Ready that says what c says.
func as(c *metav1.Condition) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: c.Reason, Message: c.Message}
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

func sentence(kind string, w words) metav1.Condition {
	return condition.False(kind, w.reason, "%s", w.text)
}
