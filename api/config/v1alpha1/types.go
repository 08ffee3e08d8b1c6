package v1alpha1

import "net/netip"

// Values of the first two lines of a file.
const (
	APIVersion = "config.sluice.dev/v1alpha1"
	Kind       = "GatewayConfig"
)

// GatewayConfig is a configuration file.
type GatewayConfig struct {
	// APIVersion is [APIVersion].
	APIVersion string `json:"apiVersion"`
	// Kind is [Kind].
	Kind string `json:"kind"`
	// Admin is the page for people, probes and Prometheus.
	Admin Admin `json:"admin"`
	// DrainTimeout is how long calls in flight may take to finish when the gateway stops, when an
	// export is removed, or when a change closes its connections. 0s to 1h, default 20s.
	DrainTimeout Duration `json:"drainTimeout"`
	// StateDir is the directory for persistent state, such as the keys that sign file handles. The
	// gateway creates it. Default /var/lib/sluice. A change takes effect at the next start.
	StateDir string `json:"stateDir"`
	// HandleKeys are the keys that sign file handles.
	HandleKeys HandleKeys `json:"handleKeys"`
	// Log configures logging.
	Log Log `json:"log"`
	// Tracing sends OpenTelemetry traces of calls.
	Tracing Tracing `json:"tracing,omitzero"`
	// Limits apply to all exports together, in addition to each export's limits.
	Limits TotalLimits `json:"limits"`
	// Memory configures the memory for messages and data. A change takes effect at the next start.
	Memory Memory `json:"memory,omitzero"`
	// NetworkSets are lists of networks that access rules refer to by name, so that exports can
	// share a list; at most 1024, with unique names.
	NetworkSets []NetworkSet `json:"networkSets,omitempty"`
	// Exports are the directories that clients can mount, with unique names, addresses, uids and
	// volumes. The list is required, [] for none, so that a truncated file is refused.
	Exports []Export `json:"exports"`
}

// Admin is the page with /metrics, /healthz, /readyz and /status.
type Admin struct {
	// Address is the listening address, "IP:port"; empty disables the page. Default 127.0.0.1:9180.
	Address string `json:"address"`
}

// HandleKeys are the keys that sign file handles. All gateways that serve the same exports need the
// same keys.
type HandleKeys struct {
	// File holds the keys. Its first key signs; all keys are accepted. Empty, the default, means a
	// key in StateDir, created at first use; volumes use a separate key there. The gateway watches
	// the file. A new path, and new keys for volumes, take effect at the next start.
	File string `json:"file"`
}

// Log configures logging to standard error.
type Log struct {
	// Level is debug, info, warn or error. Default info.
	Level string `json:"level"`
	// Format is text or json. Default text. A change takes effect at the next start.
	Format string `json:"format"`
}

// Tracing sends OpenTelemetry traces of calls, by OTLP over HTTP. The gateway's environment may
// have the standard variables OTEL_EXPORTER_OTLP_*, OTEL_BSP_*, OTEL_SERVICE_NAME and
// OTEL_RESOURCE_ATTRIBUTES.
type Tracing struct {
	// Ratio is the part of calls that are traced, 0 to 1. Default 0.
	Ratio float64 `json:"ratio,omitempty"`
	// Endpoint is the base URL of the OTLP receiver, such as http://collector:4318; /v1/traces is
	// appended. Empty, the default, takes the receiver from the environment, or
	// https://localhost:4318.
	Endpoint string `json:"endpoint,omitempty"`
}

// Memory configures the memory for messages and data.
type Memory struct {
	// HugePages uses huge pages of 2 MiB as far as available, then ordinary memory. Default false.
	HugePages bool `json:"hugePages"`
}

// TotalLimits apply to all exports together.
type TotalLimits struct {
	// Connections is the maximum number of connections, 1 to 1048576; further ones are refused. 0,
	// the default, means only each export's limit.
	Connections int `json:"connections,omitempty"`
	// Memory is the maximum number of bytes for READ and WRITE data and long messages in flight,
	// 8Mi to 1Ti; further calls wait. 0, the default, means only each export's limit.
	Memory Quantity `json:"memory,omitempty"`
	// ReceiveMemory is the maximum number of bytes for the receives of RDMA connections, 8Mi to
	// 1Ti. Near the limit, connections get fewer credits; at the limit, new connections are
	// refused. Default 2Gi.
	ReceiveMemory Quantity `json:"receiveMemory"`
}

// Export is one tree that clients can mount. It has its own addresses, since a connection
// negotiates transport parameters before the client names an export. Clients see it as a separate
// server.
type Export struct {
	// Name identifies the export in logs, metrics, /status and state. Lower-case letters, digits,
	// '-' and '.', at most 253, beginning and ending with a letter or digit.
	Name string `json:"name"`
	// Listeners are the addresses of the export, 1 to 16.
	Listeners []Listener `json:"listeners"`
	// UID identifies the export across gateways and restarts: file handles are signed with it, and
	// NFSv4 servers and clients identify each other by it. 8 to 64 printable ASCII characters
	// without spaces. Empty, the default, derives it from Name. Forbidden for volumes.
	UID string `json:"uid,omitempty"`
	// Backend is the location of the files.
	Backend Backend `json:"backend"`
	// SignHandles selects whether file handles of an nfs or rdma backend get a keyed tag: Required,
	// Auto or Off. Default Auto. Forbidden for volumes, which always sign.
	SignHandles SignHandles `json:"signHandles,omitempty"`
	// GSS selects the handling of RPCSEC_GSS calls to an nfs or rdma backend: Refuse, the default,
	// or PassThrough, which requires SignHandles Off, access ReadWrite without squash, and the
	// backend's own root. Forbidden for volumes.
	GSS GSS `json:"gss,omitempty"`
	// Access are the rules for mounting. The first rule with a client's address decides; a client
	// without a rule is refused. 1 to 1024 rules.
	Access []AccessRule `json:"access"`
	// Transport configures RPC-over-RDMA.
	Transport Transport `json:"transport"`
	// Limits apply to all clients of the export together.
	Limits Limits `json:"limits"`
}

// Listener is an address of an export. Both NFS and MOUNT answer on it.
type Listener struct {
	// Network is rdma or tcp.
	Network Network `json:"network"`
	// Provider implements RDMA: iwarp, the default, or verbs. Forbidden with network tcp.
	Provider Provider `json:"provider,omitempty"`
	// Device is the RDMA device of provider verbs, such as mlx5_4: 1 to 63 characters. Empty, the
	// default, selects the first device that the SR-IOV network device plugin assigned to this
	// container, or else the device of Address.
	Device string `json:"device,omitempty"`
	// Address is "IP:port". An empty IP means all addresses of the host; port 0 selects a free
	// port.
	Address string `json:"address"`
	// Bind selects how Address is bound. Empty, the default, listens on Address, which the host
	// must have. Wildcard listens on the port on all of the host's addresses and accepts
	// connections to Address only, so Address may move between hosts at any time. All Wildcard
	// listeners with the same port share one socket; it refuses connections to other addresses.
	// With Wildcard, Address needs an IP and a port.
	Bind Bind `json:"bind,omitempty"`
	// Options are settings of provider iwarp; forbidden otherwise.
	Options *ListenerOptions `json:"options,omitempty"`
	// Verbs are settings of provider verbs; forbidden otherwise.
	Verbs *VerbsOptions `json:"verbs,omitempty"`
	// RPCBind registers NFS and MOUNT on this address with the host's rpcbind, if one runs, under
	// the netids tcp and tcp6, or rdma and rdma6. Default false.
	RPCBind bool `json:"rpcbind,omitempty"`
}

// ListenerOptions are settings of the iwarp provider.
type ListenerOptions struct {
	// CRC protects every frame by CRC32C (RFC 5044 section 4.4). false omits it if the client also
	// agrees. Default true.
	CRC bool `json:"crc"`
	// MaxFPDU is the maximum size of a sent frame (FPDU), in bytes: 256 to 65535. 0, the default,
	// means the largest size that fits a frame.
	MaxFPDU Quantity `json:"maxFPDU"`
	// Spin is how long a busy connection polls for its client's next message before it sleeps, up
	// to 1ms. Polling saves wake-ups. Each polling connection uses up to one processor; there are
	// fewer of them than processors. 0s, the default, disables polling.
	Spin Duration `json:"spin,omitempty"`
}

// VerbsOptions are settings of the verbs provider, for adapters whose defaults do not fit. Zero
// values select the defaults.
type VerbsOptions struct {
	// KeepAlive is the idle time of an InfiniBand or RoCE connection before its peer is probed, 1s
	// to 1h. The connection ends when a dead peer exhausts the retries. Default 1m.
	KeepAlive Duration `json:"keepAlive,omitempty"`
	// AckTimeout is how long to wait for an acknowledgement before a message is sent again, up to
	// 10s. Devices round it up to a power of two of 4.096µs. Default: computed from the path by the
	// connection manager.
	AckTimeout Duration `json:"ackTimeout,omitempty"`
	// RetryCount is the number of retransmissions before the connection ends, 1 to 7. Default 6.
	// Only for backends: for a listener the client chooses.
	RetryCount int `json:"retryCount,omitempty"`
	// TOS is the type of service of sent packets, 0 to 255, for the traffic classes of switches.
	// Default 0. Only for backends: a listener uses the client's.
	TOS int `json:"tos,omitempty"`
	// CompletionVectors are the device's interrupts to spread connections over, each 0 to 4095.
	// Default: all of them.
	CompletionVectors []int `json:"completionVectors,omitempty"`
	// ModerationCount is the number of completions per interrupt, 1 to 65535. Requires
	// ModerationPeriod. Default: the device's.
	ModerationCount int `json:"moderationCount,omitempty"`
	// ModerationPeriod is the maximum delay of an interrupt, 1µs to 65ms. Default: the device's.
	ModerationPeriod Duration `json:"moderationPeriod,omitempty"`
	// Inline is the longest message that is copied into a work request, 0 to 1024 bytes. Default
	// 60. Larger values need more locked memory per connection.
	Inline int `json:"inline,omitempty"`
	// Spin is the number of polls of an empty completion queue before a connection sleeps, 0 to
	// 65536. It uses processor time. Default 256 with more than two processors, otherwise 0.
	Spin int `json:"spin,omitempty"`
	// StrictOrdering disables relaxed ordering of the device's writes on the PCI Express bus.
	// Default false.
	StrictOrdering bool `json:"strictOrdering,omitempty"`
}

// Backend is the location of an export's files. Exactly one field is set.
type Backend struct {
	// Volume is a directory of this host.
	Volume *Volume `json:"volume,omitempty"`
	// NFS is an NFS server on TCP.
	NFS *NFSServer `json:"nfs,omitempty"`
	// RDMA is an NFS server on RPC-over-RDMA.
	RDMA *RDMAServer `json:"rdma,omitempty"`
}

// Volume is a directory of this host. Only one export may serve it.
type Volume struct {
	// Path is the directory, absolute.
	Path string `json:"path"`
	// NFS4 configures versions 4.1 and 4.2.
	NFS4 NFS4 `json:"nfs4"`
}

// NFS4 configures versions 4.1 and 4.2 of a volume. Each client, open and lock takes memory of the
// gateway, and each open and lock a file descriptor.
type NFS4 struct {
	// Lease is how long a client may be silent before others may take its opens and locks, 10s to
	// 1h. Clients with state renew it in time. Default 90s. A change takes effect at the next
	// start.
	Lease Duration `json:"lease"`
	// Grace is the longest time after a start in which clients reclaim opens and locks, and nobody
	// gets new ones: Lease to 1h. It ends early when all have reclaimed. Default: Lease. A change
	// takes effect at the next start.
	Grace Duration `json:"grace,omitempty"`
	// Clients is the maximum number of clients, 1 to 65536. Further ones are asked to retry, unless
	// the lease of another has expired. Default 1024.
	Clients int `json:"clients"`
	// Opens is the maximum number of opens of all clients, 1 to 1048576. A further OPEN is asked to
	// retry. 0, the default, means a quarter of the process's limit of open files, at most 65536.
	Opens int `json:"opens,omitempty"`
	// Locks is the maximum number of locked ranges, and of owners of locks on a file, of all
	// clients, 1 to 1048576. A further LOCK is asked to retry. 0, the default, means as for Opens.
	Locks int `json:"locks,omitempty"`
	// Delegations is the maximum number of delegations of all clients, -1 to 1048576. A client with
	// a delegation of a file caches it until another one needs the file. 0, the default, means half
	// of the default for Opens, -1 none.
	Delegations int `json:"delegations,omitempty"`
	// Shared means that others beside this export change the directory: local processes, or another
	// export or server. Then delegations are for reading alone, and each takes a file lease of the
	// kernel, with a file descriptor. Otherwise they are for writing too. Default true. A change
	// takes effect at the next start.
	Shared bool `json:"shared"`
	// RecordsOnVolume keeps the records of clients, by which they reclaim opens and locks after a
	// start, in the directory .sluice-clients of Path, which clients cannot see. So a gateway on
	// another host goes on. Default false: in StateDir. A change takes effect at the next start.
	RecordsOnVolume bool `json:"recordsOnVolume,omitempty"`
	// Sessions is Volatile, the default, or Persistent. With Persistent, a call that must not run
	// twice, such as the removal of a name, does not run again when a client repeats it after a
	// crash. The call and its reply are written to stable storage, beside the records of clients,
	// which takes two more syncs. A change takes effect at the next start.
	Sessions Sessions `json:"sessions"`
	// IDDomain is a domain such as example.com: clients see owners and groups that this host knows
	// as NAME@IDDomain, and others as numbers. It must be that of the clients (idmapd.conf(5)).
	// Clients may always set numbers. Empty, the default, means numbers alone. A change takes
	// effect at the next start.
	IDDomain string `json:"idDomain,omitempty"`
}

// NFSServer is an NFS server on TCP.
type NFSServer struct {
	// Server is a name or IP address.
	Server string `json:"server"`
	// Port is the NFS port, 1 to 65535. Default 2049.
	Port int `json:"port"`
	// MountPort is the MOUNT port, for NFSv3, 0 to 65535. 0, the default, asks the server's
	// rpcbind.
	MountPort int `json:"mountPort"`
	// Path is the directory that clients see as "/": absolute, clean, at most 1024 bytes.
	Path string `json:"path"`
	// Within is Path or a directory above it. Symbolic links cannot lead out of it: version 3
	// mounts Within and looks up the remaining names. Empty, the default, lets the server's MOUNT
	// resolve symbolic links in Path.
	Within string `json:"within,omitempty"`
	// Versions are the NFS versions for clients: any of 3, 4.0, 4.1 and 4.2. Default 3, 4.1 and
	// 4.2.
	Versions []NFSVersion `json:"versions"`
	// SoftTimeout is how long a call waits for an unreachable server before its client is asked to
	// retry. 1s to 10m; 0s, the default, means no limit.
	SoftTimeout Duration `json:"softTimeout"`
}

// RDMAServer is an NFS server on RPC-over-RDMA, such as another gateway. It has the fields of
// [NFSServer] except MountPort: MOUNT answers on the same address.
type RDMAServer struct {
	// Server is a name or IP address.
	Server string `json:"server"`
	// Port is the port of NFS and MOUNT, 1 to 65535. Default 20049.
	Port int `json:"port"`
	// Path is the directory that clients see as "/": absolute, clean, at most 1024 bytes. Default
	// "/".
	Path string `json:"path"`
	// Within is Path or a directory above it. Symbolic links cannot lead out of it. Empty, the
	// default, means no such limit.
	Within string `json:"within,omitempty"`
	// Provider implements RDMA to the server: iwarp, the default, or verbs.
	Provider Provider `json:"provider,omitempty"`
	// Device is the RDMA device of provider verbs, such as mlx5_4: 1 to 63 characters. Empty, the
	// default, selects the device on the route to Server.
	Device string `json:"device,omitempty"`
	// Verbs are settings of provider verbs.
	Verbs *VerbsOptions `json:"verbs,omitempty"`
	// RFC5666 are the forms of version 1 that only RFC 5666 has, for an old server: Padding,
	// ReadRead and Configuration. ReadRead requires versions: ["3"]. Default [].
	RFC5666 []RFC5666Form `json:"rfc5666,omitempty"`
	// Versions are the NFS versions for clients: any of 3, 4.0, 4.1 and 4.2. Default 3, 4.1 and
	// 4.2.
	Versions []NFSVersion `json:"versions"`
	// SoftTimeout is how long a call waits for an unreachable server before its client is asked to
	// retry. 1s to 10m; 0s, the default, means no limit.
	SoftTimeout Duration `json:"softTimeout"`
}

// AccessRule grants access to clients by address.
type AccessRule struct {
	// From selects the clients of the rule.
	From AccessFrom `json:"from"`
	// Mode is ReadOnly or ReadWrite. Default ReadOnly.
	Mode AccessMode `json:"mode"`
	// Squash selects the AUTH_SYS identities that are mapped to nobody: None, Root (uid and gid 0)
	// or All. Default Root.
	Squash Squash `json:"squash"`
}

// AccessFrom selects clients.
type AccessFrom struct {
	// Networks are prefixes such as 10.0.0.0/8 or fd00::/8, without host bits. At most 1024; at
	// least 1 without NetworkSets.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// NetworkSets are names of the file's networkSets, whose networks the rule includes; at most
	// 64.
	NetworkSets []string `json:"networkSets,omitempty"`
	// Sets are the sets that NetworkSets names; see [GatewayConfig.Resolve]. They are shared and
	// must not be modified.
	Sets []*NetworkSet `json:"-"`
}

// NetworkSet is a named list of networks.
type NetworkSet struct {
	// Name follows the rules of an export's name.
	Name string `json:"name"`
	// Networks are prefixes such as 10.0.0.0/8 or fd00::/8, without host bits, 1 to 65536.
	Networks []netip.Prefix `json:"networks"`
	// Hash identifies Networks; see [NewNetworkSet].
	Hash string `json:"-"`
}

// FeatureNetworkSets is a feature on the /status of gateways that read networkSets.
const FeatureNetworkSets = "networkSets"

// Transport configures RPC-over-RDMA on an export's rdma listeners.
type Transport struct {
	// RPCRDMAVersions are the offered versions of RPC-over-RDMA: [1], [2] or [1, 2]. Default [1].
	RPCRDMAVersions []int `json:"rpcRDMAVersions"`
	// Version2Dialect is the dialect of version 2: RoundTrip, or WorkingGroup. WorkingGroup forbids
	// extensions, and is forbidden without version 2. Default RoundTrip.
	Version2Dialect Version2Dialect `json:"version2Dialect,omitempty"`
	// Extensions are the offered extensions of version 2, [] for none. Forbidden without version 2.
	// Default [TransportProperties].
	Extensions []Extension `json:"extensions,omitzero"`
	// Continuation requires extension MessageContinuation.
	Continuation *Continuation `json:"continuation,omitempty"`
	// Placement requires extension SendBasedPlacement.
	Placement *Placement `json:"placement,omitempty"`
	// RFC5666 are the forms of version 1 that only RFC 5666 has: Padding, ReadRead and
	// Configuration. Default []. Forbidden without version 1, and ReadRead with a listener of
	// provider verbs.
	RFC5666 []RFC5666Form `json:"rfc5666,omitempty"`
	// InlineThreshold is the longest message without chunks.
	InlineThreshold InlineThreshold `json:"inlineThreshold"`
	// Credits limit the outstanding calls of a connection.
	Credits Credits `json:"credits"`
	// RemoteInvalidation offers to invalidate a client's memory with the reply (RFC 8797). Default
	// true.
	RemoteInvalidation bool `json:"remoteInvalidation"`
	// OnChange selects the effect on existing connections when a negotiated setting (any but
	// Credits) changes: Reconnect closes each after its calls finish, so clients reconnect;
	// NextConnection leaves them. Default Reconnect.
	OnChange OnChange `json:"onChange"`
}

// Continuation limits the transmissions per message. A connection uses the smaller limit of both
// sides.
type Continuation struct {
	// MaxCallTransmissions is the limit for calls, 1 to 256. Default 16.
	MaxCallTransmissions int `json:"maxCallTransmissions"`
	// MaxReplyTransmissions is the limit for replies, 1 to 256. Default 16.
	MaxReplyTransmissions int `json:"maxReplyTransmissions"`
}

// Placement configures the placement of bulk data in receives.
type Placement struct {
	// ReceiveBuffer is the size of the bulk data area of each receive of a version 2 connection, in
	// addition to the call threshold: a power of two from 4Ki to 1Mi. Default 64Ki.
	ReceiveBuffer Quantity `json:"receiveBuffer"`
	// MinLength is the minimum length of placed arguments and results, 1 to 1Mi. Default 4Ki.
	MinLength Quantity `json:"minLength"`
}

// InlineThreshold has the two directions of RFC 8797: multiples of 1Ki from 1Ki to 256Ki. A
// connection uses the smaller value of both sides. Default 4Ki.
type InlineThreshold struct {
	// Call applies to messages from the client.
	Call Quantity `json:"call"`
	// Reply applies to messages to the client.
	Reply Quantity `json:"reply"`
}

// Credits limit the outstanding calls of a connection. Each credit has a posted receive of the call
// threshold plus placement.receiveBuffer.
type Credits struct {
	// Policy is Static, which grants Max to every connection that requests as many, or Adaptive,
	// which divides Memory among connections by use and grants less while the backend is slower
	// than usual. Default Static.
	Policy CreditPolicy `json:"policy"`
	// Min is the minimum grant of a connection, 1 to Max. Only for Adaptive; default 8, or Max if
	// less.
	Min int `json:"min,omitempty"`
	// Max is the maximum grant, 1 to 4096. Default 128.
	Max int `json:"max"`
	// Memory is the maximum number of bytes for the receives of all connections, in addition to Min
	// for each: from the need of Min for one connection to 1Ti. Required for Adaptive, forbidden
	// otherwise.
	Memory Quantity `json:"memory,omitempty"`
}

// Limits apply to all of an export's clients together, or to each client. A client is an IP
// address.
type Limits struct {
	// Connections is the maximum number of connections, 1 to 65536; further ones are refused.
	// Default 1024.
	Connections int `json:"connections"`
	// ConnectionsPerClient is the maximum per client, 1 to 65536; further ones are refused. Default
	// 256.
	ConnectionsPerClient int `json:"connectionsPerClient"`
	// Memory is the maximum number of bytes for READ and WRITE data and long messages in flight,
	// 8Mi to 1Ti; further calls wait. Receives do not count: credits and the file's
	// limits.receiveMemory bound them. Default 256Mi.
	Memory Quantity `json:"memory"`
	// MemoryPerClient is the maximum part of Memory for one client while calls of others wait, 64Ki
	// to 1Ti; its further calls wait. A single call may exceed it. Default: a quarter of Memory.
	MemoryPerClient Quantity `json:"memoryPerClient,omitempty"`
	// MemoryPerConnection is the maximum part of Memory for one connection, 64Ki to 1Ti. A single
	// call may exceed it. Default 2Mi: fewer buffers stay in the processor's cache. Long links need
	// more: bandwidth times round-trip time.
	MemoryPerConnection Quantity `json:"memoryPerConnection"`
	// MinProgress is the minimum rate of a connection in bytes per second, over 5 s, while its
	// calls hold part of Memory and calls of other clients wait for it, 0 to 1Gi. Slower
	// connections are closed. 0 disables this. Default 64Ki.
	MinProgress Quantity `json:"minProgress"`
	// IdleTimeout closes connections without calls.
	IdleTimeout IdleTimeout `json:"idleTimeout"`
}

// IdleTimeout closes connections without calls: after 1s to 168h, or never for 0s.
type IdleTimeout struct {
	// BeforeFirstCall runs from the start of a connection to its first call. Default 30s.
	BeforeFirstCall Duration `json:"beforeFirstCall"`
	// AfterCall runs from the reply to the last call to the next call. NFS clients reconnect
	// automatically. Default 1h.
	AfterCall Duration `json:"afterCall"`
}

// Network is the transport below RPC.
type Network string

// Networks.
const (
	RDMA Network = "rdma"
	TCP  Network = "tcp"
)

// Provider implements RDMA.
type Provider string

// Providers.
const (
	// IWARP is software iWARP on TCP sockets.
	IWARP Provider = "iwarp"
	// Verbs uses the host's RDMA devices. It needs a gateway built with verbs.
	Verbs Provider = "verbs"
)

// Bind selects how an address is bound.
type Bind string

// Wildcard listens on all of the host's addresses.
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

// Sessions selects whether NFSv4 sessions answer repeated calls after a crash.
type Sessions string

// Values of Sessions.
const (
	SessionsVolatile   Sessions = "Volatile"
	SessionsPersistent Sessions = "Persistent"
)

// SignHandles selects whether file handles get a keyed tag, so that the gateway accepts only
// handles that it issued.
type SignHandles string

// Modes of signing. SignAuto leaves handles unsigned that are too long for a tag.
const (
	SignRequired SignHandles = "Required"
	SignAuto     SignHandles = "Auto"
	SignOff      SignHandles = "Off"
)

// GSS selects the handling of RPCSEC_GSS calls.
type GSS string

// Modes of RPCSEC_GSS handling.
const (
	GSSRefuse      GSS = "Refuse"
	GSSPassThrough GSS = "PassThrough"
)

// AccessMode is the permitted kind of access.
type AccessMode string

// Access modes.
const (
	ReadOnly  AccessMode = "ReadOnly"
	ReadWrite AccessMode = "ReadWrite"
)

// Squash selects the identities that are mapped to nobody.
type Squash string

// Squash settings.
const (
	SquashNone Squash = "None"
	SquashRoot Squash = "Root"
	SquashAll  Squash = "All"
)

// Extension is an extension of RPC-over-RDMA version 2.
type Extension string

// Extensions.
const (
	// TransportProperties exchanges the properties of both sides, above all the size of receives.
	// Without it messages are limited to 4Ki.
	TransportProperties Extension = "TransportProperties"
	// MessageContinuation sends long messages in several transmissions instead of chunks. It
	// requires TransportProperties.
	MessageContinuation Extension = "MessageContinuation"
	// SendBasedPlacement places bulk data in dedicated receives instead of using RDMA operations.
	// It requires TransportProperties.
	SendBasedPlacement Extension = "SendBasedPlacement"
)

// Version2Dialect is a dialect of version 2 of RPC-over-RDMA.
type Version2Dialect string

// Dialects.
const (
	// RoundTrip is that of docs/protocol-v2.md.
	RoundTrip Version2Dialect = "RoundTrip"
	// WorkingGroup is that of docs/protocol-v2-wg.md: the last text of the NFSv4 working group.
	WorkingGroup Version2Dialect = "WorkingGroup"
)

// RFC5666Form is a form of version 1 that only RFC 5666 has.
type RFC5666Form string

// Forms of RFC 5666.
const (
	// Padding accepts RDMA_MSGP: messages with padding before long data.
	Padding RFC5666Form = "Padding"
	// ReadRead lets a client read a reply for which it offers no memory, from the gateway's memory.
	ReadRead RFC5666Form = "ReadRead"
	// Configuration answers the Connection Configuration Protocol, which sets inline thresholds.
	Configuration RFC5666Form = "Configuration"
)

// OnChange selects the effect of a changed transport on existing connections.
type OnChange string

// Effects of a changed transport.
const (
	Reconnect      OnChange = "Reconnect"
	NextConnection OnChange = "NextConnection"
)

// CreditPolicy selects how credits are granted.
type CreditPolicy string

// Credit policies.
const (
	// Static grants the same number to every connection.
	Static CreditPolicy = "Static"
	// Adaptive divides memory among connections.
	Adaptive CreditPolicy = "Adaptive"
)

// MaxCredits is the maximum number of credits that can be configured.
const MaxCredits = 4096
