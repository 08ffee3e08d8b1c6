package controllers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// listOwned returns the Services of a gateway's exports, and its pods.
func (r *GatewayReconciler) listOwned(ctx context.Context, gw types.NamespacedName) ([]corev1.Service, []corev1.Pod, error) {
	of := []client.ListOption{client.InNamespace(gw.Namespace), client.MatchingLabels{plan.LabelGateway: gw.Name}}
	var services corev1.ServiceList
	var pods corev1.PodList
	if err := errors.Join(r.List(ctx, &services, of...), r.List(ctx, &pods, of...)); err != nil {
		return nil, nil, err
	}
	kept := services.Items[:0]
	for _, s := range services.Items {
		if s.Labels[plan.LabelExport] != "" {
			kept = append(kept, s)
		}
	}
	return kept, pods.Items, nil
}

// allPolled reports whether every running pod was polled, even without success. Until then its
// ports and addresses must not be given away.
func (r *GatewayReconciler) allPolled(pods []corev1.Pod) bool {
	return !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return canPoll(&pod) && r.states.podStatus(&pod) == nil })
}

var networkKind = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

// readInput reads the input of a plan.
func (r *GatewayReconciler) readInput(ctx context.Context, gw *v1alpha1.NFSGateway, pods []corev1.Pod, services []corev1.Service) (plan.Input, error) {
	in := plan.Input{
		Gateway: gw, Services: services, Provisioner: r.Provisioner, Namespaces: map[string]map[string]string{}, Networks: map[string]bool{},
		LogFormat: r.Defaults.LogFormat,
	}
	var err error
	if in.Exports, err = listExports(ctx, r, client.ObjectKeyFromObject(gw)); err != nil {
		return in, err
	}
	for i := range in.Exports {
		x := &in.Exports[i]
		if in.Namespaces[x.Namespace] == nil {
			if in.Namespaces[x.Namespace], err = r.namespaceLabels(ctx, x.Namespace); err != nil {
				return in, err
			}
		}
	}
	if in.Claims, err = r.claims(ctx, gw.Namespace, in.Exports); err != nil {
		return in, err
	}
	if in.Claims != nil {
		if in.OtherClaims, err = r.otherGatewaysClaims(ctx, gw); err != nil {
			return in, err
		}
	}
	if in.Nodes, err = r.nodes(ctx); err != nil {
		return in, err
	}
	if name := gw.Spec.HandleKeys.SecretName; name != "" {
		var keys corev1.Secret
		switch err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: gw.Namespace, Name: name}, &keys); {
		case err == nil:
			in.Keys = &keys
		case !apierrors.IsNotFound(err):
			return in, err
		}
	}
	if gw.Spec.RDMA != nil {
		for _, n := range gw.Spec.RDMA.Networks {
			key := plan.NetworkKey(gw, n)
			if in.Networks[key], err = r.networkExists(ctx, key); err != nil {
				return in, err
			}
		}
	}
	if in.OtherGateways, err = r.otherGatewaysAddresses(ctx, gw); err != nil {
		return in, err
	}
	for i := range pods {
		in.NoNetworkSets = in.NoNetworkSets || r.states.podStatus(&pods[i]).lacksFeature(config.FeatureNetworkSets) && pods[i].DeletionTimestamp == nil
		for _, l := range r.states.podStatus(&pods[i]).listeners() {
			if l.Export != "" {
				l.Workload = pods[i].Labels[plan.LabelWorkload]
				in.LiveListeners = append(in.LiveListeners, l)
			}
		}
	}
	return in, nil
}

// otherGatewaysAddresses returns the virtual addresses of other gateways on the same network, with
// their exports. It includes deleted gateways, because an export keeps its address for a re-created
// gateway. Plans are newer than the cached Services.
func (r *GatewayReconciler) otherGatewaysAddresses(ctx context.Context, gw *v1alpha1.NFSGateway) (map[string]string, error) {
	network := plan.VirtualNetwork(gw)
	if network == "" {
		return nil, nil
	}
	var all v1alpha1.NFSGatewayList
	var services corev1.ServiceList
	if err := errors.Join(r.List(ctx, &all, client.UnsafeDisableDeepCopy), r.List(ctx, &services, client.HasLabels{plan.LabelExport}, client.UnsafeDisableDeepCopy)); err != nil {
		return nil, err
	}
	out, networks := map[string]string{}, map[types.NamespacedName]string{}
	for i := range all.Items {
		other := &all.Items[i]
		networks[client.ObjectKeyFromObject(other)] = plan.VirtualNetwork(other)
		if other.UID == gw.UID || plan.VirtualNetwork(other) != network {
			continue
		}
		if p, _ := r.states.observedGateway(client.ObjectKeyFromObject(other)); p != nil {
			for j := range p.Exports {
				if x := &p.Exports[j]; x.VIP != "" {
					out[x.VIP] = plan.Key(x.Source)
				}
			}
		}
	}
	for i := range services.Items {
		s := &services.Items[i]
		a, of := s.Annotations[plan.AnnotationAddress], gatewayOf(s)
		if a == "" || of == client.ObjectKeyFromObject(gw) {
			continue
		}
		on, exists := networks[of]
		if !exists {
			on = cmp.Or(s.Annotations[plan.AnnotationNetwork], network)
		}
		if on == network {
			out[a] = s.Labels[plan.LabelExportNamespace] + "/" + s.Labels[plan.LabelExport]
		}
	}
	return out, nil
}

// claims returns the PersistentVolumeClaims that exports name. The cache holds only their metadata.
func (r *GatewayReconciler) claims(ctx context.Context, namespace string, exports []v1alpha1.NFSExport) (map[string]*corev1.PersistentVolumeClaim, error) {
	named := map[string]bool{}
	for i := range exports {
		if c := exports[i].Spec.Backend.PersistentVolumeClaim; c != nil {
			named[c.ClaimName] = true
		}
	}
	if len(named) == 0 {
		return nil, nil
	}
	var all corev1.PersistentVolumeClaimList
	if err := r.APIReader.List(ctx, &all, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	claims := map[string]*corev1.PersistentVolumeClaim{}
	for i := range all.Items {
		if c := &all.Items[i]; named[c.Name] {
			claims[c.Name] = c
		}
	}
	return claims, nil
}

// otherGatewaysClaims returns the exports of claims that refer to other gateways of the namespace.
func (r *GatewayReconciler) otherGatewaysClaims(ctx context.Context, gw *v1alpha1.NFSGateway) (out []v1alpha1.NFSExport, err error) {
	var all v1alpha1.NFSGatewayList
	if err := r.List(ctx, &all, client.InNamespace(gw.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range all.Items {
		other := &all.Items[i]
		if other.Name == gw.Name || other.DeletionTimestamp != nil {
			continue
		}
		exports, err := listExports(ctx, r, client.ObjectKeyFromObject(other))
		if err != nil {
			return nil, err
		}
		for _, x := range exports {
			if x.Namespace == gw.Namespace && x.Spec.Backend.PersistentVolumeClaim != nil {
				out = append(out, x)
			}
		}
	}
	return out, nil
}

// namespaceLabels returns the labels of a namespace. Without ClusterScope, only its name is known.
func (r *GatewayReconciler) namespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	if !r.ClusterScope {
		return map[string]string{corev1.LabelMetadataName: name}, nil
	}
	ns := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	if err := r.Get(ctx, client.ObjectKey{Name: name}, &ns); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return ns.Labels, nil
}

// nodes returns the nodes of the cluster; none without ClusterScope.
func (r *GatewayReconciler) nodes(ctx context.Context) ([]corev1.Node, error) {
	if !r.ClusterScope {
		return nil, nil
	}
	var nodes corev1.NodeList
	err := r.List(ctx, &nodes)
	return nodes.Items, err
}

// networkExists reports whether a NetworkAttachmentDefinition exists. A forbidden read counts as
// success: otherwise the pods report the missing network.
func (r *GatewayReconciler) networkExists(ctx context.Context, key string) (bool, error) {
	namespace, name, _ := strings.Cut(key, "/")
	var nad metav1.PartialObjectMetadata
	nad.SetGroupVersionKind(networkKind)
	switch err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &nad); {
	case err == nil, apierrors.IsForbidden(err):
		return true, nil
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		return false, nil
	default:
		return false, err
	}
}
