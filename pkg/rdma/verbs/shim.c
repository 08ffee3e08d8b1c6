//go:build verbs

#include "shim.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

int sv_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return errno;
	return 0;
}

int sv_next_event(struct rdma_event_channel *channel, struct sv_event *event)
{
	struct rdma_cm_event *from;
	struct rdma_conn_param *param;

	if (rdma_get_cm_event(channel, &from))
		return errno;
	param = &from->param.conn;
	event->id = from->id;
	event->token = (uintptr_t)from->id->context;
	event->context = from->id->verbs;
	event->type = from->event;
	event->status = from->status;
	event->reads_in = param->responder_resources;
	event->reads_out = param->initiator_depth;
	event->private_length = param->private_data ? param->private_data_len : 0;
	if (event->private_length)
		memcpy(event->private_data, param->private_data, event->private_length);
	rdma_ack_cm_event(from);
	return 0;
}

struct rdma_cm_id *sv_create_id(struct rdma_event_channel *channel, uintptr_t token)
{
	struct rdma_cm_id *id;

	return rdma_create_id(channel, &id, (void *)token, RDMA_PS_TCP) ? NULL : id;
}

void sv_set_token(struct rdma_cm_id *id, uintptr_t token)
{
	id->context = (void *)token;
}

int sv_resolve_address(struct rdma_cm_id *id, struct sockaddr *to, int milliseconds)
{
	return rdma_resolve_addr(id, NULL, to, milliseconds) ? errno : 0;
}

int sv_resolve_route(struct rdma_cm_id *id, int milliseconds)
{
	return rdma_resolve_route(id, milliseconds) ? errno : 0;
}

int sv_listen(struct rdma_cm_id *id, struct sockaddr *at, int backlog, int one_family)
{
	if (one_family && rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &one_family, sizeof(one_family)))
		return errno;
	return rdma_bind_addr(id, at) || rdma_listen(id, backlog) ? errno : 0;
}

int sv_set_tos(struct rdma_cm_id *id, uint8_t tos)
{
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos)) ? errno : 0;
}

int sv_set_ack_timeout(struct rdma_cm_id *id, uint8_t exponent)
{
	return rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &exponent, sizeof(exponent)) ? errno : 0;
}

int sv_connect(struct rdma_cm_id *id, const void *data, uint8_t length, uint8_t reads_in, uint8_t reads_out, uint8_t retries, uint8_t rnr_retries, int accept)
{
	struct rdma_conn_param param = {
		.private_data = length ? data : NULL,
		.private_data_len = length,
		.responder_resources = reads_in,
		.initiator_depth = reads_out,
		.flow_control = 1,
		.retry_count = retries,
		.rnr_retry_count = rnr_retries,
	};

	return (accept ? rdma_accept(id, &param) : rdma_connect(id, &param)) ? errno : 0;
}

int sv_reject(struct rdma_cm_id *id, const void *data, uint8_t length)
{
	return rdma_reject(id, length ? data : NULL, length) ? errno : 0;
}

// What rdma_rxe and siw say who made them.
enum { VENDOR_RXE = 0xffffff, VENDOR_SIW = 0x626d74 };

int sv_limits_of(struct ibv_context *context, uint8_t port, struct sv_limits *limits)
{
	struct ibv_device_attr device;
	struct ibv_port_attr attributes;
	int failed = ibv_query_device(context, &device);

	if (!failed)
		failed = ibv_query_port(context, port, &attributes);
	if (failed)
		return failed;
	limits->iwarp = context->device->transport_type == IBV_TRANSPORT_IWARP;
	limits->software = device.vendor_id == VENDOR_RXE || device.vendor_id == VENDOR_SIW;
	limits->zero_copy = device.vendor_id == VENDOR_SIW;
	limits->port_active = attributes.state == IBV_PORT_ACTIVE;
	limits->max_segments = device.max_sge;
	limits->max_read_segments = device.max_sge_rd ? device.max_sge_rd : device.max_sge;
	limits->max_connections = device.max_qp;
	limits->max_regions = device.max_mr;
	limits->max_windows = device.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B) ? device.max_mw : 0;
	limits->loose_windows = device.vendor_id == VENDOR_RXE;
	// rxe reports it by the kernel's number, which means something else here that no connected queue pair reports.
	limits->with_invalidate = device.vendor_id == VENDOR_RXE ? IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK : IBV_WC_WITH_INV;
	limits->max_work = device.max_qp_wr;
	limits->max_completions = device.max_cqe;
	limits->max_shared = device.max_srq;
	limits->max_shared_work = device.max_srq_wr;
	limits->max_shared_segments = device.max_srq_sge;
	limits->max_reads_in = device.max_qp_rd_atom;
	limits->max_reads_out = device.max_qp_init_rd_atom;
	limits->max_message = attributes.max_msg_sz;
	limits->node_guid = device.node_guid;
	return 0;
}

// upwards returns an errno. Some drivers count downwards.
static int upwards(int failed)
{
	return failed < 0 ? -failed : failed;
}

// mtu_bytes returns the size of an MTU.
static int mtu_bytes(enum ibv_mtu mtu)
{
	return mtu ? 128 << mtu : 0;
}

int sv_mtu_of(struct ibv_context *context, uint8_t port, int *active, int *most)
{
	struct ibv_device_attr device;
	struct ibv_port_attr attributes;
	int failed = ibv_query_device(context, &device);

	if (!failed && port > device.phys_port_cnt)
		return 0;
	if (!failed)
		failed = ibv_query_port(context, port, &attributes);
	if (failed)
		return -upwards(failed);
	*active = mtu_bytes(attributes.active_mtu);
	*most = mtu_bytes(attributes.max_mtu);
	return 1;
}

struct ibv_mr *sv_register(struct ibv_pd *pd, uintptr_t address, uint64_t length, int access)
{
	return ibv_reg_mr(pd, (void *)address, length, access);
}

struct ibv_mw *sv_window(struct ibv_pd *pd)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_2);
}

void sv_free_window(struct ibv_mw *window)
{
	ibv_dealloc_mw(window);
}

int sv_open(struct sv_queues *q, struct rdma_cm_id *id, struct ibv_pd *pd, struct sv_shared *shared, const struct sv_settings *settings)
{
	struct ibv_modify_cq_attr moderation = {
		.attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = {.cq_count = settings->moderate_count, .cq_period = settings->moderate_period},
	};
	struct ibv_qp_init_attr attr;
	struct ibv_qp_attr now;
	int max_inline = settings->max_inline;
	int failed;

	q->failed = "ibv_create_comp_channel";
	q->channel = ibv_create_comp_channel(id->verbs);
	if (!q->channel)
		return errno;
	q->failed = "fcntl";
	failed = sv_nonblocking(q->channel->fd);
	if (failed)
		return failed;
	q->failed = "ibv_create_cq";
	q->cq = ibv_create_cq(id->verbs, settings->sends + settings->receives, NULL, q->channel, settings->vector);
	if (!q->cq)
		return errno;
	if (settings->moderate_count)
		ibv_modify_cq(q->cq, &moderation); // not every device can
	for (;;) {
		memset(&attr, 0, sizeof(attr));
		attr.qp_type = IBV_QPT_RC;
		attr.send_cq = attr.recv_cq = q->cq;
		attr.cap.max_send_wr = settings->sends;
		attr.cap.max_send_sge = settings->segments;
		if (shared) {
			attr.srq = shared->srq;
		} else {
			attr.cap.max_recv_wr = settings->receives;
			attr.cap.max_recv_sge = settings->segments;
		}
		attr.cap.max_inline_data = max_inline;
		if (!rdma_create_qp(id, pd, &attr))
			break;
		q->failed = "rdma_create_qp";
		if (!max_inline)
			return errno;
		max_inline = 0; // there are devices that take none
	}
	q->id = id;
	q->qp = id->qp;
	q->max_inline = attr.cap.max_inline_data;
	// Some report back what they were asked for.
	if (!ibv_query_qp(q->qp, &now, IBV_QP_CAP, &attr) && now.cap.max_inline_data < q->max_inline)
		q->max_inline = now.cap.max_inline_data;
	return 0;
}

int sv_rnr_timer(struct sv_queues *q, uint8_t timer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS, .min_rnr_timer = timer};

	return ibv_modify_qp(q->qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
}

int sv_path_of(struct sv_queues *q, struct sv_path *path)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_port_attr port;
	struct rdma_ib_addr *gids = &q->id->route.addr.addr.ibaddr;
	int failed;

	memset(path, 0, sizeof(*path));
	path->number = q->qp->qp_num;
	path->port = q->id->port_num;
	if (q->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP)
		return 0;
	failed = ibv_query_qp(q->qp, &attr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN, &init);
	if (!failed)
		failed = ibv_query_port(q->id->verbs, q->id->port_num, &port);
	if (failed)
		return upwards(failed);
	path->remote_number = attr.dest_qp_num;
	path->mtu = mtu_bytes(attr.path_mtu);
	path->port_mtu = mtu_bytes(port.active_mtu);
	path->gid_index = attr.ah_attr.grh.sgid_index;
	path->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
	memcpy(path->gid, gids->sgid.raw, sizeof(path->gid));
	memcpy(path->remote_gid, gids->dgid.raw, sizeof(path->remote_gid));
	return 0;
}

int sv_next_async(struct ibv_context *context, struct sv_async *to)
{
	if (ibv_get_async_event(context, &to->event))
		return errno;
	to->type = to->event.event_type;
	to->port = 0;
	to->object = 0;
	switch (to->event.event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		to->port = to->event.element.port_num;
		break;
	default:
		to->object = (uintptr_t)to->event.element.qp;
	}
	return 0;
}

static void chain_receives(struct ibv_recv_wr *chain, struct sv_receive *from, struct ibv_sge *list, int n)
{
	int i;

	for (i = 0; i < n; i++)
		chain[i] = (struct ibv_recv_wr){
			.wr_id = from[i].index,
			.next = i + 1 < n ? &chain[i + 1] : NULL,
			.sg_list = list + from[i].first,
			.num_sge = from[i].count,
		};
}

static int post_receives(struct sv_queues *q, int n)
{
	struct ibv_recv_wr chain[SV_CHAIN], *bad;

	chain_receives(chain, q->receives, q->receive_list, n);
	return upwards(ibv_post_recv(q->qp, chain, &bad));
}

int sv_open_shared(struct sv_shared *q, struct ibv_pd *pd, int receives, int segments)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = receives, .max_sge = segments}};

	q->srq = ibv_create_srq(pd, &attr);
	return q->srq ? 0 : errno;
}

int sv_post_shared(struct sv_shared *q, int receives)
{
	struct ibv_recv_wr chain[SV_CHAIN], *bad;

	chain_receives(chain, q->receives, q->list, receives);
	return upwards(ibv_post_srq_recv(q->srq, chain, &bad));
}

void sv_close_shared(struct sv_shared *q)
{
	ibv_destroy_srq(q->srq);
}

static int post_sends(struct sv_queues *q, int n)
{
	struct ibv_send_wr chain[SV_CHAIN], *bad;
	int i, failed;

	for (i = 0; i < n; i++) {
		struct sv_send *from = &q->sends[i];
		struct ibv_send_wr *to = &chain[i];

		memset(to, 0, sizeof(*to));
		to->wr_id = from->index;
		to->next = i + 1 < n ? to + 1 : NULL;
		to->sg_list = q->send_list + from->first;
		to->num_sge = from->count;
		to->opcode = from->opcode;
		if (from->flags & SV_SIGNALED)
			to->send_flags |= IBV_SEND_SIGNALED;
		if (from->flags & SV_INLINE)
			to->send_flags |= IBV_SEND_INLINE;
		to->wr.rdma.remote_addr = from->offset;
		to->wr.rdma.rkey = from->key; // where siw also looks for the key to invalidate
		if (from->opcode == IBV_WR_SEND_WITH_INV || from->opcode == IBV_WR_LOCAL_INV)
			to->invalidate_rkey = from->key;
		if (from->opcode != IBV_WR_BIND_MW)
			continue;
		to->bind_mw.mw = from->window;
		to->bind_mw.rkey = from->key;
		to->bind_mw.bind_info = (struct ibv_mw_bind_info){
			.mr = from->region, .addr = from->offset, .length = from->length, .mw_access_flags = from->access,
		};
	}
	failed = upwards(ibv_post_send(q->qp, chain, &bad));
	for (i = 0; i < n; i++)
		if (q->sends[i].opcode == IBV_WR_BIND_MW)
			q->sends[i].window->rkey = q->sends[i].key; // from which its next binding starts
	return failed;
}

// take_event takes the event of the channel if it has come. The channel is armed.
static void take_event(struct sv_queues *q)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(q->channel, &cq, &context))
		return;
	q->armed = 0;
	if (++q->events == 1024) {
		ibv_ack_cq_events(q->cq, q->events);
		q->events = 0;
	}
}

static int poll_queue(struct sv_queues *q, int arm, int spin)
{
	struct ibv_wc found[SV_BATCH];
	int i, n;

	if (q->armed)
		take_event(q);
	n = ibv_poll_cq(q->cq, SV_BATCH, found);
	for (q->spun = 0; n == 0 && arm && !q->armed && q->spun < spin; q->spun++)
		n = ibv_poll_cq(q->cq, SV_BATCH, found);
	if (n == 0 && arm && !q->armed) {
		if (ibv_req_notify_cq(q->cq, 0))
			return -1;
		q->armed = 1;
		n = ibv_poll_cq(q->cq, SV_BATCH, found);
	}
	for (i = 0; i < n; i++) {
		struct sv_completion *to = &q->completions[i];

		to->index = found[i].wr_id;
		to->status = found[i].status;
		to->vendor = found[i].vendor_err;
		to->bytes = found[i].byte_len;
		to->flags = found[i].wc_flags;
		to->invalidated = found[i].invalidated_rkey;
	}
	return n;
}

int sv_turn(struct sv_queues *q, int receives, int sends, int poll, int spin)
{
	if (receives || sends) { // else another turn may be about to look at them
		q->no_receives = receives ? post_receives(q, receives) : 0;
		q->no_sends = sends ? post_sends(q, sends) : 0;
	}
	return poll == SV_NOT ? 0 : poll_queue(q, poll == SV_ARM, spin);
}

int sv_failed(struct sv_queues *q)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	return q->qp && ibv_query_qp(q->qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR;
}

void sv_fail(struct sv_queues *q)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (q->qp)
		ibv_modify_qp(q->qp, &attr, IBV_QP_STATE);
}

void sv_destroy_qp(struct sv_queues *q)
{
	if (q->qp)
		rdma_destroy_qp(q->id);
	q->qp = NULL;
}

void sv_destroy_rest(struct sv_queues *q)
{
	if (q->cq) {
		if (q->events)
			ibv_ack_cq_events(q->cq, q->events);
		ibv_destroy_cq(q->cq);
	}
	if (q->channel)
		ibv_destroy_comp_channel(q->channel);
}
