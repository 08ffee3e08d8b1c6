// Package plan decides, without I/O, which NFSExports a gateway serves, at which addresses and
// ports, by which pods, and with which configuration. Package objects turns a [Plan] into
// Kubernetes objects, and package controllers applies them.
//
//	cluster ── Input ──> plan.Make ──> Plan ──> objects ──> controllers apply
//	                                    └─────> report, with the pods' /status: conditions
//
// Equal input gives an equal plan, in any order of its lists. Older exports precede younger ones
// (creation time, then namespace and name).
package plan

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
)

// Labels and annotations of Sluice. The manager caches only objects with LabelManaged.
const (
	LabelManaged  = "app.kubernetes.io/managed-by" // value ManagedBy
	ManagedBy     = "sluice-operator"
	LabelGateway  = "sluice.dev/gateway"  // name of the NFSGateway, on all its objects
	LabelWorkload = "sluice.dev/workload" // name of the workload, on its pods and objects
	// LabelExportNamespace and LabelExport name the NFSExport of an object.
	LabelExportNamespace = "sluice.dev/export-namespace"
	LabelExport          = "sluice.dev/export"
	// AnnotationConfig on pods changes with their ConfigMap, which makes the kubelet refresh it.
	AnnotationConfig = "sluice.dev/config"
	// AnnotationAddress on a Service is the virtual address of its export. It stays with the
	// Service.
	AnnotationAddress = "sluice.dev/address"
	// AnnotationNetwork on a Service is NAMESPACE/NAME of the network of that address.
	AnnotationNetwork = "sluice.dev/network"
)

// Names of the ports of Services and pods.
const (
	PortRDMA  = "rdma"
	PortTCP   = "nfs"
	PortAdmin = "admin"
)

// Paths in pods.
const (
	ConfigDir = "/etc/sluice/config"
	KeysDir   = "/etc/sluice/keys"
	KeysEntry = "keys" // entry of the Secret of handle keys
	StateDir  = "/var/lib/sluice"
	VolumeDir = "/export"
)

// AdminPort serves /status, /metrics and /readyz of the gateway; SpeakerPort those of the speaker.
const (
	AdminPort   = 9180
	SpeakerPort = 9181
)

// Target ports of exports with exposure Service. Export i of the shared pods has FirstPort+2i for
// RDMA and the next port for TCP. The export of a claim's pod has FirstPort and the next.
const (
	FirstPort = 21000
	LastPort  = 23999
)

// Input is the state of the cluster around a gateway. Make does not change it.
type Input struct {
	Gateway *v1alpha1.NFSGateway
	// Exports of the gateway, from all namespaces, without those being deleted.
	Exports []v1alpha1.NFSExport
	// OtherClaims are exports of claims that refer to other gateways of the namespace, without
	// those being deleted.
	OtherClaims []v1alpha1.NFSExport
	// Namespaces has the labels of the exports' namespaces, if known.
	Namespaces map[string]map[string]string
	// Claims are the existing PersistentVolumeClaims that exports name, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	Nodes  []corev1.Node
	// Services of the gateway's exports. They record ports and addresses.
	Services []corev1.Service
	// Keys is the Secret of spec.handleKeys; nil if it is missing or not named.
	Keys *corev1.Secret
	// Networks of spec.rdma.networks that exist, NAMESPACE/NAME.
	Networks map[string]bool
	// OtherGateways are virtual addresses of other gateways on the network, with their NFSExports,
	// NAMESPACE/NAME.
	OtherGateways map[string]string
	// Provisioner has the addresses of the operator's pod; none: it has no provisioner.
	Provisioner []netip.Addr
	// NoNetworkSets says that a live pod cannot read networkSets, so that rules must list networks.
	NoNetworkSets bool
	// LogFormat of gateways, text or json. Default json.
	LogFormat string
	// LiveListeners of live pods. Their ports and addresses stay reserved for their exports.
	LiveListeners []LiveListener
}

// LiveListener is a listener of a live pod.
type LiveListener struct {
	// Workload of the pod; empty: unknown. Only ports of the shared one matter.
	Workload string
	Export   string // [ConfigName]
	Address  string // as configured: ":21000", "192.0.2.10:20049"
}

// Plan is the result of Make.
type Plan struct {
	Gateway *v1alpha1.NFSGateway
	// Conditions Accepted and ResolvedRefs of the gateway, without times.
	Conditions []metav1.Condition
	// Exports of the input, accepted or not, oldest first.
	Exports []Export
	// Workloads by name: the shared one, and one for each served claim.
	Workloads []Workload
	// Capacity of the shared pods' configuration.
	Capacity Capacity
	// Pool is the use of exposure.virtualIP.pool.
	Pool PoolUse
	// Groups of virtual addresses, as many for each workload as it has replicas. Some may be empty.
	Groups []Group
}

// PoolUse is the use of a pool of virtual addresses.
type PoolUse struct {
	Size float64 // addresses; a network of IPv6 has more than an integer holds
	Used int     // of them, by exports
}

// Capacity is the use of [MaxConfig] by the shared pods' configuration.
type Capacity struct {
	Used    int // bytes
	Refused int // exports without room
}

// Export is the plan of an NFSExport.
type Export struct {
	Source *v1alpha1.NFSExport
	// Conditions Accepted and ResolvedRefs, without times.
	Conditions []metav1.Condition
	// Config in the gateway's file; nil if the export is not served.
	Config *config.Export
	// Hash of Config, as on /status of pods.
	Hash string
	// Workload whose pods serve it.
	Workload string
	// Service is the name of its Service in the gateway's namespace.
	Service string
	// VIP is its virtual address; "" with exposure Service.
	VIP string
	// RDMATarget and TCPTarget are ports of the pods.
	RDMATarget, TCPTarget int32
	// Backend is the source of the files, on one line, for people.
	Backend string
}

// Workload is a set of equal pods with one configuration.
type Workload struct {
	// Name of the Deployment or StatefulSet.
	Name string
	// Claim of a StatefulSet; nil for the shared Deployment.
	Claim *v1alpha1.Claim
	// Export of the claim; nil for the shared workload.
	Export *v1alpha1.NFSExport
	// Replicas is the wanted number of pods.
	Replicas int32
	// Config is the whole configuration file.
	Config config.GatewayConfig
}

// Group is a set of virtual addresses that one pod carries together.
type Group struct {
	// Workload whose pods may carry them.
	Workload  string
	Lease     string
	Addresses []string
}
