//go:build verbs

package verbs

import (
	"runtime"
	"sync"
)

// thread is a thread of the system on which everything is done that writes to a file of the connection manager, or to the command file of a software
// device, and on which these files are opened. The kernel refuses to write to them where the credentials are not those with which the file was opened, and
// a program that acts as other users changes those of its threads (setfsuid): to have them changed back is not enough.
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
		for c := range t.calls {
			c.run()
			c.done <- struct{}{}
		}
	}()
	return t
})

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
