package v1alpha1

// Device describes an RDMA device.
type Device struct {
	// Name is empty if any device may be used, or before one is found. By is the means by which it
	// was found.
	Name string `json:"name"`
	By   string `json:"by,omitempty"`
	// Transport is InfiniBand, RoCE or iWARP.
	Transport string        `json:"transport,omitempty"`
	Ports     []Port        `json:"ports,omitempty"`
	Limits    *DeviceLimits `json:"limits,omitempty"`
	// Problems keep the device from working: one sentence each, with the remedy.
	Problems []string `json:"problems,omitempty"`
	// Notes are further remarks for the administrator, one sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Port describes a port of a device.
type Port struct {
	Number int      `json:"number"`
	State  string   `json:"state"` // ACTIVE, DOWN, INIT or ARMED
	GIDs   []string `json:"gids,omitempty"`
	// GIDTypes are the types of GIDs, in the same order: "RoCE v2", "IB/RoCE v1", or empty if
	// unknown.
	GIDTypes []string `json:"gidTypes,omitempty"`
	// ActiveMTU is the payload of an RDMA packet in bytes; 0 if unknown, and for iWARP.
	ActiveMTU int `json:"activeMTU,omitempty"`
	// PKeys are the partition keys, such as 0xffff.
	PKeys []string `json:"pkeys,omitempty"`
	// GIDTable is the number of GIDs that the port can hold.
	GIDTable int `json:"gidTable,omitempty"`
}

// DeviceLimits are the maximum values of a device.
type DeviceLimits struct {
	// Connections is the number of queue pairs, Queue the requests per queue of one, Completions
	// the entries of a completion queue.
	Connections int `json:"connections"`
	Queue       int `json:"queue"`
	Completions int `json:"completions"`
	// Segments is the limit per request, ReadSegments per Read.
	Segments     int `json:"segments"`
	ReadSegments int `json:"readSegments"`
	// ReadsIn and ReadsOut are the outstanding Reads of a connection, from and to the peer.
	ReadsIn  int `json:"readsIn"`
	ReadsOut int `json:"readsOut"`
	// Message is the longest message in bytes.
	Message uint64 `json:"message"`
	// Regions is the number of memory regions, Windows of type 2 memory windows.
	Regions int `json:"regions"`
	Windows int `json:"windows"`
}
