package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NFSExport is a tree of files that clients mount through an NFSGateway. It has its own address,
// like a server of its own.
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

// NFSExportSpec describes the files, the clients that may mount them, and the transport.
// +kubebuilder:validation:XValidation:rule="!(self.access.exists(a, a.mode == 'ReadOnly') && (has(self.backend.nfs) && '4.0' in self.backend.nfs.versions || has(self.backend.rdma) && '4.0' in self.backend.rdma.versions))",message="backend versions: 4.0 wants mode ReadWrite in every rule of access, since the owner's seqid has to advance also where a call is refused: leave 4.0 out"
// +kubebuilder:validation:XValidation:rule="!has(self.backend.persistentVolumeClaim) || self.signHandles == 'Auto'",message="signHandles: handles of a claim are always signed: leave it out"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.handleIdentity) || has(self.handleIdentity)",message="handleIdentity: cannot be removed, since clients hold handles: write the former value, or make another NFSExport"
// +kubebuilder:validation:XValidation:rule="!has(self.handleIdentity) || !has(self.backend.persistentVolumeClaim)",message="handleIdentity: handles of a claim are known by its files alone: leave it out"
type NFSExportSpec struct {
	// GatewayRef is the NFSGateway that serves the export. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: make another NFSExport"
	GatewayRef GatewayReference `json:"gatewayRef"`

	// Backend is the source of the files: exactly one of nfs, persistentVolumeClaim and rdma. Its
	// kind and path are immutable.
	Backend Backend `json:"backend"`

	// Access lists rules by client address. The first rule that matches decides. A client without a
	// rule is refused.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Access []AccessRule `json:"access"`

	// SignHandles adds a keyed tag to file handles, so that clients cannot forge them: Required,
	// Auto (handles too long for a tag stay as they are) or Off. Default Auto. Immutable.
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Required;Auto;Off
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	SignHandles string `json:"signHandles,omitempty"`

	// HandleIdentity distinguishes the file handles of the export from those of other exports with
	// the same keys: 8 to 64 letters, digits, ".", "_" and "-", unique in the gateway. Default: the
	// operator sets metadata.uid, once. Immutable. Keep it in backups and manifests: a re-created
	// export with the same identity and keys accepts the handles of its clients. Forbidden with
	// persistentVolumeClaim.
	// +kubebuilder:validation:MinLength=8
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z._-]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	// +optional
	HandleIdentity string `json:"handleIdentity,omitempty"`

	// Address is the address and ports that clients mount.
	// +kubebuilder:default={rdmaPort: 20049, tcpPort: 2049}
	Address Address `json:"address,omitempty"`

	// Transport configures RPC-over-RDMA.
	// +kubebuilder:default={}
	Transport Transport `json:"transport,omitempty"`
}

// GatewayReference is a reference to an NFSGateway.
type GatewayReference struct {
	// Name of the NFSGateway.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the NFSGateway. Default: the export's own.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Namespace string `json:"namespace,omitempty"`
}

// Backend is the source of the files.
// +kubebuilder:validation:XValidation:rule="[has(self.nfs), has(self.persistentVolumeClaim), has(self.rdma)].exists_one(b, b)",message="want exactly one of nfs: {server: HOST, path: /PATH}, persistentVolumeClaim: {claimName: NAME} and rdma: {server: HOST}"
// +kubebuilder:validation:XValidation:rule="has(self.nfs) == has(oldSelf.nfs) && has(self.persistentVolumeClaim) == has(oldSelf.persistentVolumeClaim) && has(self.rdma) == has(oldSelf.rdma)",message="the kind of backend cannot be changed: make another NFSExport"
type Backend struct {
	// NFS is an NFS server on TCP.
	//
	// +optional
	NFS *NFSServer `json:"nfs,omitempty"`
	// PersistentVolumeClaim is a claim in the gateway's namespace. It gets a pod of its own.
	// +optional
	PersistentVolumeClaim *Claim `json:"persistentVolumeClaim,omitempty"`
	// RDMA is an NFS server on RPC-over-RDMA, such as another Sluice.
	//
	// +optional
	RDMA *RDMAServer `json:"rdma,omitempty"`
}

// NFSServer is an NFS server on TCP.
type NFSServer struct {
	// Server is a name or an IP address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) ? !ip(self).isUnspecified() : self.matches('^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*$') && !self.matches('(^|[.])[0-9]+$')",message="want a host's name, such as filer.example, or its IP address, without brackets and port"
	Server string `json:"server"`
	// Port of NFS. Default 2049.
	// +kubebuilder:default=2049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// MountPort is the port of MOUNT, for NFSv3. Default 0: ask the server's rpcbind.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	MountPort int32 `json:"mountPort,omitempty"`
	// Path on the server. Clients see it as "/". Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '/' || self.matches('^(/[^/]+)+$') && !self.matches('/[.][.]?(/|$)')",message="want an absolute path without \"..\", \".\", repeated or trailing slash, such as /vol/data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	Path string `json:"path"`
	// Versions of NFS that clients may use. Default: 3, 4.1 and 4.2.
	// +kubebuilder:default={"3","4.1","4.2"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Versions []NFSVersion `json:"versions,omitempty"`
	// SoftTimeout is the time that a call waits for an unreachable server before the client must
	// retry: 1s to 10m. Default 0s: no limit.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="want 1s to 10m, or 0s for no limit"
	SoftTimeout Duration `json:"softTimeout,omitempty"`
}

// RDMAServer is an NFS server on RPC-over-RDMA.
// +kubebuilder:validation:XValidation:rule="!has(self.rfc5666) || !('ReadRead' in self.rfc5666) || self.versions == ['3']",message="rfc5666: ReadRead may have a call executed twice, which sessions and opens do not bear: want versions: [\"3\"], or no ReadRead"
type RDMAServer struct {
	// Server is a name or an IP address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) ? !ip(self).isUnspecified() : self.matches('^[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?([.][A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)*$') && !self.matches('(^|[.])[0-9]+$')",message="want a host's name, such as filer.example, or its IP address, without brackets and port"
	Server string `json:"server"`
	// Port of NFS. Default 20049.
	// +kubebuilder:default=20049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Path on the server. Clients see it as "/". Default "/". Immutable.
	// +kubebuilder:default="/"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '/' || self.matches('^(/[^/]+)+$') && !self.matches('/[.][.]?(/|$)')",message="want an absolute path without \"..\", \".\", repeated or trailing slash, such as /vol/data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	Path string `json:"path,omitempty"`
	// Versions of NFS that clients may use. Default: 3, 4.1 and 4.2.
	// +kubebuilder:default={"3","4.1","4.2"}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Versions []NFSVersion `json:"versions,omitempty"`
	// SoftTimeout is the time that a call waits for an unreachable server before the client must
	// retry: 1s to 10m. Default 0s: no limit.
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s') && duration(self) <= duration('10m')",message="want 1s to 10m, or 0s for no limit"
	SoftTimeout Duration `json:"softTimeout,omitempty"`
	// RFC5666 are forms of RPC-over-RDMA version 1 that only RFC 5666 has, for an old server.
	// Padding sends messages with padding before long data. ReadRead reads long replies from the
	// server's memory; it needs versions ["3"]. Configuration asks for inline thresholds by the
	// Connection Configuration Protocol. Default none.
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	// +optional
	RFC5666 []RFC5666Form `json:"rfc5666,omitempty"`
}

// Claim is a PersistentVolumeClaim in the gateway's namespace.
type Claim struct {
	// ClaimName is the name of the PersistentVolumeClaim. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	ClaimName string `json:"claimName"`
	// SubPath is a directory in the volume, created if missing. Default: the root. Immutable.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[^/]+(/[^/]+)*$') && !self.matches('(^|/)[.][.]?(/|$)')",message="want a relative path without \"..\", \".\", repeated or trailing slash, such as share/data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since clients hold handles: make another NFSExport"
	// +kubebuilder:default=""
	SubPath string `json:"subPath,omitempty"`
	// NFS4 configures versions 4.1 and 4.2. Default: the default of each field.
	// +optional
	NFS4 *NFS4 `json:"nfs4,omitempty"`
}

// NFS4 configures versions 4.1 and 4.2 of a claim. A change of lease, shared, sessions or idDomain
// takes effect when the claim's pod starts next.
type NFS4 struct {
	// Lease is how long a client may be silent before others may take its opens and locks: 10s to
	// 1h. After a start of the pod, clients have as long to reclaim theirs. Default 90s.
	// +kubebuilder:default="90s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('1h')",message="want 10s to 1h"
	Lease Duration `json:"lease,omitempty"`
	// Delegations is the maximum number of delegations of all clients: -1 to 1048576. A client with
	// a delegation of a file caches it until another one needs the file. Default 0: an eighth of
	// the pod's limit of open files, at most 32768. -1: none.
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1
	// +kubebuilder:validation:Maximum=1048576
	Delegations int32 `json:"delegations,omitempty"`
	// Shared means that others change the files too, such as pods that mount the claim themselves.
	// Then delegations are for reading alone, otherwise for writing too. Default true.
	// +kubebuilder:default=true
	Shared *bool `json:"shared,omitempty"`
	// Sessions is Volatile or Persistent. With Persistent, a call that must not run twice, such as
	// the removal of a name, is not run again if a client repeats it after a crash of the pod. For
	// that each such call takes two more syncs of the volume. Default Volatile.
	// +kubebuilder:default=Volatile
	// +kubebuilder:validation:Enum=Volatile;Persistent
	Sessions string `json:"sessions,omitempty"`
	// IDDomain is a domain such as example.com: clients see owners and groups that the pod knows by
	// its /etc/passwd and /etc/group as NAME@IDDomain, and others as numbers. It must be that of
	// the clients (idmapd.conf(5)). Default: numbers alone.
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$')",message="want a domain, such as example.com"
	IDDomain string `json:"idDomain,omitempty"`
}

// NFSVersion is a version of NFS.
//
// +kubebuilder:validation:Enum="3";"4.0";"4.1";"4.2"
type NFSVersion string

// AccessRule sets the rights of some clients.
type AccessRule struct {
	// From selects the clients.
	From AccessFrom `json:"from"`
	// Mode is ReadOnly or ReadWrite. Default ReadOnly.
	// +kubebuilder:default=ReadOnly
	// +kubebuilder:validation:Enum=ReadOnly;ReadWrite
	Mode string `json:"mode,omitempty"`
	// Squash selects the AUTH_SYS identities that are mapped to nobody: None, Root (uid and gid 0)
	// or All. Default Root.
	// +kubebuilder:default=Root
	// +kubebuilder:validation:Enum=None;Root;All
	Squash string `json:"squash,omitempty"`
}

// AccessFrom selects clients by the address that the gateway's pods see. kube-proxy and network
// plugins may replace it with the node's.
// +kubebuilder:validation:XValidation:rule="has(self.networks) && size(self.networks) > 0 || has(self.nodes) || has(self.provisioner) && self.provisioner",message="want networks: [10.0.0.0/8], nodes: {matchLabels: {…}}, or provisioner: true"
type AccessFrom struct {
	// Networks are prefixes such as 10.0.0.0/8 or fd00::/8, without host bits.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="self.all(n, isCIDR(n) && cidr(n) == cidr(n).masked())",message="want networks without host bits, such as 10.0.0.0/8 or fd00::/8; one address alone is 192.0.2.1/32"
	// +listType=atomic
	// +optional
	Networks []string `json:"networks,omitempty"`
	// Nodes selects nodes of the cluster by label, and matches their addresses. {} selects all.
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="matchExpressions: want values with operator In or NotIn, and none with Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, self.matchLabels[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$'))",message="matchLabels: want values of letters, digits, '-', '_' and '.', beginning and ending with a letter or digit"
	// +optional
	Nodes *metav1.LabelSelector `json:"nodes,omitempty"`
	// Provisioner selects the operator's active pod, which makes directories for claims of
	// StorageClasses. Such a rule needs mode ReadWrite and, except where all may write, squash
	// None. Default false.
	// +optional
	Provisioner bool `json:"provisioner,omitempty"`
}

// Address is the address and ports that clients mount.
// +kubebuilder:validation:XValidation:rule="self.rdmaPort != self.tcpPort",message="tcpPort: want another port than rdmaPort, since a Service has each once"
type Address struct {
	// IP of the export's Service, or with exposure VirtualIP an address of the pool. Default: a
	// free one.
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="self == '' || isIP(self)",message="want an IP address, such as 192.0.2.10, or nothing"
	// +kubebuilder:default=""
	IP string `json:"ip,omitempty"`
	// RDMAPort of RPC-over-RDMA. Default 20049.
	// +kubebuilder:default=20049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	RDMAPort int32 `json:"rdmaPort,omitempty"`
	// TCPPort of NFS on TCP. Default 2049.
	// +kubebuilder:default=2049
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TCPPort int32 `json:"tcpPort,omitempty"`
}

// Transport configures RPC-over-RDMA.
// +kubebuilder:validation:XValidation:rule="!has(self.extensions) || size(self.extensions) == 0 || 2 in self.rpcRDMAVersions",message="extensions: are for version 2 alone: want 2 in rpcRDMAVersions, or no extensions"
// +kubebuilder:validation:XValidation:rule="!has(self.continuation) || has(self.extensions) && 'MessageContinuation' in self.extensions",message="continuation: is only for the extension MessageContinuation: add that, or leave this out"
// +kubebuilder:validation:XValidation:rule="!has(self.placement) || has(self.extensions) && 'SendBasedPlacement' in self.extensions",message="placement: is only for the extension SendBasedPlacement: add that, or leave this out"
// +kubebuilder:validation:XValidation:rule="!has(self.credits) || !has(self.credits.memory) || !quantity(self.credits.memory).isInteger() || !quantity(self.inlineThreshold.call).isInteger() || quantity(self.credits.memory).asInteger() >= (has(self.credits.min) ? self.credits.min : self.credits.max < 8 ? self.credits.max : 8) * ((2 in self.rpcRDMAVersions && quantity(self.inlineThreshold.call).asInteger() < 4096 ? 4096 : quantity(self.inlineThreshold.call).asInteger()) + (has(self.extensions) && 'SendBasedPlacement' in self.extensions ? (has(self.placement) && quantity(self.placement.receiveBuffer).isInteger() ? quantity(self.placement.receiveBuffer).asInteger() : 65536) : 0))",message="credits.memory: want enough for one connection: credits.min receives of inlineThreshold.call, 4Ki at least with version 2, and placement.receiveBuffer"
// +kubebuilder:validation:XValidation:rule="!has(self.rfc5666) || size(self.rfc5666) == 0 || 1 in self.rpcRDMAVersions",message="rfc5666: is for version 1 alone: want 1 in rpcRDMAVersions, or no rfc5666"
// +kubebuilder:validation:XValidation:rule="!has(self.version2Dialect) || 2 in self.rpcRDMAVersions",message="version2Dialect: is for version 2 alone: want 2 in rpcRDMAVersions, or no version2Dialect"
// +kubebuilder:validation:XValidation:rule="!has(self.extensions) || size(self.extensions) == 0 || !has(self.version2Dialect) || self.version2Dialect != 'WorkingGroup'",message="extensions: are for the dialect RoundTrip alone: want version2Dialect RoundTrip, or no extensions"
type Transport struct {
	// RPCRDMAVersions are the offered versions of RPC-over-RDMA: [1], [2] or [1, 2]. Default [1].
	// +kubebuilder:default={1}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=1;2
	// +listType=set
	RPCRDMAVersions []int32 `json:"rpcRDMAVersions,omitempty"`
	// Version2Dialect is the dialect of version 2. RoundTrip has extensions. WorkingGroup is the
	// last text of the NFSv4 working group, without extensions. A client with the other dialect
	// uses version 1. Forbidden without version 2. Default RoundTrip.
	// +optional
	Version2Dialect Version2Dialect `json:"version2Dialect,omitempty"`
	// InlineThreshold is the size of the longest message without chunks, or in one transmission:
	// multiples of 1Ki from 1Ki to 256Ki.
	// +kubebuilder:default={}
	InlineThreshold InlineThreshold `json:"inlineThreshold,omitempty"`
	// Credits limit the outstanding calls of a connection.
	// +kubebuilder:default={policy: Static}
	Credits Credits `json:"credits,omitempty"`
	// RemoteInvalidation offers to invalidate a client's memory with the reply (RFC 8797). Default
	// true.
	// +kubebuilder:default=true
	RemoteInvalidation *bool `json:"remoteInvalidation,omitempty"`
	// Extensions of version 2 to offer. Default: TransportProperties, which the others need.
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="size(self) == 0 || 'TransportProperties' in self",message="MessageContinuation and SendBasedPlacement need TransportProperties: add it"
	// +listType=set
	// +optional
	Extensions []Extension `json:"extensions,omitempty"`
	// Continuation configures the extension MessageContinuation. Forbidden without it.
	// +optional
	Continuation *Continuation `json:"continuation,omitempty"`
	// Placement configures the extension SendBasedPlacement. Forbidden without it.
	// +optional
	Placement *Placement `json:"placement,omitempty"`
	// RFC5666 are forms of version 1 that only RFC 5666 has, for old clients. Padding accepts
	// messages with padding before long data. ReadRead exposes a reply for which the client offers
	// no memory, so that it can read it: the gateway's memory becomes readable to that client.
	// ReadRead needs software RDMA (iWARP). Configuration answers the Connection Configuration
	// Protocol, by which a client learns of inline thresholds. Default none.
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	// +optional
	RFC5666 []RFC5666Form `json:"rfc5666,omitempty"`
	// OnChange selects the effect of a changed negotiated setting (all but credits) on connections.
	// Reconnect closes them one by one after their calls, and clients reconnect. NextConnection
	// leaves them as they are. Default Reconnect.
	// +kubebuilder:default=Reconnect
	// +kubebuilder:validation:Enum=Reconnect;NextConnection
	OnChange OnChange `json:"onChange,omitempty"`
}

// Extension is an extension of RPC-over-RDMA version 2.
// +kubebuilder:validation:Enum=TransportProperties;MessageContinuation;SendBasedPlacement
type Extension string

// Version2Dialect is a dialect of RPC-over-RDMA version 2.
// +kubebuilder:validation:Enum=RoundTrip;WorkingGroup
type Version2Dialect string

// RFC5666Form is a form of RPC-over-RDMA version 1 that only RFC 5666 has.
// +kubebuilder:validation:Enum=Padding;ReadRead;Configuration
type RFC5666Form string

// OnChange is the effect of a changed setting on connections.
type OnChange string

// Effects of a changed setting.
const (
	Reconnect      OnChange = "Reconnect"
	NextConnection OnChange = "NextConnection"
)

// InlineThreshold has the two directions of RFC 8797: multiples of 1Ki from 1Ki to 256Ki.
type InlineThreshold struct {
	// Call is the size for messages from the client. Default 4Ki.
	// +kubebuilder:default="4Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Ki')) >= 0 && quantity(self).compareTo(quantity('256Ki')) <= 0 && quantity(self).asInteger() % 1024 == 0",message="want a multiple of 1Ki from 1Ki to 256Ki"
	Call Size `json:"call,omitempty"`
	// Reply is the size for messages to the client. Default 4Ki.
	// +kubebuilder:default="4Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Ki')) >= 0 && quantity(self).compareTo(quantity('256Ki')) <= 0 && quantity(self).asInteger() % 1024 == 0",message="want a multiple of 1Ki from 1Ki to 256Ki"
	Reply Size `json:"reply,omitempty"`
}

// Credits limit the outstanding calls of a connection.
// +kubebuilder:validation:XValidation:rule="!has(self.min) || self.min <= self.max",message="min: want at most max"
// +kubebuilder:validation:XValidation:rule="!has(self.min) || self.policy == 'Adaptive'",message="min: is only for policy Adaptive: leave it out"
// +kubebuilder:validation:XValidation:rule="has(self.memory) == (self.policy == 'Adaptive')",message="memory: the budget of policy Adaptive, such as 256Mi, wanted there and there alone"
type Credits struct {
	// Policy is Static or Adaptive. Static grants max to each connection. Adaptive divides memory
	// by use, and grants less while the backend is slower than usual. Default Static.
	// +kubebuilder:default=Static
	// +kubebuilder:validation:Enum=Static;Adaptive
	Policy string `json:"policy,omitempty"`
	// Min is the smallest grant of policy Adaptive. Default 8, or max if that is smaller.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	// +optional
	Min *int32 `json:"min,omitempty"`
	// Max is the grant of policy Static, and the largest grant of policy Adaptive. Default 128.
	// +kubebuilder:default=128
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	Max int32 `json:"max,omitempty"`
	// Memory is the budget of policy Adaptive in each pod: 64Ki to 1Ti. Required with it, forbidden
	// otherwise.
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('64Ki')) >= 0 && quantity(self).compareTo(quantity('1Ti')) <= 0",message="want 64Ki to 1Ti"
	// +optional
	Memory Size `json:"memory,omitempty"`
}

// Continuation limits the transmissions of a message.
type Continuation struct {
	// MaxCallTransmissions of a call. Default 16.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxCallTransmissions int32 `json:"maxCallTransmissions,omitempty"`
	// MaxReplyTransmissions of a reply. Default 16.
	// +kubebuilder:default=16
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxReplyTransmissions int32 `json:"maxReplyTransmissions,omitempty"`
}

// Placement configures the placement of bulk data in receives.
type Placement struct {
	// ReceiveBuffer is the part of each receive for bulk data: a power of two from 4Ki to 1Mi.
	// Default 64Ki.
	// +kubebuilder:default="64Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Mi')) <= 0 && quantity(self).asInteger() in [4096, 8192, 16384, 32768, 65536, 131072, 262144, 524288, 1048576]",message="want a power of two from 4Ki to 1Mi"
	ReceiveBuffer Size `json:"receiveBuffer,omitempty"`
	// MinLength is the length of the shortest argument or result to place: 1 to 1Mi. Default 4Ki.
	// +kubebuilder:default="4Ki"
	// +kubebuilder:validation:XValidation:rule="quantity(self).compareTo(quantity('1Mi')) <= 0",message="want 1 to 1Mi"
	MinLength Size `json:"minLength,omitempty"`
}

// NFSExportStatus is the observed state of an NFSExport.
type NFSExportStatus struct {
	// ObservedGeneration is the generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Conditions: Accepted, ResolvedRefs, Programmed, BackendReachable, RDMAReady,
	// ClientAddressesVisible and Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Backend is the source of the files, on one line.
	// +optional
	Backend string `json:"backend,omitempty"`
	// Address for clients to mount.
	// +optional
	Address string `json:"address,omitempty"`
	// AddressHolder is the pod that carries the address, with exposure VirtualIP.
	//
	// +optional
	AddressHolder string `json:"addressHolder,omitempty"`
	// Mount is a Linux command that mounts the export over RDMA, in a version that the pods serve.
	// +optional
	Mount string `json:"mount,omitempty"`
	// MountTCP is the same command over TCP.
	// +optional
	MountTCP string `json:"mountTCP,omitempty"`
	// NFSVersions that all pods serve.
	// +listType=atomic
	// +optional
	NFSVersions []string `json:"nfsVersions,omitempty"`
	// Clients is the number of connections.
	// +optional
	Clients int32 `json:"clients,omitempty"`
	// ConfigHash identifies the configuration that all pods have applied.
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
