// Package report computes the status of NFSGateways and NFSExports, with conditions, from a plan
// and the observed pods. It does no I/O.
//
// Its conditions have no times; [sluice.dev/sluice/internal/operator/condition.Merge] sets them.
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

// Observed is the last observed state of a gateway.
type Observed struct {
	// Pods of all workloads.
	Pods []Pod
	// Refused has admission's errors of pod creation, by workload.
	Refused map[string]string
	// Updated is the number of pods with the current template, by workload, if it is less than
	// wanted.
	Updated map[string]int32
	// Services of exports, by name.
	Services map[string]*corev1.Service
	// Failed has the errors of Services of exports, by name: [NameConflict], [Refused] or another
	// one.
	Failed map[string]error
	// Blocked has the first error of other objects, by workload; "" for objects of no workload.
	Blocked map[string]Blocker
	// Nodes of the cluster.
	Nodes []corev1.Node

	shared *shared
}

// shared is the common part of the reports on a gateway's exports. It is computed once, so that the
// cost does not grow with exports times nodes.
type shared struct {
	workloads map[string]workload
	holders   map[string]string // pods that carry virtual addresses
	own       map[netip.Addr]bool
	lost      map[string]bool // unreachable nodes
	offers    map[string]bool // extended resources of nodes
}

// Prepare computes the common part of the reports on a plan's exports. Otherwise each report does.
// s must not change afterwards.
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

// prepared returns s, or a prepared copy.
func (s *Observed) prepared(p *plan.Plan) *Observed {
	if s.shared != nil {
		return s
	}
	alone := *s
	alone.Prepare(p)
	return &alone
}

// of returns a workload of the prepared plan; one without pods if the plan lacks it.
func (s *Observed) of(p *plan.Plan, name string) workload {
	if w, there := s.shared.workloads[name]; there {
		return w
	}
	return workload{provider: p.Gateway.Spec.Provider}
}

// Pod is the last observed state of a pod.
type Pod struct {
	*corev1.Pod
	// Status of its gateway, with exports by name. If it is nil, Error says why, or the pod was not
	// polled yet.
	Status *status.Status
	Error  string
	// Speaker is the status of its speaker; nil without one, or without an answer.
	Speaker *api.Status
}

// words are a reason and a message.
type words struct{ reason, text string }

// gravity orders the reasons of pods: those for administrators precede those that pass.
var gravity = []string{
	v1alpha1.ReasonNotApplied, v1alpha1.ReasonNameTaken, v1alpha1.ReasonObjectRefused, v1alpha1.ReasonPodsRefused, v1alpha1.ReasonImageNotPulled, v1alpha1.ReasonPodsCrashing,
	v1alpha1.ReasonNoNodeOffersResource, v1alpha1.ReasonNodeLost, v1alpha1.ReasonPodsUnreachable, v1alpha1.ReasonNoReplicas, v1alpha1.ReasonApplying, v1alpha1.ReasonPodsPending,
}

// gravest returns the gravest trouble, and counts the others.
func gravest(troubles []words) words {
	w := slices.MinFunc(troubles, func(a, b words) int {
		return cmp.Compare(slices.Index(gravity, a.reason), slices.Index(gravity, b.reason))
	})
	if n := len(troubles) - 1; n > 0 {
		w.text += fmt.Sprintf("; and %d more", n)
	}
	return w
}

// workload has the serving pods of a workload, and the troubles of the others. Pods being deleted
// do not count.
type workload struct {
	plan     *plan.Workload
	provider v1alpha1.Provider
	serving  []*Pod
	trouble  []words
}

// look observes the pods of a workload.
func look(p *plan.Plan, of *plan.Workload, pods []*Pod, seen *Observed) workload {
	w, name := workload{provider: p.Gateway.Spec.Provider, plan: of}, of.Name
	if w.plan.Replicas == 0 {
		w.trouble = append(w.trouble, words{v1alpha1.ReasonNoReplicas, "no pod serves, because spec.replicas of the NFSGateway is 0: set it to 1 or more"})
	}
	var ended []words
	for _, pod := range pods {
		// A claim's pod on a lost node is not replaced before an administrator acts.
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
	// A Deployment keeps failed pods. They do not matter while enough others serve.
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

// of returns a pod's status of an export; nil if there is none.
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

// ready reports whether Kubernetes sends clients to the pod.
func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// addresses returns the addresses of nodes, and of their bridges and tunnels to pods.
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

// as returns c as a condition of type Ready.
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
