//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"
)

// Query opens a device by its name, and returns its limits.
func Query(name string) (limits Limits, err error) {
	err = opened(name, func(context *C.struct_ibv_context) error {
		var l C.struct_sv_limits
		if errno := C.sv_limits_of(context, 1, &l); errno != 0 {
			return fmt.Errorf("verbs: asking %s for its limits: %w", name, syscall.Errno(errno))
		}
		limits = Limits{
			Connections: int(l.max_connections), Queue: int(l.max_work), Completions: int(l.max_completions), Segments: int(l.max_segments),
			ReadSegments: int(l.max_read_segments), IRD: int(l.max_reads_in), ORD: int(l.max_reads_out), Message: uint64(l.max_message),
			Regions: int(l.max_regions), Windows: int(l.max_windows),
		}
		return nil
	})
	return limits, err
}

// QueryMTU opens a device by its name, and returns the MTU of each of its ports.
func QueryMTU(name string) (all []PortMTU, err error) {
	err = opened(name, func(context *C.struct_ibv_context) error {
		for port := C.uint8_t(1); ; port++ {
			var active, most C.int
			more := C.sv_mtu_of(context, port, &active, &most)
			if more < 0 {
				return fmt.Errorf("verbs: query of port %d of %s: %w", port, name, syscall.Errno(-more))
			}
			if more == 0 {
				return nil
			}
			all = append(all, PortMTU{Port: int(port), Active: int(active), Max: int(most)})
			if port == 255 {
				return nil
			}
		}
	})
	return all, err
}

// opened opens a device, calls do, and closes it.
func opened(name string, do func(*C.struct_ibv_context) error) error {
	var n C.int
	list, err := C.ibv_get_device_list(&n)
	if list == nil {
		return fmt.Errorf("verbs: listing the devices: %w", err)
	}
	defer C.ibv_free_device_list(list)
	for _, d := range unsafe.Slice(list, int(n)) {
		if C.GoString(C.ibv_get_device_name(d)) != name {
			continue
		}
		context, err := C.ibv_open_device(d)
		if context == nil {
			return fmt.Errorf("verbs: opening %s: %w", name, err)
		}
		defer C.ibv_close_device(context)
		return do(context)
	}
	return fmt.Errorf("verbs: libibverbs knows no device %s: is its provider library installed (ibverbs-providers)?", name)
}
