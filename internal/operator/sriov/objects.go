package sriov

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// ConfigEntry is the entry of the plugin's ConfigMap with its configuration.
const ConfigEntry = "config.json"

// ResourceAnnotation on a NetworkAttachmentDefinition makes Multus assign a device of that resource
// to its interface.
const ResourceAnnotation = "k8s.v1.cni.cncf.io/resourceName"

// ConfigMap returns the plugin's ConfigMap, usually sriovdp-config in kube-system.
func ConfigMap(namespace, name string, c *ResourceConfList) (*corev1.ConfigMap, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, err
	}
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       map[string]string{ConfigEntry: string(b) + "\n"},
	}, nil
}

// Network is a NetworkAttachmentDefinition for devices of a resource.
type Network struct {
	Namespace, Name string
	// Resource is a resource name, such as nvidia.com/rdma_vf.
	Resource string
	// Type is the CNI plugin: sriov, ib-sriov or host-device.
	Type string
	// VLAN is for type sriov; 0 means none.
	VLAN int
	// RDMA chains the CNI plugin rdma, which moves the RDMA device into the pod. Nodes need it if
	// their RDMA subsystem is in exclusive mode.
	RDMA bool
	// IPAM is the configuration of the IPAM plugin; nil means none.
	IPAM map[string]any
}

// confList is the CNI configuration in a NetworkAttachmentDefinition.
type confList struct {
	CNIVersion string   `json:"cniVersion"`
	Name       string   `json:"name"`
	Plugins    []plugin `json:"plugins"`
}

type plugin struct {
	Type string         `json:"type"`
	VLAN int            `json:"vlan,omitempty"`
	IPAM map[string]any `json:"ipam,omitempty"`
}

func (n *Network) validate() error {
	prefix, name, ok := strings.Cut(n.Resource, "/")
	switch {
	case n.Name == "":
		return fmt.Errorf("name: missing: want that of the NetworkAttachmentDefinition")
	case !ok || !prefixPattern.MatchString(prefix) || !namePattern.MatchString(name):
		return fmt.Errorf("resource: %q: want a domain and a name, such as nvidia.com/rdma_vf", n.Resource)
	case n.Type != "sriov" && n.Type != "ib-sriov" && n.Type != "host-device":
		return fmt.Errorf("type: %q: want sriov, ib-sriov or host-device", n.Type)
	case n.Type != "sriov" && n.VLAN != 0:
		return fmt.Errorf("vlan: %d: is only for type sriov: leave it out", n.VLAN)
	case n.VLAN < 0 || n.VLAN > 4094:
		return fmt.Errorf("vlan: %d: want 0 to 4094", n.VLAN)
	}
	if t, ok := n.IPAM["type"].(string); n.IPAM != nil && (!ok || t == "") {
		return fmt.Errorf("ipam.type: missing: want a plugin that gives out addresses, such as host-local or whereabouts")
	}
	return nil
}

// Definition returns the NetworkAttachmentDefinition.
func (n *Network) Definition() (*unstructured.Unstructured, error) {
	if err := n.validate(); err != nil {
		return nil, err
	}
	c := confList{CNIVersion: "1.0.0", Name: n.Name, Plugins: []plugin{{Type: n.Type, VLAN: n.VLAN, IPAM: n.IPAM}}}
	if n.RDMA {
		c.Plugins = append(c.Plugins, plugin{Type: "rdma"})
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("ipam: %w", err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "spec": map[string]any{"config": string(b)},
	}}
	u.SetNamespace(n.Namespace)
	u.SetName(n.Name)
	u.SetAnnotations(map[string]string{ResourceAnnotation: n.Resource})
	return u, nil
}

// ParseDefinition reads and checks a NetworkAttachmentDefinition.
func ParseDefinition(u *unstructured.Unstructured) (*Network, error) {
	if u.GetAPIVersion() != "k8s.cni.cncf.io/v1" || u.GetKind() != "NetworkAttachmentDefinition" {
		return nil, fmt.Errorf("%s, %s: want a NetworkAttachmentDefinition of k8s.cni.cncf.io/v1", u.GetAPIVersion(), u.GetKind())
	}
	text, ok, err := unstructured.NestedString(u.Object, "spec", "config")
	if err != nil || !ok || len(text) > MaxFile {
		return nil, fmt.Errorf("spec.config: want the CNI configuration, a string of JSON")
	}
	var c confList
	if err := strict([]byte(text), &c); err != nil {
		return nil, fmt.Errorf("spec.config: %w", err)
	}
	if c.CNIVersion != "1.0.0" || c.Name != u.GetName() {
		return nil, fmt.Errorf("spec.config: cniVersion %q, name %q: want 1.0.0 and %q", c.CNIVersion, c.Name, u.GetName())
	}
	if len(c.Plugins) < 1 || len(c.Plugins) > 2 || len(c.Plugins) == 2 && c.Plugins[1].Type != "rdma" {
		return nil, fmt.Errorf("spec.config: plugins: want one, and perhaps rdma behind it")
	}
	p := c.Plugins[0]
	n := &Network{Namespace: u.GetNamespace(), Name: c.Name, Resource: u.GetAnnotations()[ResourceAnnotation], Type: p.Type, VLAN: p.VLAN, RDMA: len(c.Plugins) == 2, IPAM: p.IPAM}
	return n, n.validate()
}
