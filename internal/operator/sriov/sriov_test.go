package sriov

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what is made to testdata")

func golden(t *testing.T, file string, v any) {
	t.Helper()
	got, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", file, diff)
	}
}

func config(t *testing.T) *ResourceConfList {
	t.Helper()
	b, err := os.ReadFile("testdata/config.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestConfigMap reads a configuration in all the forms that the plugin accepts, and writes it in
// our form, which reads back unchanged.
func TestConfigMap(t *testing.T) {
	c := config(t)
	m, err := ConfigMap("kube-system", "sriovdp-config", c)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/configmap.yaml", m)
	again, err := Parse([]byte(m.Data[ConfigEntry]))
	if diff := cmp.Diff(c, again); err != nil || diff != "" {
		t.Errorf("read again: %v\n%s", err, diff)
	}
	if !c.ResourceList[0].Selectors[1].IsRdma || !c.ResourceList[1].Selectors[0].IsRdma {
		t.Error("isRdma is not read whatever its case, or not from a selector that stands alone")
	}
}

func TestServes(t *testing.T) {
	c := config(t)
	for resource, want := range map[string]string{
		"nvidia.com/rdma_vf": "", "intel.com/mlnx_sriov_rdma": "", "nvidia.com/rdma-sf": "",
		"intel.com/dpdk":    "resourceList[3].selectors[0].isRdma: want true, since containers get no RDMA device otherwise",
		"intel.com/rdma_vf": "resourceList: no resource is called intel.com/rdma_vf",
	} {
		if got := text(c.Serves(resource)); got != want {
			t.Errorf("%s: %s, want %s", resource, got, want)
		}
	}
}

func TestVariable(t *testing.T) {
	for resource, want := range map[string]string{
		"nvidia.com/rdma_vf": "PCIDEVICE_NVIDIA_COM_RDMA_VF", "intel.com/rdma-sf": "PCIDEVICE_INTEL_COM_RDMA-SF",
	} {
		if got := Variable(resource); got != want {
			t.Errorf("%s: %s, want %s", resource, got, want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestRefusals(t *testing.T) {
	one := func(s string) string { return `{"resourceList": [{"resourceName": "a", "selectors": {}, ` + s + `}]}` }
	selectors := func(s string) string { return `{"resourceList": [{"resourceName": "a", "selectors": [{` + s + `}]}]}` }
	for _, c := range []struct{ in, want string }{
		{`{"resourceList": []}`, "resourceList: 0 resources: want 1 to 256"},
		{`{"resourceList": [{"resourceName": "a"}]} {}`, "something follows the configuration: want one JSON object"},
		{one(`"isRdma": true`), `json: unknown field "isRdma"`},
		{selectors(`"pfName": ["a"]`), `json: unknown field "pfName"`},
		{one(`"selectors": {"isRDMAs": true}`), `json: unknown field "isRDMAs"`},
		{`{"resourceList": [{"resourceName": "a"}]}`, `resourceList[0].selectors: "0": want 1 to 256; {isRdma: true} picks every RDMA device`},
		{`{"resourceList": [{"resourceName": "a", "selectors": []}]}`, `resourceList[0].selectors: "0": want 1 to 256; {isRdma: true} picks every RDMA device`},
		{`{"resourceList": [{"resourceName": "a_", "selectors": {}}]}`, `resourceList[0].resourceName: "a_": want at most 63 letters, digits, '_' and '-', beginning and ending with a letter or digit`},
		{one(`"resourcePrefix": "Nvidia.com"`), `resourceList[0].resourcePrefix: "Nvidia.com": want a domain, such as nvidia.com`},
		{one(`"resourcePrefix": "x.kubernetes.io"`), `resourceList[0].resourcePrefix: "x.kubernetes.io": is Kubernetes' own: want another domain`},
		{one(`"deviceType": "disk"`), `resourceList[0].deviceType: "disk": want netDevice, accelerator or auxNetDevice`},
		{one(`"additionalInfo": {"all": {}}`), `resourceList[0].additionalInfo: "all": want a PCI address, such as 0000:3b:00.2, or "*"`},
		{
			`{"resourceList": [{"resourceName": "a", "selectors": {}}, {"resourceName": "a", "selectors": {}, "resourcePrefix": "intel.com"}]}`,
			`resourceList[1].resourceName: "a": resourceList[0] is called intel.com/a too: want a name for each`,
		},
		{selectors(`"vendors": ["15B3"]`), `resourceList[0].selectors[0].vendors[0]: "15B3": want four hexadecimal digits, such as 15b3`},
		{selectors(`"devices": ["1"]`), `resourceList[0].selectors[0].devices[0]: "1": want four hexadecimal digits, such as 101e`},
		{selectors(`"drivers": [""]`), `resourceList[0].selectors[0].drivers[0]: "": want a driver, such as mlx5_core`},
		{selectors(`"pciAddresses": ["3b:00.0"]`), `resourceList[0].selectors[0].pciAddresses[0]: "3b:00.0": want a PCI address, such as 0000:3b:00.2`},
		{selectors(`"pfNames": ["ens1f0#1-"]`), `resourceList[0].selectors[0].pfNames[0]: "ens1f0#1-": want an interface, such as ens1f0, or some of its functions, such as ens1f0#0,2-7`},
		{selectors(`"rootDevices": ["ens1f0"]`), `resourceList[0].selectors[0].rootDevices[0]: "ens1f0": want a PCI address, such as 0000:3b:00.2, or some of its functions, such as 0000:3b:00.0#0,2-7`},
		{selectors(`"linkTypes": ["eth"]`), `resourceList[0].selectors[0].linkTypes[0]: "eth": want ether or infiniband`},
		{selectors(`"pKeys": ["8001"]`), `resourceList[0].selectors[0].pKeys[0]: "8001": want a partition key, such as 0x8001`},
		{selectors(`"auxTypes": ["sf"]`), `resourceList[0].selectors[0].auxTypes: "sf": is only for deviceType auxNetDevice: leave it out`},
		{selectors(`"vdpaType": "x"`), `resourceList[0].selectors[0].vdpaType: "x": want vhost or virtio`},
		{selectors(`"vdpaType": "vhost", "isRdma": true`), `resourceList[0].selectors[0].vdpaType: "vhost": a device is not for RDMA and vDPA at once: leave out isRdma or this`},
		{one(`"deviceType": "accelerator", "selectors": {"isRdma": true}`), `resourceList[0].selectors[0].isRdma: "true": is not for deviceType accelerator: leave it out`},
		{strings.Repeat(" ", MaxFile+1), "1048577 bytes: want at most 1048576"},
	} {
		if _, err := Parse([]byte(c.in)); text(err) != c.want {
			t.Errorf("%.80s\n got %v\nwant %s", c.in, err, c.want)
		}
	}
}

func TestDefinition(t *testing.T) {
	n := &Network{Namespace: "storage", Name: "rdma-net", Resource: "nvidia.com/rdma_vf", Type: "sriov", VLAN: 7, RDMA: true, IPAM: map[string]any{"type": "host-local", "subnet": "192.0.2.0/24"}}
	u, err := n.Definition()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/network.yaml", u)
	again, err := ParseDefinition(u)
	if diff := cmp.Diff(n, again); err != nil || diff != "" {
		t.Errorf("read again: %v\n%s", err, diff)
	}
	for want, change := range map[string]func(*Network){
		"name: missing: want that of the NetworkAttachmentDefinition":                                   func(n *Network) { n.Name = "" },
		`resource: "rdma_vf": want a domain and a name, such as nvidia.com/rdma_vf`:                     func(n *Network) { n.Resource = "rdma_vf" },
		`type: "macvlan": want sriov, ib-sriov or host-device`:                                          func(n *Network) { n.Type = "macvlan" },
		"vlan: 7: is only for type sriov: leave it out":                                                 func(n *Network) { n.Type = "ib-sriov" },
		"vlan: 4095: want 0 to 4094":                                                                    func(n *Network) { n.VLAN = 4095 },
		"ipam.type: missing: want a plugin that gives out addresses, such as host-local or whereabouts": func(n *Network) { n.IPAM = map[string]any{} },
	} {
		bad := *n
		change(&bad)
		if _, err := bad.Definition(); text(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, change := range map[string]func(*unstructured.Unstructured){
		"k8s.cni.cncf.io/v1, Other: want a NetworkAttachmentDefinition of k8s.cni.cncf.io/v1": func(u *unstructured.Unstructured) { u.SetKind("Other") },
		"spec.config: want the CNI configuration, a string of JSON":                           func(u *unstructured.Unstructured) { delete(u.Object, "spec") },
		`spec.config: cniVersion "1.0.0", name "rdma-net": want 1.0.0 and "other"`:            func(u *unstructured.Unstructured) { u.SetName("other") },
		"spec.config: plugins: want one, and perhaps rdma behind it": func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"config": `{"cniVersion": "1.0.0", "name": "rdma-net", "plugins": [{"type": "rdma"}, {"type": "sriov"}]}`}
		},
		`spec.config: json: unknown field "x"`:                               func(u *unstructured.Unstructured) { u.Object["spec"] = map[string]any{"config": `{"x": 1}`} },
		`resource: "": want a domain and a name, such as nvidia.com/rdma_vf`: func(u *unstructured.Unstructured) { u.SetAnnotations(nil) },
	} {
		bad := u.DeepCopy()
		change(bad)
		if _, err := ParseDefinition(bad); text(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	b, err := os.ReadFile("testdata/config.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"resourceList": [{"resourceName": "a", "selectors": {}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			return
		}
		m, err := ConfigMap("a", "b", c)
		if err != nil {
			t.Fatalf("%q was read, but is not written: %v", b, err)
		}
		again, err := Parse([]byte(m.Data[ConfigEntry]))
		if err != nil {
			t.Fatalf("%q is not read again: %v", m.Data[ConfigEntry], err)
		}
		twice, err := ConfigMap("a", "b", again)
		if err != nil || !bytes.Equal([]byte(twice.Data[ConfigEntry]), []byte(m.Data[ConfigEntry])) {
			t.Fatalf("%q becomes another one: %v", b, err)
		}
	})
}
