package report

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
)

// served is an export at a pod that serves it.
type served struct {
	pod *Pod
	at  *status.Export
}

// NoGateway returns the status of an export whose NFSGateway does not exist or is not watched.
func NoGateway(x *v1alpha1.NFSExport, watched bool) v1alpha1.NFSExportStatus {
	cs := plan.GatewayNotFound(x, watched)
	return v1alpha1.NFSExportStatus{Backend: x.Status.Backend, Conditions: append(cs, as(failing(cs)))}
}

// Export returns the status of an export of the plan.
func Export(p *plan.Plan, x *plan.Export, seen *Observed) v1alpha1.NFSExportStatus {
	seen = seen.prepared(p)
	own := slices.Clone(x.Conditions) // Accepted and ResolvedRefs
	if w := serviceRefused(x, seen.Failed[x.Service]); w.reason != "" {
		*meta.FindStatusCondition(own, v1alpha1.ConditionAccepted) = sentence(v1alpha1.ConditionAccepted, w)
	}
	s := v1alpha1.NFSExportStatus{Backend: x.Backend, Conditions: own}
	if x.Config == nil {
		s.Conditions = append(s.Conditions, as(failing(own)))
		return s
	}
	w := seen.of(p, x.Workload)
	at := at(x, &w)
	for _, a := range at {
		s.Clients += int32(len(a.at.Clients) + a.at.ClientsOmitted)
	}
	s.NFSVersions, s.ConfigHash = versions(at), hash(at)
	s.AddressHolder = seen.holder(x)
	svc := seen.Services[x.Service]
	s.Address = address(x, svc)
	tcp := s.Address
	if x.VIP != "" {
		tcp = clusterIP(svc)
	}
	a := x.Source.Spec.Address
	s.Mount = mountLine("rdma", s.Address, a.RDMAPort, a.TCPPort, s.NFSVersions)
	s.MountTCP = mountLine("tcp", tcp, a.TCPPort, a.TCPPort, s.NFSVersions)

	programmed := programmed(x, &w)
	backend, rdma := backendReachable(x, at), rdmaReady(x, at, s.AddressHolder, &w)
	s.Conditions = append(s.Conditions, programmed, backend, rdma, visible(at, seen.shared.own))
	s.Conditions = append(s.Conditions, exportReady(x, &s, own, seen, &w, at, &programmed, &backend, &rdma))
	return s
}

// at returns the pods that serve an export, in any generation.
func at(x *plan.Export, w *workload) (at []served) {
	for _, pod := range w.serving {
		if e := pod.of(x.Config.Name); serves(e) {
			at = append(at, served{pod, e})
		}
	}
	return at
}

// exportReady reports whether a new client can mount, in any generation.
func exportReady(x *plan.Export, s *v1alpha1.NFSExportStatus, own []metav1.Condition, seen *Observed, w *workload, at []served, programmed, backend, rdma *metav1.Condition) metav1.Condition {
	if f := failing(own); f != nil {
		return as(f)
	}
	if err := seen.Failed[x.Service]; err != nil {
		text := fmt.Sprintf("cannot create Service %s; retrying: %q", x.Service, condition.Quote(err.Error()))
		if o := (Blocker)(nil); errors.As(err, &o) {
			text = o.words().text
		}
		return condition.False(v1alpha1.ConditionReady, v1alpha1.ReasonAddressPending, "%s", text)
	}
	if len(at) == 0 {
		return as(programmed)
	}
	if f := failing([]metav1.Condition{*backend, *rdma}); f != nil {
		return as(f)
	}
	if t := unserved(x, w, s.AddressHolder); t.reason != "" {
		return sentence(v1alpha1.ConditionReady, t)
	}
	if s.Address == "" {
		return condition.False(v1alpha1.ConditionReady, v1alpha1.ReasonAddressPending, "Service %s has no address yet: check its events and its load balancer", x.Service)
	}
	return condition.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "%s", s.Mount)
}

// unserved returns the trouble of the first pod that receives new clients but does not serve the
// export. With a virtual address, only its holder counts.
func unserved(x *plan.Export, w *workload, holder string) words {
	for _, pod := range w.serving {
		if x.VIP != "" && pod.Name != holder {
			continue
		}
		switch e := pod.of(x.Config.Name); {
		case serves(e):
		case e != nil && e.State == status.Refused:
			return words{v1alpha1.ReasonNotApplied, fmt.Sprintf("pod %s accepts clients, but refuses the export: %q", pod.Name, condition.Quote(e.Error))}
		default:
			return words{v1alpha1.ReasonApplying, fmt.Sprintf("pod %s accepts clients, but does not serve the export yet", pod.Name)}
		}
	}
	return words{}
}

// serves reports whether a pod serves an export, in any generation. e is nil if the pod does not
// know it.
func serves(e *status.Export) bool {
	return e != nil && e.State != status.Removing && len(e.Listeners) > 0
}

// programmed reports whether all serving pods have applied the export, and at least one serves it.
func programmed(x *plan.Export, w *workload) metav1.Condition {
	var applied int
	var lagging []words
	for _, pod := range w.serving {
		e := pod.of(x.Config.Name)
		switch {
		case e != nil && e.State == status.Serving && e.Hash == x.Hash:
			applied++
		case e != nil && (e.State == status.Refused || e.State == status.Outdated):
			lagging = append(lagging, words{v1alpha1.ReasonNotApplied, fmt.Sprintf("pod %s refuses the configuration: %q", pod.Name, condition.Quote(e.Error))})
		default:
			lagging = append(lagging, words{v1alpha1.ReasonApplying, fmt.Sprintf("pod %s has not applied it yet", pod.Name)})
		}
	}
	for _, t := range w.trouble {
		// These pods may serve an older generation, or refuse this one.
		if t.reason == v1alpha1.ReasonPodsUnreachable || t.reason == v1alpha1.ReasonNotApplied || applied == 0 {
			lagging = append(lagging, t)
		}
	}
	if len(lagging) > 0 {
		return sentence(v1alpha1.ConditionProgrammed, gravest(lagging))
	}
	if w.plan == nil || applied == 0 {
		return condition.False(v1alpha1.ConditionProgrammed, v1alpha1.ReasonPodsPending, "%s has no pods yet", x.Workload)
	}
	text := fmt.Sprintf("applied by %d of %s", applied, plural(int(w.plan.Replicas), "pod"))
	if len(w.trouble) > 0 {
		text += ": " + gravest(w.trouble).text
	}
	return condition.True(v1alpha1.ConditionProgrammed, v1alpha1.ReasonProgrammed, "%s", text)
}

// backendReachable reports whether the backend answers every serving pod, except new ones.
func backendReachable(x *plan.Export, at []served) metav1.Condition {
	const kind = v1alpha1.ConditionBackendReachable
	answered, waits := 0, "" // a new pod counts in the message, to save a write
	for _, s := range at {
		b := &s.at.Backend
		switch {
		case b.Healthy:
			answered++
			continue
		case b.Remote == nil:
			return condition.False(kind, v1alpha1.ReasonUnreachable, "the volume of pod %s does not answer: %q", s.pod.Name, condition.Quote(b.Error))
		case b.Refused:
			return condition.False(kind, v1alpha1.ReasonBackendRefuses, "%s refuses pod %s at %s: %q: %s",
				x.Backend, s.pod.Name, from(s.pod.Pod, b), condition.Quote(b.Error), remedy(b))
		case b.Error == "":
			waits = cmp.Or(waits, s.pod.Name)
			continue
		}
		return condition.False(kind, v1alpha1.ReasonUnreachable,
			"%s does not answer pod %s: %q: check that it runs, and that firewalls and NetworkPolicies admit the pods", x.Backend, s.pod.Name, condition.Quote(b.Error))
	}
	switch {
	case answered > 0:
		return condition.True(kind, v1alpha1.ReasonReachable, "%s answers %s", x.Backend, plural(len(at), "pod"))
	case waits != "":
		return condition.Unknown(kind, v1alpha1.ReasonUnknown, "pod %s waits for a first answer of %s", waits, x.Backend)
	}
	return condition.Unknown(kind, v1alpha1.ReasonUnknown, "no pod has asked %s yet", x.Backend)
}

// from returns the source address of a pod's call, as far as it is known without NAT.
func from(pod *corev1.Pod, b *status.Backend) string {
	switch {
	case b.AskedAddress.IsValid():
		return netip.AddrPortFrom(b.AskedAddress, uint16(b.AskedFrom)).String()
	case b.AskedFrom > 0:
		return fmt.Sprintf("port %d", b.AskedFrom)
	}
	return pod.Status.PodIP
}

// remedy returns the change that a refusing server needs.
func remedy(b *status.Backend) string {
	text := fmt.Sprintf("export %s to that address, or to the node's address if the network plugin masquerades pods; add no_root_squash if root must stay root", b.Path)
	if b.AskedFrom >= 1024 {
		text += "; add insecure, because the port is above 1023"
	}
	return text
}

// rdmaReady reports whether clients reach RPC-over-RDMA: at the holder of a virtual address,
// otherwise at every serving pod.
func rdmaReady(x *plan.Export, at []served, holder string, w *workload) metav1.Condition {
	const kind = v1alpha1.ConditionRDMAReady
	judged, others := at, []served(nil)
	if i := slices.IndexFunc(at, func(s served) bool { return s.pod.Name == holder }); i >= 0 {
		judged, others = at[i:i+1], slices.Concat(at[:i], at[i+1:])
	}
	for _, s := range judged {
		if t := s.rdmaTrouble(); t.reason != "" {
			return condition.False(kind, t.reason, "pod %s%s", s.pod.Name, t.text)
		}
	}
	if x.VIP != "" {
		if t := carrying(x.VIP, holder, w); t.reason != "" {
			return sentence(kind, t)
		}
	}
	if len(at) == 0 {
		return condition.Unknown(kind, v1alpha1.ReasonUnknown, "no pod serves the export yet")
	}
	reason, text := v1alpha1.ReasonServing, "served by "+plural(len(at), "pod")
	if len(others) > 0 {
		text = fmt.Sprintf("served by pod %s, which carries %s", holder, x.VIP)
	}
	for _, s := range others {
		if t := s.rdmaTrouble(); t.reason != "" {
			text += fmt.Sprintf("; pod %s cannot take it over%s", s.pod.Name, t.text)
		}
	}
	for _, s := range judged {
		if note := s.at.MTUMismatch(); note != "" {
			reason, text = v1alpha1.ReasonMTUMismatch, text+fmt.Sprintf("; pod %s: %s", s.pod.Name, note)
			break
		}
	}
	if slices.Contains(x.Source.Spec.Transport.RFC5666, "ReadRead") && reason == v1alpha1.ReasonServing {
		reason, text = v1alpha1.ReasonMemoryReadable, text+"; transport.rfc5666 has ReadRead, so a client can read its replies in the pod's memory, and keep that memory in use for up to 30 s a reply: remove ReadRead if no old client needs it"
	}
	return condition.True(kind, reason, "%s", text)
}

// rdmaTrouble returns why a pod accepts no RPC-over-RDMA connections, as the end of a sentence
// about the pod.
func (s *served) rdmaTrouble() words {
	for i := range s.at.Listeners {
		l := &s.at.Listeners[i]
		if l.Network != config.RDMA {
			continue
		}
		if d := l.Device; d != nil && len(d.Problems) > 0 {
			return deviceTrouble(d.Problems)
		}
		if l.State != status.Listening {
			return words{v1alpha1.ReasonListenerFailed, fmt.Sprintf(" cannot listen on %s: %q", l.Configured, condition.Quote(l.Error))}
		}
	}
	return words{}
}

// deviceReasons are the reasons of gateways that conditions have, too.
var deviceReasons = []string{
	v1alpha1.ReasonDeviceMissing, v1alpha1.ReasonDeviceInOtherNamespace, v1alpha1.ReasonFunctionWithoutDevice, v1alpha1.ReasonDeviceNodeMissing,
	v1alpha1.ReasonDeviceNodeDenied, v1alpha1.ReasonPortDown, v1alpha1.ReasonGIDMissing, v1alpha1.ReasonRoCEv1Only, v1alpha1.ReasonDeviceNotUsable,
}

// deviceTrouble returns a device's problems, with the reason of the first. A gateway of another
// version may have reasons that are unknown here.
func deviceTrouble(problems []status.Problem) words {
	reason := problems[0].Reason
	if !slices.Contains(deviceReasons, reason) {
		reason = v1alpha1.ReasonDeviceNotUsable
	}
	var all []string
	for _, p := range problems {
		all = append(all, p.Message)
	}
	return words{reason, ": " + condition.Quote(strings.Join(all, "; "))}
}

// visible reports whether a client has an address that is not a node's.
func visible(at []served, own map[netip.Addr]bool) metav1.Condition {
	const kind = v1alpha1.ConditionClientAddressesVisible
	clients, hidden := 0, 0
	for _, s := range at {
		for i := range s.at.Clients {
			clients++
			if own[s.at.Clients[i].Remote.Addr().Unmap()] {
				hidden++
			}
		}
	}
	switch {
	case clients == 0:
		return condition.Unknown(kind, v1alpha1.ReasonNoClients, "no client is connected")
	case hidden == clients:
		return condition.False(kind, v1alpha1.ReasonNodesOnly,
			"all connections come from node addresses: either the clients are nodes, or kube-proxy or the network plugin hides them; then access rules match only nodes")
	}
	return condition.True(kind, v1alpha1.ReasonVisible, "connections come from addresses other than those of nodes")
}

// versions returns the versions that all pods serve.
func versions(at []served) []string {
	var common []string
	for i, s := range at {
		vs := s.at.Backend.Versions
		if i == 0 {
			common = slices.Clone(vs)
			continue
		}
		common = slices.DeleteFunc(common, func(v string) bool { return !slices.Contains(vs, v) })
	}
	slices.Sort(common)
	return common
}

// hash returns the configuration that all pods have applied; "" if they differ.
func hash(at []served) string {
	if len(at) == 0 || slices.ContainsFunc(at, func(s served) bool { return s.at.Hash != at[0].at.Hash }) {
		return ""
	}
	return at[0].at.Hash
}

// address returns the address that clients mount; "" if there is none yet.
func address(x *plan.Export, svc *corev1.Service) string {
	switch {
	case x.VIP != "":
		return x.VIP
	case svc == nil:
		return ""
	case svc.Spec.Type != corev1.ServiceTypeLoadBalancer:
		return clusterIP(svc)
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			return in.IP
		}
		if in.Hostname != "" {
			return in.Hostname
		}
	}
	return ""
}

func clusterIP(svc *corev1.Service) string {
	if svc == nil || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return ""
	}
	return svc.Spec.ClusterIP
}
