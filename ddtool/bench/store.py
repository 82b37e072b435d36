"""A run's folder on the operator's machine: `run.json`, `samples.jsonl`, `result.json`.

Samples are only ever appended, line by line, and never rewritten: a run that broke off keeps every byte. A line that a
kill cut short stays as it is; the next one begins on a line of its own. One process at a time adds to them.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import platformdirs

from ddtool.errors import DdtoolError, Locked, UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

Json = dict[str, Any]
SCHEMA = "ddtool.bench.run/1"
RESULT = "ddtool.bench/1"
NEEDED = {"run": str, "plan": dict, "workloads": list, "fingerprint": dict, "how": dict}  # of a run.json


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
        with writing(path):
            path.mkdir(parents=True, mode=0o700)
        folder = cls(path)
        folder.keep("run.json", run)
        return folder

    @property
    def run(self) -> Json:
        return read_json(self.path / "run.json")

    @property
    def tuning(self) -> str | None:
        """The name of the tuning run that it is, or verifies; None for a benchmark."""
        how = self.run["how"]
        return str(how.get("verifies") or self.path.name) if "tune" in how or "verifies" in how else None

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
        return {line["pass"]: line["attempt"] for line in self._of("end")}

    def attempts(self) -> dict[str, int]:
        """Pass → its last attempt, whole or broken."""
        found: dict[str, int] = {}
        for line in self._of("begin"):
            found[line["pass"]] = max(line["attempt"], found.get(line["pass"], 0))
        return found

    def _of(self, kind: str) -> Iterator[Json]:
        for line in self.lines():
            well = isinstance(line.get("pass"), str) and isinstance(line.get("attempt"), int)
            if line.get("kind") == kind and well:
                yield line

    def append_copy(self, data: bytes, at: int) -> None:
        """The bytes that another copy of the samples has from offset `at` on."""
        with Writer(self.samples_path, torn=True) as write:
            if at != self.size:
                raise DdtoolError(f"{self.samples_path} changed while it was copied", hint="run it again")
            write.add(data)
            os.fsync(write.file)

    def write_result(self, result: Mapping[str, Any]) -> None:
        self.keep("result.json", result)

    def keep(self, name: str, data: Mapping[str, Any]) -> None:
        """Atomically."""
        with writing(self.path / name):
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
    """Appends lines to a run's samples, each in the file before the next. Raises Locked while another process does.

    torn: what is there may end within a line, because the rest of it is what will be added.
    """

    def __init__(self, path: Path, *, torn: bool = False) -> None:
        self._path = path
        with writing(path):
            self.file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.file)
            raise Locked(
                f"another ddtool is measuring {path.parent.name}",
                hint="wait until it ends: ddtool bench list",
            ) from None
        size = os.fstat(self.file).st_size
        if size and not torn and os.pread(self.file, 1, size - 1) != b"\n":
            self.add(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        os.close(self.file)

    def __call__(self, line: Mapping[str, Any]) -> None:
        self.add(json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def add(self, data: bytes) -> None:
        with writing(self._path):
            while data:
                data = data[os.write(self.file, data) :]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """A full disk or a folder that may not be written to, in words."""
    try:
        yield
    except OSError as error:
        raise DdtoolError(
            f"{path} cannot be written: {error.strerror or error}",
            why="what was written before is kept",
            hint="make room, or set XDG_DATA_HOME to a folder that can be written, and type it again",
        ) from error


def read_lines(path: Path) -> Iterator[Json]:
    """Whole lines; one that a kill cut short never counted."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            try:
                item = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(item, dict):
                yield item


def read_json(path: Path) -> Json:
    """Raises UsageError where there is none, DdtoolError where it is no JSON object."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no {path}", hint="ddtool bench list") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="ddtool bench list") from error
    except (ValueError, RecursionError) as error:
        raise DdtoolError(f"{path} is not JSON: {error}", hint="ddtool bench list") from error
    if not isinstance(data, dict):
        raise DdtoolError(f"{path} is not a JSON object", hint="ddtool bench list")
    return data


def runs() -> list[Folder]:
    """Newest first."""
    return [Folder(path.parent) for path in sorted(root().glob("*/run.json"), reverse=True)]


def find(name: str) -> Folder:
    """The run of that id, or of an id that begins so; or a folder.

    Raises UsageError with what there is, or when the folder's run.json is not one of a run.
    """
    path = Path(name)
    if (path / "run.json").is_file():
        return checked(Folder(path.resolve()))  # `.` has a name and neighbours, too
    matching = [folder for folder in runs() if folder.path.name.startswith(name)]
    if len(matching) == 1:
        return checked(matching[0])
    known = ", ".join(folder.path.name for folder in (matching or runs())[:5]) or "none yet"
    what = "several runs begin with" if matching else "no run"
    raise UsageError(f"{what} {name}", why=f"here are: {known}", hint="ddtool bench list")


def checked(folder: Folder) -> Folder:
    """Raises UsageError when its run.json is none that this ddtool wrote."""
    about = folder.run
    wrong = [name for name, kind in NEEDED.items() if not isinstance(about.get(name), kind)]
    if about.get("schema") != SCHEMA or wrong:
        raise UsageError(
            f"{folder.path} is no run of this ddtool",
            why=f"its run.json has {', '.join(wrong)} not as it should be"
            if wrong
            else f"its schema is {about.get('schema')}",
            hint="ddtool bench list",
        )
    return folder


def result_of(name: str) -> Json:
    """The result of a run, by its id, its folder, or a file that `--json` was written to."""
    path = Path(name)
    if not path.is_file():
        folder = find(name)
        path = folder.path / "result.json"
        if not path.exists() and folder.tuning:
            fit = folder.path.with_name(folder.tuning)
            raise UsageError(
                f"{folder.path.name} is a tuning run's, and its result is an answer, which compares arms by itself",
                hint=f"ddtool tune --from {fit.name if fit.parent == root() else fit}",
            )
        if not path.exists():
            raise UsageError(
                f"{folder.path.name} has no result yet: it broke off",
                hint=f"ddtool bench --resume {folder.path.name}",
            )
    result = read_json(path)
    if result.get("schema") != RESULT or not isinstance(result.get("cells"), list):
        raise UsageError(
            f"{path} is no result of `ddtool bench`",
            why=f"its schema is {result.get('schema')}, with {len(result)} fields",
            hint="ddtool bench … --json > FILE, or a run of `ddtool bench list`",
        )
    return result
