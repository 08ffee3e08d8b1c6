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

// thread is a thread of the system on which everything is done that writes to a file of the
// connection manager, or to the command file of a software device, and on which these files are
// opened. The kernel refuses to write to them where the credentials are not those with which the
// file was opened, and a program that acts as other users changes those of its threads (setfsuid):
// to have them changed back is not enough.
type thread struct{ calls chan *call }

// call is something to do there.
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

// maxHelpers is how many threads there are at most besides the manager's.
const maxHelpers = 4

// helpers are threads for the slow calls that set up and end connections, of different ids each: so
// that these wait neither for each other, nor events for them. They are nil if no thread is fit for
// that. Everything else (ids, events, listening, devices, and the requests of software devices)
// stays on the manager's thread, in order.
var helpers = sync.OnceValue(func() *thread {
	// A thread is fit that may write to a file which the manager's has opened: it has the same
	// credentials, not only equal ones.
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

// startHelpers starts n threads, of which those stay that are fit. It returns nil if there are
// none.
func startHelpers(n int, fit func() bool) *thread {
	t := &thread{make(chan *call)}
	started := make(chan bool)
	for range n {
		go func() {
			runtime.LockOSThread() // one that is not fit ends with this goroutine
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

// aside runs f on a helper, or the manager's thread if there is none.
func aside[T any](f func() T) (v T) {
	c := newCall(func() { v = f() })
	if t := helpers(); t != nil {
		t.do(c)
	} else {
		manager().do(c)
	}
	return v
}

// do has c done, and waits for that. What it runs takes no lock, and calls no do.
func (t *thread) do(c *call) {
	t.calls <- c
	<-c.done
}

// managed runs f on the thread.
func managed[T any](f func() T) (v T) {
	manager().do(newCall(func() { v = f() }))
	return v
}
