//go:build verbs

package verbs

/*
#cgo pkg-config: libibverbs librdmacm
#cgo CFLAGS: -O2 -Wall
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"sluice.dev/sluice/pkg/rdma"
)

const (
	maxPrivateData = 196
	defaultQueue   = 1024
	maxReads       = 128
)

// provider has the one event channel of the connection manager, and the known devices.
type provider struct {
	cfg     Config
	channel *C.struct_rdma_event_channel
	event   *C.struct_sv_event // owned by the dispatcher

	mu      sync.Mutex
	tokens  map[uintptr]receiver
	token   uintptr
	devices map[*C.struct_ibv_context]*device
	opened  map[*C.struct_ibv_context]handle // including those of ids that never connected
	gone    map[*C.struct_ibv_context]handle // removed ones
	domains map[*domain]struct{}

	refuses func(requests int) bool // for tests: the device refuses a queue of that length
}

// receiver gets the events of an id. It does not block.
type receiver interface {
	happened(ev event)
	// context is that of the id's device, nil if it has none yet.
	context() *C.struct_ibv_context
}

// New opens the connection manager, or returns the reason why it cannot.
func New(cfg Config) (rdma.Provider, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	var channel *C.struct_rdma_event_channel
	var err error
	manager().do(newCall(func() { channel, err = C.rdma_create_event_channel() }))
	if channel == nil {
		if errors.Is(err, syscall.ENODEV) {
			return nil, fmt.Errorf("verbs: there is no RDMA device: %w", err)
		}
		return nil, fmt.Errorf("verbs: opening the connection manager: %w (is there a /dev/infiniband/rdma_cm, and is the module rdma_ucm loaded?)", err)
	}
	p := &provider{cfg: cfg, channel: channel, event: (*C.struct_sv_event)(C.calloc(1, C.sizeof_struct_sv_event)),
		tokens: map[uintptr]receiver{}, devices: map[*C.struct_ibv_context]*device{},
		opened: map[*C.struct_ibv_context]handle{}, gone: map[*C.struct_ibv_context]handle{}, domains: map[*domain]struct{}{}}
	file, err := pollable(int(channel.fd))
	if err != nil {
		C.free(ptr(p.event))
		C.rdma_destroy_event_channel(channel)
		return nil, err
	}
	helpers() // before this program acts as other users
	go p.dispatch(file)
	go p.lookOut()
	return p, nil
}

// pollable returns a file of Go's poller for fd. fd itself stays open.
func pollable(fd int) (*os.File, error) {
	if errno := C.sv_nonblocking(C.int(fd)); errno != 0 {
		return nil, fmt.Errorf("verbs: an event channel that does not block: %w", syscall.Errno(errno))
	}
	own, err := syscall.Dup(fd)
	if err != nil {
		return nil, fmt.Errorf("verbs: an event channel: %w", err)
	}
	syscall.CloseOnExec(own)
	return os.NewFile(uintptr(own), "event channel"), nil
}

func (p *provider) Name() string { return "verbs" }

// dispatch distributes the events of all ids, for as long as the program runs.
func (p *provider) dispatch(file *os.File) {
	raw, err := file.SyscallConn()
	if err == nil {
		err = raw.Read(func(uintptr) bool {
			for {
				errno := p.take()
				if errno == syscall.EAGAIN {
					return false
				}
				if errno != 0 {
					// One event was lost, with its connection. The channel continues.
					p.cfg.Logger.Warn("an event of the RDMA connection manager could not be taken", "error", errno)
				}
			}
		})
	}
	p.cfg.Logger.Error("the RDMA connection manager is not heard any more", "error", err)
}

// take takes one event.
func (p *provider) take() syscall.Errno {
	errno := managed(func() C.int { return C.sv_next_event(p.channel, p.event) })
	if errno != 0 {
		return syscall.Errno(errno)
	}
	ev := newEvent(p.event)
	p.mu.Lock()
	to := p.tokens[uintptr(p.event.token)]
	p.mu.Unlock()
	switch {
	case to != nil:
		to.happened(ev)
	case ev.kind == C.RDMA_CM_EVENT_CONNECT_REQUEST: // for a listener that was just closed
		managed(func() C.int { return C.sv_reject(ev.id, nil, 0) })
		destroyID(ev.id)
	}
	return 0
}

// enter gives r a token, by which events find it.
func (p *provider) enter(r receiver) uintptr {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.token++
	p.tokens[p.token] = r
	return p.token
}

func (p *provider) forget(token uintptr) {
	p.mu.Lock()
	delete(p.tokens, token)
	p.mu.Unlock()
}

// checkPrivate checks the length of private data.
func checkPrivate(data []byte) error {
	if len(data) > maxPrivateData {
		return fmt.Errorf("verbs: private data of %d bytes, at most %d are possible", len(data), maxPrivateData)
	}
	return nil
}

// checkOptions checks the options that do not depend on the device, and fills in defaults.
func checkOptions(o *rdma.Options) error {
	if err := checkPrivate(o.PrivateData); err != nil {
		return err
	}
	d, ok := o.Domain.(*domain)
	if !ok {
		return fmt.Errorf("verbs: Options.Domain is a %T, want one that this provider made", o.Domain)
	}
	for i := range o.Receives {
		for k, s := range o.Receives[i].Segments {
			if !d.holds(s) {
				return fmt.Errorf("verbs: receive %d: segment %d of %d bytes lies in no arena that is attached to the domain", o.Receives[i].ID, k, len(s))
			}
		}
	}
	if o.SRQ != nil {
		if q, ok := o.SRQ.(*receiveQueue); !ok || q.domain != d {
			return fmt.Errorf("verbs: Options.SRQ is a %T, want one of Options.Domain", o.SRQ)
		}
		if len(o.Receives) > 0 {
			return fmt.Errorf("verbs: Options.Receives has %d, but receives are shared", len(o.Receives))
		}
	}
	if o.SendQueue == 0 {
		o.SendQueue = defaultQueue
	}
	if o.ReceiveQueue == 0 {
		o.ReceiveQueue = defaultQueue
	}
	if o.SendQueue < 0 || o.ReceiveQueue < 0 {
		return fmt.Errorf("verbs: queues of %d and %d entries, want none below 0", o.SendQueue, o.ReceiveQueue)
	}
	if o.ORD < 0 || o.ORD > maxReads || o.IRD < 0 || o.IRD > maxReads {
		return fmt.Errorf("verbs: ORD %d and IRD %d, want 0 to %d", o.ORD, o.IRD, maxReads)
	}
	if len(o.Receives) > o.ReceiveQueue {
		return fmt.Errorf("verbs: %d receives for a queue of %d", len(o.Receives), o.ReceiveQueue)
	}
	return nil
}
