"""The attention mask in the layout of SGLang's triton backend, of which only the tree's own square matters."""

from __future__ import annotations

import torch


class MaskBuffer:
    """Per request W rows of length seq_len + W, one after the other.

    The kernel never reads the first seq_len entries of a row: every node sees the whole prefix. So they stay as they
    are, and a round writes W × W entries a request, however long the context is.
    """

    def __init__(self, width: int, device: torch.device | str) -> None:
        self._width = width
        self._buffer = torch.ones(0, dtype=torch.bool, device=device)
        self._grid = torch.arange(width, device=device)

    def write(self, visible: torch.Tensor, seq_lens: list[int]) -> torch.Tensor:
        """visible [bs, W, W] bool (query node, key node), seq_lens [bs] → the flat mask, until the next call.

        The lengths are known on the host, so nothing waits for the device.
        """
        starts, strides, end = [], [], 0
        for length in seq_lens:
            starts.append(end + length)
            strides.append(length + self._width)
            end += strides[-1] * self._width
        if self._buffer.numel() < end:
            self._buffer = torch.ones(2 * end, dtype=torch.bool, device=self._buffer.device)
        placed = torch.tensor([starts, strides], device="cpu").to(self._buffer.device, non_blocking=True)
        start, stride = placed[:, :, None, None]
        self._buffer[start + stride * self._grid[:, None] + self._grid] = visible
        return self._buffer[:end]
