"""A run from its beginning to its result: what is written down before, and what the samples say in the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ddtool.bench import lossless, objective, results, store, taint
from ddtool.bench.fingerprint import differs
from ddtool.bench.lossless import Ask
from ddtool.bench.passes import Design
from ddtool.bench.store import Folder
from ddtool.errors import UsageError, VerificationFailed
from ddtool.profile.schema import Objective

Json = dict[str, Any]


def begin(
    design: Design,
    *,
    profile: str,
    host: str,
    workloads: Sequence[str],
    fingerprint: Mapping[str, Any],
    taints: Sequence[str] = (),
    warnings: Sequence[str] = (),
    wanted: Objective | None = None,
    how: Mapping[str, Any] | None = None,
    dtype: str | None = None,
) -> Json:
    """run.json. `workloads`: as typed, to load them again. `how`: what a resumed run needs beside the design.
    `dtype`: of the target, by which near ties are told."""
    now = time.time()
    return {
        "schema": store.SCHEMA,
        "run": store.new_id(now),
        "profile": profile,
        "host": host,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        "plan": design.to_json(),
        "workloads": list(workloads),
        "fingerprint": dict(fingerprint),
        "taints": list(taints),
        "warnings": list(warnings),
        "objective": wanted.model_dump() if wanted else None,
        "how": dict(how or {}),
        "dtype": dtype,
    }


def conclude(folder: Folder, ask: Ask | None = None) -> Json:
    """result.json of what was measured so far, written beside the samples. `ask`: judges near ties."""
    about, lines = folder.run, list(folder.lines())
    design = Design.from_json(about["plan"])
    result = results.summarise(about, folder.texts(), design.slo)
    result["taints"] += taint.of_samples(lines)
    result["warnings"] += server_differences(lines)
    if design.lossless:
        result["lossless"] = lossless.judged(about, lines, ask, about.get("dtype") or "bfloat16")
    wanted = Objective(**about["objective"]) if about.get("objective") else None
    result["objective"] = objective.judge(wanted, design.own, result["cells"])
    folder.write_result(result)
    return result


def server_differences(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Flags, as the servers themselves resolved them, that are not equal in all arms: SGLang may switch one off."""
    flags: dict[str, Mapping[str, Any]] = {}
    for line in lines:
        if line.get("kind") == "begin":
            arm = str(line["pass"]).partition("/")[0]
            server = line.get("server") or {}
            version = {"version": server["version"]} if "version" in server else {}
            flags.setdefault(arm, {**version, **(server.get("flags") or {})})
    names = sorted({name for one in flags.values() for name in one if not name.startswith("speculative")})
    found = []
    for name in names:
        values = {arm: one.get(name) for arm, one in flags.items() if one}
        if len({repr(value) for value in values.values()}) > 1:
            said = ", ".join(f"{value} in {arm}" for arm, value in values.items())
            found.append(f"the arms' servers differ in {name}: {said}")
    return found


def check_same(folder: Folder, fingerprint: Mapping[str, Any]) -> None:
    """Raises UsageError when a run would be resumed under other conditions than it began with.

    The commit may be another one: what measures is the agent, whose bytes have a hash of their own.
    """
    before, now = ({**one, "commit": None} for one in (folder.run["fingerprint"], fingerprint))
    changed = differs(before, now)
    if changed:
        raise UsageError(
            f"{folder.path.name} began under other conditions, so its passes and new ones cannot be one run",
            why="\n".join(changed),
            hint="put that back as it was, or begin anew without --resume",
        )


def check_verified(result: Mapping[str, Any]) -> None:
    """Raises VerificationFailed for a missed objective, and for an arm that says something else than plain decoding."""
    wanted = result["objective"]
    if wanted and not wanted["met"]:
        raise VerificationFailed(
            f"the objective is missed: {wanted['measured']:g} tok/s at concurrency {wanted['concurrency']}, "
            f"and {wanted['tok_s']:g} are wanted",
            why=f"{wanted['arm']} in {wanted['cell']}",
            hint="ddtool tune looks for the arm and budget that are fastest here",
        )
    lost = [one for one in result["lossless"] or () if one["verdict"] == lossless.DIFFERS]
    if lost:
        raise VerificationFailed(
            "; ".join(f"{one['arm']} in {one['cell']}: {one['words']}" for one in lost),
            why="speculation must not change what the model says",
            hint="ddtool diag run nan-guard, and the divergences in the result's `lossless`",
        )
