// Package hostile has a client that tries to leave its export. It attacks the NFS proxy in front of
// a real NFS-Ganesha that exports a larger tree than the proxy does, by calls made by hand, over
// TCP and over RPC-over-RDMA.
//
// Two checks run in every test. Each reply to the client is searched for handles, fileids, names
// and bytes from outside of the export, and each handle in it must be signed and lead inside. A
// relay between proxy and backend inspects every call: a signed handle, a name that leads up, or
// anything from outside fails the test.
//
// The tests have the build tag "kernel", and need root; make test-kernel runs them.
package hostile
