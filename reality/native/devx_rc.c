/*
 * Two RC queue pairs on rdma-core's VFIO provider, made by DevX commands and connected to each other: SEND, RDMA WRITE
 * and RDMA READ both ways, every byte checked; completion events by an EQ and an MSI-X vector of their own.
 *
 *     devx_rc [PCI address]     prints what it did; exit code 0 if all of it was right
 *
 * Offsets of commands and contexts are written as the PRM draws them: byte offset of the dword, bits.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/mlx5dv.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEADLINE_MS 5000
#define LOG_QUEUE 4
#define QUEUE_SLOTS (1 << LOG_QUEUE)
#define EQ_SLOTS 64
#define MESSAGE_BYTES 10000 /* several packets of the 1024-byte MTU */

static const char *step = "start";

#define CHECK(what, condition)                                                                        \
	do {                                                                                          \
		step = what;                                                                          \
		if (!(condition)) {                                                                   \
			fprintf(stderr, "devx_rc: %s: failed: %s (errno %d, %s)\n", step, #condition, \
				errno, strerror(errno));                                              \
			exit(1);                                                                      \
		}                                                                                     \
	} while (0)

static uint64_t now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

/* Bits hi:lo of the big-endian dword at a byte offset. */
static void set(void *at, unsigned offset, unsigned hi, unsigned lo, uint32_t value)
{
	uint32_t *dword = (uint32_t *)((char *)at + offset);
	uint32_t mask = (hi - lo == 31 ? ~0u : (1u << (hi - lo + 1)) - 1) << lo;

	*dword = htobe32((be32toh(*dword) & ~mask) | (value << lo & mask));
}

static uint32_t get(const void *at, unsigned offset, unsigned hi, unsigned lo)
{
	uint32_t dword = be32toh(*(const uint32_t *)((const char *)at + offset));

	return dword >> lo & (hi - lo == 31 ? ~0u : (1u << (hi - lo + 1)) - 1);
}

enum {
	CREATE_CQ = 0x400,
	CREATE_EQ = 0x301,
	CREATE_QP = 0x500,
	RST2INIT_QP = 0x502,
	INIT2RTR_QP = 0x503,
	RTR2RTS_QP = 0x504,
	QUERY_NIC_VPORT_CONTEXT = 0x754,
	SET_ROCE_ADDRESS = 0x761,
};

struct card {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t pdn;
	struct mlx5dv_devx_uar *uar;
	struct mlx5dv_devx_msi_vector *vector;
	struct mlx5dv_devx_eq *eq;
	uint32_t eqn;
	uint32_t eq_consumer;
	uint8_t mac[6];
	uint8_t gid[16];
};

/* Rings and doorbell records of one queue pair and its completion queue, from a page on each. */
struct rings {
	_Alignas(4096) uint8_t cq[QUEUE_SLOTS * 64];
	_Alignas(4096) uint8_t rq[QUEUE_SLOTS * 16]; /* and the send ring right behind it */
	uint8_t sq[QUEUE_SLOTS * 64];
	_Alignas(4096) uint32_t cq_record[2]; /* consumer index, arm word */
	_Alignas(64) uint32_t qp_record[2]; /* receive, send */
};

struct endpoint {
	struct rings *rings;
	struct mlx5dv_devx_umem *umem;
	struct mlx5dv_devx_obj *cq;
	struct mlx5dv_devx_obj *qp;
	uint32_t cqn;
	uint32_t qpn;
	uint32_t consumer;
	uint32_t n_armed;
	uint16_t send_producer;
	uint16_t receive_producer;
	uint8_t *buffer; /* what is sent, then what is received */
	struct ibv_mr *mr;
};

static void command(struct card *card, const char *what, void *in, size_t in_bytes, void *out, size_t out_bytes)
{
	CHECK(what, !mlx5dv_devx_general_cmd(card->context, in, in_bytes, out, out_bytes));
}

static void eq_doorbell(struct card *card, bool arm)
{
	volatile uint32_t *at = (uint32_t *)((char *)card->uar->base_addr + (arm ? 0x40 : 0x48));

	atomic_thread_fence(memory_order_seq_cst);
	*at = htobe32(card->eqn << 24 | (card->eq_consumer & 0xffffff));
}

static void open_card(struct card *card, const char *address)
{
	struct mlx5dv_vfio_context_attr attr = { .pci_name = address };
	struct ibv_device **list = mlx5dv_get_vfio_device_list(&attr);
	CHECK("mlx5dv_get_vfio_device_list", list && list[0]);
	card->context = ibv_open_device(list[0]);
	CHECK("ibv_open_device", card->context);
	ibv_free_device_list(list);
	card->pd = ibv_alloc_pd(card->context);
	CHECK("ibv_alloc_pd", card->pd);
	struct mlx5dv_pd pd = {};
	struct mlx5dv_obj obj = { .pd = { .in = card->pd, .out = &pd } };
	CHECK("mlx5dv_init_obj", !mlx5dv_init_obj(&obj, MLX5DV_OBJ_PD));
	card->pdn = pd.pdn;
	card->uar = mlx5dv_devx_alloc_uar(card->context, MLX5DV_UAR_ALLOC_TYPE_NC);
	CHECK("mlx5dv_devx_alloc_uar", card->uar);

	/* An address: the port's MAC, and the GID that follows from it. */
	uint8_t query[16] = {}, vport[0x10 + 0x100] = {};
	set(query, 0, 31, 16, QUERY_NIC_VPORT_CONTEXT);
	command(card, "QUERY_NIC_VPORT_CONTEXT", query, sizeof(query), vport, sizeof(vport));
	memcpy(card->mac, vport + 0x10 + 0xf4 + 2, 6);
	const uint8_t *mac = card->mac;
	const uint8_t gid[16] = { 0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5] };
	memcpy(card->gid, gid, sizeof(gid));
	uint8_t roce[0x30] = {}, done[16] = {};
	set(roce, 0x00, 31, 16, SET_ROCE_ADDRESS);
	memcpy(roce + 0x10, gid, sizeof(gid));
	memcpy(roce + 0x22, mac, 6);
	set(roce, 0x28, 11, 8, 1); /* IPv6 */
	set(roce, 0x28, 7, 0, 2); /* RoCE v2 */
	command(card, "SET_ROCE_ADDRESS", roce, sizeof(roce), done, sizeof(done));

	/* Completion events on a vector of their own. */
	card->vector = mlx5dv_devx_alloc_msi_vector(card->context);
	CHECK("mlx5dv_devx_alloc_msi_vector", card->vector);
	uint8_t in[272] = {}, out[16] = {};
	set(in, 0x00, 31, 16, CREATE_EQ);
	set(in, 0x1c, 28, 24, 6); /* log2 of EQ_SLOTS */
	set(in, 0x1c, 23, 0, card->uar->page_id);
	set(in, 0x24, 11, 0, card->vector->vector);
	card->eq = mlx5dv_devx_create_eq(card->context, in, sizeof(in), out, sizeof(out));
	CHECK("mlx5dv_devx_create_eq", card->eq);
	card->eqn = get(out, 0x08, 7, 0);
	for (int slot = 0; slot < EQ_SLOTS; slot++)
		((uint8_t *)card->eq->vaddr)[slot * 64 + 63] = 1;
	eq_doorbell(card, true);
}

static void make_cq(struct card *card, struct endpoint *end, uint32_t umem)
{
	uint8_t in[272] = {}, out[16] = {};

	for (int slot = 0; slot < QUEUE_SLOTS; slot++)
		end->rings->cq[slot * 64 + 63] = 0xf1;
	set(in, 0x00, 31, 16, CREATE_CQ);
	set(in, 0x10, 25, 25, 1); /* dbr_umem_valid */
	set(in, 0x14, 31, 0, umem);
	set(in, 0x1c, 28, 24, LOG_QUEUE);
	set(in, 0x1c, 23, 0, card->uar->page_id);
	set(in, 0x24, 7, 0, card->eqn);
	set(in, 0x4c, 31, 0, offsetof(struct rings, cq_record));
	set(in, 0x54, 31, 0, offsetof(struct rings, cq)); /* cq_umem_offset */
	set(in, 0x58, 31, 0, umem);
	set(in, 0x5c, 31, 31, 1);
	end->cq = mlx5dv_devx_obj_create(card->context, in, sizeof(in), out, sizeof(out));
	CHECK("CREATE_CQ", end->cq);
	end->cqn = get(out, 0x08, 23, 0);
}

static void make_qp(struct card *card, struct endpoint *end, uint32_t umem)
{
	uint8_t in[272] = {}, out[16] = {}, *qpc = in + 0x18;

	set(in, 0x00, 31, 16, CREATE_QP);
	set(qpc, 0x00, 23, 16, 0); /* RC */
	set(qpc, 0x00, 12, 11, 3); /* migrated */
	set(qpc, 0x04, 23, 0, card->pdn);
	set(qpc, 0x08, 22, 19, LOG_QUEUE);
	set(qpc, 0x08, 18, 16, 0); /* receive stride 16 bytes */
	set(qpc, 0x08, 14, 11, LOG_QUEUE);
	set(qpc, 0x0c, 23, 0, card->uar->page_id);
	set(qpc, 0x10, 23, 0, 0xabc); /* user_index */
	set(qpc, 0x7c, 23, 0, end->cqn);
	set(qpc, 0x9c, 23, 0, end->cqn);
	set(qpc, 0xa4, 31, 0, offsetof(struct rings, qp_record));
	set(qpc, 0xd0, 28, 28, 1); /* dbr_umem_valid */
	set(qpc, 0xe4, 31, 0, umem);
	set(in, 0x104, 31, 0, offsetof(struct rings, rq)); /* wq_umem_offset */
	set(in, 0x108, 31, 0, umem);
	set(in, 0x10c, 31, 31, 1);
	end->qp = mlx5dv_devx_obj_create(card->context, in, sizeof(in), out, sizeof(out));
	CHECK("CREATE_QP", end->qp);
	end->qpn = get(out, 0x08, 23, 0);
}

static void modify(struct endpoint *end, const char *what, uint16_t opcode, void (*fill)(void *, void *, void *),
		   void *peer, void *card)
{
	uint8_t in[272] = {}, out[16] = {};

	set(in, 0x00, 31, 16, opcode);
	set(in, 0x08, 23, 0, end->qpn);
	fill(in + 0x18, peer, card);
	CHECK(what, !mlx5dv_devx_obj_modify(end->qp, in, sizeof(in), out, sizeof(out)));
}

static void to_init(void *qpc, void *peer, void *card)
{
	(void)peer;
	set(qpc, 0x00, 12, 11, 3);
	set(qpc, 0x04, 23, 0, ((struct card *)card)->pdn);
	set((uint8_t *)qpc + 0x18, 0x24, 23, 16, 1); /* vhca_port_num */
	set(qpc, 0x90, 15, 14, 3); /* remote READ and WRITE */
}

static void to_rtr(void *qpc, void *peer, void *card)
{
	const struct endpoint *other = peer;
	const struct card *own = card;
	uint8_t *path = (uint8_t *)qpc + 0x18;

	set(qpc, 0x08, 31, 29, 3); /* MTU 1024 */
	set(qpc, 0x08, 28, 24, 30); /* log_msg_max */
	set(qpc, 0x14, 23, 0, other->qpn);
	set(path, 0x08, 23, 16, 0); /* src_addr_index */
	set(path, 0x08, 7, 0, 64); /* hop_limit */
	memcpy(path + 0x10, own->gid, 16);
	set(path, 0x20, 15, 0, 0xc000); /* UDP source port */
	memcpy(path + 0x26, own->mac, 6);
	set(qpc, 0x90, 23, 21, 2); /* four READs may come at once */
	set(qpc, 0x90, 15, 14, 3);
	set(qpc, 0x94, 28, 24, 12); /* min_rnr_nak */
	set(qpc, 0x94, 23, 0, 0x123456); /* next_rcv_psn */
}

static void to_rts(void *qpc, void *peer, void *card)
{
	(void)peer;
	(void)card;
	uint8_t *path = (uint8_t *)qpc + 0x18;
	set(path, 0x08, 31, 27, 14); /* ack_timeout */
	set(qpc, 0x70, 23, 21, 2); /* log_sra_max */
	set(qpc, 0x70, 18, 16, 7); /* retry_count */
	set(qpc, 0x70, 15, 13, 7); /* rnr_retry */
	set(qpc, 0x78, 23, 0, 0x123456); /* next_send_psn */
}

static void make_endpoint(struct card *card, struct endpoint *end)
{
	size_t bytes = sizeof(struct rings);

	CHECK("memory", !posix_memalign((void **)&end->rings, 4096, bytes));
	CHECK("memory", !posix_memalign((void **)&end->buffer, 4096, 4 * MESSAGE_BYTES));
	memset(end->rings, 0, bytes);
	memset(end->buffer, 0, 4 * MESSAGE_BYTES);
	struct mlx5dv_devx_umem_in umem = {
		.addr = end->rings,
		.size = bytes,
		.access = IBV_ACCESS_LOCAL_WRITE,
		.pgsz_bitmap = UINT64_MAX & ~4095ull,
	};
	end->umem = mlx5dv_devx_umem_reg_ex(card->context, &umem);
	CHECK("mlx5dv_devx_umem_reg_ex", end->umem);
	make_cq(card, end, end->umem->umem_id);
	make_qp(card, end, end->umem->umem_id);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	end->mr = ibv_reg_mr(card->pd, end->buffer, 4 * MESSAGE_BYTES, access);
	CHECK("ibv_reg_mr", end->mr);
}

static void arm_cq(struct card *card, struct endpoint *end)
{
	/* For any completion after `consumer`. */
	uint32_t word = (end->n_armed++ & 3) << 28 | (end->consumer & 0xffffff);
	volatile uint64_t *at = (uint64_t *)((char *)card->uar->base_addr + 0x20);

	end->rings->cq_record[1] = htobe32(word);
	atomic_thread_fence(memory_order_seq_cst);
	*at = htobe64((uint64_t)word << 32 | end->cqn);
}

static void post_receive(struct endpoint *end, uint32_t offset, uint32_t bytes)
{
	uint8_t *wqe = end->rings->rq + (end->receive_producer++ % QUEUE_SLOTS) * 16;

	set(wqe, 0, 31, 0, bytes);
	set(wqe, 4, 31, 0, end->mr->lkey);
	*(uint64_t *)(wqe + 8) = htobe64((uintptr_t)end->buffer + offset);
	atomic_thread_fence(memory_order_release);
	end->rings->qp_record[0] = htobe32(end->receive_producer);
}

/* One WQE: SEND, RDMA_WRITE or RDMA_READ of `bytes`, local at `offset`, remote at `remote_offset`. */
static void post_send(struct card *card, struct endpoint *end, uint8_t opcode, uint32_t offset, uint32_t bytes,
		      const struct endpoint *remote, uint32_t remote_offset)
{
	uint8_t *wqe = end->rings->sq + (end->send_producer % QUEUE_SLOTS) * 64, *data = wqe + 16;
	uint32_t n_segments = 2;

	memset(wqe, 0, 64);
	if (opcode != MLX5_OPCODE_SEND) {
		*(uint64_t *)data = htobe64((uintptr_t)remote->buffer + remote_offset);
		set(data, 8, 31, 0, remote->mr->rkey);
		data += 16;
		n_segments = 3;
	}
	set(data, 0, 31, 0, bytes);
	set(data, 4, 31, 0, end->mr->lkey);
	*(uint64_t *)(data + 8) = htobe64((uintptr_t)end->buffer + offset);
	set(wqe, 0, 31, 0, (uint32_t)end->send_producer << 8 | opcode);
	set(wqe, 4, 31, 0, end->qpn << 8 | n_segments);
	wqe[11] = MLX5_WQE_CTRL_CQ_UPDATE;
	end->send_producer++;
	atomic_thread_fence(memory_order_release);
	end->rings->qp_record[1] = htobe32(end->send_producer);
	atomic_thread_fence(memory_order_seq_cst);
	*(volatile uint64_t *)card->uar->reg_addr = *(uint64_t *)wqe;
}

/* Waits on the vector's eventfd, and takes the events. */
static void wait_event(struct card *card, uint32_t cqn)
{
	uint64_t start = now_ms(), count;

	for (bool found = false; !found;) {
		struct pollfd fd = { .fd = card->vector->fd, .events = POLLIN };
		CHECK("a completion event", poll(&fd, 1, DEADLINE_MS) == 1 && now_ms() - start < DEADLINE_MS);
		CHECK("the vector's eventfd", read(card->vector->fd, &count, sizeof(count)) == sizeof(count));
		for (;;) {
			uint8_t *eqe = (uint8_t *)card->eq->vaddr + card->eq_consumer % EQ_SLOTS * 64;
			uint8_t owner = *(volatile uint8_t *)(eqe + 63);
			if ((owner & 1) != (card->eq_consumer / EQ_SLOTS & 1))
				break;
			atomic_thread_fence(memory_order_acquire);
			CHECK("an event of type 0 (completion)", eqe[1] == 0);
			found |= get(eqe + 0x20, 0x18, 23, 0) == cqn;
			card->eq_consumer++;
		}
		eq_doorbell(card, true);
	}
}

/* Takes one CQE, which must be of this opcode (0 requester, 2 SEND arrived) and length. */
static void take_cqe(struct endpoint *end, const char *what, uint8_t opcode, uint32_t bytes)
{
	uint8_t *cqe = end->rings->cq + end->consumer % QUEUE_SLOTS * 64;
	uint64_t start = now_ms();

	for (;;) {
		uint8_t op_own = *(volatile uint8_t *)(cqe + 63);
		if (op_own >> 4 != 0xf && (op_own & 1) == (end->consumer / QUEUE_SLOTS & 1))
			break;
		CHECK(what, now_ms() - start < DEADLINE_MS);
	}
	atomic_thread_fence(memory_order_acquire);
	if (cqe[63] >> 4 != opcode)
		fprintf(stderr, "devx_rc: %s: opcode 0x%x, syndrome 0x%x, vendor 0x%x\n", what, cqe[63] >> 4, cqe[55],
			cqe[54]);
	CHECK(what, cqe[63] >> 4 == opcode);
	CHECK(what, opcode != 2 || get(cqe, 0x2c, 31, 0) == bytes);
	CHECK(what, get(cqe, 0x38, 23, 0) == end->qpn);
	end->consumer++;
	end->rings->cq_record[0] = htobe32(end->consumer & 0xffffff);
}

static void paint(uint8_t *at, uint32_t seed)
{
	for (uint32_t byte = 0; byte < MESSAGE_BYTES; byte++)
		at[byte] = (uint8_t)(seed + byte * 7 + byte / 251);
}

static bool painted(const uint8_t *at, uint32_t seed)
{
	for (uint32_t byte = 0; byte < MESSAGE_BYTES; byte++)
		if (at[byte] != (uint8_t)(seed + byte * 7 + byte / 251))
			return false;
	return true;
}

/* SEND, WRITE and READ from one end to the other; the four parts of a buffer are: to send, SENDs that arrived, WRITEs
 * that arrived, READs. */
static void exchange(struct card *card, struct endpoint *from, struct endpoint *to, uint32_t seed)
{
	const uint32_t part = MESSAGE_BYTES;

	paint(from->buffer, seed);
	paint(to->buffer, seed + 1);
	post_receive(to, part, part);
	arm_cq(card, to);
	post_send(card, from, MLX5_OPCODE_SEND, 0, part, NULL, 0);
	wait_event(card, to->cqn);
	take_cqe(to, "SEND arrives", 2, part);
	take_cqe(from, "SEND completes", 0, 0);
	CHECK("bytes of SEND", painted(to->buffer + part, seed));

	post_send(card, from, MLX5_OPCODE_RDMA_WRITE, 0, part, to, 2 * part);
	post_send(card, from, MLX5_OPCODE_RDMA_READ, 3 * part, part, to, 0);
	take_cqe(from, "RDMA_WRITE completes", 0, 0);
	take_cqe(from, "RDMA_READ completes", 0, 0);
	CHECK("bytes of RDMA_WRITE", painted(to->buffer + 2 * part, seed));
	CHECK("bytes of RDMA_READ", painted(from->buffer + 3 * part, seed + 1));
	memset(to->buffer + part, 0, 2 * part);
	memset(from->buffer + 3 * part, 0, part);
}

int main(int argc, char **argv)
{
	struct card card = {};
	struct endpoint ends[2] = {};
	uint8_t rounds = 20; /* rings of 16 slots wrap */

	open_card(&card, argc > 1 ? argv[1] : "0000:01:00.0");
	for (int at = 0; at < 2; at++)
		make_endpoint(&card, &ends[at]);
	for (int at = 0; at < 2; at++) {
		modify(&ends[at], "RST2INIT", RST2INIT_QP, to_init, &ends[!at], &card);
		modify(&ends[at], "INIT2RTR", INIT2RTR_QP, to_rtr, &ends[!at], &card);
		modify(&ends[at], "RTR2RTS", RTR2RTS_QP, to_rts, &ends[!at], &card);
	}
	for (int round = 0; round < rounds; round++) {
		exchange(&card, &ends[0], &ends[1], 3 * round);
		exchange(&card, &ends[1], &ends[0], 3 * round + 100);
	}
	/* The provider's own events: none is waiting, and it says so. */
	CHECK("mlx5dv_vfio_get_events_fd", mlx5dv_vfio_get_events_fd(card.context) >= 0);
	CHECK("mlx5dv_vfio_process_events", !mlx5dv_vfio_process_events(card.context));

	for (int at = 0; at < 2; at++) {
		struct endpoint *end = &ends[at];
		CHECK("DESTROY_QP", !mlx5dv_devx_obj_destroy(end->qp));
		CHECK("DESTROY_CQ", !mlx5dv_devx_obj_destroy(end->cq));
		CHECK("mlx5dv_devx_umem_dereg", !mlx5dv_devx_umem_dereg(end->umem));
		CHECK("ibv_dereg_mr", !ibv_dereg_mr(end->mr));
		free(end->rings);
		free(end->buffer);
	}
	CHECK("mlx5dv_devx_destroy_eq", !mlx5dv_devx_destroy_eq(card.eq));
	CHECK("mlx5dv_devx_free_msi_vector", !mlx5dv_devx_free_msi_vector(card.vector));
	mlx5dv_devx_free_uar(card.uar);
	CHECK("ibv_dealloc_pd", !ibv_dealloc_pd(card.pd));
	CHECK("ibv_close_device", !ibv_close_device(card.context));
	printf("devx_rc: %d rounds of SEND, RDMA_WRITE and RDMA_READ both ways, %d bytes each: all right\n", rounds,
	       MESSAGE_BYTES);
	return 0;
}
