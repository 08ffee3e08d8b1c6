// Package exhaustion has clients that exhaust a gateway: they announce data and send none, leave
// RDMA Reads unanswered, never read replies, or hold connections open. Each test runs the gateway's
// own binary with default limits and many such clients, while one ordinary client lists, writes and
// reads 64 MiB. That client has to finish.
//
// The attackers are made by hand from bytes, so that no library of ours softens them. They
// reconnect when the gateway ends a connection.
//
// The tests have the build tag "kernel", and need root; make test-kernel runs them.
package exhaustion
