package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"sluice.dev/sluice/pkg/rdma/verbs"
)

// TestAllocate reads a container's environment as the gateway does.
func TestAllocate(t *testing.T) {
	p, err := newPlugin("sluice.test/rdma_vf", 4)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Allocate(t.Context(), &v1beta1.AllocateRequest{ContainerRequests: []*v1beta1.ContainerAllocateRequest{
		{DevicesIds: []string{p.devices[3].ID, p.devices[1].ID}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var environ, files []string
	for key, value := range r.ContainerResponses[0].Envs {
		environ = append(environ, key+"="+value)
	}
	for _, d := range r.ContainerResponses[0].Devices {
		files = append(files, d.ContainerPath)
	}
	got, err := verbs.AssignedDevices(environ)
	if err != nil {
		t.Fatal(err)
	}
	const variable = "PCIDEVICE_SLUICE_TEST_RDMA_VF"
	if d := cmp.Diff([]verbs.Assigned{
		{Variable: variable, ID: "0000:3b:02.3", Device: "mlx5_5", Verbs: "/dev/infiniband/uverbs3"},
		{Variable: variable, ID: "0000:3b:02.1", Device: "mlx5_3", Verbs: "/dev/infiniband/uverbs1"},
	}, got); d != "" {
		t.Error(d)
	}
	slices.Sort(files)
	if d := cmp.Diff([]string{"/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs1", "/dev/infiniband/uverbs3"}, files); d != "" {
		t.Error(d)
	}
	for _, id := range []string{"", "0000:3b:02.4", "0000:3b:02.-1", "0000:3b:02.1 "} {
		if _, err := p.allocate([]string{id}); err == nil {
			t.Errorf("device %q was given out", id)
		}
	}
}

func TestNewPlugin(t *testing.T) {
	for _, c := range []struct {
		resource string
		count    int
		want     string
	}{{"rdma_vf", 1, "want DOMAIN/NAME"}, {"sluice.test/", 1, "want DOMAIN/NAME"}, {"sluice.test/vf", 9, "want 0 to 8"}, {"sluice.test/vf", -1, "want 0 to 8"}} {
		if _, err := newPlugin(c.resource, c.count); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q, %d: %v, want %q", c.resource, c.count, err, c.want)
		}
	}
}
