"""Paging on demand where pages do go: before each operation the kernel takes away the memory at both ends.

What the card is given is not there then, and what it had is another page of nobody's: only a card that faults, and looks again,
moves these bytes.
"""

import ctypes
import mmap
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "tests")]

import pyverbs.enums as e
from pyverbs.mr import MR
from pyverbs.qp import QPAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from tests.base import RCResources
from tests.utils import poll_cq

N_PAGES = 5
SIZE = N_PAGES * mmap.PAGESIZE
# Neither end is one of a page; an atomic's address is aligned.
OFFSET, LENGTH = 104, SIZE - 300
REMOTE = e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_ATOMIC
ROUNDS = 10


class Player(RCResources):
    """One end, with memory that can be taken away."""

    def create_mr(self):
        self.memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + OFFSET
        access = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_ON_DEMAND | REMOTE
        self.mr = MR(self.pd, SIZE, access, address=self.address - OFFSET)

    def create_qp_attr(self):
        attr = QPAttr(port_num=self.ib_port)
        attr.qp_access_flags = REMOTE
        return attr

    def forget(self):
        self.memory.madvise(mmap.MADV_DONTNEED)

    def fill(self, seed, length):
        """Other memory with bytes that tell where they are; returns them."""
        self.forget()
        data = bytes((n * 7 + n // 251 + seed) & 0xFF for n in range(length))
        self.memory[OFFSET : OFFSET + length] = data
        return data

    def data(self, length):
        return self.memory[OFFSET : OFFSET + length]

    def sge(self, length):
        return [SGE(self.address, length, self.mr.lkey)]

    def post_receive(self):
        (self.srq or self.qp).post_recv(RecvWR(num_sge=1, sg=self.sge(LENGTH)))

    def post(self, opcode, length, peer=None, add=None):
        request = SendWR(num_sge=1, sg=self.sge(length), opcode=opcode)
        if add:
            request.set_wr_atomic(peer.mr.rkey, peer.address, add, 0)
        elif peer:
            request.set_wr_rdma(peer.mr.rkey, peer.address)
        self.qp.post_send(request)
        poll_cq(self.cq)


def expect(what, got, wanted):
    if got != wanted:
        first = next(n for n in range(len(wanted)) if got[n] != wanted[n])
        sys.exit(f"{what}: byte {first} is {got[first]}, not {wanted[first]}")


def play(with_srq):
    near, far = (Player("mlx5_0", 1, 1, with_srq=with_srq) for _ in range(2))
    near.pre_run(far.psns, far.qps_num)
    far.pre_run(near.psns, near.qps_num)
    for seed in range(ROUNDS):
        data = near.fill(seed, LENGTH)
        far.forget()
        far.post_receive()
        near.post(e.IBV_WR_SEND, LENGTH)
        poll_cq(far.cq)
        expect("SEND", far.data(LENGTH), data)

        data = near.fill(seed + 1, LENGTH)
        far.forget()
        near.post(e.IBV_WR_RDMA_WRITE, LENGTH, far)
        expect("WRITE", far.data(LENGTH), data)

        data = far.fill(seed + 2, LENGTH)
        near.forget()
        near.post(e.IBV_WR_RDMA_READ, LENGTH, far)
        expect("READ", near.data(LENGTH), data)

        data = far.fill(seed + 3, 8)
        near.forget()
        near.post(e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8, far, add=1)
        expect("old value", near.data(8), data)
        total = (int.from_bytes(data, sys.byteorder) + 1) % (1 << 64)
        expect("new value", far.data(8), total.to_bytes(8, sys.byteorder))


for with_srq in [False, True]:
    play(with_srq)
