// Package hostile has a client that wants out of its export. It tries the NFS proxy in front of a real NFS-Ganesha whose export is larger than what
// the proxy exports of it, by calls made by hand, over TCP and over RPC-over-RDMA.
//
// Two watches stand by, whatever a test is about. Each reply that reaches the client is searched for handles, fileids, names and bytes of what lies outside, and each handle
// in it has to be sealed and to lead inside. A relay between proxy and backend reads all that passes: a sealed handle, a name that leads
// up, or anything of what lies outside fails the test.
//
// The tests have the build tag "kernel", and need root; make test-kernel runs them.
package hostile
