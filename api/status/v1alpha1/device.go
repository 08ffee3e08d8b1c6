package v1alpha1

import "fmt"

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
	// Problems keep the device from working. The first one causes the others, as far as known.
	Problems []Problem `json:"problems,omitempty"`
	// Notes are further remarks for the administrator, one sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Problem is a problem of a device.
type Problem struct {
	// Reason is a reason of the condition RDMAReady, such as PortDown.
	Reason string `json:"reason"`
	// Message is a sentence with the remedy.
	Message string `json:"message"`
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

// MTUMismatch returns a sentence on the first client whose path MTU exceeds the active MTU of its
// port, "" if there is none.
func (e *Export) MTUMismatch() string {
	first, others := "", 0
	for i := range e.Clients {
		c := &e.Clients[i]
		if c.RDMA == nil || c.RDMA.QueuePair == nil {
			continue
		}
		q := c.RDMA.QueuePair
		switch active := e.activeMTU(q.Device, q.Port); {
		case active == 0 || q.PathMTU <= active:
		case first != "":
			others++
		default:
			first = fmt.Sprintf("the path MTU of client %s is %d, and the active MTU of port %d of %s is %d, so large messages are lost: give the network interfaces of both, and the switches in between, the same MTU",
				c.Remote.Addr().Unmap(), q.PathMTU, q.Port, q.Device, active)
		}
	}
	if others > 0 {
		first += fmt.Sprintf(" (and %d more clients)", others)
	}
	return first
}

// activeMTU returns the active MTU of a device's port, 0 if unknown.
func (e *Export) activeMTU(device string, number int) int {
	for _, l := range e.Listeners {
		if l.Device == nil || l.Device.Name != device {
			continue
		}
		for _, p := range l.Device.Ports {
			if p.Number == number {
				return p.ActiveMTU
			}
		}
	}
	return 0
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
	// IRD and ORD bound the outstanding Reads of a connection, from and to the peer.
	IRD int `json:"ird"`
	ORD int `json:"ord"`
	// Message is the longest message in bytes.
	Message uint64 `json:"message"`
	// Regions is the number of memory regions, Windows of type 2 memory windows.
	Regions int `json:"regions"`
	Windows int `json:"windows"`
}
