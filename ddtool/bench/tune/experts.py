"""How many experts a verify of N tokens reads: the reason why a mixture of experts makes wide trees dear.

Were the tokens of a verify routed independently, it would be the upper bound `independent`. SGLang's own recorder
(`--expert-distribution-recorder-mode per_token`) says which experts each token of each forward chose. The rows of a
tree's forward are its nodes, best first, and a smaller tree is the beginning of a larger one: one server of the largest
width tells the number for all widths.
"""

from __future__ import annotations

import math
import pickle
import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from ddtool.errors import DdtoolError

MODE = "expert-distribution-recorder-mode"
FLAGS = {MODE: "per_token", "expert-distribution-recorder-buffer-size": -1}
FOLDER = "SGLANG_EXPERT_DISTRIBUTION_RECORDER_DIR"
START, STOP, DUMP = (f"/{verb}_expert_distribution_record" for verb in ("start", "stop", "dump"))
SIZES = {"Int": ("i", 4), "Long": ("q", 8), "Short": ("h", 2), "Byte": ("B", 1), "Char": ("b", 1)}


def independent(tokens: float, experts: int, chosen: int) -> float:
    """Expected distinct experts that `tokens` read, were each to choose `chosen` of `experts` by itself."""
    return experts * (1 - math.pow(1 - chosen / experts, tokens))


def distinct(
    forwards: Sequence[Sequence[Sequence[Sequence[int]]]], widths: Sequence[int]
) -> dict[int, float]:
    """Distinct experts a layer, the mean over layers and over forwards of at least that width.

    forwards: [forwards][layers][tokens][chosen], -1 where nothing was chosen; layers without experts are left out
    """
    counts: dict[int, list[int]] = {width: [] for width in widths}
    for layers in forwards:
        for tokens in layers:
            if not any(expert >= 0 for token in tokens for expert in token):
                continue
            for width in widths:
                if len(tokens) >= width:
                    counts[width].append(len({e for token in tokens[:width] for e in token if e >= 0}))
    return {width: fmean(found) for width, found in counts.items() if found}


def read_dump(path: Path, width: int) -> list[list[list[list[int]]]]:
    """The forwards of `width` tokens in a dump of SGLang's recorder, as `distinct` takes them.

    Read without torch, and without running what a pickle may ask for. Raises DdtoolError for another kind of file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            data = _Reader(archive).load()
        records = [record for record in data["records"] if len(record["input_ids"]) == width]
        return [record["topk_ids_of_layer"].nested() for record in records]
    except (OSError, zipfile.BadZipFile, pickle.UnpicklingError, KeyError, TypeError, struct.error) as error:
        raise DdtoolError(
            f"{path} is no dump of SGLang's expert recorder in mode per_token",
            why=str(error),
            hint=f"start the server with --{MODE} {FLAGS[MODE]}",
        ) from error


@dataclass(frozen=True)
class _Tensor:
    """A tensor's bytes and how they lie."""

    raw: bytes
    code: str
    item: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def nested(self) -> Any:
        return self._part(0, self.offset)

    def _part(self, dim: int, at: int) -> Any:
        if dim == len(self.size):
            return struct.unpack_from(f"<{self.code}", self.raw, at * self.item)[0]
        return [self._part(dim + 1, at + index * self.stride[dim]) for index in range(self.size[dim])]


class _Reader(pickle.Unpickler):
    """torch.save's archive: `data.pkl` beside a file for each storage. Knows tensors and plain containers alone."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        (name,) = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        super().__init__(archive.open(name))
        self._archive, self._folder = archive, name.removesuffix("data.pkl")

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuild
        if module == "torch" and name.endswith("Storage"):
            return name.removesuffix("Storage")
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise pickle.UnpicklingError(f"it holds a {module}.{name}")

    def persistent_load(self, pid: Any) -> tuple[str, bytes]:
        _, kind, key, *_ = pid
        return kind, self._archive.read(f"{self._folder}data/{key}")


def _rebuild(
    storage: tuple[str, bytes], offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> _Tensor:
    kind, raw = storage
    if kind not in SIZES:
        raise pickle.UnpicklingError(f"it holds a tensor of {kind}")
    code, item = SIZES[kind]
    return _Tensor(raw, code, item, offset, size, stride)
