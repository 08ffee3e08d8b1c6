//go:build operator

package operator

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/test/apiserver"
)

// anyKind is a CRD without a schema.
func anyKind(group, version, plural, kind string) *apiextensions.CustomResourceDefinition {
	yes := true
	return &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensions.NamespaceScoped, Names: apiextensions.CustomResourceDefinitionNames{Plural: plural, Singular: plural[:len(plural)-1], Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: version, Served: true, Storage: true,
				Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}}}},
		},
	}
}

func install(t *testing.T, crds ...*apiextensions.CustomResourceDefinition) {
	t.Helper()
	_, err := apiserver.InstallCRDs(admin, envtest.CRDInstallOptions{CRDs: crds})
	must(t, err)
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// TestVirtualIP checks the objects for a gateway with virtual addresses, in a cluster without the
// kinds of Multus and Prometheus, and in one with them.
func TestVirtualIP(t *testing.T) {
	ns := newNamespace(t)
	start(t, ns, false, nil)
	ctx := t.Context()
	gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
	gw.Spec.Exposure = v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{"192.0.2.10"}, Network: "rdma-net"}}
	gw.Spec.RDMA = &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net"}}}
	gw.Spec.Monitoring = v1alpha1.Monitoring{ServiceMonitor: true, PrometheusRule: true}
	must(t, kube.Create(ctx, gw))
	must(t, kube.Create(ctx, x))
	eventually(t, "there is no such network", condition(gw, v1alpha1.ConditionResolvedRefs, no, v1alpha1.ReasonNetworkNotFound))
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice-data"}}
	eventually(t, "the Service says what its address is", func() error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(svc), svc); err != nil {
			return err
		}
		if in := svc.Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != "192.0.2.10" || in[0].IPMode == nil || *in[0].IPMode != corev1.LoadBalancerIPModeProxy {
			return fmt.Errorf("ingress %+v", in)
		}
		return nil
	})
	eventually(t, "no pod carries the address", condition(x, v1alpha1.ConditionRDMAReady, no, v1alpha1.ReasonAddressNotHeld))
	if x.Status.Address != "192.0.2.10" {
		t.Errorf("address %q", x.Status.Address)
	}
	for _, o := range []*unstructured.Unstructured{
		object("v1", "ServiceAccount", ns, "fast-speaker"), object("rbac.authorization.k8s.io/v1", "Role", ns, "fast-speaker"),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", ns, "fast-speaker"), object("coordination.k8s.io/v1", "Lease", ns, "fast-vip-0"),
		object("coordination.k8s.io/v1", "Lease", ns, "fast-vip-1"), object("v1", "Service", ns, "fast-admin"),
	} {
		eventually(t, o.GetKind(), func() error { return kube.Get(ctx, client.ObjectKeyFromObject(o), o) })
	}
	// The operator does not overwrite a speaker's Lease.
	lease := object("coordination.k8s.io/v1", "Lease", ns, "fast-vip-0")
	must(t, kube.Get(ctx, client.ObjectKeyFromObject(lease), lease))
	must(t, unstructured.SetNestedField(lease.Object, "fast-0_uid", "spec", "holderIdentity"))
	must(t, kube.Update(ctx, lease))

	install(t, anyKind("k8s.cni.cncf.io", "v1", "network-attachment-definitions", "NetworkAttachmentDefinition"),
		anyKind("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"), anyKind("monitoring.coreos.com", "v1", "prometheusrules", "PrometheusRule"))
	must(t, kube.Create(ctx, object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", ns, "rdma-net")))
	eventually(t, "the network is there", condition(gw, v1alpha1.ConditionResolvedRefs, yes, v1alpha1.ReasonResolved))
	monitor, rule := object("monitoring.coreos.com/v1", "ServiceMonitor", ns, "fast"), object("monitoring.coreos.com/v1", "PrometheusRule", ns, "fast")
	eventually(t, "metrics are collected", func() error { return kube.Get(ctx, client.ObjectKeyFromObject(monitor), monitor) })
	eventually(t, "alerts are raised", func() error { return kube.Get(ctx, client.ObjectKeyFromObject(rule), rule) })
	must(t, kube.Delete(ctx, rule))
	eventually(t, "alerts are raised again", func() error { return kube.Get(ctx, client.ObjectKeyFromObject(rule), rule) })
	eventually(t, "the gateway is changed", func() error { // its status may be written meanwhile
		must(t, kube.Get(ctx, client.ObjectKeyFromObject(gw), gw))
		gw.Spec.Monitoring = v1alpha1.Monitoring{ServiceMonitor: true}
		gw.Spec.Replicas = new(int32(1))
		return kube.Update(ctx, gw)
	})
	eventually(t, "no alerts are raised", gone(rule))
	eventually(t, "a Lease is left over", gone(object("coordination.k8s.io/v1", "Lease", ns, "fast-vip-1")))
	must(t, kube.Get(ctx, client.ObjectKeyFromObject(monitor), monitor))
	must(t, kube.Get(ctx, client.ObjectKeyFromObject(lease), lease))
	if holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity"); holder != "fast-0_uid" {
		t.Errorf("the Lease's holder became %q", holder)
	}
	must(t, kube.Delete(ctx, gw))
	eventually(t, "metrics are no longer collected", gone(monitor))
	eventually(t, "the export has no gateway", condition(x, v1alpha1.ConditionAccepted, no, v1alpha1.ReasonGatewayNotFound))
}
