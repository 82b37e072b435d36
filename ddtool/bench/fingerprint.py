"""Under what a number was measured, in one comparable value, and what differs between two of them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ddtool
from ddtool.bench.compare import arrow, differences
from ddtool.bench.passes import Design
from ddtool.bench.workloads import Workload
from ddtool.deploy.release import Release
from ddtool.transport.bootstrap import agent_zipapp, digest

Json = dict[str, Any]


def of_host(
    facts: Mapping[str, Any],
    releases: Mapping[str, Release],
    design: Design,
    workloads: Mapping[str, Workload],
) -> Json:
    """`releases`: by arm. `wheels`: the installed SGLang with its RECORD's hash, and versions of what it stands on."""
    venv, gpus = facts["venv"], facts["gpus"]
    return {
        **ours(),
        "wheels": {**venv.get("dists", {}), "sglang": (venv.get("sglang") or {}).get("identity")},
        "patches": {patch["name"]: patch["sha"] for patch in facts["diagnostics"].get("patches", [])},
        "modified": sorted((venv.get("sglang") or {}).get("modified", [])),
        "engine": next((one.meta["engine"] for one in releases.values() if one.meta["engine"]), None),
        "releases": {arm: release.digest[:16] for arm, release in releases.items()},
        "flags": {arm: release.meta["config"] for arm, release in releases.items()},
        "driver": gpus[0]["driver"] if gpus else None,
        "card": card(gpus),
        "host": facts["host"].get("hostname"),
        "kernel": facts["host"].get("kernel"),
        **asked(design, workloads),
    }


def of_servers(
    servers: Mapping[str, Mapping[str, Any]], design: Design, workloads: Mapping[str, Workload]
) -> Json:
    """`servers`: by arm, what each says of itself: `{version, flags}`. Driver and card are not to be seen from here."""
    return {
        **ours(),
        "wheels": {"sglang": ", ".join(sorted({str(one.get("version")) for one in servers.values()}))},
        "flags": {arm: one.get("flags", {}) for arm, one in servers.items()},
        **asked(design, workloads),
    }


def ours() -> Json:
    return {"ddtool": ddtool.__version__, "commit": commit(), "agent": digest(agent_zipapp())[:12]}


def asked(design: Design, workloads: Mapping[str, Workload]) -> Json:
    return {
        "prompts": {name: workload.sha[:16] for name, workload in workloads.items()},
        "sampling": {
            "temperature": design.temperature,
            "tokens": design.tokens,
            "ignore_eos": design.ignore_eos,
            **design.sampling,
        },
        "seed": design.seed,
    }


def card(gpus: list[Mapping[str, Any]]) -> str | None:
    names = [str(gpu["name"]) for gpu in gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in sorted(set(names))) or None


def commit() -> str | None:
    """Of the checkout that ddtool runs from; a wheel has its version and its agent's hash alone."""
    root = Path(ddtool.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + (
            "-dirty" if _git(root, "status", "--porcelain", "--untracked-files=no", "ddtool") else ""
        )
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


def differs(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """`driver: 560.35 → 570.12`, a line for each leaf that is not the same."""
    return [arrow(one) for one in differences(before, after)]
