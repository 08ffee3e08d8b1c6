//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"

	"sluice.dev/sluice/pkg/rdma"
)

// device is an adapter, or a virtual function of one, as opened by librdmacm.
type device struct {
	context *C.struct_ibv_context
	name    string
	limits  C.struct_sv_limits
	queues  atomic.Uint64 // number of completion queues so far, which selects their vector
	// lost: it was removed. It is set before domains are notified, so that none makes a space on it
	// afterwards.
	lost atomic.Bool
	// overruns counts completion queues with shared receives that failed: see [incoming.SRQKey].
	overruns atomic.Uint64
}

// deviceOf returns the device of an id that has one.
func (p *provider) deviceOf(id *C.struct_rdma_cm_id) (*device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.devices[id.verbs]
	if d == nil {
		d = &device{context: id.verbs, name: C.GoString(C.ibv_get_device_name(id.verbs.device))}
		if errno := C.sv_limits_of(id.verbs, id.port_num, &d.limits); errno != 0 {
			return nil, fmt.Errorf("verbs: asking %s for its limits: %w", d.name, syscall.Errno(errno))
		}
		p.devices[id.verbs], p.opened[id.verbs] = d, handleOf(id.verbs)
		delete(p.gone, id.verbs) // the address was used before
		d.warn(p.cfg.Logger)
		watch(id.verbs, d.name, p.cfg.Logger)
	}
	if p.cfg.Device != "" && p.cfg.Device != d.name {
		return nil, fmt.Errorf("verbs: the address leads to the device %s, only %s may be used", d.name, p.cfg.Device)
	}
	return d, nil
}

// warn logs faults of a device that keep it from working.
func (d *device) warn(log *slog.Logger) {
	if d.limits.node_guid == 0 {
		log.Warn("the RDMA device has no node GUID, so that the connection manager cannot use it: a virtual function needs a MAC set by the "+
			"administrator of its host, before its driver is bound", "device", d.name)
	}
	if d.limits.port_active == 0 {
		log.Warn("the port of the RDMA device is down", "device", d.name)
	}
}

// A connection has up to maxWindows memory windows. With fewer than minWindows possible, it has
// none.
const minWindows, maxWindows = 64, 1024

// settle limits the options to the device's limits.
func (p *provider) settle(d *device, o *rdma.Options, peerIRD, peerORD int) (s connParams, err error) {
	s.sends, s.receives = o.SendQueue, o.ReceiveQueue
	most := int(d.limits.max_work)
	if s.sends > most || s.receives > most {
		return s, fmt.Errorf("verbs: queues of %d and %d entries, %s has at most %d", s.sends, s.receives, d.name, most)
	}
	if n := int(d.limits.max_completions); s.sends+s.receives > n {
		return s, fmt.Errorf("verbs: queues of %d and %d entries, %s reports the completion of at most %d", s.sends, s.receives, d.name, n)
	}
	if o.SRQ != nil {
		s.rnrRetries = maxRetries
	}
	if !o.NoRemoteAccess {
		s.windows = min(maxWindows, int(d.limits.max_windows), most-s.sends, int(d.limits.max_completions)-s.sends-s.receives)
	}
	if s.windows < minWindows {
		s.windows = 0
	}
	if p.cfg.KeepAlive > 0 && d.limits.iwarp == 0 && s.sends+s.windows < most && s.sends+s.receives+s.windows < int(d.limits.max_completions) {
		s.probes = 1
	}
	s.segments = min(int(d.limits.max_segments), C.SV_SEGMENTS)
	s.readSegments = min(int(d.limits.max_read_segments), s.segments)
	s.ird = min(o.IRD, int(d.limits.max_reads_in), peerORD)
	s.ord = min(o.ORD, int(d.limits.max_reads_out), peerIRD)
	s.maxMessage = uint64(d.limits.max_message)
	return s, nil
}

// connParams are a connection's parameters.
type connParams struct {
	sends, receives int // queue lengths
	// limit of memory windows, which lengthens the queue of requests; 0 for none
	windows                int
	probes                 int // limit of probes of an idle connection, which lengthens it too
	segments, readSegments int
	ird, ord               int
	maxMessage             uint64
	rnrRetries             int // the peer's repetitions of a message without a receive
	private                []byte
}
