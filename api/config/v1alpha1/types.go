package v1alpha1

import "net/netip"

// What the first two lines of a file say.
const (
	APIVersion = "config.sluice.dev/v1alpha1"
	Kind       = "GatewayConfig"
)

// GatewayConfig is a whole configuration file.
type GatewayConfig struct {
	// APIVersion is [APIVersion].
	APIVersion string `json:"apiVersion"`
	// Kind is [Kind].
	Kind string `json:"kind"`
	// Admin is the page for people, probes and Prometheus.
	Admin Admin `json:"admin"`
	// DrainTimeout bounds how long calls in flight may take to finish when the gateway stops, when an export is removed, or when
	// a change closes its connections. 0s to 1h, default 20s.
	DrainTimeout Duration `json:"drainTimeout"`
	// StateDir is the directory for what has to survive a restart, such as the keys that sign file handles. It is made
	// if it is missing. Default /var/lib/sluice. A change takes effect at the next start.
	StateDir string `json:"stateDir"`
	// HandleKeys are the keys that sign file handles.
	HandleKeys HandleKeys `json:"handleKeys"`
	// Log says what is logged, and how.
	Log Log `json:"log"`
	// Limits bound what all exports take together, each within its own limits.
	Limits TotalLimits `json:"limits"`
	// Memory says what memory for messages and data is made of. A change takes effect at the next start.
	Memory Memory `json:"memory,omitzero"`
	// NetworkSets are lists of networks that access rules name, so that a list that many exports have is written once; at most 1024, whose names differ.
	NetworkSets []NetworkSet `json:"networkSets,omitempty"`
	// Exports are the directories that clients can mount; names differ, and so do addresses, uids and volumes. The list is required, [] for none, so
	// that a file that is cut off before it is refused.
	Exports []Export `json:"exports"`
}

// Admin is the page with /metrics, /healthz, /readyz and /status.
type Admin struct {
	// Address is where it listens, "IP:port"; empty means nowhere. Default 127.0.0.1:9180.
	Address string `json:"address"`
}

// HandleKeys are the keys that sign file handles. All gateways that serve the same exports have the same.
type HandleKeys struct {
	// File has them; its first key signs, and all of them are accepted. Empty, the default, means a key in StateDir, which is made
	// when it is first needed; volumes have another one there. The file is watched; another
	// path, and other keys for volumes, take effect at the next start.
	File string `json:"file"`
}

// Log says what is logged to standard error, and how.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `json:"level"`
	// Format is text or json. Default text. A change takes effect at the next start.
	Format string `json:"format"`
}

// Memory says what memory for messages and data is made of.
type Memory struct {
	// HugePages takes huge pages of 2 MiB for it, as far as there are any; ordinary memory takes their place. Default false.
	HugePages bool `json:"hugePages"`
}

// TotalLimits bound what all exports take together.
type TotalLimits struct {
	// Connections is the most at once, 1 to 1048576; further ones are refused. 0, the default, means no other limit than each export's.
	Connections int `json:"connections,omitempty"`
	// Memory is the most bytes for READ and WRITE data and long messages in flight, 8Mi to 1Ti; calls wait when it is used up. 0, the default, means no
	// other limit than each export's.
	Memory Quantity `json:"memory,omitempty"`
	// ReceiveMemory is the most bytes for the receives of RDMA connections, 8Mi to 1Ti. As it runs short, connections are granted fewer
	// credits; a new connection is refused when nothing is left for it. Default 2Gi.
	ReceiveMemory Quantity `json:"receiveMemory"`
}

// Export is one tree that clients can mount. It has addresses of its own, since transport parameters are settled before a
// client has named anything; to its clients it is a server by itself.
type Export struct {
	// Name tells the export from others in logs, metrics and /status, and names its state. Lower-case letters, digits, '-' and
	// '.', at most 253; it begins and ends with a letter or digit.
	Name string `json:"name"`
	// Listeners are the addresses that it is served on, 1 to 16.
	Listeners []Listener `json:"listeners"`
	// UID tells the export from all others, at every gateway and after every restart: handles are signed with it, and servers and clients of
	// NFSv4 told apart by it. 8 to 64 printable ASCII characters without spaces; empty, the default, means that it is made of Name. A volume has none.
	UID string `json:"uid,omitempty"`
	// Backend is where the files are.
	Backend Backend `json:"backend"`
	// SignHandles says whether file handles of an nfs or rdma backend get a keyed tag: Required, Auto or Off. Default Auto. A volume signs always,
	// and has no such field.
	SignHandles SignHandles `json:"signHandles,omitempty"`
	// GSS says what becomes of calls with RPCSEC_GSS to an nfs or rdma backend: Refuse, which is the default, or PassThrough, which needs SignHandles Off,
	// access ReadWrite without squash, and the backend's own root. A volume has no such field.
	GSS GSS `json:"gss,omitempty"`
	// Access are the rules of who may mount. The first rule that names a client's address decides; a client that no
	// rule names is refused. 1 to 1024 rules.
	Access []AccessRule `json:"access"`
	// Transport is how RPC-over-RDMA is spoken.
	Transport Transport `json:"transport"`
	// Limits bound what the export's clients may take together.
	Limits Limits `json:"limits"`
}

// Listener is an address that an export is served on. NFS and MOUNT both answer on it.
type Listener struct {
	// Network is rdma or tcp.
	Network Network `json:"network"`
	// Provider is what carries RDMA: iwarp, which is the default, or verbs. It has no place with network tcp.
	Provider Provider `json:"provider,omitempty"`
	// Device is the RDMA device of provider verbs, such as mlx5_4: 1 to 63 characters. Empty, the default, means the first that the SR-IOV network
	// device plugin gave to this container, or else the one that carries Address.
	Device string `json:"device,omitempty"`
	// Address is "IP:port"; an empty IP means all of the host's. Port 0 takes a free one.
	Address string `json:"address"`
	// Bind is how connections to Address are had. Empty, the default, means by listening on it, which the host then has to have. Wildcard means by listening
	// on the port on all of the host's addresses, and taking those connections that came to Address, which may come to the host and leave it at any time. All
	// listeners with Wildcard and the same port have that in common; a connection to an address of none of them is refused. Address then has an IP and a port.
	Bind Bind `json:"bind,omitempty"`
	// Options are those of provider iwarp; the others have none.
	Options *ListenerOptions `json:"options,omitempty"`
	// Verbs are settings of provider verbs; the others have none.
	Verbs *VerbsOptions `json:"verbs,omitempty"`
	// RPCBind registers NFS and MOUNT on this address with the rpcbind of this host, under the netids tcp and tcp6, or rdma and rdma6,
	// if one runs. Default false.
	RPCBind bool `json:"rpcbind,omitempty"`
}

// ListenerOptions are settings of the iwarp provider.
type ListenerOptions struct {
	// CRC protects every frame by CRC32C (RFC 5044 section 4.4). false leaves it out if the client wants none either. Default true.
	CRC bool `json:"crc"`
	// MaxFPDU bounds what is sent in one frame (FPDU), in bytes: 256 to 65535. 0, the default, means as much as fits a frame.
	MaxFPDU Quantity `json:"maxFPDU"`
	// Spin is how long a connection that is in use asks for its client's next message before it sleeps: up to 1ms. It takes up to a processor
	// for each such connection, of which there are fewer than processors, and spares the wake-ups. 0s, the default, means not at all.
	Spin Duration `json:"spin,omitempty"`
}

// VerbsOptions are settings of the verbs provider, for adapters whose defaults do not fit. Zero values are defaults.
type VerbsOptions struct {
	// KeepAlive is how long a connection over InfiniBand or RoCE is quiet before its peer is probed, 1s to 1h: a peer that is dead ends it when the retries are used
	// up. Default 1m.
	KeepAlive Duration `json:"keepAlive,omitempty"`
	// AckTimeout is how long a peer may take to acknowledge a message before it is sent again, up to 10s; devices round it up to a power of two of 4.096µs. Default:
	// what the connection manager computes from the path.
	AckTimeout Duration `json:"ackTimeout,omitempty"`
	// RetryCount is how often a message is sent again before the connection ends, 1 to 7. Default 6. It is for backends: for a listener the client chooses.
	RetryCount int `json:"retryCount,omitempty"`
	// TOS is the type of service of packets sent, 0 to 255, by which switches distinguish traffic classes. Default 0. It is for backends: a listener answers with the
	// client's.
	TOS int `json:"tos,omitempty"`
	// CompletionVectors are the device's interrupts over which connections are spread, each 0 to 4095. Default: all of them.
	CompletionVectors []int `json:"completionVectors,omitempty"`
	// ModerationCount is how many completions an interrupt waits for, 1 to 65535. It goes with ModerationPeriod. Default: the device's own.
	ModerationCount int `json:"moderationCount,omitempty"`
	// ModerationPeriod is how long an interrupt waits for them at most, 1µs to 65ms. Default: the device's own.
	ModerationPeriod Duration `json:"moderationPeriod,omitempty"`
	// Inline is the longest message in bytes that is copied into a work request, 0 to 1024. Default 60; more takes more locked memory for each connection.
	Inline int `json:"inline,omitempty"`
	// Spin is how often an empty completion queue is polled again before a connection sleeps, 0 to 65536; it takes a processor's time. Default 256 with more than two
	// processors, otherwise none.
	Spin int `json:"spin,omitempty"`
	// StrictOrdering has the device write to memory in order, and not as the PCI Express bus allows. Default false.
	StrictOrdering bool `json:"strictOrdering,omitempty"`
}

// Backend is where an export's files are. Exactly one field is set.
type Backend struct {
	// Volume is a directory of this host.
	Volume *Volume `json:"volume,omitempty"`
	// NFS is an NFS server on TCP.
	NFS *NFSServer `json:"nfs,omitempty"`
	// RDMA is an NFS server on RPC-over-RDMA.
	RDMA *RDMAServer `json:"rdma,omitempty"`
}

// Volume is a directory of this host, which one export serves.
type Volume struct {
	// Path is the directory, absolute.
	Path string `json:"path"`
}

// NFSServer is an NFS server on TCP.
type NFSServer struct {
	// Server is its name or IP address.
	Server string `json:"server"`
	// Port is where NFS answers, 1 to 65535. Default 2049.
	Port int `json:"port"`
	// MountPort is where MOUNT answers, which NFSv3 begins with, 0 to 65535. 0, the default, has the server's rpcbind asked.
	MountPort int `json:"mountPort"`
	// Path is what clients see as "/": absolute, clean, at most 1024 bytes.
	Path string `json:"path"`
	// Within is a directory that Path is, or lies below: no symbolic link leads out of it. Version
	// 3 mounts it and looks up the names from there on. Empty, the default, leaves symbolic links
	// in Path to the server's MOUNT.
	Within string `json:"within,omitempty"`
	// Versions of NFS are those that clients may use, of 3, 4.0, 4.1 and 4.2. Default 3, 4.1 and 4.2.
	Versions []NFSVersion `json:"versions"`
	// SoftTimeout is how long a call waits for a server that is away before its client is told to try again. 1s to 10m; 0s, the default, means that
	// calls wait as long as it takes.
	SoftTimeout Duration `json:"softTimeout"`
}

// RDMAServer is an NFS server on RPC-over-RDMA, such as another gateway. Its fields are those of [NFSServer] but for MountPort, since MOUNT is asked on
// the same address.
type RDMAServer struct {
	// Server is its name or IP address.
	Server string `json:"server"`
	// Port is where it answers, 1 to 65535. Default 20049.
	Port int `json:"port"`
	// Path is what clients see as "/": absolute, clean, at most 1024 bytes. Default "/".
	Path string `json:"path"`
	// Within is a directory that Path is, or lies below: no symbolic link leads out of it. Empty,
	// the default, means no such bound.
	Within string `json:"within,omitempty"`
	// Provider is what carries RDMA to it: iwarp, which empty means too, or verbs.
	Provider Provider `json:"provider,omitempty"`
	// Device is the RDMA device of provider verbs, such as mlx5_4: 1 to 63 characters. Empty, the default, means the one on the route to Server.
	Device string `json:"device,omitempty"`
	// Verbs are settings of provider verbs.
	Verbs *VerbsOptions `json:"verbs,omitempty"`
	// Versions of NFS are those that clients may use, of 3, 4.0, 4.1 and 4.2. Default 3, 4.1 and 4.2.
	Versions []NFSVersion `json:"versions"`
	// SoftTimeout is how long a call waits for a server that is away before its client is told to try again. 1s to 10m; 0s, the default, means that
	// calls wait as long as it takes.
	SoftTimeout Duration `json:"softTimeout"`
}

// AccessRule says what clients of certain addresses may do.
type AccessRule struct {
	// From are the clients that the rule is about.
	From AccessFrom `json:"from"`
	// Mode is ReadOnly or ReadWrite. Default ReadOnly.
	Mode AccessMode `json:"mode"`
	// Squash says which AUTH_SYS identities are mapped to nobody: None, Root (uid and gid 0) or All. Default Root.
	Squash Squash `json:"squash"`
}

// AccessFrom names clients.
type AccessFrom struct {
	// Networks are prefixes such as 10.0.0.0/8 or fd00::/8, without host bits, at most 1024; at least 1 without NetworkSets.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// NetworkSets are names of sets of the file's networkSets, whose networks the rule is about too, at most 64.
	NetworkSets []string `json:"networkSets,omitempty"`
	// Sets are those that NetworkSets names; see [GatewayConfig.Resolve]. They are shared, and not to be changed.
	Sets []*NetworkSet `json:"-"`
}

// NetworkSet is a list of networks that has a name.
type NetworkSet struct {
	// Name is made as an export's.
	Name string `json:"name"`
	// Networks are prefixes such as 10.0.0.0/8 or fd00::/8, without host bits, 1 to 65536.
	Networks []netip.Prefix `json:"networks"`
	// Hash identifies Networks; see [NewNetworkSet].
	Hash string `json:"-"`
}

// FeatureNetworkSets is on the /status of gateways that read networkSets.
const FeatureNetworkSets = "networkSets"

// Transport is how RPC-over-RDMA is spoken on an export's rdma listeners.
type Transport struct {
	// RPCRDMAVersions are the versions of RPC-over-RDMA that are offered: [1], [2] or [1, 2], of which a client takes one. Default [1].
	RPCRDMAVersions []int `json:"rpcRDMAVersions"`
	// Extensions are what of version 2 is offered beyond its base, [] for nothing. They are for that alone; default [TransportProperties] with it.
	Extensions []Extension `json:"extensions,omitzero"`
	// Continuation is only for extension MessageContinuation.
	Continuation *Continuation `json:"continuation,omitempty"`
	// Placement is only for extension SendBasedPlacement.
	Placement *Placement `json:"placement,omitempty"`
	// InlineThreshold is the longest message that is sent without chunks.
	InlineThreshold InlineThreshold `json:"inlineThreshold"`
	// Credits say how many calls a connection may have outstanding.
	Credits Credits `json:"credits"`
	// RemoteInvalidation offers to invalidate a client's memory together with the reply (RFC 8797). Default true.
	RemoteInvalidation bool `json:"remoteInvalidation"`
	// OnChange says what a change of what is settled while connecting, which is all but Credits, does to connections that are there: Reconnect
	// closes each when its calls have finished, and clients connect again; NextConnection leaves them as they are. Default Reconnect.
	OnChange OnChange `json:"onChange"`
}

// Continuation says in how many transmissions a message may come. What holds for a connection is the smaller of both sides' numbers.
type Continuation struct {
	// MaxCallTransmissions is for calls, 1 to 256. Default 16.
	MaxCallTransmissions int `json:"maxCallTransmissions"`
	// MaxReplyTransmissions is for replies, 1 to 256. Default 16.
	MaxReplyTransmissions int `json:"maxReplyTransmissions"`
}

// Placement is how bulk data are placed in receives.
type Placement struct {
	// ReceiveBuffer is the part of each receive of a version 2 connection that bulk data are placed in, beyond the call threshold: a power of
	// two from 4Ki to 1Mi. Default 64Ki.
	ReceiveBuffer Quantity `json:"receiveBuffer"`
	// MinLength is the length of the shortest argument or result that is placed, 1 to 1Mi. Default 4Ki.
	MinLength Quantity `json:"minLength"`
}

// InlineThreshold has the two directions of RFC 8797: multiples of 1Ki from 1Ki to 256Ki; a connection gets what both sides can do. Default 4Ki.
type InlineThreshold struct {
	// Call is for messages from the client.
	Call Quantity `json:"call"`
	// Reply is for messages to the client.
	Reply Quantity `json:"reply"`
}

// Credits say how many calls a connection may have outstanding. A receive of the call threshold's size, and of placement.receiveBuffer, is posted for each.
type Credits struct {
	// Policy is Static: Max for every connection that asks for as many; or Adaptive: Memory is divided among the connections by use, and
	// less is granted while the backend is slower than it was lately. Default Static.
	Policy CreditPolicy `json:"policy"`
	// Min is the least that a connection is granted, 1 to Max. Adaptive alone; default 8, or Max if that is less.
	Min int `json:"min,omitempty"`
	// Max is the grant, or the most that it may be, 1 to 4096. Default 128.
	Max int `json:"max"`
	// Memory is the most bytes for the receives of all connections together, beyond Min for each: from what Min takes for one connection to
	// 1Ti. Adaptive alone, which requires it.
	Memory Quantity `json:"memory,omitempty"`
}

// Limits bound what an export's clients may take together, and what each may take. A client is an IP address.
type Limits struct {
	// Connections is the most at once, 1 to 65536; further ones are refused. Default 1024.
	Connections int `json:"connections"`
	// ConnectionsPerClient is the most of one client at once, 1 to 65536; further ones are refused. Default 256.
	ConnectionsPerClient int `json:"connectionsPerClient"`
	// Memory is the most bytes for READ and WRITE data and long messages in flight, 8Mi to 1Ti; calls wait when it is used up.
	// Receives are bounded by credits and by the file's limits.receiveMemory instead. Default 256Mi.
	Memory Quantity `json:"memory"`
	// MemoryPerClient is the most of Memory that one client takes while calls of others wait, 64Ki to 1Ti; its calls wait when that is
	// used up. A single call may take more. Default a quarter of Memory.
	MemoryPerClient Quantity `json:"memoryPerClient,omitempty"`
	// MemoryPerConnection is the most of Memory that one connection takes, 64Ki to 1Ti; a single call may take more. Default 2Mi: the
	// fewer buffers are in use, the more of them are in the processor's cache. Long links need more: bandwidth times round-trip time.
	MemoryPerConnection Quantity `json:"memoryPerConnection"`
	// MinProgress is the least number of bytes per second, over 5 s, that a connection has to move while its calls hold part of Memory
	// and calls of other clients wait for it, 0 to 1Gi. A slower connection is closed. 0 means that none is. Default 64Ki.
	MinProgress Quantity `json:"minProgress"`
	// IdleTimeout bounds how long a connection stays without calls.
	IdleTimeout IdleTimeout `json:"idleTimeout"`
}

// IdleTimeout bounds how long a connection stays without calls: 0s, which means forever, or 1s to 168h.
type IdleTimeout struct {
	// BeforeFirstCall is from when a connection is made to its first call. Default 30s.
	BeforeFirstCall Duration `json:"beforeFirstCall"`
	// AfterCall is from when a connection's last call was answered to its next. NFS clients connect again by themselves. Default 1h.
	AfterCall Duration `json:"afterCall"`
}

// Network is the transport below RPC.
type Network string

// Networks.
const (
	RDMA Network = "rdma"
	TCP  Network = "tcp"
)

// Provider carries RDMA.
type Provider string

// Providers.
const (
	// IWARP is software, on TCP sockets.
	IWARP Provider = "iwarp"
	// Verbs is the host's RDMA devices. The gateway has to be built for it.
	Verbs Provider = "verbs"
)

// Bind is how connections to an address are had.
type Bind string

// Wildcard is by listening on all of the host's addresses.
const Wildcard Bind = "Wildcard"

// NFSVersion is a version of NFS.
type NFSVersion string

// Versions of NFS.
const (
	NFSv3  NFSVersion = "3"
	NFSv40 NFSVersion = "4.0"
	NFSv41 NFSVersion = "4.1"
	NFSv42 NFSVersion = "4.2"
)

// SignHandles says whether file handles get a keyed tag, so that none is believed which the gateway did not hand out.
type SignHandles string

// Ways to sign handles. SignAuto leaves those alone that are too long for a tag.
const (
	SignRequired SignHandles = "Required"
	SignAuto     SignHandles = "Auto"
	SignOff      SignHandles = "Off"
)

// GSS says what becomes of calls with RPCSEC_GSS.
type GSS string

// What becomes of them.
const (
	GSSRefuse      GSS = "Refuse"
	GSSPassThrough GSS = "PassThrough"
)

// AccessMode is what a client may do.
type AccessMode string

// Access modes.
const (
	ReadOnly  AccessMode = "ReadOnly"
	ReadWrite AccessMode = "ReadWrite"
)

// Squash says which identities are mapped to nobody.
type Squash string

// Squash settings.
const (
	SquashNone Squash = "None"
	SquashRoot Squash = "Root"
	SquashAll  Squash = "All"
)

// Extension is a part of RPC-over-RDMA version 2 beyond its base.
type Extension string

// Extensions.
const (
	// TransportProperties has both sides tell their properties, the size of their receives above all; without it messages have 4Ki at most.
	TransportProperties Extension = "TransportProperties"
	// MessageContinuation has long messages come in several transmissions, instead of by chunks. It needs TransportProperties.
	MessageContinuation Extension = "MessageContinuation"
	// SendBasedPlacement has bulk data placed in receives that are made for them, instead of by RDMA operations. It needs TransportProperties.
	SendBasedPlacement Extension = "SendBasedPlacement"
)

// OnChange says what a change of the transport does to connections.
type OnChange string

// What it does.
const (
	Reconnect      OnChange = "Reconnect"
	NextConnection OnChange = "NextConnection"
)

// CreditPolicy says how credits are granted.
type CreditPolicy string

// Credit policies.
const (
	// Static grants the same number to every connection.
	Static CreditPolicy = "Static"
	// Adaptive divides memory among connections.
	Adaptive CreditPolicy = "Adaptive"
)

// MaxCredits is the highest number of credits that can be configured.
const MaxCredits = 4096
