//go:build operator

package chart

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/sluice/internal/operator/sriov"
)

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
	config, _, _ := unstructured.NestedString(found["ConfigMap kube-system/sriovdp-config"].Object, "data", sriov.ConfigEntry)
	if list, err := sriov.Parse([]byte(config)); err != nil {
		t.Error(err)
	} else if err := list.Serves("nvidia.com/rdma_vf"); err != nil {
		t.Error(err)
	}
	if n, err := sriov.ParseDefinition(found["NetworkAttachmentDefinition "+namespace+"/rdma-net"]); err != nil || n.Resource != "nvidia.com/rdma_vf" || !n.RDMA {
		t.Errorf("%+v, %v", n, err)
	}
	tests := []struct {
		object, want string
		path         []string
	}{
		{
			"ConfigMap kube-system/sriovdp-config",
			`{"resourceList": [{"resourceName": "rdma_vf", "resourcePrefix": "nvidia.com", "selectors": [{"isRdma": true, "vendors": ["15b3"], "pfNames": ["ens1f0#0-3"], "linkTypes": ["ether"]}]}]}`,
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
