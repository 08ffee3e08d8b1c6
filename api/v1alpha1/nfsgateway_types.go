package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NFSGateway is a set of gateway pods. They serve the NFSExports that refer to it, over
// RPC-over-RDMA and TCP.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=nfsgw,categories=sluice
// +kubebuilder:printcolumn:name=Provider,type=string,JSONPath=`.spec.provider`
// +kubebuilder:printcolumn:name=Exposure,type=string,JSONPath=`.spec.exposure.type`
// +kubebuilder:printcolumn:name=Pods,type=string,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name=Exports,type=integer,JSONPath=`.status.exports`
// +kubebuilder:printcolumn:name=Clients,type=integer,JSONPath=`.status.clients`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: want a letter and at most 39 letters, digits and hyphens after it, since names of pods and Services are made of it"
type NFSGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NFSGatewaySpec   `json:"spec"`
	Status NFSGatewayStatus `json:"status,omitempty"`
}

// NFSGatewaySpec describes the pods, their devices, and the exports that they serve.
// +kubebuilder:validation:XValidation:rule="self.provider != 'Verbs' || has(self.rdma) && has(self.rdma.devices) && size(self.rdma.devices) > 0",message="rdma.devices: provider Verbs needs RDMA devices: name the device plugin's resource, such as [{resourceName: nvidia.com/rdma_vf}]"
// +kubebuilder:validation:XValidation:rule="self.provider == 'Verbs' || !has(self.rdma) || !has(self.rdma.verbs)",message="rdma.verbs: is only for provider Verbs: leave it out"
// +kubebuilder:validation:XValidation:rule="self.provider != 'Verbs' || self.exposure.type == 'VirtualIP'",message="exposure.type: adapters bypass kube-proxy, so provider Verbs wants VirtualIP"
// +kubebuilder:validation:XValidation:rule="self.exposure.type != 'VirtualIP' || has(self.exposure.virtualIP)",message="exposure.virtualIP: wanted with exposure.type VirtualIP: {pool: [192.0.2.10-192.0.2.40], network: NAME}"
// +kubebuilder:validation:XValidation:rule="self.exposure.type == 'VirtualIP' || !has(self.exposure.virtualIP)",message="exposure.virtualIP: is only for exposure.type VirtualIP: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.exposure.virtualIP) || has(self.rdma) && has(self.rdma.networks) && self.rdma.networks.exists(n, n.name == self.exposure.virtualIP.network)",message="exposure.virtualIP.network: want the name of one of rdma.networks"
// +kubebuilder:validation:XValidation:rule="self.allowedExports.namespaces.from == 'Same' || has(self.allowedBackends) && size(self.allowedBackends) > 0",message="allowedBackends: wanted where exports may come from other namespaces: say which servers and paths they may use"
type NFSGatewaySpec struct {
	// Replicas is the number of pods that serve nfs and rdma backends. Default 2. Each
	// persistentVolumeClaim backend has one more pod.
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Provider is the RDMA implementation. SoftwareIWARP runs on any node and works through
	// Services. Verbs uses RDMA adapters. Default SoftwareIWARP. Immutable.
	// +kubebuilder:default=SoftwareIWARP
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another NFSGateway"
	Provider Provider `json:"provider,omitempty"`

	// Exposure is the kind of address that clients mount.
	// +kubebuilder:default={}
	Exposure Exposure `json:"exposure,omitempty"`

	// RDMA lists the devices and networks of the pods.
	// +optional
	RDMA *RDMA `json:"rdma,omitempty"`

	// AllowedExports selects the namespaces whose NFSExports may refer to this gateway. Default:
	// its own.
	// +kubebuilder:default={}
	AllowedExports AllowedExports `json:"allowedExports,omitempty"`

	// AllowedBackends lists the servers and paths that exports may use. Default: all, if only
	// exports of the gateway's own namespace are allowed. Otherwise it is required, because servers
	// trust the gateway's address.
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	AllowedBackends []AllowedBackend `json:"allowedBackends,omitempty"`

	// Limits bound the exports, connections and memory of a pod.
	// +kubebuilder:default={}
	Limits GatewayLimits `json:"limits,omitempty"`

	// Memory selects the pages that hold a pod's messages and data.
	// +optional
	Memory GatewayMemory `json:"memory,omitzero"`

	// HandleKeys are the keys that sign file handles.
	// +kubebuilder:default={}
	HandleKeys HandleKeys `json:"handleKeys,omitempty"`

	// DrainTimeout is the time for calls in flight to finish when a pod ends or an export is
	// deleted: 0s to 1h. Default 20s.
	// +kubebuilder:default="20s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="want 0s to 1h"
	DrainTimeout Duration `json:"drainTimeout,omitempty"`

	// PodTemplate adds fields to the pods.
	// +optional
	PodTemplate *PodTemplate `json:"podTemplate,omitempty"`

	// NetworkPolicy is Managed or None. Managed creates a NetworkPolicy: clients reach the ports of
	// exports, and the operator and Prometheus reach the admin port. With None, write your own.
	// Default Managed.
	// +kubebuilder:default=Managed
	// +kubebuilder:validation:Enum=Managed;None
	NetworkPolicy NetworkPolicyMode `json:"networkPolicy,omitempty"`

	// Monitoring creates objects of the Prometheus operator.
	// +kubebuilder:default={}
	Monitoring Monitoring `json:"monitoring,omitempty"`

	// Tracing sends OpenTelemetry traces of calls. Default: none.
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`
}

// Provider is an RDMA implementation.
// +kubebuilder:validation:Enum=SoftwareIWARP;Verbs
type Provider string

// Providers.
const (
	SoftwareIWARP Provider = "SoftwareIWARP"
	Verbs         Provider = "Verbs"
)

// Exposure is the kind of address that clients mount.
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type == 'Service' || !has(self.service) || (!has(self.service.type) || self.service.type == 'ClusterIP') && !has(self.service.annotations) && !has(self.service.ipFamilyPolicy) && !has(self.service.ipFamilies)",message="service: is only for exposure.type Service: leave it out"
type Exposure struct {
	// Type is Service or VirtualIP. Service gives each export a Service; use it with provider
	// SoftwareIWARP. VirtualIP gives each export an address of a pool, which one pod carries on its
	// RDMA interface. Default Service. Immutable.
	// +kubebuilder:default=Service
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another NFSGateway"
	Type ExposureType `json:"type,omitempty"`

	// Service configures the Services. Forbidden with type VirtualIP.
	// +kubebuilder:default={}
	Service ServiceTemplate `json:"service,omitempty"`

	// VirtualIP configures the addresses. Required with type VirtualIP, forbidden otherwise.
	// +optional
	VirtualIP *VirtualIP `json:"virtualIP,omitempty"`
}

// ExposureType is a kind of address.
// +kubebuilder:validation:Enum=Service;VirtualIP
type ExposureType string

// Kinds of addresses.
const (
	ExposureService   ExposureType = "Service"
	ExposureVirtualIP ExposureType = "VirtualIP"
)

// ServiceTemplate configures the Services of exports.
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",message="loadBalancerClass: is only for type LoadBalancer: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || self.type == 'LoadBalancer'",message="externalTrafficPolicy: is only for type LoadBalancer: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || size(self.ipFamilies) < 2 || self.ipFamilies[0] != self.ipFamilies[1] && (!has(self.ipFamilyPolicy) || self.ipFamilyPolicy != 'SingleStack')",message="ipFamilies: want one with ipFamilyPolicy SingleStack, and never the same twice"
type ServiceTemplate struct {
	// Type is ClusterIP or LoadBalancer. Default ClusterIP.
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// LoadBalancerClass selects a load balancer implementation. Default: the cluster's. Only with
	// type LoadBalancer.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// Annotations of each Service.
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// IPFamilyPolicy of each Service. Default: the cluster's.
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	// +optional
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// IPFamilies of each Service. Default: the cluster's.
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +listType=atomic
	// +optional
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// ExternalTrafficPolicy of each Service, only with type LoadBalancer. Set Local to keep client
	// addresses, which access rules match.
	// +kubebuilder:validation:Enum=Cluster;Local
	// +optional
	ExternalTrafficPolicy *corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
}

// VirtualIP is a pool of addresses and the network that carries them.
type VirtualIP struct {
	// Pool lists single addresses, ranges such as 192.0.2.10-192.0.2.40, and networks such as
	// 192.0.2.64/26, without their first and last address. Use addresses of the subnet of the
	// network's interface that nothing else assigns.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=91
	// +kubebuilder:validation:XValidation:rule="self.all(p, isIP(p) || isCIDR(p) || p.split('-').size() == 2 && p.split('-').all(a, isIP(a)))",message="want addresses, ranges such as 192.0.2.10-192.0.2.40, and networks such as 192.0.2.64/26"
	// +listType=atomic
	Pool []string `json:"pool"`

	// Network is the name of an entry of rdma.networks. The pods announce the addresses there.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Network string `json:"network"`

	// LeaseDuration is how long a pod that does not answer keeps its addresses: whole seconds, 3s
	// to 5m. Default 10s. Choose more if nodes or the API server are so busy that addresses move
	// between healthy pods. A change restarts the pods, one after the other.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('3s') && duration(self) <= duration('5m') && duration(self).getMilliseconds() % 1000 == 0",message="want whole seconds, 3s to 5m"
	// +optional
	LeaseDuration Duration `json:"leaseDuration,omitempty"`
}

// RDMA lists the devices and networks of the pods.
type RDMA struct {
	// Devices lists the extended resources that a pod requests, one entry for each resource. A
	// network whose NetworkAttachmentDefinition names a resource gets its interface from that
	// resource. An export uses the device of the interface that carries its address.
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=resourceName
	// +optional
	Devices []Device `json:"devices,omitempty"`

	// Networks lists the NetworkAttachmentDefinitions of a pod. Each adds one interface.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(n, self.exists_one(m, m.interface == n.interface))",message="interface: want another name for each network, such as rdma0 and rdma1"
	// +listType=map
	// +listMapKey=name
	// +optional
	Networks []Network `json:"networks,omitempty"`

	// Verbs tunes the adapters of provider Verbs. Leave it out unless the defaults do not fit.
	//
	// +optional
	Verbs *VerbsOptions `json:"verbs,omitempty"`
}

// VerbsOptions tune the adapters' connections to clients. A change restarts the pods, one after the
// other.
//
// +kubebuilder:validation:XValidation:rule="has(self.moderationCount) == has(self.moderationPeriod)",message="moderationPeriod: goes with moderationCount: set both or neither"
type VerbsOptions struct {
	// KeepAlive is how long a connection over InfiniBand or RoCE is idle before the gateway probes
	// the client: 1s to 1h. Default 1m. A dead client's connection ends after the probe's retries.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('1h')",message="want 1s to 1h"
	// +optional
	KeepAlive Duration `json:"keepAlive,omitempty"`

	// AckTimeout is how long a client may take to acknowledge a message before it is sent again: up
	// to 10s. Adapters round it up to a power of two of 4.096us. Default: computed from the path.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('10s')",message="want more than 0s, and at most 10s"
	// +optional
	AckTimeout ShortDuration `json:"ackTimeout,omitempty"`

	// CompletionVectors are the numbers of the adapter's interrupts for connections, 0 to 4095.
	// Default: all.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=4095
	// +listType=atomic
	// +optional
	CompletionVectors []int32 `json:"completionVectors,omitempty"`

	// ModerationCount is the number of completions that an interrupt waits for. Requires
	// moderationPeriod. Default: the adapter's own.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	ModerationCount int32 `json:"moderationCount,omitempty"`

	// ModerationPeriod bounds the wait of an interrupt for completions: 1us to 65ms. Requires
	// moderationCount. Default: the adapter's own.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1us') && duration(self) <= duration('65ms')",message="want 1us to 65ms"
	// +optional
	ModerationPeriod ShortDuration `json:"moderationPeriod,omitempty"`

	// Inline is the longest message in bytes that is copied into a work request. Default 60. More
	// takes more locked memory for each connection.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1024
	// +optional
	Inline int32 `json:"inline,omitempty"`

	// Spin is the number of repeated polls of an empty completion queue before its connection
	// sleeps. Polling takes processor time. Default 256 with more than two processors, otherwise
	// none.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	Spin int32 `json:"spin,omitempty"`

	// StrictOrdering disables relaxed ordering of PCI Express for the adapter's writes to memory.
	// Default false. Set it for an adapter whose relaxed ordering is faulty.
	//
	// +optional
	StrictOrdering bool `json:"strictOrdering,omitempty"`
}

// Device is an extended resource, such as one of the SR-IOV network device plugin.
type Device struct {
	// ResourceName of the extended resource, such as nvidia.com/rdma_vf.
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	ResourceName string `json:"resourceName"`

	// Count of devices of each pod. Default 1. Set it to the number of networks that use the
	// resource.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Count int32 `json:"count,omitempty"`
}

// Network is a NetworkAttachmentDefinition.
type Network struct {
	// Name of the NetworkAttachmentDefinition, or NAMESPACE/NAME for one outside the gateway's
	// namespace.
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// Interface is the name of the interface in the pod. Default rdma0.
	// +kubebuilder:default=rdma0
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="self != 'eth0' && self != 'lo'",message="is the name of an interface that each pod has: want another one, such as rdma0"
	Interface string `json:"interface,omitempty"`
}

// AllowedExports selects the NFSExports that may refer to a gateway.
type AllowedExports struct {
	// Namespaces of those NFSExports.
	// +kubebuilder:default={from: Same}
	Namespaces AllowedNamespaces `json:"namespaces,omitempty"`
}

// AllowedNamespaces selects namespaces.
// +kubebuilder:validation:XValidation:rule="(self.from == 'Selector') == has(self.selector)",message="selector: wanted with from: Selector, and there alone"
type AllowedNamespaces struct {
	// From is Same (the gateway's own namespace), All or Selector. Default Same.
	// +kubebuilder:default=Same
	// +kubebuilder:validation:Enum=Same;All;Selector
	From NamespacesFrom `json:"from,omitempty"`

	// Selector selects namespaces by label. Required with from: Selector, forbidden otherwise.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="matchExpressions: want values with operator In or NotIn, and none with Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, self.matchLabels[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="matchLabels: want values of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// NamespacesFrom is a way to select namespaces.
type NamespacesFrom string

// Ways to select namespaces.
const (
	NamespacesSame     NamespacesFrom = "Same"
	NamespacesAll      NamespacesFrom = "All"
	NamespacesSelector NamespacesFrom = "Selector"
)

// AllowedBackend allows the given paths on each of the given servers.
type AllowedBackend struct {
	// Servers are names or addresses, as exports write them. "*" allows all.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Servers []string `json:"servers"`

	// Paths are directories. Each allows itself and all below it. Default: all paths.
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.startsWith('/'))",message="want absolute paths, such as /vol/"
	// +listType=set
	// +optional
	Paths []string `json:"paths,omitempty"`
}

// GatewayLimits bound the exports, connections and memory of a pod.
type GatewayLimits struct {
	// Exports is the limit on NFSExports. Younger ones are not accepted. Default 200.
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Exports int32 `json:"exports,omitempty"`

	// Connections is the limit on connections to each export at a pod. Further ones are refused.
	// Default 1000.
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	Connections int32 `json:"connections,omitempty"`

	// ConnectionsPerClient is the limit on connections of one client address to each export at a
	// pod. Further ones are refused. Default 256.
	// +kubebuilder:default=256
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	ConnectionsPerClient int32 `json:"connectionsPerClient,omitempty"`

	// Memory is the limit on a pod's memory for data in flight, over all exports: 64Mi to 1Ti.
	// Default 2Gi. Receives take up to as much again. It sets the pod's memory limit, unless
	// podTemplate.resources does.
	// +kubebuilder:default="2Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Mi')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Mi to 1Ti"
	Memory Size `json:"memory,omitempty"`

	// MemoryPerClient is the part of an export's memory that one client address may take while
	// others wait: 64Ki to 1Ti. Default: a quarter.
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Ki to 1Ti"
	// +optional
	MemoryPerClient Size `json:"memoryPerClient,omitempty"`

	// MemoryPerConnection is the part of an export's memory that one connection may take: 64Ki to
	// 1Ti. Default 2Mi. For long links, set it to bandwidth times round-trip time.
	// +kubebuilder:default="2Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Ki to 1Ti"
	MemoryPerConnection Size `json:"memoryPerConnection,omitempty"`

	// MinProgress is the rate, in bytes per second over 5 s, that a connection must reach while its
	// calls hold memory that other clients wait for: 0 to 1Gi. Slower connections are closed.
	// Default 64Ki; 0 closes none.
	// +kubebuilder:default="64Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Gi')) <= 0",message="want 0 to 1Gi"
	MinProgress Rate `json:"minProgress,omitempty"`

	// IdleTimeout bounds the time of a connection without calls.
	// +kubebuilder:default={}
	IdleTimeout IdleTimeout `json:"idleTimeout,omitempty"`
}

// IdleTimeout bounds the time of a connection without calls: 1s to 168h, or 0s for no limit.
type IdleTimeout struct {
	// BeforeFirstCall is the time from connecting to the first call. Default 30s.
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="want 1s to 168h, or 0s for no limit"
	BeforeFirstCall Duration `json:"beforeFirstCall,omitempty"`

	// AfterCall is the time from a reply to the next call. Default 1h. NFS clients reconnect by
	// themselves.
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="want 1s to 168h, or 0s for no limit"
	AfterCall Duration `json:"afterCall,omitempty"`
}

// GatewayMemory selects the pages that hold a pod's messages and data.
type GatewayMemory struct {
	// HugePages uses pages of 2 MiB. Default false. The pod requests hugepages-2Mi of twice
	// limits.memory: once for data, once for receives. If they run out, it uses ordinary memory.
	// +optional
	HugePages bool `json:"hugePages,omitempty"`
}

// HandleKeys are the keys that sign file handles.
type HandleKeys struct {
	// SecretName is a Secret in the gateway's namespace. Its entry "keys" has one key on each line
	// (docs/gateway.md). Default: the operator generates one, and keeps it when the gateway is
	// deleted.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// PodTemplate adds fields to the pods.
type PodTemplate struct {
	// Image of the gateway. Default: the operator's --gateway-image or --verbs-image.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`
	// ImagePullPolicy of the containers. Default: that of Kubernetes.
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// ImagePullSecrets are Secrets in the gateway's namespace. Default: the operator's
	// --image-pull-secrets (images.pullSecrets of the chart).
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Labels of the pods. Forbidden under sluice.dev/ and app.kubernetes.io/.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sluice.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels under sluice.dev/ and app.kubernetes.io/ are the operator's: want others"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="want labels as Kubernetes has them, such as example.com/team: storage, with at most 63 characters on each side"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the pods. Forbidden under sluice.dev/.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sluice.dev/') && k != 'k8s.v1.cni.cncf.io/networks')",message="annotations under sluice.dev/ are the operator's, and networks belong in rdma.networks"
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// NodeSelector of the pods.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="want labels as Kubernetes has them, such as example.com/team: storage, with at most 63 characters on each side"
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations of the pods.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Affinity of the pods to nodes and to other pods.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// TopologySpreadConstraints of the pods. Default: spread over the nodes where possible. A
	// constraint without labelSelector counts the pods of the same workload.
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// PriorityClassName of the pods.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// RuntimeClassName of the pods.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`
	// Resources of the gateway's container. Default: computed from limits.memory.
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// NetworkPolicyMode selects the author of the pods' NetworkPolicy.
type NetworkPolicyMode string

// Authors of the NetworkPolicy: the operator, or nobody.
const (
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	NetworkPolicyNone    NetworkPolicyMode = "None"
)

// Monitoring creates objects of the Prometheus operator. Its CRDs must be installed.
type Monitoring struct {
	// ServiceMonitor creates a ServiceMonitor for the pods' metrics. Default false.
	// +optional
	ServiceMonitor bool `json:"serviceMonitor,omitempty"`
	// PrometheusRule creates alerts: exports not served, backends unreachable, pods with different
	// configurations. Default false.
	// +optional
	PrometheusRule bool `json:"prometheusRule,omitempty"`
	// Labels of the ServiceMonitor and the PrometheusRule, such as the release label that a
	// Prometheus selects. They override the operator's --monitoring-labels (metrics.labels of the
	// chart). Forbidden under sluice.dev/ and app.kubernetes.io/.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sluice.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels under sluice.dev/ and app.kubernetes.io/ are the operator's: want others"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="want labels as Kubernetes has them, such as example.com/team: storage, with at most 63 characters on each side"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// Tracing sends OpenTelemetry traces of calls, by OTLP over HTTP.
type Tracing struct {
	// Ratio is the part of calls that are traced, 0 to 1, such as "0.001". Required.
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^(0(\.[0-9]+)?|1(\.0+)?)$`
	Ratio string `json:"ratio"`
	// Endpoint is the base URL of the OTLP receiver, such as http://collector.observability:4318;
	// /v1/traces is appended. Required.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^/?#]+(/[^?#]*)?$`
	Endpoint string `json:"endpoint"`
}

// NFSGatewayStatus is the observed state of an NFSGateway.
type NFSGatewayStatus struct {
	// ObservedGeneration is the generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Accepted, ResolvedRefs, Programmed, ConfigCapacity, RDMAReady and Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Replicas is the number of pods for nfs and rdma backends.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Selector selects these pods.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Pods is READY/WANTED, over all pods of the gateway.
	// +optional
	Pods string `json:"pods,omitempty"`
	// Exports is the number of NFSExports served.
	// +optional
	Exports int32 `json:"exports,omitempty"`
	// Clients is the number of connections.
	// +optional
	Clients int32 `json:"clients,omitempty"`
	// HandleKeysSecret is the name of the Secret with the keys.
	// +optional
	HandleKeysSecret string `json:"handleKeysSecret,omitempty"`
}

// NFSGatewayList is a list of NFSGateways.
//
// +kubebuilder:object:root=true
type NFSGatewayList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NFSGateway `json:"items"`
}
