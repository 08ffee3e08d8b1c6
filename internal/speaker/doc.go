// Package speaker is the sidecar of gateway pods that carry virtual IPs: it decides by Lease which
// pod has which addresses, puts them on the pod's interface, answers for them and announces them.
//
// The parts: api has the types shared by the operator and the speaker, fsm decides without I/O,
// neighbour has the frames and the packet sockets, netif the interface, lease the API server. This
// package has the loop between them, and the status page.
//
// # Why the speaker answers, and not the kernel
//
// A kernel answers for the addresses on its interfaces even when no process watches over them. When
// the holder's speaker is stopped (SIGSTOP, a frozen cgroup, a machine that swaps), its Lease
// expires and another pod takes over, and then two hosts would answer until the first one runs
// again. So the kernel is kept silent about these addresses (see netif), and the speaker answers
// from user space: a stopped speaker does not answer, and one that runs again checks first. It
// measures its absence by CLOCK_BOOTTIME, which continues while a process is stopped and while the
// machine is suspended. Before each frame it reads the clock once more, and does not answer a
// request that waited. The remaining case is a process that stops between that check and the system
// call: one frame can then be wrong. The holder of the Lease contradicts a wrong announcement at
// once.
//
// While there is no answer, traffic in progress continues: the address is on the interface, and
// clients know its hardware address as long as packets come back.
//
// # The rules
//
//   - A free Lease is taken; an expired one only if a probe of its addresses stays unanswered.
//     After that, each address is probed before it is carried. So safety comes from probes, and
//     Leases keep the number of probing pods low.
//   - A holder that cannot reach the API server keeps its addresses, answers probes, and probes
//     from time to time itself.
//   - A holder that was absent probes before it answers again, even if its Lease is still valid: a
//     pod that restarted without the API server may have taken up its addresses again.
//   - Of two pods that probe, the one with a valid Lease continues and the other starts over.
//   - A pod that hears another claim its address gives it up, unless its own Lease is valid: then
//     it announces, and the other one gives it up.
//   - A speaker that ends first removes its addresses, and then frees its Leases.
//   - There is no fail-back. A pod waits longer for each group that it has already, so that groups
//     spread over pods.
//
// If the network splits, and the holder's part cannot reach the API server, each part has a holder.
// When the parts are one again, the holder without the Lease hears the other within seconds and
// gives way.
//
// See docs/virtual-ip.md.
package speaker
