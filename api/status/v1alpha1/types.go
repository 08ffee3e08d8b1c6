// Package v1alpha1 defines a gateway's /status page. The gateway writes it as JSON; the operator
// and tools read it.
package v1alpha1

import (
	"net/netip"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// Status is the JSON document at /status.
type Status struct {
	Build Build `json:"build"`
	// Started is the start of service.
	Started time.Time `json:"started"`
	// Draining means that the gateway accepts no new connections and is about to exit.
	Draining bool `json:"draining"`
	// Ready is the result of /readyz.
	Ready   bool     `json:"ready"`
	Config  Config   `json:"config"`
	Exports []Export `json:"exports"`
}

// Build identifies the program.
type Build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

// Config describes the configuration as a whole.
type Config struct {
	// File is its path; empty if the configuration came from flags.
	File string `json:"file,omitempty"`
	// Hash identifies the last file with a valid frame, Loaded is the time it was read.
	Hash   string    `json:"hash"`
	Loaded time.Time `json:"loaded"`
	// Error is why the current file is not used; Problems are the wrong places.
	Error    string          `json:"error,omitempty"`
	Problems config.Problems `json:"problems,omitempty"`
	// Features are later additions to the configuration file that the gateway supports, such as
	// networkSets.
	Features []string `json:"features,omitempty"`
	// HandleKeysError is why the current file of handleKeys is not used.
	HandleKeysError string `json:"handleKeysError,omitempty"`
	// Restart lists the changed fields that take effect at the next start.
	Restart []string `json:"restart,omitempty"`
}

// ExportState is the state of an export.
type ExportState string

const (
	// Serving means that the export is served as configured, as far as its listeners work.
	Serving ExportState = "Serving"
	// Refused means that the export is not served, because its configuration is wrong or its
	// backend does not open. Error is the reason.
	Refused ExportState = "Refused"
	// Outdated means that the previous configuration is served, because the last change is wrong or
	// could not be applied. Error is the reason.
	Outdated ExportState = "Outdated"
	// Applying means that a change is in progress.
	Applying ExportState = "Applying"
	// Removing means that the export was removed from the configuration, and calls in flight
	// finish.
	Removing ExportState = "Removing"
)

// Export describes one export.
type Export struct {
	Name string `json:"name"`
	// UID is the configured uid; may be empty.
	UID   string      `json:"uid,omitempty"`
	State ExportState `json:"state"`
	// Hash identifies the applied configuration; empty if none.
	Hash string `json:"hash,omitempty"`
	// Error is why the current configuration is not applied.
	Error    string          `json:"error,omitempty"`
	Problems config.Problems `json:"problems,omitempty"`

	Listeners []Listener `json:"listeners"`
	Backend   Backend    `json:"backend"`
	// Credits is nil if nothing is served.
	Credits *Credits `json:"credits,omitempty"`
	// Clients are the oldest connections, at most 4096 divided by the number of exports.
	// ClientsOmitted is the number of the others.
	Clients        []Client `json:"clients"`
	ClientsOmitted int      `json:"clientsOmitted,omitempty"`
	Counters       Counters `json:"counters"`
}

// ListenerState is the state of a listener.
type ListenerState string

const (
	// Listening means that the listener accepts connections.
	Listening ListenerState = "Listening"
	// Retrying means that listen failed and is retried. Error is the reason.
	Retrying ListenerState = "Retrying"
	// Closed means that the listener no longer accepts connections.
	Closed ListenerState = "Closed"
)

// Listener describes one address.
type Listener struct {
	Network  config.Network  `json:"network"`
	Provider config.Provider `json:"provider,omitempty"`
	// Configured is the address in the file, Address the bound one.
	Configured string        `json:"configured"`
	Address    string        `json:"address,omitempty"`
	State      ListenerState `json:"state"`
	Error      string        `json:"error,omitempty"`
	Since      time.Time     `json:"since"`
	// RPCBind is the state of the rpcbind registration; empty if not configured.
	RPCBind string `json:"rpcbind,omitempty"`
	// Device is nil unless the provider is verbs.
	Device *Device `json:"device,omitempty"`
}

// Backend describes an export's backend.
type Backend struct {
	// Kind is volume, nfs or rdma.
	Kind string `json:"kind"`
	// Server is the server's address, "HOST:PORT"; empty for a volume.
	Server string `json:"server,omitempty"`
	Path   string `json:"path,omitempty"`
	// Healthy means that the backend answered the last probe.
	Healthy bool   `json:"healthy"`
	Error   string `json:"error,omitempty"`
	// Identity is the identity that accesses the files.
	Identity string `json:"identity,omitempty"`
	// Notes are remarks for the administrator.
	Notes []string `json:"notes,omitempty"`
	// Versions are the NFS versions for clients, "3" and "4.0" to "4.2", as far as known.
	Versions []string `json:"versions,omitempty"`
	// NFS4 is the state of versions 4.1 and 4.2 of a volume, otherwise nil.
	NFS4 *NFS4 `json:"nfs4,omitempty"`
	// Remote is nil for a volume. Its fields appear in the backend's JSON object.
	*Remote
}

// NFS4 describes the state of versions 4.1 and 4.2 of a volume.
type NFS4 struct {
	// Grace means that clients reclaim state from before a start, and nobody gets new opens and
	// locks.
	Grace bool `json:"grace"`
	// Opens, Locks and Delegations are those of all clients. Locks are ranges.
	Opens       int `json:"opens"`
	Locks       int `json:"locks"`
	Delegations int `json:"delegations"`
	// Clients are the oldest clients, at most 1024. ClientsOmitted is the number of the others.
	Clients        []NFS4Client `json:"clients"`
	ClientsOmitted int          `json:"clientsOmitted,omitempty"`
	// Operations are those of COMPOUNDs that were called.
	Operations []NFS4Operation `json:"operations,omitempty"`
}

// NFS4Operation describes the calls of an operation.
type NFS4Operation struct {
	Operation string `json:"operation"`
	Calls     uint64 `json:"calls"`
	Errors    uint64 `json:"errors"`
	// Seconds is the time that all calls took, waits for a recall or a lock included.
	Seconds float64 `json:"seconds"`
}

// NFS4Client describes a client of versions 4.1 and 4.2, and its state.
type NFS4Client struct {
	// ID is the clientid, in hexadecimal digits.
	ID string `json:"id"`
	// Owner is the client's own name, quoted as a Go string.
	Owner string `json:"owner"`
	// Remote is the address of the connection that created its latest session.
	Remote netip.AddrPort `json:"remote"`
	// LeaseExpires is the end of its lease, if nothing renews it. Expired means that it has passed:
	// the client keeps its state until somebody needs it.
	LeaseExpires time.Time `json:"leaseExpires"`
	Expired      bool      `json:"expired,omitempty"`
	// Reclaiming means that the client has not completed its recovery.
	Reclaiming bool `json:"reclaiming,omitempty"`

	Sessions    int `json:"sessions"`
	Opens       int `json:"opens"`
	Locks       int `json:"locks"`
	Delegations int `json:"delegations"`
}

// Remote describes a backend that is a server.
type Remote struct {
	// Since is the time of the last change of Healthy.
	Since time.Time `json:"since"`
	// Connections is the number of connections to the server. Detached counts the connections kept
	// for clients that disconnected and may return.
	Connections int `json:"connections"`
	Detached    int `json:"detached"`
	// Calls is the number of unanswered calls, WaitingBytes the bytes of them that wait for a
	// connection.
	Calls        int   `json:"calls"`
	WaitingBytes int64 `json:"waitingBytes"`
	// Ports is the number of source ports below 1024 in use.
	Ports int `json:"ports"`
	// Refused means that the server answers but refuses the export's root; the backend's error has
	// the details.
	Refused bool `json:"refused,omitempty"`
	// AskedFrom is the source port of the refused connection; 0 if unknown.
	AskedFrom int `json:"askedFrom,omitempty"`
	// AskedAddress is the source address of that connection.
	AskedAddress netip.Addr `json:"askedAddress,omitzero"`
	// RDMA are the negotiated settings of the latest connection to the server, where the gateway is
	// the client; nil before the first, and on TCP.
	RDMA *RDMA `json:"rdma,omitempty"`
}

// Credits describes an export's RPC-over-RDMA credits.
type Credits struct {
	Policy config.CreditPolicy `json:"policy"`
	// Granted is the sum over all connections.
	Granted int `json:"granted"`
	// Receives is the memory for granted credits, and for receives still posted for earlier grants,
	// in bytes.
	Receives int64 `json:"receives"`
	// Shared is the number of receives posted in shared queues.
	Shared int `json:"shared,omitempty"`
	// Max is the maximum per connection.
	Max int `json:"max"`
	// Adaptive is nil with another policy.
	*Adaptive
}

// Adaptive describes policy Adaptive.
type Adaptive struct {
	// Min is the minimum per connection.
	Min int `json:"min"`
	// Ceiling is the per-connection limit at the current backend latency, Min to Max.
	Ceiling int `json:"ceiling"`
	// Memory is the budget for receives, in bytes.
	Memory int64 `json:"memory"`
	// Changes counts changed grants by reason: use, latency, memory or config.
	Changes map[string]CreditChanges `json:"changes"`
}

// CreditChanges counts changed grants.
type CreditChanges struct {
	Raised  uint64 `json:"raised"`
	Lowered uint64 `json:"lowered"`
}

// Client describes one connection.
type Client struct {
	Network config.Network `json:"network"`
	Remote  netip.AddrPort `json:"remote"`
	Local   netip.AddrPort `json:"local"`
	Since   time.Time      `json:"since"`
	// Counters are the calls of this connection.
	Counters Calls `json:"counters"`
	// RDMA is nil for other networks.
	RDMA *RDMA `json:"rdma,omitempty"`
}

// RDMA describes the negotiated settings of an RPC-over-RDMA connection.
type RDMA struct {
	Provider string `json:"provider"`
	// Version of RPC-over-RDMA. With several offered versions it is 0 until the client's first
	// message.
	Version int `json:"rpcRDMAVersion"`
	// Dialect is that of version 2, RoundTrip or WorkingGroup.
	Dialect string `json:"dialect,omitempty"`
	// RFC5666 are the forms of RFC 5666 in use, nil if none are.
	RFC5666 *RFC5666 `json:"rfc5666,omitempty"`
	// Extensions are the version 2 extensions that both sides support.
	Extensions []string `json:"extensions,omitzero"`
	// Transmissions are the gateway's limits per message with version 2; a client may have lower
	// ones.
	Transmissions *Transmissions `json:"transmissions,omitempty"`
	// Properties are the transport properties of both sides, with version 2.
	Properties *PropertiesPair `json:"properties,omitempty"`
	// InlineThreshold is in bytes.
	InlineThreshold struct {
		Call  int `json:"call"`
		Reply int `json:"reply"`
	} `json:"inlineThreshold"`
	// Credits is the current grant.
	Credits int `json:"credits"`
	// InUse is the number of calls in flight; 0 for a backend.
	InUse int `json:"creditsInUse"`
	// ORD is the maximum of outstanding RDMA Reads towards the peer.
	ORD                int  `json:"ord"`
	RemoteInvalidation bool `json:"remoteInvalidation"`
	CRC                bool `json:"crc"`
	// QueuePair is nil with software iWARP.
	QueuePair *QueuePair `json:"queuePair,omitempty"`
}

// RFC5666 describes the forms of version 1 that only RFC 5666 has, on one connection.
type RFC5666 struct {
	// Padding is the alignment in bytes of padded calls that the client sends; 0 if it sends none,
	// and always for clients of the gateway.
	Padding int `json:"padding,omitempty"`
	// ReadRead means that the client can read long replies in the server's memory.
	ReadRead bool `json:"readRead,omitempty"`
	// Configured means that the Connection Configuration Protocol has set the inline thresholds.
	Configured bool `json:"configured,omitempty"`
}

// QueuePair identifies a connection's queue pair on an adapter and the path to the client. iWARP
// only has device, port and qpn.
type QueuePair struct {
	Device string `json:"device"`
	// Port is the adapter's port, from 1.
	Port int `json:"port"`
	// QPN and RemoteQPN are the queue pair numbers of both ends.
	QPN       uint32 `json:"qpn"`
	RemoteQPN uint32 `json:"remoteQPN,omitempty"`
	// GID and RemoteGID are the GIDs of both ends; IP addresses for RoCE.
	GID       netip.Addr `json:"gid,omitzero"`
	RemoteGID netip.Addr `json:"remoteGID,omitzero"`
	// GIDType is "RoCE v2" or "IB/RoCE v1"; empty for InfiniBand.
	GIDType string `json:"gidType,omitempty"`
	// PathMTU is in bytes.
	PathMTU int `json:"pathMTU,omitempty"`
}

// Transmissions are the maximum numbers of transmissions per message: 1 without
// MessageContinuation.
type Transmissions struct {
	Call  int `json:"call"`
	Reply int `json:"reply"`
}

// PropertiesPair has the exchanged transport properties of both sides, completed by defaults.
type PropertiesPair struct {
	Gateway Properties `json:"gateway"`
	Client  Properties `json:"client"`
}

// Properties are the transport properties of one side.
type Properties struct {
	// ReceiveSize is the largest accepted message, in bytes.
	ReceiveSize int `json:"receiveSize"`
	// Backward is the kind of accepted reverse-direction calls: None, Inline (without chunks) or
	// General.
	Backward string `json:"backward"`
	// CallTransmissions is the maximum per received call, ReplyTransmissions per sent reply.
	CallTransmissions  int `json:"callTransmissions"`
	ReplyTransmissions int `json:"replyTransmissions"`
	// Placement is the size of the bulk data area of a receive, in bytes.
	Placement int `json:"placement"`
}

// Counters are an export's totals since its start; /metrics has the details.
type Counters struct {
	Connections uint64 `json:"connections"`
	Calls
	// Latency counts answered calls by the time from receipt to answer, in ascending order. Buckets
	// without calls are left out.
	Latency []Bucket `json:"latency"`
}

// Calls counts the calls of an export or of a connection.
type Calls struct {
	RPCs uint64 `json:"rpcs"`
	// Errors are the RPCs without success.
	Errors uint64 `json:"errors"`
	// BytesIn and BytesOut are the bytes of RPC messages from and to clients.
	BytesIn  uint64 `json:"bytesIn"`
	BytesOut uint64 `json:"bytesOut"`
	// Seconds is the sum of the times from receipt to answer.
	Seconds float64 `json:"seconds"`
}

// Bucket counts calls that took at most UpTo seconds, and more than the bound before. Each bound is
// twice the one before. The last bucket has no bound: UpTo is 0.
type Bucket struct {
	UpTo float64 `json:"upTo,omitempty"`
	RPCs uint64  `json:"rpcs"`
}
