// Package verbs is RDMA on the adapters of a machine, by rdma-core: libibverbs and librdmacm, over InfiniBand, RoCE and iWARP. It is built
// with cgo and the tag "verbs"; without the tag, [New] says so, and what finds devices ([Find]) is there all the same.
//
// # How it works
//
// Events of the connection manager come over one channel, whose descriptor waits in Go's poller. Each connection has a queue pair, one
// completion queue for both directions, and a completion channel that its Serve waits for in the poller too: no thread is parked. The channel is
// armed only when the queue was found empty.
//
// Work requests and receives are gathered in C memory, and posted as one chain with one crossing. Of a chain the last request is signaled, and
// the last of those that asked for it; the Reads each. The number that a request has in the order of posting is its wr_id.
//
// # Memory
//
// The arenas of a pool are registered once per domain and device, for local access only. What is exposed gets a memory window of type 2, which is bound
// with the chain that tells the peer of it, and which the peer may invalidate. Where the device has none, it is a region of exactly that memory,
// registered for that call and deregistered by LocalInvalidate, and there is no remote invalidation. iWARP adapters write what they
// read by remote access: there a Read's sink is a region of its own too, for as long as the Read lasts.
package verbs
