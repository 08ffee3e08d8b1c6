//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
)

// asyncKind is an enum ibv_event_type.
type asyncKind int

func (k asyncKind) String() string { return C.GoString(C.ibv_event_type_str(uint32(k))) }

// asyncEvent is an asynchronous event of a device: of one of its objects, of a port, or (without
// either) of itself.
type asyncEvent struct {
	kind   asyncKind
	port   int
	object uintptr // the C object
}

// subject handles asynchronous events: an endpoint those of its queue pair and completion queue, an
// SRQ its own. affected does not block, and takes no lock under which objects are destroyed:
// destruction waits until the event is acknowledged.
type subject interface{ affected(kind asyncKind) }

// watcher reads the asynchronous events of a device. librdmacm opens a device once for all
// providers of the process, so there is one watcher for each.
type watcher struct {
	device  string
	log     *slog.Logger
	file    *os.File
	stopped chan struct{} // closed when reading has ended

	mu       sync.Mutex
	subjects map[uintptr]subject
}

// watchers are those of librdmacm's open devices.
var watchers struct {
	sync.Mutex
	byContext map[*C.struct_ibv_context]*watcher
}

// watch starts to read the events of a device, unless they are being read.
func watch(context *C.struct_ibv_context, device string, log *slog.Logger) {
	watchers.Lock()
	defer watchers.Unlock()
	if watchers.byContext[context] != nil {
		return
	}
	w := newWatcher(device, log)
	file, err := pollable(int(context.async_fd))
	if err != nil {
		log.Warn("asynchronous events of the RDMA device are not read", "device", device, "error", err)
		return
	}
	w.file = file
	if watchers.byContext == nil {
		watchers.byContext = map[*C.struct_ibv_context]*watcher{}
	}
	watchers.byContext[context] = w
	go w.read(context)
}

func newWatcher(device string, log *slog.Logger) *watcher {
	return &watcher{device: device, log: log, stopped: make(chan struct{}), subjects: map[uintptr]subject{}}
}

// unwatch ends watch, before the device is closed.
func unwatch(context *C.struct_ibv_context) {
	watchers.Lock()
	w := watchers.byContext[context]
	delete(watchers.byContext, context)
	watchers.Unlock()
	if w != nil {
		_ = w.file.Close()
		<-w.stopped
	}
}

// watcherOf returns the watcher of a device, or nil.
func watcherOf(context *C.struct_ibv_context) *watcher {
	watchers.Lock()
	defer watchers.Unlock()
	return watchers.byContext[context]
}

// read takes events until the device is gone.
func (w *watcher) read(context *C.struct_ibv_context) {
	defer close(w.stopped)
	raw, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	ev := (*C.struct_sv_async)(C.calloc(1, C.sizeof_struct_sv_async))
	defer C.free(ptr(ev))
	_ = raw.Read(func(uintptr) bool {
		for {
			switch errno := syscall.Errno(C.sv_next_async(context, ev)); errno {
			case 0:
			case syscall.EAGAIN:
				return false
			case syscall.EINTR:
				continue
			default:
				return true
			}
			to := w.find(uintptr(ev.object)) // not destroyed before the next line
			C.ibv_ack_async_event(&ev.event)
			w.take(asyncEvent{asyncKind(ev._type), int(ev.port), uintptr(ev.object)}, to)
		}
	})
}

// join directs events of C objects to s.
func (w *watcher) join(s subject, objects ...uintptr) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objects {
		w.subjects[o] = s
	}
}

// leave undoes join, before the objects are destroyed: their addresses may be reused.
func (w *watcher) leave(objects ...uintptr) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range objects {
		delete(w.subjects, o)
	}
}

func (w *watcher) find(object uintptr) subject {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.subjects[object]
}

// take counts and logs an event, and passes it to its subject, or an event of the whole device to
// all.
func (w *watcher) take(ev asyncEvent, to subject) {
	countEvent(w.device, ev.kind.String())
	attrs := []any{"device", w.device, "event", ev.kind.String()}
	if ev.port > 0 {
		attrs = append(attrs, "port", ev.port)
	}
	switch ev.kind {
	case C.IBV_EVENT_DEVICE_FATAL:
		w.log.Error("the RDMA device failed", attrs...)
		w.mu.Lock()
		all := map[subject]struct{}{}
		for _, s := range w.subjects {
			all[s] = struct{}{}
		}
		w.mu.Unlock()
		for s := range all {
			s.affected(ev.kind)
		}
	case C.IBV_EVENT_PORT_ERR:
		w.log.Warn("a port of the RDMA device went down", attrs...)
	// normal in the life of a connection
	case C.IBV_EVENT_QP_LAST_WQE_REACHED, C.IBV_EVENT_COMM_EST, C.IBV_EVENT_SQ_DRAINED:
	case C.IBV_EVENT_CQ_ERR, C.IBV_EVENT_SRQ_ERR, C.IBV_EVENT_QP_FATAL, C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
		w.log.Warn("a queue of the RDMA device failed", attrs...)
	default:
		w.log.Info("the RDMA device reports an event", attrs...)
	}
	if to != nil {
		to.affected(ev.kind)
	}
}

// affected implements subject.
func (e *endpoint) affected(kind asyncKind) {
	switch kind {
	case C.IBV_EVENT_QP_LAST_WQE_REACHED:
		e.lastOnce.Do(func() { close(e.last) })
		return
	case C.IBV_EVENT_CQ_ERR:
		if e.shared != nil { // the receives of the lost completions never come back
			e.dev.overruns.Add(1)
		}
	// the queue pair's completions end the connection
	case C.IBV_EVENT_QP_REQ_ERR, C.IBV_EVENT_QP_ACCESS_ERR:
		text := kind.String()
		e.reported.Store(&text)
		return
	case C.IBV_EVENT_DEVICE_FATAL, C.IBV_EVENT_QP_FATAL:
	default:
		return
	}
	go func() { // the holder of the lock may be destroying queues
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.done {
			e.failLocked(fmt.Errorf("verbs: %s: %s", e.dev.name, kind))
		}
	}()
}

// affected implements subject.
func (r *receiveQueue) affected(kind asyncKind) {
	if kind != C.IBV_EVENT_SRQ_ERR && kind != C.IBV_EVENT_DEVICE_FATAL {
		return
	}
	go func() {
		r.mu.Lock()
		if r.broken == nil {
			r.broken = fmt.Errorf("verbs: %s: %s", r.dev.name, kind)
		}
		r.mu.Unlock()
		r.dev.overruns.Add(1) // the next connections have another queue
	}()
}

func countEvent(device, event string) {
	events.Lock()
	defer events.Unlock()
	if events.counts == nil {
		events.counts = map[[2]string]uint64{}
	}
	events.counts[[2]string{device, event}]++
}
