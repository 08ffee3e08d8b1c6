// Package clienthost is the subcommand client-host of the operator's program. It prepares a node as
// a client of NFS over RDMA: it loads the kernel's modules and, where wanted, makes a software RDMA
// device on a network interface.
//
// It runs in a pod of a DaemonSet, in the node's network namespace, with the capabilities
// CAP_SYS_MODULE and CAP_NET_ADMIN. It repeats its work every few seconds, so that it finds an
// interface that comes later, and makes a device again that has disappeared. Problems go to the
// log, and to a file for the readiness probe, whose message Kubernetes shows in the pod's events.
//
// When it ends, it removes the device that it made, unless mounts or programs use it. Then the next
// pod takes it over, by a record in a directory of the node that a reboot empties.
package clienthost
