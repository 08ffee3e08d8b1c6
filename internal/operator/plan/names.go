package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"

	"sluice.dev/sluice/api/v1alpha1"
)

// Names are made of those of NFSGateway (at most 40 characters) and NFSExport (at most 63), and have to be labels of DNS, of at most 63 characters.
const (
	maxName = 63
	// maxStatefulSet leaves room for the hash that the StatefulSet's controller labels pods with.
	maxStatefulSet = 52
	hashLength     = 8
)

var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// shortHash tells names apart that were cut: 40 bits.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return lower.EncodeToString(sum[:])[:hashLength]
}

// cut makes a name of at most limit characters that ends with the hash of id.
func cut(name string, limit int, id string) string {
	if most := limit - 1 - hashLength; len(name) > most {
		name = strings.TrimRight(name[:most], "-")
	}
	return name + "-" + shortHash(id)
}

// ConfigName is what an export is called in the gateway's configuration. A namespace has no dot, so no two exports share one.
func ConfigName(e *v1alpha1.NFSExport) string { return e.Namespace + "." + e.Name }

// Key is NAMESPACE/NAME, as people write it.
func Key(e *v1alpha1.NFSExport) string { return e.Namespace + "/" + e.Name }

// HasHandles says whether an export has an identity of its own in file handles: those of a claim's volume are known by its files alone.
func HasHandles(e *v1alpha1.NFSExport) bool { return e.Spec.Backend.PersistentVolumeClaim == nil }

// HandleIdentity distinguishes the handles of an export from those of others. Before the operator has set spec.handleIdentity it is the UID, to which that is set.
func HandleIdentity(e *v1alpha1.NFSExport) string {
	return cmp.Or(e.Spec.HandleIdentity, string(e.UID))
}

// ServiceName is the name of an export's Service in the gateway's namespace. Exports from elsewhere have another prefix, so that none of them can take
// the name that an export of that namespace has.
func ServiceName(g *v1alpha1.NFSGateway, e *v1alpha1.NFSExport) string {
	if name := "sluice-" + e.Name; e.Namespace == g.Namespace && len(name) <= maxName {
		return name
	}
	return cut("sluicex-"+e.Name, maxName, Key(e))
}

// WorkloadName is the name of the workload that serves an export, and of the shared one without an export.
func WorkloadName(g *v1alpha1.NFSGateway, e *v1alpha1.NFSExport) string {
	if e == nil || e.Spec.Backend.PersistentVolumeClaim == nil {
		return g.Name
	}
	return cut(g.Name+"-"+e.Name, maxStatefulSet, Key(e))
}

// LeaseName is the name of a workload's i-th Lease of virtual addresses.
func LeaseName(workload string, i int) string { return workload + "-vip-" + strconv.Itoa(i) }

// KeysName is the name of the Secret with the gateway's handle keys.
func KeysName(g *v1alpha1.NFSGateway) string {
	if n := g.Spec.HandleKeys.SecretName; n != "" {
		return n
	}
	return g.Name + "-handle-keys"
}

// GatewayNamespace is where the gateway is that an export refers to.
func GatewayNamespace(e *v1alpha1.NFSExport) string {
	if n := e.Spec.GatewayRef.Namespace; n != "" {
		return n
	}
	return e.Namespace
}

// NetworkKey is NAMESPACE/NAME of a network's NetworkAttachmentDefinition.
func NetworkKey(g *v1alpha1.NFSGateway, n v1alpha1.Network) string {
	if strings.Contains(n.Name, "/") {
		return n.Name
	}
	return g.Namespace + "/" + n.Name
}

// InterfaceOf is what a network's interface is called in the pods.
func InterfaceOf(n v1alpha1.Network) string { return cmp.Or(n.Interface, "rdma0") }

// virtualNetwork is the one that carries virtual addresses; nil if there is none.
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

// VirtualInterface is the interface that carries virtual addresses; empty if there are none.
func VirtualInterface(g *v1alpha1.NFSGateway) string {
	if n := virtualNetwork(g); n != nil {
		return InterfaceOf(*n)
	}
	return ""
}

// VirtualNetwork is NAMESPACE/NAME of the NetworkAttachmentDefinition on which virtual addresses are announced; empty if there are none.
func VirtualNetwork(g *v1alpha1.NFSGateway) string {
	if n := virtualNetwork(g); n != nil {
		return NetworkKey(g, *n)
	}
	return ""
}
