// Package api has the types shared by the operator and the speakers: the speaker's file, its status
// page, and the identity of a Lease's holder.
package api

import (
	"fmt"
	"net/netip"
	"strings"

	"sigs.k8s.io/yaml"
)

// Bounds of a Config.
const (
	MaxGroups    = 64
	MaxAddresses = 1024 // of a group: more than an NFSGateway may have exports
	MaxFile      = 1 << 20
)

// Config is the speaker's file, in YAML or JSON.
type Config struct {
	// Interface is the name of the interface, inside the pod, that carries the addresses, such as
	// rdma0.
	Interface string `json:"interface"`
	// Groups are the addresses, divided by Lease.
	Groups []Group `json:"groups"`
	// Networks are those on the interface's link in which the addresses lie; empty: those that the
	// interface has an address in.
	Networks []netip.Prefix `json:"networks,omitempty"`
	// Gateways lead to all other networks, at most one of each IP family; empty: the routes that
	// the interface has anyway.
	Gateways []netip.Addr `json:"gateways,omitempty"`
}

// Group is a set of addresses that one pod carries, all or none.
type Group struct {
	// Lease is the name of a Lease in the pod's namespace. It exists: a speaker makes none.
	Lease string `json:"lease"`
	// Addresses are unicast addresses of either family.
	Addresses []netip.Addr `json:"addresses"`
}

// Parse reads a Config and returns its faults. Unknown fields are refused.
func Parse(b []byte) (*Config, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%d bytes, want at most %d", len(b), MaxFile)
	}
	c := new(Config)
	if err := yaml.UnmarshalStrict(b, c); err != nil {
		return nil, err
	}
	return c, c.check()
}

func (c *Config) check() error {
	if n := len(c.Interface); n == 0 || n > 15 || strings.ContainsAny(c.Interface, "/ ") || c.Interface == "lo" {
		return fmt.Errorf("interface: %q, want the name of a network interface", c.Interface)
	}
	if len(c.Groups) > MaxGroups {
		return fmt.Errorf("groups: %d, want at most %d", len(c.Groups), MaxGroups)
	}
	leases, owner := map[string]bool{}, map[netip.Addr]string{}
	for i, g := range c.Groups {
		if g.Lease == "" || len(g.Lease) > 253 || strings.Contains(g.Lease, "/") {
			return fmt.Errorf("groups[%d].lease: %q, want the name of a Lease", i, g.Lease)
		}
		if leases[g.Lease] {
			return fmt.Errorf("groups[%d].lease: %s is another group's too", i, g.Lease)
		}
		leases[g.Lease] = true
		if len(g.Addresses) > MaxAddresses {
			return fmt.Errorf("groups[%d].addresses: %d, want at most %d", i, len(g.Addresses), MaxAddresses)
		}
		for j, a := range g.Addresses {
			if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
				return fmt.Errorf("groups[%d].addresses[%d]: %v, want a unicast address that is no link-local one", i, j, a)
			}
			if o, taken := owner[a]; taken {
				return fmt.Errorf("groups[%d].addresses[%d]: %v is in group %s too", i, j, a, o)
			}
			owner[a] = g.Lease
		}
	}
	for i, n := range c.Networks {
		if !n.IsValid() || n.Masked() != n || n.Bits() == 0 {
			return fmt.Errorf("networks[%d]: %v, want a network such as 192.0.2.0/24", i, n)
		}
	}
	families := map[bool]bool{}
	for i, g := range c.Gateways {
		if !g.IsValid() || g.IsUnspecified() || g.IsMulticast() || g.Is4In6() || g.Zone() != "" {
			return fmt.Errorf("gateways[%d]: %v, want a router's address", i, g)
		}
		if families[g.Is4()] {
			return fmt.Errorf("gateways[%d]: %v, want at most one of each IP family", i, g)
		}
		families[g.Is4()] = true
	}
	return nil
}

// Identity is the holder identity of a pod. The UID distinguishes the pod from an earlier one of
// the same name.
func Identity(pod, uid string) string { return pod + "_" + uid }

// PodOf returns the name and the UID of the pod that a holder identity is for. A name has no
// underscore.
func PodOf(identity string) (pod, uid string) {
	pod, uid, _ = strings.Cut(identity, "_")
	return pod, uid
}

// The reasons of a Problem.
const (
	// there is no such interface in the pod, or it is down
	InterfaceMissing = "InterfaceMissing"
	// the interface is none on which addresses can be announced
	NetworkNotLayer2 = "NetworkNotLayer2"
	// the interface or its RDMA device takes no further address
	DeviceAddressLimit = "DeviceAddressLimit"
	NotPermitted       = "NotPermitted" // a capability is missing
	// a host that does not hold the Lease answers for an address
	AddressConflict = "AddressConflict"
	// a Lease can neither be read nor written, or does not exist
	LeaseUnreachable = "LeaseUnreachable"
	ConfigInvalid    = "ConfigInvalid" // the file is invalid; the former one stays in force
	// the gateway of the pod does not serve, so the pod takes no group
	GatewayNotReady = "GatewayNotReady"
)

// Problem is something that keeps a speaker from its work.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"` // a sentence
	Lease   string `json:"lease,omitempty"`
	Address string `json:"address,omitempty"`
}

// Error makes a Problem an error.
func (p *Problem) Error() string { return p.Reason + ": " + p.Message }

// Status is the page /status.
type Status struct {
	Version   string        `json:"version"`
	Pod       string        `json:"pod"`
	Identity  string        `json:"identity"`
	Interface Interface     `json:"interface"`
	Groups    []GroupStatus `json:"groups"`
	Problems  []Problem     `json:"problems"`
	// ConfigHash is the SHA-256 of the file that is in force, in hexadecimal; empty before the
	// first.
	ConfigHash string `json:"configHash"`
	Stopping   bool   `json:"stopping,omitempty"`
}

// Interface is the network interface of the addresses.
type Interface struct {
	Name string `json:"name"`
	MAC  string `json:"mac,omitempty"`
	Up   bool   `json:"up"`
}

// GroupStatus is how a group stands.
type GroupStatus struct {
	Lease string `json:"lease"`
	// State is Following, Challenging, Acquiring, Holding or Releasing.
	State string `json:"state"`
	// Holder is the holder identity that the Lease had when it was last seen; empty if it was free.
	Holder string `json:"holder"`
	// Holding says that this pod has the group; LeaseValid, that nobody else can have it by now.
	Holding    bool            `json:"holding"`
	LeaseValid bool            `json:"leaseValid"`
	Addresses  []AddressStatus `json:"addresses"`
}

// AddressStatus is how an address stands.
type AddressStatus struct {
	Address netip.Addr `json:"address"`
	// State is Idle, Asking, Carried (this pod answers for it), Taken (another host does) or
	// Refused (by the interface).
	State string `json:"state"`
	// Foreign is the hardware address of another host that claimed the address lately.
	Foreign string `json:"foreign,omitempty"`
}
