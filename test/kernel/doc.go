// Package kernel tries Sluice on the Linux kernel, in a guest that hack/vm/run boots: the kernel's NFS/RDMA client on the gateway, before a
// directory, NFS-Ganesha, the kernel's own server and another gateway, and our requester on the kernel's NFS/RDMA server. It also has tshark read what crossed the wire.
//
// The tests have the build tag "kernel"; make test-kernel runs them. docs/testing.md says what they show.
//
// A guest's script and its test talk through the script's output, see testdata/lib.sh: each check of the script is a subtest
// here, and a script may ask the test to do something on the host, as killing the gateway.
package kernel
