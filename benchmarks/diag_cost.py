"""What each diagnostic and fix adds to a call of the SGLang function that it patches, on a healthy input, on a CPU.

    python benchmarks/diag_cost.py [--out FILE] [--repeats N] [--patch NAME …]

Each patch is measured in one release: 0.5.12.post1, or 0.5.13.post1 where the older one lacks what it
patches. SGLang's own function, the same once more, and the patched one take turns call by call in one process; each
repeat gives the median of each, and a difference. `noise_us` is the difference of the two that are the same.
Figures are medians over the repeats, with the least and the most. Markers go to /dev/null.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support import patch_probe, sglang_wheels, venvs

from ddtool.diagnostics import definition
from ddtool.diagnostics.definition import Definition

RELEASES = ("0.5.12.post1", "0.5.13.post1")
CHILD = Path(__file__).with_name("diag_cost_calls.py")
Json = dict[str, Any]


def by_release(patches: list[Definition]) -> dict[str, list[Definition]]:
    """Each patch under the first of RELEASES that it knows."""
    found: dict[str, list[Definition]] = {}
    for patch in patches:
        release = next(one for one in RELEASES if one in patch.releases)
        found.setdefault(release, []).append(patch)
    return found


def run(release: str, patches: list[Definition], repeats: int, folder: Path) -> Json:
    """The child's answer for one release; its failure is a RuntimeError with the end of what it said."""
    venv = sglang_wheels.unpack(release, folder / "venv")
    asked: Json = {"release": release, "run": str(folder / "run"), "repeats": repeats, "patches": {}}
    for patch in patches:
        names = asked["patches"][patch.name] = {}
        for file, content in patch_probe.patched_files(venv, release, [patch]).items():
            path = folder / patch.name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            names[file] = str(path)
    (folder / "request.json").write_text(json.dumps(asked))
    environment = {**os.environ, "SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(venvs.site(venv)), *sglang_wheels.engine_path()])
    command = [sys.executable, "-W", "ignore", str(CHILD), str(folder / "request.json")]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-4000:])
    answer: Json = json.loads(done.stdout.rpartition("RESULT ")[2])
    return answer


def spread(values: list[float]) -> Json:
    return {
        "median": round(statistics.median(values), 2),
        "min": round(min(values), 2),
        "max": round(max(values), 2),
    }


def summary(one: Json) -> Json:
    """Differences and ratios within each repeat."""
    stock, again, patched = (one["us"][arm] for arm in ("stock", "again", "patched"))
    pairs = list(zip(stock, again, patched, strict=True))
    return {
        "stock_us": spread(stock),
        "patched_us": spread(patched),
        "added_us": spread([mine - (plain + twin) / 2 for plain, twin, mine in pairs]),
        "noise_us": spread([twin - plain for plain, twin, _ in pairs]),
        "ratio": spread([2 * mine / (plain + twin) for plain, twin, mine in pairs]),
        "calls_a_repeat": one["calls"],
        "repeats_us": one["us"],
    }


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"], cwd=CHILD.parent, capture_output=True, text=True
    )
    return done.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--patch", action="append", choices=definition.names())
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result: Json = {
        "when": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_before": [round(one, 1) for one in os.getloadavg()],
        "repeats": args.repeats,
        "patches": {},
    }
    wanted = [definition.load(name) for name in args.patch or definition.names()]
    for release, patches in by_release(wanted).items():
        with tempfile.TemporaryDirectory() as folder:
            answer = run(release, patches, args.repeats, Path(folder))
        result |= {"torch": answer["torch"], "torch_threads": answer["threads"]}
        for patch in patches:
            calls = {what: summary(one) for what, one in answer["patches"][patch.name].items()}
            about = {"release": release, "code": patch.code_sha(release), "calls": calls}
            result["patches"][patch.name] = about
            for what, one in calls.items():
                added, noise = one["added_us"], one["noise_us"]
                print(
                    f"{patch.name:25} {what:58} {one['stock_us']['median']:9.2f} + {added['median']:.2f} µs"
                    f" ({added['min']:.2f} to {added['max']:.2f}), × {one['ratio']['median']:.3f};"
                    f" noise {noise['min']:.2f} to {noise['max']:.2f}"
                )
    result["load_after"] = [round(one, 1) for one in os.getloadavg()]
    if args.out:
        args.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
