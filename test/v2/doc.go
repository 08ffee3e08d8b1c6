// Package v2 tests version 2 of RPC-over-RDMA from outside: two gateways speak it with each other
// over software iWARP on loopback, and a relay between them delays and counts messages and injects
// faults.
package v2
