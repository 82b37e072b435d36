"""The attention mask in the layout of SGLang's triton backend, of which only the tree's own square matters."""

from __future__ import annotations

import torch


class MaskBuffer:
    """Per request W rows of length seq_len + W, one after the other.

    The kernel never reads the first seq_len entries of a row: every node sees the whole prefix. So they stay as they
    are, and a round writes W x W entries a request, however long the context is.

    shared: the buffer in which the backend's CUDA graphs read the mask, to be written in place.
    """

    def __init__(self, width: int, device: torch.device | str, shared: torch.Tensor | None = None) -> None:
        self._width, self._shared = width, shared
        self._own = torch.ones(0, dtype=torch.bool, device=device)
        self._buffer = self._own if shared is None else shared
        self._grid = torch.arange(width, device=device)

    @property
    def is_shared(self) -> bool:
        """The mask reserved last lies where captured steps write and graphs read."""
        return self._buffer is self._shared

    def reserve(self, seq_lens: list[int]) -> torch.Tensor:
        """The flat mask of a batch with these lengths; `write` fills it."""
        needed = sum(self._width * (length + self._width) for length in seq_lens)
        if self._shared is not None and self._shared.numel() >= needed:
            self._buffer = self._shared
        else:
            if self._own.numel() < needed:
                self._own = self._own.new_ones(2 * needed)
            self._buffer = self._own
        return self._buffer[:needed]

    def write(self, visible: torch.Tensor, seq_lens: torch.Tensor) -> None:
        """visible: [bs, W, W] bool, query node by key node. seq_lens: [bs]. Waits for nothing and may be captured."""
        row_lens = (seq_lens.to(torch.int64) + self._width)[:, None]
        starts = (row_lens.cumsum(0) - row_lens) * self._width
        first_node = (
            starts + row_lens * (self._grid + 1) - self._width
        )  # a row's last W entries are the tree's
        self._buffer[first_node[:, :, None] + self._grid] = visible.to(self._buffer.dtype)
