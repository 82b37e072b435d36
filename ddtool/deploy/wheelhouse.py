"""A folder of wheels for hosts of one kind, with a manifest that pins every byte.

DIR/*.whl              the wheels of one environment, and pip's own, which installs them
DIR/wheelhouse.json    ddtool.wheelhouse/1: for which Python, machine and glibc; each wheel's sha256 and sizes
DIR/requirements.txt   the same pins as pip reads them, for `engine.requirements` with an index
"""

from __future__ import annotations

import email
import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from ddtool.agent.enum_names import enum_names
from ddtool.errors import UsageError, VerificationFailed

SCHEMA = "ddtool.wheelhouse/1"
MANIFEST = "wheelhouse.json"
REQUIREMENTS = "requirements.txt"
SPEC_INFO = "sglang/srt/speculative/spec_info.py"


@dataclass(frozen=True)
class Target:
    """What wheels must run on: `python` is `3.11.2`, `machine` as uname has it, `glibc` `2.36`."""

    python: str
    machine: str
    glibc: str

    @property
    def minor(self) -> str:
        return ".".join(self.python.split(".")[:2])

    def __str__(self) -> str:
        return f"Python {self.minor}, {self.machine}, glibc {self.glibc}"


@dataclass(frozen=True)
class Wheel:
    """One file. `bytes` as it is sent, `unpacked_bytes` as it is installed. `requires`: its Requires-Dist lines."""

    file: str
    name: str
    version: str
    sha256: str
    bytes: int
    unpacked_bytes: int
    requires_python: str | None
    requires: tuple[str, ...] = ()

    @property
    def pin(self) -> str:
        """As a line for pip."""
        return f"{self.name}=={self.version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True)
class Wheelhouse:
    """`installer`: the file name of pip's wheel; it is installed only when something requires pip."""

    folder: Path
    target: Target
    requested: tuple[str, ...]
    installer: str
    wheels: tuple[Wheel, ...]

    @property
    def packages(self) -> list[Wheel]:
        """What an environment of it holds."""
        wanted = {canonicalize_name(line.split("==")[0]) for line in self.requested}
        return [wheel for wheel in self.wheels if wheel.file != self.installer or wheel.name in wanted]

    @property
    def pins(self) -> list[str]:
        return sorted(wheel.pin for wheel in self.packages)

    def algorithms(self) -> list[str] | None:
        """What its SGLang has built in, as facts tell of an installed one; None when that cannot be told."""
        for wheel in self.wheels:
            if wheel.name == "sglang":
                try:
                    with zipfile.ZipFile(self.folder / wheel.file) as archive:
                        return enum_names(archive.read(SPEC_INFO), "SpeculativeAlgorithm")
                except (OSError, KeyError, zipfile.BadZipFile):
                    return None
        return None

    def problems(self, wheels: Iterable[Wheel] | None = None) -> Iterator[str]:
        """What is not as the manifest says, of all wheels or of these: every byte of them is read."""
        for wheel in self.wheels if wheels is None else wheels:
            path = self.folder / wheel.file
            if not path.is_file():
                yield f"{wheel.file} is missing"
            elif path.stat().st_size != wheel.bytes:
                yield f"{wheel.file} has {path.stat().st_size} bytes, not {wheel.bytes}"
            elif digest(path) != wheel.sha256:
                yield f"{wheel.file} is not the file that was collected: its sha256 differs"

    def require_whole(self, wheels: Iterable[Wheel]) -> None:
        """Raises VerificationFailed naming wheels that are not what the manifest pins."""
        found = list(self.problems(wheels))
        if found:
            raise VerificationFailed(
                f"the wheelhouse {self.folder} is not whole: " + "; ".join(found[:3]),
                why="nothing was sent",
                hint=f"ddtool wheelhouse build --for HOST --out {self.folder}",
            )

    def write(self) -> None:
        """The manifest comes last: without it the folder is no wheelhouse."""
        about = {
            "schema": SCHEMA,
            "target": asdict(self.target),
            "requested": list(self.requested),
            "installer": self.installer,
            "wheels": [asdict(wheel) for wheel in self.wheels],
        }
        (self.folder / REQUIREMENTS).write_text("".join(f"{pin}\n" for pin in self.pins))
        fresh = self.folder / f".{MANIFEST}"
        fresh.write_text(json.dumps(about, indent=1) + "\n")
        fresh.replace(self.folder / MANIFEST)


def read(folder: str | Path) -> Wheelhouse:
    """The wheelhouse in a folder (`~` is expanded), by its manifest; no wheel is opened. UsageError without one."""
    where = Path(folder).expanduser()
    try:
        about: dict[str, Any] = json.loads((where / MANIFEST).read_text(encoding="utf-8"))
        if about["schema"] != SCHEMA:
            raise UsageError(f"{where / MANIFEST} is {about['schema']}, not {SCHEMA}", hint="build it anew")
        wheels = tuple(
            Wheel(**{**item, "requires": tuple(item.get("requires", ()))}) for item in about["wheels"]
        )
        target = Target(**about["target"])
        return Wheelhouse(where, target, tuple(about["requested"]), about["installer"], wheels)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{where} is no wheelhouse: {type(error).__name__}: {error}",
            hint=f"ddtool wheelhouse build --for HOST --out {where}",
        ) from error


def read_wheel(path: Path) -> Wheel:
    """A wheel's own words about itself, and the sha256 of its bytes. UsageError for a file that is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [one for one in archive.namelist() if one.endswith(".dist-info/METADATA")]
            about = email.message_from_bytes(archive.read(name))
            unpacked = sum(item.file_size for item in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is not a wheel that can be read: {error}") from error
    return Wheel(
        file=path.name,
        name=canonicalize_name(about["Name"]),
        version=str(about["Version"]),
        sha256=digest(path),
        bytes=path.stat().st_size,
        unpacked_bytes=unpacked,
        requires_python=about["Requires-Python"],
        requires=tuple(about.get_all("Requires-Dist", [])),
    )


def digest(path: Path) -> str:
    with path.open("rb") as stream:
        found = hashlib.sha256()
        for chunk in iter(lambda: stream.read(1 << 20), b""):
            found.update(chunk)
    return found.hexdigest()
