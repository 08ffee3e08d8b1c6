package rpcrdma

import (
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// v1Only are the servers that failed on a first message of version 2.
var v1Only v1OnlyServers

// v1OnlyServers is a bounded set of servers; the oldest is dropped first. A server may just have
// been restarted, or slow. So after 5 s the next dial tries version 2 again. When that fails too
// the time doubles, up to 10 minutes.
type v1OnlyServers struct {
	mu   sync.Mutex
	list []v1OnlyServer
}

type v1OnlyServer struct {
	provider rdma.Provider
	address  string
	wait     time.Duration // how long version 2 is not tried
	until    time.Time
}

const (
	maxV1OnlyServers = 64
	firstV1OnlyWait  = 5 * time.Second
	maxV1OnlyWait    = 10 * time.Minute
)

// has reports whether a server is not to be asked for version 2 now.
func (o *v1OnlyServers) has(p rdma.Provider, address string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.find(p, address)
	return i >= 0 && time.Now().Before(o.list[i].until)
}

// add adds a server that failed on version 2.
func (o *v1OnlyServers) add(p rdma.Provider, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, e := time.Now(), v1OnlyServer{provider: p, address: address, wait: firstV1OnlyWait}
	switch i := o.find(p, address); {
	case i >= 0 && now.Before(o.list[i].until): // several dials have tried at once
		return
	case i >= 0:
		e.wait = min(2*o.list[i].wait, maxV1OnlyWait)
		o.list = slices.Delete(o.list, i, i+1)
	case len(o.list) == maxV1OnlyServers:
		o.list = slices.Delete(o.list, 0, 1)
	}
	e.until = now.Add(e.wait)
	o.list = append(o.list, e)
}

// remove removes a server that has answered a message of version 2.
func (o *v1OnlyServers) remove(p rdma.Provider, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := o.find(p, address); i >= 0 {
		o.list = slices.Delete(o.list, i, i+1)
	}
}

// find returns the index of a server, -1 if it is not there. The lock is held.
func (o *v1OnlyServers) find(p rdma.Provider, address string) int {
	return slices.IndexFunc(o.list, func(e v1OnlyServer) bool { return e.provider == p && e.address == address })
}
