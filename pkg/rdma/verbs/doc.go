// Package verbs is RDMA on the adapters of a machine, by rdma-core: libibverbs and librdmacm, over
// InfiniBand, RoCE and iWARP. It is built with cgo and the tag "verbs". Without the tag [New]
// fails; [Find] and the other functions that read sysfs work.
//
// # How it works
//
// Events of the connection manager come over one channel, whose descriptor waits in Go's poller.
// Each connection has a queue pair, one completion queue for both directions, and a completion
// channel on which Serve waits in the poller too: no thread is parked. The channel is armed only
// when the queue was found empty.
//
// Work requests and receives are gathered in C memory, and posted as one chain by one call into C.
// In a chain, the last request is signaled, the last one whose caller asked for a completion, and
// each Read. A request's number in the order of posting is its wr_id. On siw each request is
// signaled: TCP may send from the memory of others after the completion that covers them.
//
// # Memory
//
// The arenas of a pool are registered once for each domain and device, for local access only.
// Exposed memory gets a memory window of type 2, which is bound in the chain that advertises it,
// and which the peer may invalidate. Without windows it is a region of exactly that memory,
// registered for that call and deregistered by LocalInvalidate, and there is no remote
// invalidation. iWARP adapters place the data of a Read by remote access: there a Read's sink is a
// region of its own too, for the duration of the Read.
package verbs
