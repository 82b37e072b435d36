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

    def write(self, visible: torch.Tensor, seq_lens: torch.Tensor, seq_lens_sum: int) -> torch.Tensor:
        """visible [bs, W, W] bool (query node, key node), seq_lens [bs] → the flat mask, until the next call.

        seq_lens_sum is known on the host, so nothing waits for the device.
        """
        requests, width = visible.shape[0], self._width
        needed = width * (seq_lens_sum + requests * width)
        if self._buffer.numel() < needed:
            self._buffer = torch.ones(2 * needed, dtype=torch.bool, device=self._buffer.device)
        row_lens = seq_lens.to(torch.int64) + width
        ends = torch.cumsum(row_lens, dim=0) * width
        starts = ends - row_lens * width
        rows = starts[:, None] + self._grid * row_lens[:, None]
        first_node = rows + seq_lens.to(torch.int64)[:, None]
        self._buffer[first_node[:, :, None] + self._grid] = visible
        return self._buffer[:needed]
