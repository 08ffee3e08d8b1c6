// Package exhaustion has clients that take all they can get and give nothing back: they announce
// data and send none, leave RDMA Reads unanswered, never read replies, or hold connections open.
// Each test runs the gateway's own binary with default limits, lets many such clients at it, and
// has one ordinary client list, write and read 64 MiB meanwhile. That client has to finish.
//
// The attackers are made by hand from bytes, so that nothing of ours is polite on their behalf.
// When the gateway ends one of their connections they come back.
//
// The tests have the build tag "kernel", and need root; make test-kernel runs them.
package exhaustion
