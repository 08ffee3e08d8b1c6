// Package verbs tests the provider on rdma-core on the kernel's software devices, rxe (RoCE) and
// siw (iWARP), in a guest that hack/vm/run boots.
//
// The tests have the build tags "kernel" and "verbs"; make test-verbs runs them. docs/verbs.md
// lists the properties that they show.
package verbs
