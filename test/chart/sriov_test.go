//go:build operator

package chart

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/k8snetworkplumbingwg/sriov-network-device-plugin/pkg/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// parsePools reads the SR-IOV network device plugin's configuration by the plugin's own types, and
// returns the selectors of each resource. Unlike the plugin it refuses unknown fields: a misspelt
// selector would select too many devices.
func parsePools(text string) (map[string]types.NetDeviceSelectors, error) {
	var list types.ResourceConfList
	if err := strict(text, &list); err != nil {
		return nil, err
	}
	pools := map[string]types.NetDeviceSelectors{}
	for i, r := range list.ResourceList {
		if r.Selectors == nil {
			return nil, fmt.Errorf("resourceList[%d]: no selectors: the plugin panics", i)
		}
		// The plugin's older releases, as this one, do not read a list of selectors.
		var s types.NetDeviceSelectors
		if err := strict(string(*r.Selectors), &s); err != nil {
			return nil, fmt.Errorf("resourceList[%d].selectors: %w", i, err)
		}
		if !s.IsRdma {
			return nil, fmt.Errorf("resourceList[%d].selectors: isRdma is false: containers get no RDMA device", i)
		}
		pools[r.ResourcePrefix+"/"+r.ResourceName] = s
	}
	return pools, nil
}

func strict(text string, v any) error {
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// TestSRIOV checks the configuration of the device plugin and the CNI plugins.
func TestSRIOV(t *testing.T) {
	const resource = "sriov.devicePlugin.resources[0]."
	text, err := render(chart, "", "--set", "sriov.devicePlugin.enabled=true,sriov.network.enabled=true,sriov.network.vlan=5,sriov.network.rdmaCNI=true,sriov.network.ipam.type=static",
		"--set", resource+"resourceName=rdma_vf,"+resource+"vendors={15b3},"+resource+"pfNames={ens1f0#0-3},"+resource+"linkTypes={ether}")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, u := range objects(t, text) {
		found[u.GetKind()+" "+u.GetNamespace()+"/"+u.GetName()] = u
	}
	config, _, _ := unstructured.NestedString(found["ConfigMap kube-system/sriovdp-config"].Object, "data", "config.json")
	pools, err := parsePools(config)
	want := map[string]types.NetDeviceSelectors{"nvidia.com/rdma_vf": {
		DeviceSelectors: types.DeviceSelectors{Vendors: []string{"15b3"}}, PfNames: []string{"ens1f0#0-3"}, LinkTypes: []string{"ether"}, IsRdma: true,
	}}
	if diff := cmp.Diff(want, pools); err != nil || diff != "" {
		t.Errorf("the pools, as the plugin reads them: %v\n%s", err, diff)
	}
	tests := []struct {
		object, want string
		path         []string
	}{
		{
			"ConfigMap kube-system/sriovdp-config",
			`{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "nvidia.com", "selectors": {"isRdma": true, "vendors": ["15b3"], "pfNames": ["ens1f0#0-3"], "linkTypes": ["ether"]}}]}`,
			[]string{"data", "config.json"},
		},
		{
			"NetworkAttachmentDefinition " + namespace + "/rdma-net",
			`{"cniVersion": "1.0.0", "name": "rdma-net", "plugins": [{"type": "sriov", "vlan": 5, "ipam": {"type": "static"}}, {"type": "rdma"}]}`,
			[]string{"spec", "config"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.object, func(t *testing.T) {
			u := found[tt.object]
			if u == nil {
				t.Fatal("not rendered")
			}
			text, _, _ := unstructured.NestedString(u.Object, tt.path...)
			var have, want any
			if err := json.Unmarshal([]byte(text), &have); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if err := json.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Error(diff)
			}
		})
	}
	if have := found["NetworkAttachmentDefinition "+namespace+"/rdma-net"].GetAnnotations()["k8s.v1.cni.cncf.io/resourceName"]; have != "nvidia.com/rdma_vf" {
		t.Errorf("resourceName: have %q", have)
	}
}
