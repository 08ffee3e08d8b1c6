package report

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
)

// trouble returns why the pod's gateway does not serve; zero if it does.
func (p *Pod) trouble(gw *v1alpha1.NFSGateway, h *shared) words {
	say := func(reason, format string, a ...any) words {
		return words{reason, fmt.Sprintf("pod %s ", p.Name) + fmt.Sprintf(format, a...)}
	}
	if p.lost(h) {
		node := p.Spec.NodeName
		if p.Labels[plan.LabelExport] == "" {
			return say(v1alpha1.ReasonNodeLost, "is on node %s, which does not answer: its tolerations decide when another node gets the pod", node)
		}
		return say(v1alpha1.ReasonNodeLost, "is on node %s, which does not answer, and may still use the volume there: check that the node is off, "+
			"then run kubectl taint nodes %s %s=nodeshutdown:%s to move the pod", node, node, corev1.TaintNodeOutOfService, corev1.TaintEffectNoExecute)
	}
	st := &p.Pod.Status
	switch st.Phase {
	case corev1.PodFailed:
		if st.Reason != "" { // rejected by the kubelet, or evicted
			return say(v1alpha1.ReasonPodsRefused, "was refused by its node: %s: %q", st.Reason, condition.Quote(st.Message))
		}
		return say(v1alpha1.ReasonPodsCrashing, "has failed: %q", condition.Quote(st.Message))
	case corev1.PodPending:
		if w, found := p.unscheduled(gw, h, say); found {
			return w
		}
	}
	for _, cs := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range cs {
			if w, found := container(&cs[i], say); found {
				return w
			}
		}
	}
	switch {
	case st.Phase != corev1.PodRunning || st.PodIP == "":
		return say(v1alpha1.ReasonPodsPending, "is starting")
	case p.Status == nil && p.Error == "":
		return say(v1alpha1.ReasonApplying, "was not polled yet")
	case p.Status == nil && ready(p.Pod):
		return say(v1alpha1.ReasonPodsUnreachable,
			"is ready, but its /status does not answer the operator: %q: allow the operator's pods to reach port 9180 of the gateway's pods, also in NetworkPolicies", condition.Quote(p.Error))
	case p.Status == nil:
		return say(v1alpha1.ReasonPodsPending, "does not answer yet: %q", condition.Quote(p.Error))
	case p.Status.Config.Error != "":
		return say(v1alpha1.ReasonNotApplied, "refuses its configuration: %q", condition.Quote(p.Status.Config.Error))
	case p.Status.Draining:
		return say(v1alpha1.ReasonPodsPending, "is draining")
	case !ready(p.Pod):
		return say(v1alpha1.ReasonPodsPending, "is not ready yet")
	}
	return words{}
}

// lost reports whether neither the pod's node nor the pod answers.
func (p *Pod) lost(h *shared) bool { return p.Status == nil && h.lost[p.Spec.NodeName] }

// unscheduled returns why the pod has no node.
func (p *Pod) unscheduled(gw *v1alpha1.NFSGateway, h *shared, say func(string, string, ...any) words) (words, bool) {
	for _, c := range p.Pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status == corev1.ConditionTrue {
			continue
		}
		if i, r := notOffered(gw, h.offers); r != "" {
			return say(v1alpha1.ReasonNoNodeOffersResource,
				"waits for resource %s, which no node offers: install its device plugin, or change rdma.devices[%d].resourceName", r, i), true
		}
		return say(v1alpha1.ReasonPodsPending, "fits on no node: %q", condition.Quote(c.Message)), true
	}
	return words{}, false
}

// notOffered returns the first requested extended resource without a node, and its index in
// rdma.devices; "" if there is none.
func notOffered(gw *v1alpha1.NFSGateway, offers map[string]bool) (int, string) {
	if gw.Spec.RDMA == nil {
		return 0, ""
	}
	for i, d := range gw.Spec.RDMA.Devices {
		if !offers[d.ResourceName] {
			return i, d.ResourceName
		}
	}
	return 0, ""
}

// container returns why a container does not run.
func container(c *corev1.ContainerStatus, say func(string, string, ...any) words) (words, bool) {
	w := c.State.Waiting
	if w == nil {
		return words{}, false
	}
	switch w.Reason {
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable", "ImageInspectError":
		return say(v1alpha1.ReasonImageNotPulled, "cannot pull image %s: %s: %q", c.Image, w.Reason, condition.Quote(w.Message)), true
	case "CrashLoopBackOff":
		if t := c.LastTerminationState.Terminated; t != nil {
			return say(v1alpha1.ReasonPodsCrashing, "crashes: container %s, exit code %d: %q: see kubectl logs --previous",
				c.Name, t.ExitCode, condition.Quote(t.Message)), true
		}
		return say(v1alpha1.ReasonPodsCrashing, "crashes: container %s: see kubectl logs --previous", c.Name), true
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
		return say(v1alpha1.ReasonPodsPending, "does not start: %s: %q", w.Reason, condition.Quote(w.Message)), true
	}
	return words{}, false
}
