package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NFSExport is a tree of files that clients mount through an NFSGateway. To its clients it is a server of its own, with its own address.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nfsx,categories=sluice
// +kubebuilder:printcolumn:name=Gateway,type=string,JSONPath=`.spec.gatewayRef.name`
// +kubebuilder:printcolumn:name=Backend,type=string,JSONPath=`.status.backend`
// +kubebuilder:printcolumn:name=Address,type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name=Clients,type=integer,JSONPath=`.status.clients`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name=Mount,type=string,priority=1,JSONPath=`.status.mount`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: want a letter and at most 62 letters, digits and hyphens after it, since the name of its Service is made of it"
type NFSExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   NFSExportSpec   `json:"spec"`
	Status NFSExportStatus `json:"status,omitempty"`
}

// NFSExportSpec says where the files are, who may mount them, and how RPC-over-RDMA is spoken.
//
// +kubebuilder:validation:XValidation:rule="!(self.access.exists(a, a.mode == 'ReadOnly') && (has(self.backend.nfs) && '4.0' in self.backend.nfs.versions || has(self.backend.rdma) && '4.0' in self.backend.rdma.versions))",message="backend versions: 4.0 wants mode ReadWrite in every rule of access, since the owner's seqid has to advance also where a call is refused: leave 4.0 out"
// +kubebuilder:validation:XValidation:rule="!has(self.backend.persistentVolumeClaim) || self.signHandles == 'Auto'",message="signHandles: handles of a claim are always signed: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.handleIdentity) || has(self.handleIdentity)",message="handleIdentity: cannot be removed, since clients hold handles: write the former value, or make another NFSExport"
// +kubebuilder:validation:XValidation:rule="!has(self.handleIdentity) || !has(self.backend.persistentVolumeClaim)",message="handleIdentity: handles of a claim are known by its files alone: leave it out"
type NFSExportSpec struct {
	// GatewayRef is the NFSGateway that serves the export. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another NFSExport"
	GatewayRef GatewayReference `json:"gatewayRef"`

	// Backend is where the files are: exactly one of nfs, persistentVolumeClaim and rdma. Its kind and path cannot be changed.
	Backend Backend `json:"backend"`

	// Access are the rules of who may mount. The first one that names a client's address decides; a client that no rule names is refused.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Access []AccessRule `json:"access"`

	// SignHandles says whether file handles get a keyed tag, so that a client cannot make one up: Required, Auto (those are left alone that are too long for
	// a tag) or Off. It cannot be changed.
	//
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Required;Auto;Off
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	SignHandles string `json:"signHandles,omitempty"`

	// HandleIdentity distinguishes the export's file handles from those of other exports with the same keys. Left out, the operator sets it once, to metadata.uid.
	// It cannot be changed. Keep it in backups and manifests: an export that is made again with it, and the gateway's former keys, takes the handles
	// that clients hold. Two exports of a gateway cannot have the same. 8 to 64 letters, digits, ".", "_" and "-"; a claim has none.
	//
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z._-]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	// +optional
	HandleIdentity string `json:"handleIdentity,omitempty"`

	// Address is what clients mount.
	//
	// +kubebuilder:default={rdmaPort: 20049, tcpPort: 2049}
	Address Address `json:"address,omitempty"`

	// Transport is how RPC-over-RDMA is spoken.
	//
	// +kubebuilder:default={}
	Transport Transport `json:"transport,omitempty"`
}

// GatewayReference names an NFSGateway.
type GatewayReference struct {
	// Name of the NFSGateway.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the NFSGateway; left out, the export's own.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Backend is where the files are.
//
// +kubebuilder:validation:XValidation:rule="[has(self.nfs), has(self.persistentVolumeClaim), has(self.rdma)].exists_one(b, b)",message="want exactly one of nfs: {server: HOST, path: /PATH}, persistentVolumeClaim: {claimName: NAME} and rdma: {server: HOST}"
// +kubebuilder:validation:XValidation:rule="has(self.nfs) == has(oldSelf.nfs) && has(self.persistentVolumeClaim) == has(oldSelf.persistentVolumeClaim) && has(self.rdma) == has(oldSelf.rdma)",message="the kind of backend cannot be changed: make another NFSExport"
type Backend struct {
	// NFS is an NFS server on TCP.
	//
	// +optional
	NFS *NFSServer `json:"nfs,omitempty"`
	// PersistentVolumeClaim is a claim in the gateway's namespace, which a pod of its own serves.
	//
	// +optional
	PersistentVolumeClaim *Claim `json:"persistentVolumeClaim,omitempty"`
	// RDMA is an NFS server on RPC-over-RDMA, such as another Sluice.
	//
	// +optional
	RDMA *RDMAServer `json:"rdma,omitempty"`
}

// NFSServer is an NFS server on TCP.
type NFSServer struct {
	// Server is its name or IP address.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) ? !ip(self).isUnspecified() : self.matches('^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*$') && !self.matches('(^|[.])[0-9]+$')",message="want a host's name, such as filer.example, or its IP address, without brackets and port"
	Server string `json:"server"`
	// Port is where NFS answers.
	//
	// +kubebuilder:default=2049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// MountPort is where MOUNT answers, which NFSv3 begins with; 0: the server's rpcbind is asked.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MountPort int32 `json:"mountPort,omitempty"`
	// Path is what clients see as "/". It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '/' || self.matches('^(/[^/]+)+$') && !self.matches('/[.][.]?(/|$)')",message="want an absolute path without \"..\", \".\", repeated or trailing slash, such as /vol/data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	Path string `json:"path"`
	// Versions of NFS that clients may use.
	//
	// +kubebuilder:default={"3","4.1","4.2"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Versions []NFSVersion `json:"versions,omitempty"`
	// SoftTimeout is how long a call waits for a server that is away before its client is told to try again: 1s to 10m; 0s: as long as it takes.
	//
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="want 1s to 10m, or 0s for calls that wait as long as it takes"
	SoftTimeout Duration `json:"softTimeout,omitempty"`
}

// RDMAServer is an NFS server on RPC-over-RDMA.
type RDMAServer struct {
	// Server is its name or IP address.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) ? !ip(self).isUnspecified() : self.matches('^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*$') && !self.matches('(^|[.])[0-9]+$')",message="want a host's name, such as filer.example, or its IP address, without brackets and port"
	Server string `json:"server"`
	// Port is where it answers.
	//
	// +kubebuilder:default=20049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Path is what clients see as "/". It cannot be changed.
	//
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '/' || self.matches('^(/[^/]+)+$') && !self.matches('/[.][.]?(/|$)')",message="want an absolute path without \"..\", \".\", repeated or trailing slash, such as /vol/data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	Path string `json:"path,omitempty"`
	// Versions of NFS that clients may use.
	//
	// +kubebuilder:default={"3","4.1","4.2"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Versions []NFSVersion `json:"versions,omitempty"`
	// SoftTimeout is how long a call waits for a server that is away before its client is told to try again: 1s to 10m; 0s: as long as it takes.
	//
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="want 1s to 10m, or 0s for calls that wait as long as it takes"
	SoftTimeout Duration `json:"softTimeout,omitempty"`
}

// Claim is a PersistentVolumeClaim in the gateway's namespace. One NFSExport serves it.
type Claim struct {
	// ClaimName is its name. It cannot be changed.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	ClaimName string `json:"claimName"`
	// SubPath is a directory in the volume, which is made if it is missing; left out, its root. It cannot be changed.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[^/]+(/[^/]+)*$') && !self.matches('(^|/)[.][.]?(/|$)')",message="want a relative path without \"..\", \".\", repeated or trailing slash, such as share/data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	// +kubebuilder:default=""
	SubPath string `json:"subPath,omitempty"`
}

// NFSVersion is a version of NFS.
//
// +kubebuilder:validation:Enum="3";"4.0";"4.1";"4.2"
type NFSVersion string

// AccessRule says what certain clients may do.
type AccessRule struct {
	// From are the clients that the rule is about.
	From AccessFrom `json:"from"`
	// Mode is ReadOnly or ReadWrite.
	//
	// +kubebuilder:default=ReadOnly
	// +kubebuilder:validation:Enum=ReadOnly;ReadWrite
	Mode string `json:"mode,omitempty"`
	// Squash says which AUTH_SYS identities are mapped to nobody: None, Root (uid and gid 0) or All.
	//
	// +kubebuilder:default=Root
	// +kubebuilder:validation:Enum=None;Root;All
	Squash string `json:"squash,omitempty"`
}

// AccessFrom names clients by the addresses that the gateway's pods see. kube-proxy and network plugins may hide a client behind its node.
//
// +kubebuilder:validation:XValidation:rule="has(self.networks) && size(self.networks) > 0 || has(self.nodes)",message="want networks: [10.0.0.0/8], or nodes: {matchLabels: {…}}"
type AccessFrom struct {
	// Networks are prefixes such as 10.0.0.0/8 or fd00::/8, without host bits.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(n, isCIDR(n) && cidr(n) == cidr(n).masked())",message="want networks without host bits, such as 10.0.0.0/8 or fd00::/8; one address alone is 192.0.2.1/32"
	// +listType=atomic
	// +optional
	Networks []string `json:"networks,omitempty"`
	// Nodes are the addresses of the cluster's nodes with these labels; {} means all nodes.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="matchExpressions: want values with operator In or NotIn, and none with Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, self.matchLabels[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="matchLabels: want values of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
}

// Address is what clients mount.
//
// +kubebuilder:validation:XValidation:rule="self.rdmaPort != self.tcpPort",message="tcpPort: want another port than rdmaPort, since a Service has each once"
type Address struct {
	// IP is the address of the export's Service, or with VirtualIP one of the pool; left out, a free one is taken.
	//
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self)",message="want an IP address, such as 192.0.2.10, or nothing"
	// +kubebuilder:default=""
	IP string `json:"ip,omitempty"`
	// RDMAPort is where RPC-over-RDMA is served.
	//
	// +kubebuilder:default=20049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	RDMAPort int32 `json:"rdmaPort,omitempty"`
	// TCPPort is where TCP is served.
	//
	// +kubebuilder:default=2049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TCPPort int32 `json:"tcpPort,omitempty"`
}

// Transport is how RPC-over-RDMA is spoken.
//
// +kubebuilder:validation:XValidation:rule="!has(self.extensions) || size(self.extensions) == 0 || 2 in self.rpcRDMAVersions",message="extensions: are for version 2 alone: want 2 in rpcRDMAVersions, or no extensions"
// +kubebuilder:validation:XValidation:rule="!has(self.continuation) || has(self.extensions) && 'MessageContinuation' in self.extensions",message="continuation: is for the extension MessageContinuation alone: add that, or leave this out"
// +kubebuilder:validation:XValidation:rule="!has(self.placement) || has(self.extensions) && 'SendBasedPlacement' in self.extensions",message="placement: is for the extension SendBasedPlacement alone: add that, or leave this out"
// +kubebuilder:validation:XValidation:rule="!has(self.credits) || !has(self.credits.memory) || !quantity(self.credits.memory).isInteger() || !quantity(self.inlineThreshold.call).isInteger() || quantity(self.credits.memory).asInteger() >= (has(self.credits.min) ? self.credits.min : self.credits.max < 8 ? self.credits.max : 8) * ((2 in self.rpcRDMAVersions && quantity(self.inlineThreshold.call).asInteger() < 4096 ? 4096 : quantity(self.inlineThreshold.call).asInteger()) + (has(self.extensions) && 'SendBasedPlacement' in self.extensions ? (has(self.placement) && quantity(self.placement.receiveBuffer).isInteger() ? quantity(self.placement.receiveBuffer).asInteger() : 65536) : 0))",message="credits.memory: want enough for one connection: credits.min receives of inlineThreshold.call, 4Ki at least with version 2, and placement.receiveBuffer"
type Transport struct {
	// RPCRDMAVersions are the versions of RPC-over-RDMA that are offered, of which a client takes one: [1], [2] or [1, 2].
	//
	// +kubebuilder:default={1}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=1;2
	// +listType=set
	RPCRDMAVersions []int32 `json:"rpcRDMAVersions,omitempty"`
	// InlineThreshold is the longest message that is sent without chunks, or in one transmission: multiples of 1Ki from 1Ki to 256Ki.
	//
	// +kubebuilder:default={}
	InlineThreshold InlineThreshold `json:"inlineThreshold,omitempty"`
	// Credits say how many calls a connection may have outstanding.
	//
	// +kubebuilder:default={policy: Static}
	Credits Credits `json:"credits,omitempty"`
	// RemoteInvalidation offers to invalidate a client's memory together with the reply (RFC 8797).
	//
	// +kubebuilder:default=true
	RemoteInvalidation *bool `json:"remoteInvalidation,omitempty"`
	// Extensions of version 2 that are offered; left out, TransportProperties with version 2. The others need it.
	//
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || 'TransportProperties' in self",message="MessageContinuation and SendBasedPlacement need TransportProperties: add it"
	// +listType=set
	// +optional
	Extensions []Extension `json:"extensions,omitempty"`
	// Continuation is for the extension MessageContinuation alone.
	//
	// +optional
	Continuation *Continuation `json:"continuation,omitempty"`
	// Placement is for the extension SendBasedPlacement alone.
	//
	// +optional
	Placement *Placement `json:"placement,omitempty"`
	// OnChange says what a change of what is settled while connecting (all but credits) does to connections: Reconnect closes them one by
	// one when their calls have finished, and clients come back by themselves; NextConnection leaves them as they are.
	//
	// +kubebuilder:default=Reconnect
	// +kubebuilder:validation:Enum=Reconnect;NextConnection
	OnChange OnChange `json:"onChange,omitempty"`
}

// Extension is a part of RPC-over-RDMA version 2 beyond its base.
//
// +kubebuilder:validation:Enum=TransportProperties;MessageContinuation;SendBasedPlacement
type Extension string

// OnChange says what becomes of connections.
type OnChange string

// What becomes of them.
const (
	Reconnect      OnChange = "Reconnect"
	NextConnection OnChange = "NextConnection"
)

// InlineThreshold has the two directions of RFC 8797: multiples of 1Ki from 1Ki to 256Ki.
type InlineThreshold struct {
	// Call is for messages from the client.
	//
	// +kubebuilder:default="4Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Ki')) >= 0 && quantity(self).compareTo(quantity('256Ki')) <= 0 && quantity(self).asInteger() % 1024 == 0",message="want a multiple of 1Ki from 1Ki to 256Ki"
	Call Size `json:"call,omitempty"`
	// Reply is for messages to the client.
	//
	// +kubebuilder:default="4Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Ki')) >= 0 && quantity(self).compareTo(quantity('256Ki')) <= 0 && quantity(self).asInteger() % 1024 == 0",message="want a multiple of 1Ki from 1Ki to 256Ki"
	Reply Size `json:"reply,omitempty"`
}

// Credits say how many calls a connection may have outstanding.
//
// +kubebuilder:validation:XValidation:rule="!has(self.min) || self.min <= self.max",message="min: want at most max"
// +kubebuilder:validation:XValidation:rule="!has(self.min) || self.policy == 'Adaptive'",message="min: is for policy Adaptive alone: leave it out"
// +kubebuilder:validation:XValidation:rule="has(self.memory) == (self.policy == 'Adaptive')",message="memory: the budget of policy Adaptive, such as 256Mi, wanted there and there alone"
type Credits struct {
	// Policy is Static: max for every connection; or Adaptive: memory is divided among the connections by use, and less is granted while the backend is
	// slower than it was lately.
	//
	// +kubebuilder:default=Static
	// +kubebuilder:validation:Enum=Static;Adaptive
	Policy string `json:"policy,omitempty"`
	// Min is the least that a connection is granted, with policy Adaptive; left out, 8, or max if that is less.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +optional
	Min *int32 `json:"min,omitempty"`
	// Max is the grant, or the most that it may be.
	//
	// +kubebuilder:default=128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	Max int32 `json:"max,omitempty"`
	// Memory is the budget of policy Adaptive in each pod, 64Ki to 1Ti.
	//
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Ki to 1Ti"
	// +optional
	Memory Size `json:"memory,omitempty"`
}

// Continuation says in how many transmissions a message may come.
type Continuation struct {
	// MaxCallTransmissions is for calls.
	//
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxCallTransmissions int32 `json:"maxCallTransmissions,omitempty"`
	// MaxReplyTransmissions is for replies.
	//
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxReplyTransmissions int32 `json:"maxReplyTransmissions,omitempty"`
}

// Placement says how bulk data are placed in receives.
type Placement struct {
	// ReceiveBuffer is the part of each receive that bulk data are placed in: a power of two from 4Ki to 1Mi.
	//
	// +kubebuilder:default="64Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Mi')) <= 0 && quantity(self).asInteger() in [4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576]",message="want a power of two from 4Ki to 1Mi"
	ReceiveBuffer Size `json:"receiveBuffer,omitempty"`
	// MinLength is the length of the shortest argument or result that is placed, 1 to 1Mi.
	//
	// +kubebuilder:default="4Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Mi')) <= 0",message="want 1 to 1Mi"
	MinLength Size `json:"minLength,omitempty"`
}

// NFSExportStatus tells what became of an NFSExport.
type NFSExportStatus struct {
	// ObservedGeneration is the generation that the operator acted upon.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions are Accepted, ResolvedRefs, Programmed, BackendReachable, RDMAReady, ClientAddressesVisible and Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Backend is where the files are, in one line.
	//
	// +optional
	Backend string `json:"backend,omitempty"`
	// Address is what clients mount.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// AddressHolder is the pod that carries the address, with exposure VirtualIP.
	//
	// +optional
	AddressHolder string `json:"addressHolder,omitempty"`
	// Mount is how a Linux client mounts the export over RDMA, in a version that is really served.
	//
	// +optional
	Mount string `json:"mount,omitempty"`
	// MountTCP is the same over TCP.
	//
	// +optional
	MountTCP string `json:"mountTCP,omitempty"`
	// NFSVersions are those that are served.
	//
	// +listType=atomic
	// +optional
	NFSVersions []string `json:"nfsVersions,omitempty"`
	// Clients is how many connections there are.
	//
	// +optional
	Clients int32 `json:"clients,omitempty"`
	// ConfigHash identifies what all pods have applied.
	//
	// +optional
	ConfigHash string `json:"configHash,omitempty"`
}

// NFSExportList is a list of NFSExports.
//
// +kubebuilder:object:root=true
type NFSExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NFSExport `json:"items"`
}
