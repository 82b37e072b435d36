"""The shape of SGLang's graph runner without torch: the functions that diagnostics patch, on plain lists."""

import logging
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

logger = logging.getLogger(__name__)


class Tensor:
    """One dimension of integers. `copy_` wants equal sizes, as torch does."""

    def __init__(self, values, dtype="int64"):
        self.values = list(values)
        self.dtype = dtype

    def __len__(self):
        return len(self.values)

    def __getitem__(self, part):
        return View(self, part)

    def copy_(self, other):
        if len(other) != len(self):
            raise RuntimeError(
                f"The size of tensor a ({len(self)}) must match the size of tensor b ({len(other)}) "
                "at non-singleton dimension 0"
            )
        self.write(other.values)

    def write(self, values):
        self.values[:] = values


class View(Tensor):
    def __init__(self, base, part):
        super().__init__(base.values[part], base.dtype)
        self.base, self.part = base, part

    def write(self, values):
        self.base.values[self.part] = values


@dataclass
class ForwardBatch:
    input_ids: Optional[Tensor]
    req_pool_indices: Optional[Tensor]
    seq_lens: Optional[Tensor]
    out_cache_loc: Optional[Tensor]
    positions: Optional[Tensor]


def _grouped_foreach_copy_(dsts: List[Tensor], srcs: List[Tensor]) -> None:
    groups: Dict[Tuple[str, str], Tuple[List[Tensor], List[Tensor]]] = {}
    for dst, src in zip(dsts, srcs):
        key = (dst.dtype, src.dtype)
        group = groups.setdefault(key, ([], []))
        group[0].append(dst)
        group[1].append(src)
    for group_dsts, group_srcs in groups.values():
        for dst, src in zip(group_dsts, group_srcs):
            dst.copy_(src)


class DecodeInputBuffers:
    def __init__(self, max_bs: int, width: int):
        self.input_ids = Tensor([0] * max_bs * width)
        self.req_pool_indices = Tensor([0] * max_bs)
        self.seq_lens = Tensor([0] * max_bs, "int32")
        self.out_cache_loc = Tensor([0] * max_bs * width)
        self.positions = Tensor([0] * max_bs * width)

    def populate_from_forward_batch(self, *, forward_batch: ForwardBatch, raw_bs: int, raw_num_token: int):
        dsts = [
            self.input_ids[:raw_num_token],
            self.req_pool_indices[:raw_bs],
            self.seq_lens[:raw_bs],
            self.out_cache_loc[:raw_num_token],
            self.positions[:raw_num_token],
        ]
        srcs = [
            forward_batch.input_ids,
            forward_batch.req_pool_indices,
            forward_batch.seq_lens,
            forward_batch.out_cache_loc,
            forward_batch.positions,
        ]
        _grouped_foreach_copy_(dsts, srcs)


def get_batch_sizes_to_capture(max_bs: int) -> List[int]:
    return [bs for bs in (1, 2, 4, 8, 16) if bs <= max_bs]


class CudaGraphRunner:
    def __init__(self, max_bs: int, width: int):
        self.capture_bs = get_batch_sizes_to_capture(max_bs)
        self.width = width
        self.buffers = DecodeInputBuffers(max(self.capture_bs), width)

    def replay(self, forward_batch: ForwardBatch):
        raw_bs = len(forward_batch.seq_lens)
        self.buffers.populate_from_forward_batch(
            forward_batch=forward_batch, raw_bs=raw_bs, raw_num_token=raw_bs * self.width
        )
