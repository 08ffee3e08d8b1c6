// Package benchrtt is a bench in virtual time: what the versions of RPC-over-RDMA make of a round-trip time.
//
//	make bench-rtt
//
// NFS version 3 calls go, one at a time, over the fabric of rdmatest in a testing/synctest bubble to a server that answers at once from
// memory. Computing takes no time there, so what passes is the wire's: at unlimited bandwidth a whole number of round trips. The same numbers
// come out on every machine, and each run of the tests holds a part of them against each other. Over software iWARP, by a relay that counts what
// passes, the counts are the same; with the relay's delay, calls are measured there in real time too.
package benchrtt
