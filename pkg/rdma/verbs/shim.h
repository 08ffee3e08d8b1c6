// What Go asks of libibverbs and librdmacm, in pieces that are worth a crossing. All that the libraries keep, and all that is filled
// in on both sides, lies in C memory.
#ifndef SLUICE_VERBS_SHIM_H
#define SLUICE_VERBS_SHIM_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdlib.h>

enum {
	SV_BATCH = 64,    // completions taken at once
	SV_CHAIN = 64,    // work requests posted at once
	SV_SEGMENTS = 4, // the most segments of a work request or receive
	SV_LIST = SV_CHAIN * 4,
	SV_PRIVATE = 256,
};

enum { SV_SIGNALED = 1, SV_INLINE = 2 };

#ifdef IBV_ACCESS_OPTIONAL_RANGE // rdma-core 28 and later; devices and kernels without it ignore it
enum { SV_RELAXED_ORDERING = IBV_ACCESS_RELAXED_ORDERING };
#else
enum { SV_RELAXED_ORDERING = 0 };
#endif

enum { SV_NOT, SV_POLL, SV_ARM };

// sv_send is a work request; its segments are list[first..first+count).
struct sv_send {
	uint64_t index;
	uint64_t offset; // in the peer's memory; of what is bound: its address
	uint64_t length; // of what is bound
	struct ibv_mw *window; // to bind
	struct ibv_mr *region; // to bind it to
	uint32_t key; // the peer's handle; the one to invalidate; the one that the window gets
	uint32_t first, count;
	uint32_t opcode; // enum ibv_wr_opcode
	uint32_t flags;
	uint32_t access; // to what is bound
};

struct sv_receive {
	uint64_t index;
	uint32_t first, count;
};

// sv_shared is a queue of receives for several connections.
struct sv_shared {
	struct ibv_srq *srq;
	struct sv_receive receives[SV_CHAIN];
	struct ibv_sge list[SV_LIST];
};

struct sv_completion {
	uint64_t index;
	uint32_t status; // enum ibv_wc_status
	uint32_t vendor;
	uint32_t bytes;
	uint32_t invalidated;
	uint32_t flags; // enum ibv_wc_flags
};

// sv_queues are the queues of a connection, and what crosses between Go and them.
struct sv_queues {
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	const char *failed; // the call that did
	uint32_t max_inline;
	unsigned events; // not acknowledged
	int armed;
	int spun; // how often the last sv_turn polled again
	int no_receives, no_sends; // why the last sv_turn that posted could not: an errno, or 0
	struct sv_send sends[SV_CHAIN];
	struct ibv_sge send_list[SV_LIST];
	struct sv_receive receives[SV_CHAIN];
	struct ibv_sge receive_list[SV_LIST];
	struct sv_completion completions[SV_BATCH];
};

// sv_event is a copy of an event of the connection manager, which is acknowledged by then.
struct sv_event {
	uintptr_t token; // the context of the id, or that of the listener for a request
	struct rdma_cm_id *id;
	struct ibv_context *context; // of the device, if it is known
	int type, status;
	uint8_t reads_in, reads_out; // as the peer allows and wants
	uint8_t private_length;
	uint8_t private_data[SV_PRIVATE];
};

// sv_async is an asynchronous event of a device.
struct sv_async {
	struct ibv_async_event event;
	int type;
	int port; // of events of ports
	uintptr_t object; // the queue pair, completion queue or shared receive queue of the others; 0 for the whole device
};

// sv_settings are settings of a connection's queues.
struct sv_settings {
	int sends, receives, segments, max_inline;
	int vector; // of the completion queue
	int moderate_count, moderate_period; // completions for an interrupt, and microseconds to wait for them; 0 for the device's own
};

// sv_path is a queue pair and the path to the peer's.
struct sv_path {
	uint32_t number, remote_number;
	int port, gid_index, mtu; // mtu in bytes
	int ethernet; // the port's link layer
	int port_mtu; // active, in bytes
	uint8_t gid[16], remote_gid[16];
};

// sv_limits are a device's.
struct sv_limits {
	int iwarp;
	int software; // of the kernel: it is told of requests by writing to the command file
	int zero_copy; // TCP may send from the memory of an unsignaled request after later ones completed
	int loose_windows; // it lets the peer reach all of the region that a window is bound to
	int port_active;
	uint32_t with_invalidate; // the flags of a completion that tell of an invalidated handle
	int max_segments, max_read_segments;
	int max_connections, max_work, max_completions;
	int max_shared, max_shared_work, max_shared_segments; // queues of receives for several connections
	int max_regions, max_windows; // windows of type 2
	int max_reads_in, max_reads_out;
	uint32_t max_message;
	uint64_t node_guid;
};

// All return 0 or an errno unless said otherwise.

int sv_nonblocking(int fd);
int sv_next_event(struct rdma_event_channel *channel, struct sv_event *event);
// sv_create_id returns NULL, and errno says why.
struct rdma_cm_id *sv_create_id(struct rdma_event_channel *channel, uintptr_t token);
int sv_resolve_address(struct rdma_cm_id *id, struct sockaddr *to, int milliseconds);
int sv_resolve_route(struct rdma_cm_id *id, int milliseconds);
// With one_family, a listener on all addresses leaves those of the other family to another one.
int sv_listen(struct rdma_cm_id *id, struct sockaddr *at, int backlog, int one_family);
// sv_connect dials, or accepts. retries are how often our own messages are repeated without an answer (only who dials chooses), rnr_retries how often
// the peer repeats one for which there is no receive here; 7 of these are without end.
int sv_connect(struct rdma_cm_id *id, const void *data, uint8_t length, uint8_t reads_in, uint8_t reads_out, uint8_t retries, uint8_t rnr_retries, int accept);
int sv_set_tos(struct rdma_cm_id *id, uint8_t tos);
// sv_set_ack_timeout sets how long an answer may take: 4.096 µs * 2^exponent.
int sv_set_ack_timeout(struct rdma_cm_id *id, uint8_t exponent);
int sv_reject(struct rdma_cm_id *id, const void *data, uint8_t length);
int sv_limits_of(struct ibv_context *context, uint8_t port, struct sv_limits *limits);
// sv_mtu_of sets the active and the largest MTU of a port in bytes. It returns 1, 0 if the device has no such port, or a negative errno.
int sv_mtu_of(struct ibv_context *context, uint8_t port, int *active, int *most);
void sv_set_token(struct rdma_cm_id *id, uintptr_t token);

struct ibv_mr *sv_register(struct ibv_pd *pd, uintptr_t address, uint64_t length, int access);
// sv_window allocates a memory window of type 2. It returns NULL, and errno says why.
struct ibv_mw *sv_window(struct ibv_pd *pd);
void sv_free_window(struct ibv_mw *window);

// sv_open makes the queues of a connection. Its receives are in shared, unless that is NULL.
int sv_open(struct sv_queues *q, struct rdma_cm_id *id, struct ibv_pd *pd, struct sv_shared *shared, const struct sv_settings *settings);
// sv_rnr_timer sets how long the peer waits before it repeats a message for which there was no receive: the encoding of IBV_QP_MIN_RNR_TIMER.
int sv_rnr_timer(struct sv_queues *q, uint8_t timer);
// sv_path_of describes a connected queue pair. Over iWARP it sets number and port alone.
int sv_path_of(struct sv_queues *q, struct sv_path *path);
int sv_open_shared(struct sv_shared *q, struct ibv_pd *pd, int receives, int segments);
int sv_post_shared(struct sv_shared *q, int receives);
void sv_close_shared(struct sv_shared *q);
// sv_turn posts what is gathered, first the receives. Then it polls, unless poll is SV_NOT, and returns how many completions it took. When
// there are none and poll is SV_ARM, it polls up to spin times more, and arms the channel if that finds none either.
int sv_turn(struct sv_queues *q, int receives, int sends, int poll, int spin);
// sv_next_async takes an event, which ibv_ack_async_event has to acknowledge before its object can be destroyed.
int sv_next_async(struct ibv_context *context, struct sv_async *to);
// sv_failed tells whether the queue pair is in the state of an error.
int sv_failed(struct sv_queues *q);
// sv_fail brings it there.
void sv_fail(struct sv_queues *q);
void sv_destroy_qp(struct sv_queues *q);
void sv_destroy_rest(struct sv_queues *q);

#endif
