"""How much of a model there is to load, and how fast this host's disk gives it: for an outage that nobody has timed."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any, Dict, Iterable, Optional

PIECE = 8 << 20
PIECES = 16
ENOUGH_S = 1.0


def of_weights(folders: Iterable[Optional[str]]) -> Dict[str, Any]:
    """`{bytes, mib_s}` of the weights in these folders; `mib_s` is None where it cannot be measured."""
    files = [file for folder in folders if folder for file in Path(folder).glob("*.safetensors")]
    sizes = {file: file.stat().st_size for file in files if file.is_file()}
    largest = max(sizes, key=lambda file: sizes[file], default=None)
    return {"bytes": sum(sizes.values()), "mib_s": read_mib_s(largest) if largest else None}


def read_mib_s(path: Path) -> Optional[float]:
    """MiB per second past the page cache, from at most 128 MiB of a file or a second. It evicts nothing."""
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    try:
        fd = os.open(str(path), os.O_RDONLY | os.O_CLOEXEC | direct)
    except OSError:  # tmpfs and some network file systems have no direct reads
        return None
    total, begun = 0, time.monotonic()
    try:
        with mmap.mmap(-1, PIECE) as aligned:
            while total < PIECE * PIECES and time.monotonic() - begun < ENOUGH_S:
                size = os.preadv(fd, [aligned], total)
                total += size
                if size < PIECE:
                    break
    except OSError:
        return None
    finally:
        os.close(fd)
    return total / 2**20 / max(time.monotonic() - begun, 1e-6) if total >= PIECE else None
