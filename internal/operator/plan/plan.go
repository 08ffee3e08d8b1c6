// Package plan decides, without I/O, what a gateway serves: which NFSExports are accepted, at which addresses and ports, by which pods, and with
// which configuration. Package objects makes Kubernetes objects of a [Plan], and package controllers applies them; both decide nothing.
//
//	cluster ── Input ──> plan.Make ──> Plan ──> objects ──> controllers apply
//	                                    └─────> report, with the pods' /status: conditions
//
// The same input gives the same plan, whatever the order of its lists; older exports win over younger ones (by creation time, then namespace
// and name).
package plan

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
)

// Labels and annotations that are ours. The manager caches only objects with LabelManaged.
const (
	LabelManaged  = "app.kubernetes.io/managed-by" // value ManagedBy
	ManagedBy     = "sluice-operator"
	LabelGateway  = "sluice.dev/gateway"  // name of the NFSGateway, on all that is made for it
	LabelWorkload = "sluice.dev/workload" // name of the workload, on its pods and what is made for it alone
	// LabelExportNamespace and LabelExport name the NFSExport that an object is made for; it may lie in another namespace.
	LabelExportNamespace = "sluice.dev/export-namespace"
	LabelExport          = "sluice.dev/export"
	// AnnotationConfig is set on pods when their ConfigMap changes, since the kubelet then looks at once.
	AnnotationConfig = "sluice.dev/config"
	// AnnotationAddress is set on a Service with exposure VirtualIP: the address that the export has, which is kept as long as the Service is there.
	AnnotationAddress = "sluice.dev/address"
	// AnnotationNetwork is set beside it: NAMESPACE/NAME of the network that the address is on.
	AnnotationNetwork = "sluice.dev/network"
)

// Names of the ports of Services and pods.
const (
	PortRDMA  = "rdma"
	PortTCP   = "nfs"
	PortAdmin = "admin"
)

// Where pods find what they are given.
const (
	ConfigDir = "/etc/sluice/config"
	KeysDir   = "/etc/sluice/keys"
	KeysEntry = "keys" // of the Secret of handle keys
	StateDir  = "/var/lib/sluice"
	VolumeDir = "/export"
)

// AdminPort is where pods answer /status, /metrics and /readyz; SpeakerPort is where the speaker does.
const (
	AdminPort   = 9180
	SpeakerPort = 9181
)

// Target ports of exports in shared pods, with exposure Service: export i listens on FirstPort+2i for RDMA, and on the next port for TCP. A volume's pod serves
// one export, on FirstPort and the next.
const (
	FirstPort = 21000
	LastPort  = 23999
)

// Input is what the cluster says of a gateway, and around it. Nothing of it is changed.
type Input struct {
	Gateway *v1alpha1.NFSGateway
	// Exports are those that refer to the gateway, from all namespaces, without those being deleted.
	Exports []v1alpha1.NFSExport
	// OtherClaims are the exports of claims in the gateway's namespace that refer to other gateways there, without those being deleted.
	OtherClaims []v1alpha1.NFSExport
	// Namespaces has the labels of the exports' namespaces, none of those that are not known.
	Namespaces map[string]map[string]string
	// Claims are the PersistentVolumeClaims of the gateway's namespace that exports name, by name; those that are missing are not in it.
	Claims map[string]*corev1.PersistentVolumeClaim
	Nodes  []corev1.Node
	// Services are those made for the gateway's exports: they are the record of ports and addresses once given.
	Services []corev1.Service
	// Keys is the Secret of handle keys that spec.handleKeys names; nil if it is missing or none is named.
	Keys *corev1.Secret
	// Networks are the names, NAMESPACE/NAME, of those NetworkAttachmentDefinitions of spec.rdma.networks that exist.
	Networks map[string]bool
	// OtherGateways are the virtual addresses on the same network that other gateways have given out, with the NFSExports, NAMESPACE/NAME, that have them.
	OtherGateways map[string]string
	// NoNetworkSets says that a live pod's gateway does not read networkSets: each rule then has the networks of its nodes itself.
	NoNetworkSets bool
	// LiveListeners are the listeners of live pods, by workload: a port or address that one of them still serves for another export is not given away.
	LiveListeners []LiveListener
}

// LiveListener is a listener of a live pod.
type LiveListener struct {
	// Workload is the name of the pod's workload, empty if that is not known: ports are given away in the shared one alone.
	Workload string
	Export   string // the name in the gateway's configuration: [ConfigName]
	Address  string // as configured: ":21000", "192.0.2.10:20049"
}

// Plan is what a gateway serves.
type Plan struct {
	Gateway *v1alpha1.NFSGateway
	// Conditions are the gateway's Accepted and ResolvedRefs, without times.
	Conditions []metav1.Condition
	// Exports are all of the input, accepted or not, the oldest first.
	Exports []Export
	// Workloads are the shared one, and one for each claim that is served, by name.
	Workloads []Workload
	// Capacity is that of the shared pods' configuration.
	Capacity Capacity
	// Groups are the virtual addresses with exposure VirtualIP: as many groups as each workload has replicas; some may be empty.
	Groups []Group
}

// Capacity says how much of [MaxConfig] the shared pods' configuration takes.
type Capacity struct {
	Used    int // bytes
	Refused int // exports for which there was no room
}

// Export is what becomes of an NFSExport.
type Export struct {
	Source *v1alpha1.NFSExport
	// Conditions are Accepted and ResolvedRefs, without times.
	Conditions []metav1.Condition
	// Config is what the gateway is told; nil if the export is not served.
	Config *config.Export
	// Hash is Config's, as pods report it on /status.
	Hash string
	// Workload is the name of the workload whose pods serve it.
	Workload string
	// Service is the name of its Service, in the gateway's namespace.
	Service string
	// VIP is its address with exposure VirtualIP; empty otherwise.
	VIP string
	// RDMATarget and TCPTarget are the pods' ports.
	RDMATarget, TCPTarget int32
	// Backend is where the files are, in one line, for people.
	Backend string
}

// Workload is a set of equal pods with one configuration.
type Workload struct {
	// Name is that of the Deployment or StatefulSet.
	Name string
	// Claim is nil for the shared workload, a Deployment.
	Claim *v1alpha1.Claim
	// Export is the one that a claim's workload is for; nil for the shared one.
	Export *v1alpha1.NFSExport
	// Replicas is how many pods there shall be.
	Replicas int32
	// Config is the whole configuration file's content.
	Config config.GatewayConfig
}

// Group is a set of virtual addresses that one pod carries together.
type Group struct {
	// Workload is the one whose pods may carry them.
	Workload  string
	Lease     string
	Addresses []string
}
