package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// maxDevices is the number of functions behind the eight functions of one slot's bus and device
// number.
const maxDevices = 8

// plugin is the server for kubelet.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	server   *grpc.Server
	resource string
	devices  []*v1beta1.Device
}

func newPlugin(resource string, count int) (*plugin, error) {
	if domain, name, ok := strings.Cut(resource, "/"); !ok || domain == "" || name == "" {
		return nil, fmt.Errorf("resource %q: want DOMAIN/NAME", resource)
	}
	if count < 0 || count > maxDevices {
		return nil, fmt.Errorf("count %d: want 0 to %d", count, maxDevices)
	}
	p := &plugin{server: grpc.NewServer(), resource: resource}
	for i := range count {
		p.devices = append(p.devices, &v1beta1.Device{ID: address(i), Health: v1beta1.Healthy})
	}
	v1beta1.RegisterDevicePluginServer(p.server, p)
	return p, nil
}

// address returns the PCI address of a virtual function, which is also its device's ID for kubelet.
func address(i int) string { return fmt.Sprintf("0000:3b:02.%d", i) }

// register announces the plugin to kubelet.
func (p *plugin) register(kubelet string) error {
	conn, err := grpc.NewClient("unix:"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx,
		&v1beta1.RegisterRequest{Version: v1beta1.Version, Endpoint: "sluice.sock", ResourceName: p.resource}, grpc.WaitForReady(true))
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices}); err != nil {
		return err
	}
	<-stream.Context().Done() // devices never change
	return nil
}

func (p *plugin) Allocate(_ context.Context, r *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	var all v1beta1.AllocateResponse
	for _, c := range r.ContainerRequests {
		one, err := p.allocate(c.DevicesIds)
		if err != nil {
			return nil, err
		}
		all.ContainerResponses = append(all.ContainerResponses, one)
	}
	return &all, nil
}

// allocate returns the environment and device files of a container with these devices.
func (p *plugin) allocate(ids []string) (*v1beta1.ContainerAllocateResponse, error) {
	type rdma struct {
		CM     string `json:"rdma_cm"`
		Device string `json:"rdma_dev"`
		Verbs  string `json:"uverbs"`
	}
	type info struct {
		Generic map[string]string `json:"generic"`
		RDMA    rdma              `json:"rdma"`
	}
	const folder = "/dev/infiniband/"
	file := func(name string) *v1beta1.DeviceSpec {
		return &v1beta1.DeviceSpec{ContainerPath: folder + name, HostPath: "/dev/null", Permissions: "rw"}
	}
	files := []*v1beta1.DeviceSpec{file("rdma_cm")}
	infos := map[string]info{}
	for _, id := range ids {
		var i int
		if _, err := fmt.Sscanf(id, "0000:3b:02.%d", &i); err != nil || i < 0 || i >= len(p.devices) || address(i) != id {
			return nil, fmt.Errorf("device %q: there is none", id)
		}
		verbs := fmt.Sprintf("uverbs%d", i)
		files = append(files, file(verbs))
		infos[id] = info{map[string]string{"deviceID": id}, rdma{folder + "rdma_cm", fmt.Sprintf("mlx5_%d", i+2), folder + verbs}}
	}
	b, err := json.Marshal(infos)
	if err != nil {
		return nil, err
	}
	key := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(p.resource))
	return &v1beta1.ContainerAllocateResponse{
		Devices: files,
		Envs:    map[string]string{key: strings.Join(ids, ","), key + "_INFO": string(b)},
	}, nil
}
