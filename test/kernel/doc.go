// Package kernel tests Sluice against the Linux kernel, in a guest that hack/vm/run boots. The
// kernel's NFS/RDMA client mounts the gateway, which serves a directory, NFS-Ganesha, the kernel's
// own server or another gateway. Our requester uses the kernel's NFS/RDMA server. tshark dissects
// the captures of both.
//
// The tests have the build tag "kernel"; make test-kernel runs them. docs/testing.md lists the
// properties that they show.
//
// A guest's script and its test talk through the script's output, see testdata/lib.sh: each check
// of the script is a subtest here, and a script may ask the test to act on the host, for example to
// kill the gateway.
package kernel
