//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// handle describes a device that librdmacm has open. It stays valid when librdmacm closes the
// device.
type handle struct {
	path             string // in /sys, as long as the device can be opened
	commands, events int    // file descriptors
	node             uint64 // device number of commands
}

func handleOf(context *C.struct_ibv_context) handle {
	h := handle{path: C.GoString(&context.device.dev_path[0]), commands: int(context.cmd_fd), events: int(context.async_fd)}
	var st unix.Stat_t
	if unix.Fstat(h.commands, &st) == nil {
		h.node = st.Rdev
	}
	return h
}

// release closes the files of a removed device, unless librdmacm has. Their descriptors stay open,
// since librdmacm will close them.
func (h handle) release() error {
	var st unix.Stat_t
	if err := unix.Fstat(h.commands, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != h.node {
		return nil
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	return errors.Join(unix.Dup3(null, h.commands, unix.O_CLOEXEC), unix.Dup3(null, h.events, unix.O_CLOEXEC))
}

// spaces counts the spaces on each device that librdmacm has open, for all providers of the
// process.
var spaces struct {
	sync.Mutex
	on map[*C.struct_ibv_context]int
}

func countSpace(context *C.struct_ibv_context, n int) {
	spaces.Lock()
	defer spaces.Unlock()
	if spaces.on == nil {
		spaces.on = map[*C.struct_ibv_context]int{}
	}
	if spaces.on[context] += n; spaces.on[context] == 0 {
		delete(spaces.on, context)
	}
}

// unused reports whether a device has no space.
func unused(context *C.struct_ibv_context) bool {
	spaces.Lock()
	defer spaces.Unlock()
	return spaces.on[context] == 0
}

// lookout is the interval of checks for removed devices.
const lookout = time.Second / 4

// lookOut ends the connections on devices that are being removed. The connection manager's events
// do not cover software devices: the kernel first waits until all programs have closed them.
func (p *provider) lookOut() {
	for range time.Tick(lookout) {
		for context, on := range p.removed() {
			for _, r := range on {
				r.happened(event{kind: C.RDMA_CM_EVENT_DEVICE_REMOVAL, context: context})
			}
			p.lost(context) // even if only registered memory is left on it
		}
	}
}

// removed returns the removed devices, and the users of each.
func (p *provider) removed() map[*C.struct_ibv_context][]receiver {
	p.mu.Lock()
	defer p.mu.Unlock()
	gone := map[*C.struct_ibv_context][]receiver{}
	for context, h := range p.opened {
		if _, err := os.Stat(h.path); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		gone[context] = nil
		for _, r := range p.tokens {
			if r.context() == context {
				gone[context] = append(gone[context], r)
			}
		}
	}
	return gone
}

// lost drops a removed device.
func (p *provider) lost(context *C.struct_ibv_context) {
	p.mu.Lock()
	dev := p.devices[context]
	h, opened := p.opened[context]
	delete(p.devices, context)
	delete(p.opened, context)
	var domains []*domain
	for d := range p.domains {
		domains = append(domains, d)
	}
	p.mu.Unlock()
	if !opened {
		return // another id has reported it
	}
	unwatch(context) // before librdmacm closes the device
	if dev != nil {
		dev.lost.Store(true)
		for _, d := range domains {
			d.lose(dev)
		}
	}
	p.mu.Lock()
	// only now, when no registration without an endpoint is left, may it be closed
	p.gone[context] = h
	p.mu.Unlock()
	p.closeRemoved(context, h)
}

// destroyOf destroys an id that may have been on a device, which librdmacm keeps open.
func (p *provider) destroyOf(id *C.struct_rdma_cm_id) {
	context := id.verbs
	var h handle
	if context != nil {
		h = handleOf(context)
	}
	destroyID(id)
	if context == nil {
		return
	}
	p.mu.Lock()
	old, gone := p.gone[context]
	if !gone {
		p.opened[context] = h
	}
	p.mu.Unlock()
	if gone {
		p.closeRemoved(context, old)
	}
}

// closeRemoved closes a removed device after its last user. librdmacm does so when it reads the
// list of devices again, unless that list is empty.
func (p *provider) closeRemoved(context *C.struct_ibv_context, h handle) {
	last := unused(context)
	err := managed(func() error {
		if list := C.rdma_get_devices(nil); list != nil {
			C.rdma_free_devices(list)
			return nil
		}
		if !last {
			return nil
		}
		return h.release()
	})
	if err != nil {
		p.cfg.Logger.Warn("a removed RDMA device stays open: its removal ends with this program", "error", err)
	}
}
