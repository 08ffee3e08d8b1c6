// Package v1alpha1 has the types of a gateway's /status page. The gateway writes them as JSON; the operator and tools read them.
package v1alpha1

import (
	"net/netip"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// Status is what /status tells, as JSON.
type Status struct {
	Build Build `json:"build"`
	// Started is when the process began to serve.
	Started time.Time `json:"started"`
	// Draining: no new connections are taken, the process is about to end.
	Draining bool `json:"draining"`
	// Ready is what /readyz answers.
	Ready   bool     `json:"ready"`
	Config  Config   `json:"config"`
	Exports []Export `json:"exports"`
}

// Build identifies the program.
type Build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}

// Config tells of the configuration as a whole.
type Config struct {
	// File is its path; empty if the configuration came by flags.
	File string `json:"file,omitempty"`
	// Hash identifies the file that was read last whose frame was right, and Loaded is when that was.
	Hash   string    `json:"hash"`
	Loaded time.Time `json:"loaded"`
	// Error says why the file as it is now is not used; Problems are its places.
	Error    string          `json:"error,omitempty"`
	Problems config.Problems `json:"problems,omitempty"`
	// Features are the later additions to the configuration file that the gateway reads, such as networkSets.
	Features []string `json:"features,omitempty"`
	// HandleKeysError says why the file of handleKeys as it is now is not used.
	HandleKeysError string `json:"handleKeysError,omitempty"`
	// Restart lists the fields that were changed and take effect at the next start.
	Restart []string `json:"restart,omitempty"`
}

// ExportState is the state of an export.
type ExportState string

const (
	// Serving says that the export is served as configured, as far as its listeners work.
	Serving ExportState = "Serving"
	// Refused says that it is not served, since what the file says of it is wrong or its backend does not open. Error says why.
	Refused ExportState = "Refused"
	// Outdated says that it is served as it was before the last change, which is wrong or could not be applied. Error says why.
	Outdated ExportState = "Outdated"
	// Applying says that a change is being made.
	Applying ExportState = "Applying"
	// Removing says that it is no longer configured; calls in flight are finished.
	Removing ExportState = "Removing"
)

// Export tells of one export.
type Export struct {
	Name string `json:"name"`
	// UID is the configured one; empty if there is none.
	UID   string      `json:"uid,omitempty"`
	State ExportState `json:"state"`
	// Hash identifies the configuration that is applied; empty if none is.
	Hash string `json:"hash,omitempty"`
	// Error says why the configuration as it is now is not applied.
	Error    string          `json:"error,omitempty"`
	Problems config.Problems `json:"problems,omitempty"`

	Listeners []Listener `json:"listeners"`
	Backend   Backend    `json:"backend"`
	// Credits is nil if nothing is served.
	Credits *Credits `json:"credits,omitempty"`
	// Clients are the connections, the oldest first: 4096 of all exports together at most, and as many of each. ClientsOmitted is how many
	// others there are.
	Clients        []Client `json:"clients"`
	ClientsOmitted int      `json:"clientsOmitted,omitempty"`
	Counters       Counters `json:"counters"`
}

// ListenerState is the state of a listener.
type ListenerState string

const (
	// Listening says that connections are taken.
	Listening ListenerState = "Listening"
	// Retrying says that the address cannot be listened on; Error says why. It is tried again and again.
	Retrying ListenerState = "Retrying"
	// Closed says that connections are no longer taken.
	Closed ListenerState = "Closed"
)

// Listener tells of one address.
type Listener struct {
	Network  config.Network  `json:"network"`
	Provider config.Provider `json:"provider,omitempty"`
	// Configured is the address in the file, Address the one that is listened on.
	Configured string        `json:"configured"`
	Address    string        `json:"address,omitempty"`
	State      ListenerState `json:"state"`
	Error      string        `json:"error,omitempty"`
	Since      time.Time     `json:"since"`
	// RPCBind tells whether the address is registered there; empty if that is not wanted.
	RPCBind string `json:"rpcbind,omitempty"`
	// Device is nil unless the provider is verbs.
	Device *Device `json:"device,omitempty"`
}

// Backend tells of an export's backend.
type Backend struct {
	// Kind is volume, nfs or rdma.
	Kind string `json:"kind"`
	// Server is the address of a server, "HOST:PORT"; empty for a volume.
	Server string `json:"server,omitempty"`
	Path   string `json:"path,omitempty"`
	// Healthy: the backend answered when it was last asked.
	Healthy bool   `json:"healthy"`
	Error   string `json:"error,omitempty"`
	// Identity says as whom files are accessed.
	Identity string `json:"identity,omitempty"`
	// Notes are what an administrator should know of it.
	Notes []string `json:"notes,omitempty"`
	// Versions are those of NFS that clients are served, "3" and "4.0" to "4.2", as far as is known.
	Versions []string `json:"versions,omitempty"`
	// Remote is nil for a volume; its fields are the backend's own in JSON.
	*Remote
}

// Remote tells of a backend that is a server.
type Remote struct {
	// Since is when it became healthy, or ceased to be.
	Since time.Time `json:"since"`
	// Connections to the server. Detached counts those kept for clients that disconnected and may return.
	Connections int `json:"connections"`
	Detached    int `json:"detached"`
	// Calls is how many the server has not answered yet, WaitingBytes how much of them waits for a connection.
	Calls        int   `json:"calls"`
	WaitingBytes int64 `json:"waitingBytes"`
	// Ports is how many source ports below 1024 are in use.
	Ports int `json:"ports"`
	// Refused: the server answers, but does not hand out the export's root; the backend's error has its words.
	Refused bool `json:"refused,omitempty"`
	// AskedFrom is the source port of the connection that was refused; 0 if that is not known.
	AskedFrom int `json:"askedFrom,omitempty"`
	// AskedAddress is its address.
	AskedAddress netip.Addr `json:"askedAddress,omitzero"`
}

// Credits tells of an export's RPC-over-RDMA credits.
type Credits struct {
	Policy config.CreditPolicy `json:"policy"`
	// Granted is what all connections have together.
	Granted int `json:"granted"`
	// Receives is the memory that stands for it, or still is posted for what was granted before, in bytes.
	Receives int64 `json:"receives"`
	// Shared is how many receives are posted in queues that connections share.
	Shared int `json:"shared,omitempty"`
	// Max is the most that one connection may have.
	Max int `json:"max"`
	// Adaptive is nil with another policy.
	*Adaptive
}

// Adaptive tells of policy Adaptive.
type Adaptive struct {
	// Min is the least that a connection has.
	Min int `json:"min"`
	// Ceiling is what the backend's latency limits each connection to: Min to Max.
	Ceiling int `json:"ceiling"`
	// Memory is the budget for receives, in bytes.
	Memory int64 `json:"memory"`
	// Changes counts the changes of grants, by reason: use, latency, memory or config.
	Changes map[string]CreditChanges `json:"changes"`
}

// CreditChanges counts changes of grants.
type CreditChanges struct {
	Raised  uint64 `json:"raised"`
	Lowered uint64 `json:"lowered"`
}

// Client tells of one connection.
type Client struct {
	Network config.Network `json:"network"`
	Remote  netip.AddrPort `json:"remote"`
	Local   netip.AddrPort `json:"local"`
	Since   time.Time      `json:"since"`
	// RDMA tells what was settled for a connection of that network.
	RDMA *RDMA `json:"rdma,omitempty"`
}

// RDMA tells what was settled for an RPC-over-RDMA connection.
type RDMA struct {
	Provider string `json:"provider"`
	// Version of RPC-over-RDMA. It is 0 until the client's first message settles it, where there is a choice.
	Version int `json:"rpcRDMAVersion"`
	// Extensions are those of version 2 that both sides have.
	Extensions []string `json:"extensions,omitzero"`
	// Transmissions are how many a message may take with version 2, as far as the gateway is concerned: a client may want less.
	Transmissions *Transmissions `json:"transmissions,omitempty"`
	// Properties are the transport properties of both sides, with version 2.
	Properties *PropertiesPair `json:"properties,omitempty"`
	// InlineThreshold is in bytes.
	InlineThreshold struct {
		Call  int `json:"call"`
		Reply int `json:"reply"`
	} `json:"inlineThreshold"`
	// Credits is what is granted.
	Credits int `json:"credits"`
	// InUse is how many calls are in flight.
	InUse int `json:"creditsInUse"`
	// ReadsOut is how many RDMA Reads may be outstanding towards the client (ORD).
	ReadsOut           int  `json:"readsOut"`
	RemoteInvalidation bool `json:"remoteInvalidation"`
	CRC                bool `json:"crc"`
	// QueuePair is nil with software iWARP.
	QueuePair *QueuePair `json:"queuePair,omitempty"`
}

// QueuePair identifies the queue pair of a connection on an adapter, and the path to the client's.
// Over iWARP only device, port and qpn are known.
type QueuePair struct {
	Device string `json:"device"`
	// Port is the adapter's port, from 1.
	Port int `json:"port"`
	// QPN and RemoteQPN are the queue pair numbers of both ends.
	QPN       uint32 `json:"qpn"`
	RemoteQPN uint32 `json:"remoteQPN,omitempty"`
	// GID and RemoteGID are the GIDs of both ends. With RoCE they are IP addresses.
	GID       netip.Addr `json:"gid,omitzero"`
	RemoteGID netip.Addr `json:"remoteGID,omitzero"`
	// GIDType is "RoCE v2" or "IB/RoCE v1", and empty over InfiniBand.
	GIDType string `json:"gidType,omitempty"`
	// PathMTU is in bytes.
	PathMTU int `json:"pathMTU,omitempty"`
}

// Transmissions tells how many transmissions a message may take: 1 without MessageContinuation.
type Transmissions struct {
	Call  int `json:"call"`
	Reply int `json:"reply"`
}

// PropertiesPair tells the transport properties of both sides: what they told each other, and defaults for the rest.
type PropertiesPair struct {
	Gateway Properties `json:"gateway"`
	Client  Properties `json:"client"`
}

// Properties are the transport properties of one side.
type Properties struct {
	// ReceiveSize is the largest message that it receives, in bytes.
	ReceiveSize int `json:"receiveSize"`
	// Backward says which calls of the reverse direction it takes: None, Inline (without chunks) or General.
	Backward string `json:"backward"`
	// CallTransmissions is the most transmissions of a call that it accepts, ReplyTransmissions the most of a reply that it sends.
	CallTransmissions  int `json:"callTransmissions"`
	ReplyTransmissions int `json:"replyTransmissions"`
	// Placement is how many bytes of a receive bulk data may be placed in.
	Placement int `json:"placement"`
}

// Counters are an export's totals since it began; /metrics has them in detail.
type Counters struct {
	Connections uint64 `json:"connections"`
	RPCs        uint64 `json:"rpcs"`
	Errors      uint64 `json:"errors"`
	BytesIn     uint64 `json:"bytesIn"`
	BytesOut    uint64 `json:"bytesOut"`
}
