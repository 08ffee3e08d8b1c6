// Package v2 tests version 2 of RPC-over-RDMA from outside: gateways that speak it with each other over software iWARP on loopback, with a relay
// between them that delays and counts what passes, and strikes.
package v2
