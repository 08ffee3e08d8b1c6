// Package benchrtt measures in virtual time the effect of the round-trip time on the versions of
// RPC-over-RDMA.
//
//	make bench-rtt
//
// NFS version 3 calls go, one at a time, over the fabric of rdmatest in a testing/synctest bubble
// to a server that answers at once from memory. Computing takes no time there, so all time is the
// wire's: at unlimited bandwidth a whole number of round trips. The numbers are the same on every
// machine, and each run of the tests compares a part of them. Over software iWARP a relay counts
// the same messages; with the relay's delay, calls are measured in real time too.
package benchrtt
