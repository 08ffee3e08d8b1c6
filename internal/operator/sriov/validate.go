package sriov

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

var (
	prefixPattern  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	namePattern    = regexp.MustCompile(`^[a-zA-Z0-9]([-_a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	hexPattern     = regexp.MustCompile(`^[0-9a-f]{4}$`)
	addressPattern = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	// rangesPattern matches the virtual functions of a physical one, counted from 0.
	rangesPattern = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$`)
	pkeyPattern   = regexp.MustCompile(`^0x[0-9a-fA-F]{1,4}$`)
)

// Validate returns all problems, one per line.
func (c *ResourceConfList) Validate() error {
	if n := len(c.ResourceList); n < 1 || n > MaxResources {
		return fmt.Errorf("resourceList: %d resources: want 1 to %d", n, MaxResources)
	}
	var all []error
	seen := map[string]int{}
	for i := range c.ResourceList {
		r := &c.ResourceList[i]
		field := fmt.Sprintf("resourceList[%d]", i)
		all = append(all, r.validate(field)...)
		if j, twice := seen[r.Resource()]; twice {
			all = append(all, fmt.Errorf("%s.resourceName: %q: resourceList[%d] is called %s too: want a name for each", field, r.ResourceName, j, r.Resource()))
		}
		seen[r.Resource()] = i
	}
	return errors.Join(all...)
}

func (r *ResourceConfig) validate(field string) (all []error) {
	refuse := func(at, value, format string, a ...any) {
		all = append(all, fmt.Errorf("%s.%s: %q: %s", field, at, value, fmt.Sprintf(format, a...)))
	}
	if p := r.ResourcePrefix; p != "" && (len(p) > 253 || !prefixPattern.MatchString(p)) {
		refuse("resourcePrefix", p, "want a domain, such as nvidia.com")
	} else if p == "kubernetes.io" || strings.HasSuffix(p, ".kubernetes.io") {
		refuse("resourcePrefix", p, "is Kubernetes' own: want another domain")
	}
	if len(r.ResourceName) > 63 || !namePattern.MatchString(r.ResourceName) {
		refuse("resourceName", r.ResourceName, "want at most 63 letters, digits, '_' and '-', beginning and ending with a letter or digit")
	}
	switch r.DeviceType {
	case "", NetDevice, Accelerator, AuxNetDevice:
	default:
		refuse("deviceType", string(r.DeviceType), "want netDevice, accelerator or auxNetDevice")
	}
	if n := len(r.Selectors); n < 1 || n > MaxResources {
		refuse("selectors", fmt.Sprint(n), "want 1 to %d; {isRdma: true} picks every RDMA device", MaxResources)
		return all
	}
	for i := range r.Selectors {
		all = append(all, r.Selectors[i].validate(fmt.Sprintf("%s.selectors[%d]", field, i), r.DeviceType)...)
	}
	for key := range r.AdditionalInfo {
		if key != "*" && !addressPattern.MatchString(key) {
			refuse("additionalInfo", key, `want a PCI address, such as 0000:3b:00.2, or "*"`)
		}
	}
	return all
}

func (s *Selectors) validate(field string, kind DeviceType) (all []error) {
	refuse := func(at, value, want string) {
		all = append(all, fmt.Errorf("%s.%s: %q: %s", field, at, value, want))
	}
	each := func(at string, list []string, good func(string) bool, want string) {
		for i, v := range list {
			if !good(v) {
				refuse(fmt.Sprintf("%s[%d]", at, i), v, want)
			}
		}
	}
	some := func(v string) bool { return v != "" }
	const pci = "want a PCI address, such as 0000:3b:00.2"
	each("vendors", s.Vendors, hexPattern.MatchString, "want four hexadecimal digits, such as 15b3")
	each("devices", s.Devices, hexPattern.MatchString, "want four hexadecimal digits, such as 101e")
	each("drivers", s.Drivers, some, "want a driver, such as mlx5_core")
	each("pciAddresses", s.PciAddresses, addressPattern.MatchString, pci)
	each("acpiIndexes", s.AcpiIndexes, some, "want an ACPI index")
	each("pfNames", s.PfNames, func(v string) bool { return functions(v, some) }, "want an interface, such as ens1f0, or some of its functions, such as ens1f0#0,2-7")
	each("rootDevices", s.RootDevices, func(v string) bool { return functions(v, addressPattern.MatchString) }, pci+", or some of its functions, such as 0000:3b:00.0#0,2-7")
	each("linkTypes", s.LinkTypes, func(v string) bool { return v == "ether" || v == "infiniband" }, "want ether or infiniband")
	each("ddpProfiles", s.DDPProfiles, some, "want the name of a profile")
	each("pKeys", s.PKeys, pkeyPattern.MatchString, "want a partition key, such as 0x8001")
	each("auxTypes", s.AuxTypes, some, "want a kind of auxiliary devices, such as sf")
	if len(s.AuxTypes) > 0 && kind != AuxNetDevice {
		refuse("auxTypes", strings.Join(s.AuxTypes, ","), "is only for deviceType auxNetDevice: leave it out")
	}
	if s.VdpaType != "" && s.VdpaType != "vhost" && s.VdpaType != "virtio" {
		refuse("vdpaType", s.VdpaType, "want vhost or virtio")
	}
	if s.IsRdma && s.VdpaType != "" {
		refuse("vdpaType", s.VdpaType, "a device is not for RDMA and vDPA at once: leave out isRdma or this")
	}
	if s.IsRdma && kind == Accelerator {
		refuse("isRdma", "true", "is not for deviceType accelerator: leave it out")
	}
	return all
}

// functions reports whether v is a physical function, optionally with # and a list of its virtual
// ones.
func functions(v string, physical func(string) bool) bool {
	name, list, some := strings.Cut(v, "#")
	return physical(name) && (!some || rangesPattern.MatchString(list))
}

// Serves returns an error if a gateway cannot use devices of a resource.
func (c *ResourceConfList) Serves(resource string) error {
	for i := range c.ResourceList {
		r := &c.ResourceList[i]
		if r.Resource() != resource {
			continue
		}
		for j := range r.Selectors {
			if !r.Selectors[j].IsRdma {
				return fmt.Errorf("resourceList[%d].selectors[%d].isRdma: want true, since containers get no RDMA device otherwise", i, j)
			}
		}
		return nil
	}
	return fmt.Errorf("resourceList: no resource is called %s", resource)
}
