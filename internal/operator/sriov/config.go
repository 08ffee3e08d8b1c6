// Package sriov mirrors the interface of the SR-IOV network device plugin
// (k8snetworkplumbingwg/sriov-network-device-plugin): its JSON configuration, its resource names
// and its container variables. The plugin cannot be imported as a Go module.
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

// DefaultPrefix is the plugin's default prefix of resource names.
const DefaultPrefix = "intel.com"

// ResourceConfList is the plugin's configuration file.
type ResourceConfList struct {
	ResourceList []ResourceConfig `json:"resourceList"`
}

// ResourceConfig is a pool of devices under one name.
type ResourceConfig struct {
	// ResourcePrefix is a domain; empty means the plugin's prefix.
	ResourcePrefix string `json:"resourcePrefix,omitempty"`
	// ResourceName is the name after the prefix and a slash.
	ResourceName string `json:"resourceName"`
	// DeviceType is netDevice, accelerator or auxNetDevice; empty means netDevice.
	DeviceType DeviceType `json:"deviceType,omitempty"`
	// ExcludeTopology hides the devices' NUMA nodes from the kubelet.
	ExcludeTopology bool `json:"excludeTopology,omitempty"`
	// Selectors select the devices; a device needs to match one. At least one is required: the
	// plugin panics without any.
	Selectors SelectorList `json:"selectors,omitempty"`
	// AdditionalInfo is passed to containers, by PCI address, or "*" for all.
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

// Selectors match devices by properties. A device needs to match one entry of each list.
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
	// IsRdma also gives containers the RDMA character devices. As in the plugin, any case of the
	// JSON name matches.
	IsRdma       bool `json:"isRdma,omitempty"`
	NeedVhostNet bool `json:"needVhostNet,omitempty"`
}

// SelectorList is written as a list; a single element may also stand alone.
type SelectorList []Selectors

// UnmarshalJSON reads a list of selectors or a single selector.
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

// Parse reads and checks a configuration. It refuses unknown fields, which the plugin ignores: a
// misspelt selector selects too many devices.
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

// Resource returns the name that pods request a device by.
func (r *ResourceConfig) Resource() string {
	prefix := r.ResourcePrefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "/" + r.ResourceName
}

// Variable returns the environment variable with a container's devices of a resource, such as
// PCIDEVICE_NVIDIA_COM_RDMA_VF for nvidia.com/rdma_vf. The variable with the suffix _INFO describes
// them. Hyphens stay, so shells cannot read such variables.
func Variable(resource string) string {
	return "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(resource))
}
