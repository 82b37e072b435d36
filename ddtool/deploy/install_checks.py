"""What stands in the way of an environment that ddtool is to make, told before anything is planned. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ddtool.deploy import wheel_checks
from ddtool.deploy.installs import MIB, Wanted, mib
from ddtool.deploy.preflight import Check
from ddtool.deploy.wheelhouse import Target, Wheelhouse

BYTECODE = 1.25  # what an environment takes over its unpacked wheels: bytecode, block sizes
ROOM = 200 * MIB  # to leave free


def checks(want: Wanted, facts: Mapping[str, Any], held: Mapping[str, int]) -> Iterator[Check]:
    """What stands in the way of this environment. `held`: bytes of its wheels that the host has already."""
    about = facts["install"]
    yield from _place(want, about)
    python = about["python"]
    if "error" in python:
        others = f"it has {', '.join(python['others'])}" if python["others"] else "it has no other"
        yield Check("python", "fail", f"{python['error']}; {others}", "--set engine.python=/path/on/the/host")
        return
    yield Check("python", "ok", f"{python['path']} is {python['version']}, glibc {python['glibc']}")
    if not about["incomplete"]:
        yield Check("install", "ok", f"{want.path} is there, {len(want.pins)} packages")
        return
    yield from _can_make(want, python)
    if want.house:
        yield from _fits(want.house, python, facts["gpus"])
        yield from _space(want.house, about, held)
    where = "an uploaded wheelhouse" if want.house else f"the host's index ({want.index})"
    yield Check("install", "ok", f"{len(want.pins)} packages from {where} into {want.path}")


def _place(want: Wanted, about: Mapping[str, Any]) -> Iterator[Check]:
    another = "--set engine.venv=/another/path"
    if about["base_kind"] == "other":
        yield Check("install", "fail", f"{want.base} is there, and ddtool did not make it", another)
    if about["units"] and about["base_target"] != want.path:
        detail = f"{', '.join(about['units'])} runs from what {want.base} names now, another set of packages"
        yield Check("install", "fail", detail, another)
    if about["others_may_write"]:
        place = about["others_may_write"]
        who = "anyone" if place["anyone"] else "others than root"
        detail = f"{who} may write in {place['folder']}, and so decide what the service runs"
        yield Check("install", "fail" if place["anyone"] else "warn", detail, another)


def _can_make(want: Wanted, python: Mapping[str, Any]) -> Iterator[Check]:
    if python["implementation"] != "cpython":
        yield Check("python", "fail", f"{python['path']} is {python['implementation']}, not CPython")
    lacking = [name for name in ("venv", *(() if want.house else ("ensurepip",))) if not python[name]]
    if lacking:
        minor = ".".join(python["version"].split(".")[:2])
        detail = f"{python['path']} has no module {' and '.join(lacking)}"
        yield Check("python", "fail", detail, f"apt-get install python{minor}-venv on the host")


def _fits(house: Wheelhouse, python: Mapping[str, Any], gpus: list[Mapping[str, Any]]) -> Iterator[Check]:
    target = Target(python["version"], python["machine"], python["glibc"])
    bad = list(wheel_checks.unfit(house.wheels, target))
    again = f"ddtool wheelhouse build --for THIS_HOST --out {house.folder}"
    if bad:
        more = f" (and {len(bad) - 2} more wheels)" if len(bad) > 2 else ""
        yield Check("wheels", "fail", "; ".join(bad[:2]) + more, again)
    driver = wheel_checks.driver_problem(house.wheels, gpus[0]["driver"] if gpus else None)
    if driver:
        yield Check("driver", "fail", driver, "update the driver, or collect wheels of an older CUDA")
    lacking = wheel_checks.unmet(house.packages, target, house.requested)
    if lacking:
        yield Check("wheels", "warn", f"they need {', '.join(lacking[:3])}, which is not among them")


def _space(house: Wheelhouse, about: Mapping[str, Any], held: Mapping[str, int]) -> Iterator[Check]:
    sent = sum(wheel.bytes - held.get(wheel.sha256, 0) for wheel in house.wheels)
    made = int(sum(wheel.unpacked_bytes for wheel in house.packages) * BYTECODE)
    largest = max(house.packages, key=lambda wheel: wheel.unpacked_bytes)
    needs = [(made + (sent if about["one_disk"] else 0), about["free_bytes"], about["base"])]
    if not about["one_disk"]:
        needs.append((sent, about["state_free_bytes"], "/var/lib/ddtool"))
    for need, free, where in needs:
        if need + ROOM > free:
            detail = f"{mib(need + ROOM)} are needed where {where} lies, {mib(free)} are free; "
            detail += f"the largest is {largest.file} with {mib(largest.unpacked_bytes)}"
            yield Check("disk", "fail", detail, "free some space, or --set engine.venv=/on/another/disk/venv")
