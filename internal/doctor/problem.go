package doctor

import "fmt"

// Problem is a problem that keeps RDMA from working.
type Problem struct {
	// Reason is one of the constants below, and a reason of the operator's condition RDMAReady. It
	// is empty for problems of clients.
	Reason string
	// Message is a sentence with the remedy.
	Message string
}

// Reasons of problems.
const (
	// DeviceMissing means that there is no RDMA device, or none of the configured name.
	DeviceMissing = "DeviceMissing"
	// DeviceInOtherNamespace means that the kernel shows each RDMA device in one network namespace,
	// and the device is not in this one.
	DeviceInOtherNamespace = "DeviceInOtherNamespace"
	// FunctionWithoutDevice means that the function that the SR-IOV device plugin gave to this
	// container has no RDMA device.
	FunctionWithoutDevice = "FunctionWithoutDevice"
	// DeviceNodeMissing means that a file of /dev/infiniband is missing.
	DeviceNodeMissing = "DeviceNodeMissing"
	// DeviceNodeDenied means that this process may not open a file of /dev/infiniband.
	DeviceNodeDenied = "DeviceNodeDenied"
	// PortDown means that no port of the device is active.
	PortDown = "PortDown"
	// GIDMissing means that the address has no GID on the RoCE device.
	GIDMissing = "GIDMissing"
	// RoCEv1Only means that the address has a GID of RoCE version 1 only.
	RoCEv1Only = "RoCEv1Only"
	// DeviceNotUsable means that another check failed.
	DeviceNotUsable = "DeviceNotUsable"
)

// report adds a problem.
type report func(reason, format string, a ...any)

// collect returns an empty list, and the function that adds to it.
func collect() (*[]Problem, report) {
	ps := new([]Problem)
	return ps, func(reason, format string, a ...any) {
		*ps = append(*ps, Problem{Reason: reason, Message: fmt.Sprintf(format, a...)})
	}
}
