"""Will these wheels run on that host? Told from names and metadata, before a byte is sent. Pure.

Each complaint names the wheel that asks for what the host has not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from ddtool.deploy.wheelhouse import Target, Wheel

OLDEST_GLIBC = 5  # manylinux1
# NVIDIA's "CUDA minor version compatibility": the driver that any toolkit of that major version needs at least
DRIVERS = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
CUDA_RUNTIME = re.compile(r"^nvidia-cuda-runtime(-cu\d+)?$")


def platforms(target: Target) -> list[str]:
    """Platform tags that the host's loader accepts, the newest first."""
    newest = int(target.glibc.split(".")[1])
    old = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
    found = []
    for minor in range(newest, OLDEST_GLIBC - 1, -1):
        found.append(f"manylinux_2_{minor}_{target.machine}")
        if minor in old:
            found.append(f"{old[minor]}_{target.machine}")
    return [*found, f"linux_{target.machine}"]


def tags(target: Target) -> set[Tag]:
    version = tuple(int(part) for part in target.minor.split("."))
    accepted = platforms(target)
    abi = [f"cp{target.minor.replace('.', '')}"]
    interpreter = abi[0]
    return {
        *cpython_tags(version, abi, accepted),
        *compatible_tags(version, interpreter, accepted),
    }


def unfit(wheels: Iterable[Wheel], target: Target) -> Iterator[str]:
    """What each wheel needs that the host's Python or C library has not."""
    accepted = tags(target)
    for wheel in wheels:
        _, _, _, own = parse_wheel_filename(wheel.file)
        if wheel.requires_python and not _allows(wheel.requires_python, target.python):
            yield f"{wheel.file} needs Python {wheel.requires_python}; the host's is {target.python}"
        elif not own & accepted:
            yield f"{wheel.file} {_why(own, accepted, target)}"


def _allows(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(version, prereleases=True)
    except InvalidSpecifier:  # pip ignores one that it cannot read, too
        return True


def _why(own: Iterable[Tag], accepted: set[Tag], target: Target) -> str:
    known = {tag.platform for tag in accepted}
    fitting = [
        tag for tag in own if (tag.interpreter, tag.abi) in {(one.interpreter, one.abi) for one in accepted}
    ]
    if not fitting:
        made_for = ", ".join(sorted({tag.interpreter for tag in own}))
        return f"is made for {made_for}; the host's Python is {target.minor}"
    names = sorted({tag.platform for tag in fitting} - known)
    needed = re.search(r"manylinux_(\d+)_(\d+)_(.+)", names[0])
    if needed and needed[3] == target.machine:
        return f"needs glibc {needed[1]}.{needed[2]}; the host has {target.glibc}"
    return f"is made for {names[0]}; the host is {target.machine} with glibc {target.glibc}"


def driver_problem(wheels: Iterable[Wheel], driver: str | None) -> str | None:
    """Why the host's NVIDIA driver cannot run the CUDA that these wheels bring, if they bring one; None when it can."""
    for wheel in wheels:
        if not CUDA_RUNTIME.match(wheel.name):
            continue
        wanted = DRIVERS.get(int(wheel.version.split(".")[0]))
        cuda = ".".join(wheel.version.split(".")[:2])
        if wanted is None or driver is None or not re.match(r"^\d+(\.\d+)*$", driver):
            continue
        if tuple(int(part) for part in driver.split(".")) < wanted:
            least = f"{wanted[0]}.{wanted[1]}.{wanted[2]:02d}"
            return f"{wheel.file} is CUDA {cuda}, which needs driver {least} or later; the host has {driver}"
    return None


def unmet(wheels: Sequence[Wheel], target: Target, requested: Sequence[str]) -> list[str]:
    """What these wheels and the requirements asked for need on the target, and none of the wheels is."""
    by_name = {wheel.name: wheel for wheel in wheels}
    asked: dict[str, set[str]] = {name: set() for name in by_name}
    waiting = [Requirement(line) for line in requested]
    for wheel in wheels:
        waiting += _active(wheel, "", target)
    found = set()
    while waiting:
        need = waiting.pop()
        match = by_name.get(canonicalize_name(need.name))
        if match is None or not need.specifier.contains(match.version, prereleases=True):
            need.marker = None
            found.add(str(need))
            continue
        for extra in need.extras - asked[match.name]:
            asked[match.name].add(extra)
            waiting += _active(match, extra, target)
    return sorted(found)


def _active(wheel: Wheel, extra: str, target: Target) -> list[Requirement]:
    """The wheel's requirements that hold on the target, with this extra or with none.

    pip evaluates them for the Python that runs it, whatever --python-version says.
    """
    environment = {
        "python_version": target.minor,
        "python_full_version": target.python,
        "platform_machine": target.machine,
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": extra,
    }
    needs = map(Requirement, wheel.requires)
    return [need for need in needs if need.marker is None or need.marker.evaluate(environment)]
