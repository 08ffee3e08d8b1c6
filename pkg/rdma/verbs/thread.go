//go:build verbs

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"runtime"
	"sync"
)

// thread is a thread of the system that makes all writes to files of the connection manager and to
// the command file of a software device, and on which these files are opened. The kernel refuses to
// write to them with credentials other than those with which the file was opened. A program that
// acts as other users changes its threads' credentials (setfsuid), and changing them back does not
// help.
type thread struct{ calls chan *call }

// call is a function to run there.
type call struct {
	run  func()
	done chan struct{}
}

func newCall(run func()) *call { return &call{run, make(chan struct{}, 1)} }

// manager is the thread, for all providers: they share librdmacm's files.
var manager = sync.OnceValue(func() *thread {
	t := &thread{make(chan *call)}
	go func() {
		runtime.LockOSThread()
		t.serve()
	}()
	return t
})

// maxHelpers bounds the threads besides the manager's.
const maxHelpers = 4

// helpers are threads for the slow calls that set up and end connections, of different ids each, so
// that these wait neither for each other, nor events for them. They are nil if no thread is fit for
// that. Everything else (ids, events, listening, devices, and the requests of software devices)
// stays on the manager's thread, in order.
var helpers = sync.OnceValue(func() *thread {
	// A fit thread can write to a file opened by the manager's: it has the same credentials, not
	// only equal ones.
	channel := managed(func() *C.struct_rdma_event_channel { return C.rdma_create_event_channel() })
	if channel == nil {
		return nil
	}
	t := startHelpers(maxHelpers, func() bool {
		id := C.sv_create_id(channel, 0)
		if id != nil {
			C.rdma_destroy_id(id)
		}
		return id != nil
	})
	managed(func() struct{} { C.rdma_destroy_event_channel(channel); return struct{}{} })
	return t
})

// startHelpers starts n threads and keeps the fit ones. It returns nil if there are none.
func startHelpers(n int, fit func() bool) *thread {
	t := &thread{make(chan *call)}
	started := make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread() // an unfit one ends with this goroutine
			ok := fit()
			started <- ok
			if ok {
				t.serve()
			}
		}()
	}
	some := false
	for range n {
		some = <-started || some
	}
	if !some {
		return nil
	}
	return t
}

// serve handles requests as long as the program runs.
func (t *thread) serve() {
	for c := range t.calls {
		c.run()
		c.done <- struct{}{}
	}
}

// onHelper runs f on a helper, or on the manager's thread if there is none.
func onHelper[T any](f func() T) (v T) {
	c := newCall(func() { v = f() })
	if t := helpers(); t != nil {
		t.do(c)
	} else {
		manager().do(c)
	}
	return v
}

// do runs c and waits for its end. c takes no lock, and calls no do.
func (t *thread) do(c *call) {
	t.calls <- c
	<-c.done
}

// managed runs f on the manager's thread.
func managed[T any](f func() T) (v T) {
	manager().do(newCall(func() { v = f() }))
	return v
}
