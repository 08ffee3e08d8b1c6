// Package speaker is the sidecar of gateway pods that carry virtual IPs: it decides by Lease which
// pod has which addresses, puts them on the pod's interface, answers for them and announces them.
//
// The parts: api is what the operator and the speaker say to each other, fsm decides without I/O,
// neighbour has the frames and the packet sockets, netif the interface, lease the API server. This
// package has the loop between them, and the status page.
//
// # Why the speaker answers, and not the kernel
//
// A kernel answers for the addresses that are on its interfaces whether or not anybody watches over
// them. When the speaker of the holder is stopped (SIGSTOP, a frozen cgroup, a machine that swaps),
// its Lease expires and another pod takes over, and then two hosts would answer until the first one
// runs again. So the kernel is kept silent about these addresses (see netif), and the speaker
// answers from user space: one that does not run does not answer, and one that runs again looks
// first. How long it was away it sees by CLOCK_BOOTTIME, which goes on while a process is stopped
// and while the machine is suspended. Before each frame it looks at the clock once more, and a
// question that waited is not answered. What is left is a process that stops between that look and
// the system call: one frame can then be wrong. A wrong announcement is contradicted at once by the
// one who has the Lease.
//
// While nobody answers, what is under way goes on: the address is on the interface, and clients
// know its hardware address as long as packets come back.
//
// # The rules
//
//   - A Lease that is free is taken, one that has expired only if a probe of its addresses goes
//     unanswered. When it is taken, each address is probed before it is carried. So safety comes
//     from probes, and Leases see to it that few ask.
//   - A holder that cannot reach the API server keeps its addresses, answers probes, and asks now
//     and then itself whether somebody else answers.
//   - A holder that was away probes before it answers again, even if its Lease is still valid:
//     somebody who restarted without the API server may have taken up again what it had.
//   - Of two who probe, the one with a valid Lease goes on and the other starts over.
//   - Who hears another one claim its address gives it up, unless its Lease is valid: then it
//     announces, and the other one gives it up.
//   - A speaker that ends takes its addresses off first, and frees its Leases then.
//   - There is no fail-back. A pod waits longer for each group that it has already, so that groups
//     spread over pods.
//
// If the network splits, and the holder's part cannot reach the API server, each part has a holder;
// when the parts are one again, the one without the Lease hears the other within seconds and gives
// way.
//
// See docs/virtual-ip.md.
package speaker
