//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma"
)

// event is an event of the connection manager.
type event struct {
	kind     C.int
	status   int
	id       *C.struct_rdma_cm_id
	context  *C.struct_ibv_context // of the device
	ird, ord int                   // the peer's limits
	private  []byte
}

func newEvent(c *C.struct_sv_event) event {
	ev := event{kind: c._type, status: int(c.status), id: c.id, context: c.context, ird: int(c.reads_out), ord: int(c.reads_in)}
	if n := c.private_length; n > 0 {
		ev.private = C.GoBytes(ptr(&c.private_data), C.int(n))
	}
	return ev
}

// ends reports whether the connection, or the attempt at one, is over.
func (ev *event) ends() bool {
	switch ev.kind {
	case C.RDMA_CM_EVENT_ADDR_ERROR, C.RDMA_CM_EVENT_ROUTE_ERROR, C.RDMA_CM_EVENT_CONNECT_ERROR, C.RDMA_CM_EVENT_UNREACHABLE,
		C.RDMA_CM_EVENT_REJECTED, C.RDMA_CM_EVENT_DISCONNECTED, C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		return true
	}
	return false
}

// consumerRejected is the status of a rejection by the peer's program over InfiniBand
// (IB_CM_REJ_CONSUMER_DEFINED).
const consumerRejected = 28

// err is the error of an event that ends a connection.
func (ev *event) err() error {
	var cause error
	switch {
	case ev.status < 0:
		cause = syscall.Errno(-ev.status)
	case ev.status > 0:
		cause = fmt.Errorf("status %d", ev.status)
	default:
		cause = errors.New("no reason given")
	}
	switch ev.kind {
	case C.RDMA_CM_EVENT_ADDR_ERROR:
		return fmt.Errorf("no RDMA device leads to the address: %w", cause)
	case C.RDMA_CM_EVENT_ROUTE_ERROR:
		return fmt.Errorf("no route to the address: %w", cause)
	case C.RDMA_CM_EVENT_UNREACHABLE:
		return fmt.Errorf("the peer does not answer: %w", cause)
	case C.RDMA_CM_EVENT_REJECTED:
		if ev.status == consumerRejected || ev.status == -int(unix.ECONNRESET) {
			return &rdma.RejectedError{PrivateData: ev.private}
		}
		return fmt.Errorf("nobody accepts connections there: %w", cause)
	case C.RDMA_CM_EVENT_DISCONNECTED:
		return errors.New("the peer disconnected")
	case C.RDMA_CM_EVENT_DEVICE_REMOVAL:
		return errors.New("the RDMA device was removed")
	}
	return fmt.Errorf("connecting failed (event %d): %w", int(ev.kind), cause)
}

// ident is an id of the connection manager, one for each connection.
type ident struct {
	p     *provider
	id    *C.struct_rdma_cm_id
	token uintptr
	steps chan event // events while connecting

	mu        sync.Mutex
	over      bool
	last      event  // the event of its end
	notify    func() // called at the end, once
	lingering bool   // only the peer may still need it, to learn of its end
	freed     bool
}

// newIdent makes an ident for id, or for a new one.
func (p *provider) newIdent(id *C.struct_rdma_cm_id) (*ident, error) {
	if id == nil {
		var err error
		if id, err = p.newID(); err != nil {
			return nil, err
		}
	}
	i := &ident{p: p, id: id, steps: make(chan event, 8)}
	i.token = p.enter(i)
	C.sv_set_token(id, C.uintptr_t(i.token))
	return i, nil
}

func (p *provider) newID() (id *C.struct_rdma_cm_id, err error) {
	manager().do(newCall(func() { id, err = C.sv_create_id(p.channel, 0) }))
	if id == nil {
		return nil, fmt.Errorf("verbs: rdma_create_id: %w", err)
	}
	return id, nil
}

// destroyID destroys an id, whose queue pair must be gone.
func destroyID(id *C.struct_rdma_cm_id) { manager().do(newCall(func() { C.rdma_destroy_id(id) })) }

func (i *ident) context() *C.struct_ibv_context { return i.id.verbs }

// happened implements receiver.
func (i *ident) happened(ev event) {
	select {
	case i.steps <- ev:
	default: // no one waits for a step any more
	}
	if ev.kind == C.RDMA_CM_EVENT_ADDR_CHANGE {
		i.p.cfg.Logger.Warn("the address of an RDMA connection moved to another device, such as another member of a bond; the connection stays on the first",
			"peer", i.remoteAddr())
	}
	if !ev.ends() {
		return
	}
	if ev.kind == C.RDMA_CM_EVENT_DEVICE_REMOVAL {
		i.p.lost(ev.context)
	}
	i.mu.Lock()
	if i.over {
		i.mu.Unlock()
		return
	}
	i.over, i.last = true, ev
	notify, lingering := i.notify, i.lingering
	i.mu.Unlock()
	switch {
	case lingering:
		i.free()
	case notify != nil:
		notify()
	}
}

// ended returns the event that ended the connection.
func (i *ident) ended() (event, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.last, i.over
}

// watch calls notify when the connection ends. It returns false if it has ended.
func (i *ident) watch(notify func()) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.notify = notify
	return !i.over
}

// await waits for the next step, which must be kind.
func (i *ident) await(ctx context.Context, kind C.int) (event, error) {
	select {
	case ev := <-i.steps:
		if ev.kind == kind {
			return ev, nil
		}
		return ev, ev.err()
	case <-ctx.Done():
		return event{}, context.Cause(ctx)
	}
}

// free destroys the id. Its queue pair must be gone.
func (i *ident) free() {
	i.mu.Lock()
	freed := i.freed
	i.freed = true
	i.mu.Unlock()
	if freed {
		return
	}
	i.p.forget(i.token)
	i.p.destroyOf(i.id)
}

// lingerTime bounds the time that an id stays for the peer's answer to our disconnecting.
const lingerTime = 2 * time.Second

// linger frees the id when the peer has answered our disconnecting, or after lingerTime.
func (i *ident) linger() {
	i.mu.Lock()
	i.lingering = true
	over := i.over
	i.mu.Unlock()
	if over {
		i.free()
		return
	}
	time.AfterFunc(lingerTime, i.free)
}

func (i *ident) localAddr() net.Addr  { return goAddr(C.rdma_get_local_addr(i.id)) }
func (i *ident) remoteAddr() net.Addr { return goAddr(C.rdma_get_peer_addr(i.id)) }

// goAddr converts a sockaddr of IPv4 or IPv6.
func goAddr(a *C.struct_sockaddr) net.Addr {
	port := func(p *uint16) uint16 {
		b := (*[2]byte)(ptr(p))
		return uint16(b[0])<<8 | uint16(b[1])
	}
	if a.sa_family == unix.AF_INET {
		sa := (*unix.RawSockaddrInet4)(ptr(a))
		return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), port(&sa.Port)))
	}
	sa := (*unix.RawSockaddrInet6)(ptr(a))
	ip := netip.AddrFrom16(sa.Addr)
	if sa.Scope_id != 0 {
		if link, err := net.InterfaceByIndex(int(sa.Scope_id)); err == nil {
			ip = ip.WithZone(link.Name)
		}
	}
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, port(&sa.Port)))
}

// sockaddr puts an address into C memory, which the caller frees.
func sockaddr(at netip.AddrPort) *C.struct_sockaddr {
	c := C.calloc(1, unix.SizeofSockaddrInet6)
	port := func(p *uint16) { *(*[2]byte)(ptr(p)) = [2]byte{byte(at.Port() >> 8), byte(at.Port())} }
	if ip := at.Addr().Unmap(); ip.Is4() {
		sa := (*unix.RawSockaddrInet4)(c)
		sa.Family, sa.Addr = unix.AF_INET, ip.As4()
		port(&sa.Port)
	} else {
		sa := (*unix.RawSockaddrInet6)(c)
		sa.Family, sa.Addr = unix.AF_INET6, ip.As16()
		sa.Scope_id, _ = zoneIndex(ip.Zone()) // checked by resolve
		port(&sa.Port)
	}
	return (*C.struct_sockaddr)(c)
}

// resolve looks up "host:port". An empty host is any address.
func resolve(ctx context.Context, address string) (at netip.AddrPort, err error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return at, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return at, err
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port)), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return at, err
	}
	ip := ips[0].Unmap()
	if _, err := zoneIndex(ip.Zone()); err != nil {
		return at, err
	}
	return netip.AddrPortFrom(ip, uint16(port)), nil
}

// private returns private data as librdmacm's arguments.
func private(data []byte) (unsafe.Pointer, C.uint8_t) {
	return unsafe.Pointer(unsafe.SliceData(data)), C.uint8_t(len(data))
}
