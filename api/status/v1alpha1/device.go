package v1alpha1

// Device tells of an RDMA device.
type Device struct {
	// Name is empty where any device may be used, or before one is found. By says by what it was found.
	Name string `json:"name"`
	By   string `json:"by,omitempty"`
	// Transport is InfiniBand, RoCE or iWARP.
	Transport string        `json:"transport,omitempty"`
	Ports     []Port        `json:"ports,omitempty"`
	Limits    *DeviceLimits `json:"limits,omitempty"`
	// Problems are what keeps it from working, a sentence each that says what to do.
	Problems []string `json:"problems,omitempty"`
	// Notes are remarks for the administrator that are no problems, a sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Port tells of a port of a device.
type Port struct {
	Number int      `json:"number"`
	State  string   `json:"state"` // ACTIVE, DOWN, INIT or ARMED
	GIDs   []string `json:"gids,omitempty"`
	// GIDTypes are the types of GIDs, in the same order: "RoCE v2", "IB/RoCE v1", or empty if unknown.
	GIDTypes []string `json:"gidTypes,omitempty"`
	// ActiveMTU is the payload of an RDMA packet in bytes; 0 if unknown, and over iWARP.
	ActiveMTU int `json:"activeMTU,omitempty"`
	// PKeys are the partition keys, as 0xffff.
	PKeys []string `json:"pkeys,omitempty"`
	// GIDTable is how many GIDs the port has room for.
	GIDTable int `json:"gidTable,omitempty"`
}

// DeviceLimits are what a device has at most.
type DeviceLimits struct {
	// Connections is how many queue pairs there may be, Queue how many requests each queue of one has, Completions how many a completion queue reports.
	Connections int `json:"connections"`
	Queue       int `json:"queue"`
	Completions int `json:"completions"`
	// Segments are those of a request, ReadSegments those of a Read.
	Segments     int `json:"segments"`
	ReadSegments int `json:"readSegments"`
	// ReadsIn and ReadsOut are the Reads under way on a connection at once, from the peer and to it.
	ReadsIn  int `json:"readsIn"`
	ReadsOut int `json:"readsOut"`
	// Message is the longest message in bytes.
	Message uint64 `json:"message"`
	// Regions is how many memory regions there may be, Windows how many memory windows of type 2.
	Regions int `json:"regions"`
	Windows int `json:"windows"`
}
