"""A run's folder on the operator's machine: `run.json`, `samples.jsonl`, `result.json`.

Samples are only ever appended, line by line, and never rewritten: a run that broke off keeps every byte. A line that a
kill cut short stays as it is; the next one begins on a line of its own.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

import platformdirs

from ddtool.errors import DdtoolError, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

Json = dict[str, Any]
SCHEMA = "ddtool.bench.run/1"


def root() -> Path:
    return platformdirs.user_data_path("ddtool") / "bench"


def new_id(now_unix: float) -> str:
    """`20261130-014212-3fa9`: ids sort by time."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_unix)) + "-" + secrets.token_hex(2)


class Folder:
    """One run. What is asked of it is read anew each time: another process may be writing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, run: Mapping[str, Any], under: Path | None = None) -> Folder:
        path = (under or root()) / str(run["run"])
        path.mkdir(parents=True, mode=0o700)
        folder = cls(path)
        folder.keep("run.json", run)
        return folder

    @property
    def run(self) -> Json:
        return read_json(self.path / "run.json")

    def update(self, **fields: Any) -> None:
        """Add to run.json what is known only later."""
        self.keep("run.json", {**self.run, **fields})

    @property
    def samples_path(self) -> Path:
        return self.path / "samples.jsonl"

    @property
    def size(self) -> int:
        return self.samples_path.stat().st_size if self.samples_path.exists() else 0

    def lines(self) -> Iterator[Json]:
        return read_lines(self.samples_path)

    def texts(self) -> list[bytes]:
        """Lines as they are, torn ones as well."""
        return self.samples_path.read_bytes().splitlines() if self.samples_path.exists() else []

    def done(self) -> dict[str, int]:
        """Pass → the attempt that came to its end."""
        return {line["pass"]: line["attempt"] for line in self.lines() if line.get("kind") == "end"}

    def attempts(self) -> dict[str, int]:
        """Pass → its last attempt, whole or broken."""
        found: dict[str, int] = {}
        for line in self.lines():
            if line.get("kind") == "begin":
                found[line["pass"]] = max(line["attempt"], found.get(line["pass"], 0))
        return found

    def append_copy(self, data: bytes, at: int) -> None:
        """The bytes that another copy of the samples has from offset `at` on."""
        if at != self.size:
            raise DdtoolError(f"{self.samples_path} changed while it was copied", hint="run it again")
        with self.samples_path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def write_result(self, result: Mapping[str, Any]) -> None:
        self.keep("result.json", result)

    def keep(self, name: str, data: Mapping[str, Any]) -> None:
        """Atomically."""
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(data, stream, indent=1)
                stream.write("\n")
                stream.flush()
                os.fsync(stream.fileno())
            Path(temporary).replace(self.path / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


class Writer:
    """Appends lines to a run's samples, each flushed before the next."""

    def __init__(self, path: Path) -> None:
        self._file: IO[bytes] = path.open("ab+")
        if self._file.tell():
            self._file.seek(-1, os.SEEK_END)
            if self._file.read(1) != b"\n":
                self._file.write(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._file.close()

    def __call__(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._file.flush()


def read_lines(path: Path) -> Iterator[Json]:
    """Whole lines; one that a kill cut short never counted."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                item = json.loads(line)
            except ValueError:
                continue
            if isinstance(item, dict):
                yield item


def read_json(path: Path) -> Json:
    try:
        data: Json = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no {path}", hint="ddtool bench list") from None
    except ValueError as error:
        raise DdtoolError(f"{path} is not JSON: {error}") from error
    return data


def runs() -> list[Folder]:
    """Newest first."""
    return [Folder(path.parent) for path in sorted(root().glob("*/run.json"), reverse=True)]


def find(name: str) -> Folder:
    """The run of that id, or of an id that begins so; or a folder. Raises UsageError with what there is."""
    path = Path(name)
    if (path / "run.json").is_file():
        return Folder(path)
    matching = [folder for folder in runs() if folder.path.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    known = ", ".join(folder.path.name for folder in (matching or runs())[:5]) or "none yet"
    what = "several runs begin with" if matching else "no run"
    raise UsageError(f"{what} {name}", why=f"here are: {known}", hint="ddtool bench list")


def result_of(name: str) -> Json:
    """The result of a run, by its id, its folder, or a file that `--json` was written to."""
    path = Path(name)
    return read_json(path) if path.is_file() else read_json(find(name).path / "result.json")
