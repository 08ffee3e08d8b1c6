package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"sluice.dev/sluice/api/v1alpha1"
)

// Limits on names. They derive from NFSGateway (40 characters) and NFSExport (63) and must be DNS
// labels.
const (
	maxName = 63
	// maxStatefulSet leaves room for the hash in the label of the pods' revision.
	maxStatefulSet = 52
	hashLength     = 8
)

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// shortHash returns 40 bits of a hash in base32.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return lower.EncodeToString(sum[:])[:hashLength]
}

// cut returns a name of at most limit characters that ends with a hash of id.
func cut(name string, limit int, id string) string {
	if most := limit - 1 - hashLength; len(name) > most {
		name = strings.TrimRight(name[:most], "-")
	}
	return name + "-" + shortHash(id)
}

// ConfigName returns the name of an export in the gateway's configuration. A namespace has no dot,
// so names are unique.
func ConfigName(e *v1alpha1.NFSExport) string { return e.Namespace + "." + e.Name }

// Key returns NAMESPACE/NAME.
func Key(e *v1alpha1.NFSExport) string { return e.Namespace + "/" + e.Name }

// HasHandles reports whether an export has an identity in file handles. Handles of a volume depend
// on its files alone.
func HasHandles(e *v1alpha1.NFSExport) bool { return e.Spec.Backend.PersistentVolumeClaim == nil }

// HandleIdentity returns spec.handleIdentity, or the UID, which becomes that.
func HandleIdentity(e *v1alpha1.NFSExport) string {
	return cmp.Or(e.Spec.HandleIdentity, string(e.UID))
}

// ServiceName returns the name of an export's Service in the gateway's namespace. Exports of other
// namespaces have another prefix, so that they cannot take a name of this one.
func ServiceName(g *v1alpha1.NFSGateway, e *v1alpha1.NFSExport) string {
	if name := "sluice-" + e.Name; e.Namespace == g.Namespace && len(name) <= maxName {
		return name
	}
	return cut("sluicex-"+e.Name, maxName, Key(e))
}

// WorkloadName returns the name of the workload of an export; of the shared one if e is nil.
func WorkloadName(g *v1alpha1.NFSGateway, e *v1alpha1.NFSExport) string {
	if e == nil || e.Spec.Backend.PersistentVolumeClaim == nil {
		return g.Name
	}
	return cut(g.Name+"-"+e.Name, maxStatefulSet, Key(e))
}

// LeaseName returns the name of the i-th Lease of a workload.
func LeaseName(workload string, i int) string { return workload + "-vip-" + strconv.Itoa(i) }

// KeysName returns the name of the Secret with the gateway's handle keys.
func KeysName(g *v1alpha1.NFSGateway) string {
	if n := g.Spec.HandleKeys.SecretName; n != "" {
		return n
	}
	return g.Name + "-handle-keys"
}

// GatewayNamespace returns the namespace of an export's gateway.
func GatewayNamespace(e *v1alpha1.NFSExport) string {
	if n := e.Spec.GatewayRef.Namespace; n != "" {
		return n
	}
	return e.Namespace
}

// NetworkKey returns NAMESPACE/NAME of a network's NetworkAttachmentDefinition.
func NetworkKey(g *v1alpha1.NFSGateway, n v1alpha1.Network) string {
	if strings.Contains(n.Name, "/") {
		return n.Name
	}
	return g.Namespace + "/" + n.Name
}

// InterfaceOf returns the name of a network's interface in the pods.
func InterfaceOf(n v1alpha1.Network) string { return cmp.Or(n.Interface, "rdma0") }

// virtualNetwork returns the network of virtual addresses; nil if there is none.
func virtualNetwork(g *v1alpha1.NFSGateway) *v1alpha1.Network {
	v := g.Spec.Exposure.VirtualIP
	if g.Spec.Exposure.Type != v1alpha1.ExposureVirtualIP || v == nil || g.Spec.RDMA == nil {
		return nil
	}
	for i := range g.Spec.RDMA.Networks {
		if n := &g.Spec.RDMA.Networks[i]; n.Name == v.Network {
			return n
		}
	}
	return nil
}

// VirtualInterface returns the interface of virtual addresses; "" if there is none.
func VirtualInterface(g *v1alpha1.NFSGateway) string {
	if n := virtualNetwork(g); n != nil {
		return InterfaceOf(*n)
	}
	return ""
}

// VirtualNetwork returns NAMESPACE/NAME of the NetworkAttachmentDefinition of virtual addresses; ""
// if there is none.
func VirtualNetwork(g *v1alpha1.NFSGateway) string {
	if n := virtualNetwork(g); n != nil {
		return NetworkKey(g, *n)
	}
	return ""
}
