package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NFSGateway is a set of gateway pods, which serve the NFSExports that refer to it over RPC-over-RDMA and TCP.
//
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

// NFSGatewaySpec says how many pods serve, on which devices, and for whom.
//
// +kubebuilder:validation:XValidation:rule="self.provider != 'Verbs' || has(self.rdma) && has(self.rdma.devices) && size(self.rdma.devices) > 0",message="rdma.devices: provider Verbs needs RDMA devices: name the device plugin's resource, such as [{resourceName: nvidia.com/rdma_vf}]"
// +kubebuilder:validation:XValidation:rule="self.provider != 'Verbs' || self.exposure.type == 'VirtualIP'",message="exposure.type: adapters bypass kube-proxy, so provider Verbs wants VirtualIP"
// +kubebuilder:validation:XValidation:rule="self.exposure.type != 'VirtualIP' || has(self.exposure.virtualIP)",message="exposure.virtualIP: wanted with exposure.type VirtualIP: {pool: [192.0.2.10-192.0.2.40], network: NAME}"
// +kubebuilder:validation:XValidation:rule="self.exposure.type == 'VirtualIP' || !has(self.exposure.virtualIP)",message="exposure.virtualIP: is for exposure.type VirtualIP alone: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.exposure.virtualIP) || has(self.rdma) && has(self.rdma.networks) && self.rdma.networks.exists(n, n.name == self.exposure.virtualIP.network)",message="exposure.virtualIP.network: want the name of one of rdma.networks"
// +kubebuilder:validation:XValidation:rule="self.allowedExports.namespaces.from == 'Same' || has(self.allowedBackends) && size(self.allowedBackends) > 0",message="allowedBackends: wanted where exports may come from other namespaces: say which servers and paths they may use"
type NFSGatewaySpec struct {
	// Replicas is the number of pods that serve nfs and rdma backends. Each claim has a pod of its own besides.
	//
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// Provider carries RDMA: SoftwareIWARP runs anywhere and passes Services; Verbs is for real adapters. It cannot be changed.
	//
	// +kubebuilder:default=SoftwareIWARP
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another NFSGateway"
	Provider Provider `json:"provider,omitempty"`

	// Exposure says how clients reach the exports.
	//
	// +kubebuilder:default={}
	Exposure Exposure `json:"exposure,omitempty"`

	// RDMA names the devices and networks of the pods.
	//
	// +optional
	RDMA *RDMA `json:"rdma,omitempty"`

	// AllowedExports says whose NFSExports may refer to this gateway.
	//
	// +kubebuilder:default={}
	AllowedExports AllowedExports `json:"allowedExports,omitempty"`

	// AllowedBackends are the servers and paths that exports may lead to. It is wanted where exports may come from other namespaces, since the
	// gateway's address is what a server trusts. Left out, every backend is allowed.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	// +optional
	AllowedBackends []AllowedBackend `json:"allowedBackends,omitempty"`

	// Limits bound what a pod takes.
	//
	// +kubebuilder:default={}
	Limits GatewayLimits `json:"limits,omitempty"`

	// Memory says what a pod's memory for messages and data is made of.
	//
	// +optional
	Memory GatewayMemory `json:"memory,omitzero"`

	// HandleKeys are the keys that sign file handles.
	//
	// +kubebuilder:default={}
	HandleKeys HandleKeys `json:"handleKeys,omitempty"`

	// DrainTimeout bounds how long calls in flight may take to finish when a pod ends or an export goes: 0s to 1h.
	//
	// +kubebuilder:default="20s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('1h')",message="want 0s to 1h"
	DrainTimeout Duration `json:"drainTimeout,omitempty"`

	// PodTemplate is added to the pods.
	//
	// +optional
	PodTemplate *PodTemplate `json:"podTemplate,omitempty"`

	// NetworkPolicy says whether the operator makes one for the pods: Managed lets clients reach the exports' ports, and the operator and Prometheus
	// the admin port; None makes none.
	//
	// +kubebuilder:default=Managed
	// +kubebuilder:validation:Enum=Managed;None
	NetworkPolicy NetworkPolicyMode `json:"networkPolicy,omitempty"`

	// Monitoring makes objects of the Prometheus operator.
	//
	// +kubebuilder:default={}
	Monitoring Monitoring `json:"monitoring,omitempty"`
}

// Provider carries RDMA.
//
// +kubebuilder:validation:Enum=SoftwareIWARP;Verbs
type Provider string

// Providers.
const (
	SoftwareIWARP Provider = "SoftwareIWARP"
	Verbs         Provider = "Verbs"
)

// Exposure says how clients reach the exports.
//
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type == 'Service' || !has(self.service) || (!has(self.service.type) || self.service.type == 'ClusterIP') && !has(self.service.annotations) && !has(self.service.ipFamilyPolicy) && !has(self.service.ipFamilies)",message="service: is for exposure.type Service alone: leave it out"
type Exposure struct {
	// Type is Service: a Service with selector for each export, for providers that pass kube-proxy; or VirtualIP: an address for each export from a
	// pool, which one pod carries on its RDMA interface. It cannot be changed.
	//
	// +kubebuilder:default=Service
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another NFSGateway"
	Type ExposureType `json:"type,omitempty"`

	// Service describes the Services of type Service. Leave it out with type VirtualIP.
	//
	// +kubebuilder:default={}
	Service ServiceTemplate `json:"service,omitempty"`

	// VirtualIP is for type VirtualIP alone, and wanted there.
	//
	// +optional
	VirtualIP *VirtualIP `json:"virtualIP,omitempty"`
}

// ExposureType says what kind of address an export has.
//
// +kubebuilder:validation:Enum=Service;VirtualIP
type ExposureType string

// Types of exposure.
const (
	ExposureService   ExposureType = "Service"
	ExposureVirtualIP ExposureType = "VirtualIP"
)

// ServiceTemplate is what the Services of exports have in common.
//
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerClass) || self.type == 'LoadBalancer'",message="loadBalancerClass: is for type LoadBalancer alone: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || self.type == 'LoadBalancer'",message="externalTrafficPolicy: is for type LoadBalancer alone: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || size(self.ipFamilies) < 2 || self.ipFamilies[0] != self.ipFamilies[1] && (!has(self.ipFamilyPolicy) || self.ipFamilyPolicy != 'SingleStack')",message="ipFamilies: want one with ipFamilyPolicy SingleStack, and never the same twice"
type ServiceTemplate struct {
	// Type is ClusterIP or LoadBalancer.
	//
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// LoadBalancerClass picks the load balancer's implementation; for type LoadBalancer alone.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	// +optional
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`

	// Annotations are added to each Service.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// IPFamilyPolicy is that of Services; left out, the cluster's default.
	//
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	// +optional
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`

	// IPFamilies are those of Services; left out, the cluster's default.
	//
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +listType=atomic
	// +optional
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`

	// ExternalTrafficPolicy of type LoadBalancer: Local keeps the clients' addresses, which access rules look at.
	//
	// +kubebuilder:validation:Enum=Cluster;Local
	// +optional
	ExternalTrafficPolicy *corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
}

// VirtualIP says where the exports' addresses come from.
type VirtualIP struct {
	// Pool are the addresses: single ones, ranges such as 192.0.2.10-192.0.2.40, and networks such as 192.0.2.64/26, of which the first and the last
	// address are left out. They lie in the subnet of the network's interface, and nobody else hands them out.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=91
	// +kubebuilder:validation:XValidation:rule="self.all(p, isIP(p) || isCIDR(p) || p.split('-').size() == 2 && p.split('-').all(a, isIP(a)))",message="want addresses, ranges such as 192.0.2.10-192.0.2.40, and networks such as 192.0.2.64/26"
	// +listType=atomic
	Pool []string `json:"pool"`

	// Network is the name of one of rdma.networks: the addresses are announced there.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Network string `json:"network"`
}

// RDMA names the devices and networks of the pods.
type RDMA struct {
	// Devices are the extended resources that a pod asks for, one entry for each resource. A network whose NetworkAttachmentDefinition names a resource
	// gets its interface from that resource. An export's address uses the device of the interface that carries it.
	//
	// +kubebuilder:validation:MaxItems=8
	// +listType=map
	// +listMapKey=resourceName
	// +optional
	Devices []Device `json:"devices,omitempty"`

	// Networks are the NetworkAttachmentDefinitions that a pod is attached to, each by an interface of its own.
	//
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.all(n, self.exists_one(m, m.interface == n.interface))",message="interface: want another name for each network, such as rdma0 and rdma1"
	// +listType=map
	// +listMapKey=name
	// +optional
	Networks []Network `json:"networks,omitempty"`
}

// Device is an extended resource, such as those of the SR-IOV network device plugin.
type Device struct {
	// ResourceName is its name, such as nvidia.com/rdma_vf.
	//
	// +kubebuilder:validation:MaxLength=316
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	ResourceName string `json:"resourceName"`

	// Count is how many of them a pod gets: 1 for each network of the resource.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8
	Count int32 `json:"count,omitempty"`
}

// Network is a NetworkAttachmentDefinition.
type Network struct {
	// Name is its name, or NAMESPACE/NAME if it lies in another namespace than the gateway.
	//
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Name string `json:"name"`

	// Interface is what the interface is called in the pod.
	//
	// +kubebuilder:default=rdma0
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9]*$`
	// +kubebuilder:validation:XValidation:rule="self != 'eth0' && self != 'lo'",message="is the name of an interface that each pod has: want another one, such as rdma0"
	Interface string `json:"interface,omitempty"`
}

// AllowedExports says whose NFSExports may refer to a gateway.
type AllowedExports struct {
	// Namespaces are those that they may lie in.
	//
	// +kubebuilder:default={from: Same}
	Namespaces AllowedNamespaces `json:"namespaces,omitempty"`
}

// AllowedNamespaces picks namespaces.
//
// +kubebuilder:validation:XValidation:rule="(self.from == 'Selector') == has(self.selector)",message="selector: wanted with from: Selector, and there alone"
type AllowedNamespaces struct {
	// From is Same: the gateway's own; All; or Selector.
	//
	// +kubebuilder:default=Same
	// +kubebuilder:validation:Enum=Same;All;Selector
	From NamespacesFrom `json:"from,omitempty"`

	// Selector picks namespaces by their labels; for from: Selector alone.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="matchExpressions: want values with operator In or NotIn, and none with Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, self.matchLabels[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="matchLabels: want values of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// NamespacesFrom says where exports may come from.
type NamespacesFrom string

// Where exports may come from.
const (
	NamespacesSame     NamespacesFrom = "Same"
	NamespacesAll      NamespacesFrom = "All"
	NamespacesSelector NamespacesFrom = "Selector"
)

// AllowedBackend allows every path under one of its paths, on every one of its servers.
type AllowedBackend struct {
	// Servers are names or addresses, as exports write them; "*" is any.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	Servers []string `json:"servers"`

	// Paths are directories: what lies at or below one is allowed. Left out, all are.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.startsWith('/'))",message="want absolute paths, such as /vol/"
	// +listType=set
	// +optional
	Paths []string `json:"paths,omitempty"`
}

// GatewayLimits bound what a pod takes.
type GatewayLimits struct {
	// Exports is the most NFSExports that the gateway serves; further ones are not accepted.
	//
	// +kubebuilder:default=200
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Exports int32 `json:"exports,omitempty"`

	// Connections is the most that a pod takes for each export; further ones are refused.
	//
	// +kubebuilder:default=1000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	Connections int32 `json:"connections,omitempty"`

	// ConnectionsPerClient is the most connections of one client address that a pod takes for each export; further ones are refused.
	//
	// +kubebuilder:default=256
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	ConnectionsPerClient int32 `json:"connectionsPerClient,omitempty"`

	// Memory bounds a pod's memory for data in flight, of all its exports together: 64Mi to 1Ti. Receives take as much again at most.
	// The pod's memory limit is made of it.
	//
	// +kubebuilder:default="2Gi"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Mi')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Mi to 1Ti"
	Memory Size `json:"memory,omitempty"`

	// MemoryPerClient is the most of an export's memory for data in flight that one client address takes while others wait: 64Ki to 1Ti.
	// Default a quarter.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Ki to 1Ti"
	// +optional
	MemoryPerClient Size `json:"memoryPerClient,omitempty"`

	// MemoryPerConnection is the most of an export's memory for data in flight that one connection takes: 64Ki to 1Ti. Long links need
	// more than the default: bandwidth times round-trip time.
	//
	// +kubebuilder:default="2Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Ki to 1Ti"
	MemoryPerConnection Size `json:"memoryPerConnection,omitempty"`

	// MinProgress is the least number of bytes per second, over 5 s, that a connection has to move while its calls hold memory that
	// calls of other clients wait for: 0 to 1Gi. A slower connection is closed. 0 means that none is.
	//
	// +kubebuilder:default="64Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Gi')) <= 0",message="want 0 to 1Gi"
	MinProgress Rate `json:"minProgress,omitempty"`

	// IdleTimeout bounds how long a connection stays without calls.
	//
	// +kubebuilder:default={}
	IdleTimeout IdleTimeout `json:"idleTimeout,omitempty"`
}

// IdleTimeout bounds how long a connection stays without calls: 1s to 168h, or 0s, which means forever.
type IdleTimeout struct {
	// BeforeFirstCall is from when a connection is made to its first call.
	//
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="want 1s to 168h, or 0s for no limit"
	BeforeFirstCall Duration `json:"beforeFirstCall,omitempty"`

	// AfterCall is from when a connection's last call was answered to its next. NFS clients connect again by themselves.
	//
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('168h')",message="want 1s to 168h, or 0s for no limit"
	AfterCall Duration `json:"afterCall,omitempty"`
}

// GatewayMemory says what a pod's memory for messages and data is made of.
type GatewayMemory struct {
	// HugePages takes pages of 2 MiB, which the pod asks its node for: as many bytes of hugepages-2Mi as limits.memory has, and as much again for receives.
	// Where they do not suffice, ordinary memory takes their place.
	//
	// +optional
	HugePages bool `json:"hugePages,omitempty"`
}

// HandleKeys are the keys that sign file handles.
type HandleKeys struct {
	// SecretName is a Secret in the gateway's namespace whose entry "keys" has them, one a line, as docs/gateway.md says. Empty: one is
	// generated, and kept when the gateway is deleted.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// PodTemplate is what pods have besides what the operator gives them.
type PodTemplate struct {
	// Image of the gateway; left out, the one that the operator was installed with.
	//
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Image string `json:"image,omitempty"`
	// ImagePullPolicy of the containers.
	//
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// ImagePullSecrets are Secrets in the gateway's namespace.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Labels are added to the pods. Those of sluice.dev and app.kubernetes.io are the operator's.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sluice.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels under sluice.dev/ and app.kubernetes.io/ are the operator's: want others"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="want labels as Kubernetes has them, such as example.com/team: storage, with at most 63 characters on each side"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are added to the pods.
	//
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
	// Resources of the gateway's container; left out, they are made of limits.memory.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
}

// NetworkPolicyMode says who makes the pods' NetworkPolicy.
type NetworkPolicyMode string

// Who makes it.
const (
	NetworkPolicyManaged NetworkPolicyMode = "Managed"
	NetworkPolicyNone    NetworkPolicyMode = "None"
)

// Monitoring makes objects of the Prometheus operator, if its CRDs are installed.
type Monitoring struct {
	// ServiceMonitor has the pods' metrics collected.
	//
	// +optional
	ServiceMonitor bool `json:"serviceMonitor,omitempty"`
	// PrometheusRule has alerts: exports not served, backends away, pods out of step.
	//
	// +optional
	PrometheusRule bool `json:"prometheusRule,omitempty"`
	// Labels are added to the ServiceMonitor and the PrometheusRule, such as the release label that a Prometheus selects by. They override those of the
	// operator's --monitoring-labels (metrics.labels of the chart). Labels of sluice.dev and app.kubernetes.io are the operator's.
	//
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(k, !k.startsWith('sluice.dev/') && !k.startsWith('app.kubernetes.io/'))",message="labels under sluice.dev/ and app.kubernetes.io/ are the operator's: want others"
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="want labels as Kubernetes has them, such as example.com/team: storage, with at most 63 characters on each side"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
}

// NFSGatewayStatus tells what became of an NFSGateway.
type NFSGatewayStatus struct {
	// ObservedGeneration is the generation that the operator acted upon.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Accepted, ResolvedRefs, Programmed, ConfigCapacity, RDMAReady and Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Replicas is the number of pods that serve nfs and rdma backends.
	//
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Selector picks those pods.
	//
	// +optional
	Selector string `json:"selector,omitempty"`
	// Pods is READY/WANTED, of all pods of the gateway.
	//
	// +optional
	Pods string `json:"pods,omitempty"`
	// Exports is how many NFSExports are served.
	//
	// +optional
	Exports int32 `json:"exports,omitempty"`
	// Clients is how many connections there are.
	//
	// +optional
	Clients int32 `json:"clients,omitempty"`
	// HandleKeysSecret is the Secret that has the keys.
	//
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
