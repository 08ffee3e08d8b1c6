// Package sriov speaks the contract of the SR-IOV network device plugin (k8snetworkplumbingwg/sriov-network-device-plugin): its configuration file, the names
// of its resources and of the variables that containers get. The plugin cannot be imported as a Go module, so this is a mirror of its JSON.
package sriov

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of a configuration.
const (
	MaxFile      = 1 << 20
	MaxResources = 256
)

// DefaultPrefix is that of resources that name none, unless the plugin is started with another one.
const DefaultPrefix = "intel.com"

// ResourceConfList is the plugin's configuration file.
type ResourceConfList struct {
	ResourceList []ResourceConfig `json:"resourceList"`
}

// ResourceConfig is a pool of devices under one name.
type ResourceConfig struct {
	// ResourcePrefix is a domain; empty: the plugin's own.
	ResourcePrefix string `json:"resourcePrefix,omitempty"`
	// ResourceName is what follows the prefix and a slash.
	ResourceName string `json:"resourceName"`
	// DeviceType is netDevice, accelerator or auxNetDevice; empty: netDevice.
	DeviceType DeviceType `json:"deviceType,omitempty"`
	// ExcludeTopology keeps the devices' NUMA nodes from the kubelet.
	ExcludeTopology bool `json:"excludeTopology,omitempty"`
	// Selectors pick the devices: those that one of them picks. At least one is wanted: without any the plugin panics.
	Selectors SelectorList `json:"selectors,omitempty"`
	// AdditionalInfo is passed on to containers, by PCI address, or "*" for all.
	AdditionalInfo map[string]map[string]string `json:"additionalInfo,omitempty"`
}

// DeviceType is a kind of devices.
type DeviceType string

// Kinds of devices.
const (
	NetDevice    DeviceType = "netDevice"
	Accelerator  DeviceType = "accelerator"
	AuxNetDevice DeviceType = "auxNetDevice"
)

// Selectors are what devices have in common; of each list, one entry is enough.
type Selectors struct {
	Vendors      []string `json:"vendors,omitempty"`
	Devices      []string `json:"devices,omitempty"`
	Drivers      []string `json:"drivers,omitempty"`
	PciAddresses []string `json:"pciAddresses,omitempty"`
	AcpiIndexes  []string `json:"acpiIndexes,omitempty"`
	PfNames      []string `json:"pfNames,omitempty"`
	RootDevices  []string `json:"rootDevices,omitempty"`
	LinkTypes    []string `json:"linkTypes,omitempty"`
	DDPProfiles  []string `json:"ddpProfiles,omitempty"`
	PKeys        []string `json:"pKeys,omitempty"`
	AuxTypes     []string `json:"auxTypes,omitempty"`
	VdpaType     string   `json:"vdpaType,omitempty"`
	// IsRdma gives containers the devices' character devices too. The plugin's own type has no tag for this field; Go finds it whatever its case, here
	// as there.
	IsRdma       bool `json:"isRdma,omitempty"`
	NeedVhostNet bool `json:"needVhostNet,omitempty"`
}

// SelectorList is written as a list; one alone may also stand by itself.
type SelectorList []Selectors

// UnmarshalJSON reads a list of selectors, or a single one.
func (l *SelectorList) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '{' {
		var one Selectors
		if err := strict(b, &one); err != nil {
			return err
		}
		*l = SelectorList{one}
		return nil
	}
	var list []Selectors
	if err := strict(b, &list); err != nil {
		return err
	}
	*l = list
	return nil
}

// strict reads one JSON value without unknown fields.
func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the configuration: want one JSON object")
	}
	return nil
}

// Parse reads a configuration, and says what is wrong in it. Unknown fields are refused, since the plugin passes over them: what is misspelt selects more than is meant.
func Parse(b []byte) (*ResourceConfList, error) {
	if len(b) > MaxFile {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(b), MaxFile)
	}
	c := new(ResourceConfList)
	if err := strict(b, c); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// Resource is the name under which pods ask for a device.
func (r *ResourceConfig) Resource() string {
	prefix := r.ResourcePrefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "/" + r.ResourceName
}

// Variable is the environment variable that names a container's devices of a resource, such as PCIDEVICE_NVIDIA_COM_RDMA_VF for nvidia.com/rdma_vf; with
// _INFO behind it, the one that describes them. A hyphen stays, so that shells cannot read it.
func Variable(resource string) string {
	return "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(resource))
}
