"""Thousands of rounds of a tree on several cards, every one compared between the ranks; then one rank is killed.

    python3 tests/gpu/soak.py --name tp2 --target DIR --draft DIR --tp 2 --commit SHA

Cells: `rounds`, with the ranks that loaded the diagnostics, and `killed`, with how the service ended. Beside the latter
lie its output and the same lines as records, for a verdict by `ddtool crash classify`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cells
import faults
from server import Arm, Server, platform

from ddtool.agent import proof

PORT = 33500
UNIT = "gpu-soak"
BATCH, TOKENS = 4, 256
ENDED_S = 120


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", type=cells.run_name, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--arm", default="tree:32")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10000)
    parser.add_argument("--kill", type=int, metavar="RANK", help="afterwards; default: the last")
    parser.add_argument("--diagnostics", nargs="*", default=["graph-copy", "graph-shapes"])
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE", help="for the server")
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, f"soak-{options.name}")
    if done.missing(["rounds", "killed"]):
        run(options, done)
    soaked, killed = done.read("rounds"), done.read("killed")
    print(f"{soaked['rounds']} rounds in {soaked['seconds']} s; loaded by ranks {soaked['loaded']}")
    print(f"rank {killed['rank']} killed: ended {killed['ended']} after {killed['seconds']} s")


def run(options: argparse.Namespace, done: cells.Cells) -> None:
    flags, environment = platform(options.platform)
    flags |= {
        "model-path": options.target,
        "tp-size": options.tp,
        **Arm.parse(options.arm, options.draft).flags,
    }
    proofs = done.folder / "run"
    shutil.rmtree(proofs, ignore_errors=True)
    # SGLang with the diagnostics; without what provokes a fault
    patched = faults.make_overlay(done.folder.with_name("overlay-soak"), tuple(options.diagnostics))[1:]
    environment = {
        **environment,
        **cells.variables(options.env),
        "DDTOOL_ENGINE_TRACE": "rank-sync",
        "DDTOOL_UNIT": UNIT,
        "DDTOOL_RUN": str(proofs),
        "PYTHONPATH": os.pathsep.join([*patched, os.environ["PYTHONPATH"]]),
    }
    server = Server(flags, PORT, done.log("server"), environment)
    try:
        server.wait()
        ranks = proof.loaded(proofs / UNIT, schedulers(server.process.pid))
        done.write("rounds", {**soak(server, options.rounds), **loaded(ranks), "argv": server.argv})
        done.write("killed", kill(server, ranks, options.kill))
    finally:
        server.stop()
        done.save()
    lines = done.log("server").read_text(errors="replace").splitlines()
    faults.write_records(done.folder / "killed.records.jsonl", lines, server.process.pid)


def schedulers(group: int) -> list[proof.Process]:
    """Pid, start time and title of every scheduler in a process group, the server's own."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_text(errors="replace").replace("\0", " ").strip()
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if title.startswith("sglang::scheduler") and int(stat[2]) == group:
            found.append((int(folder.name), int(stat[19]), title))
    return found


def loaded(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Which ranks run which diagnostics, by their own proofs."""
    names = {row["rank"]: sorted(patch["name"] for patch in row["patches"] or ()) for row in ranks}
    return {"ranks": len(ranks), "loaded": names}


def soak(server: Server, wanted: int) -> dict[str, Any]:
    """Greedy and sampled groups in turn. A hang ends it with an error when its request's time is up."""
    texts = cells.prompts(16)
    rounds, groups, start = 0, 0, time.perf_counter()
    while rounds < wanted:
        first = BATCH * groups % len(texts)
        group = server.generate(texts[first : first + BATCH], TOKENS, float(groups % 2))
        rounds += max(completion.rounds for completion in group)
        groups += 1
    return {"rounds": rounds, "groups": groups, "seconds": round(time.perf_counter() - start, 1)}


def kill(server: Server, ranks: list[dict[str, Any]], rank: int | None) -> dict[str, Any]:
    victim = ranks[-1] if rank is None else next(row for row in ranks if row["rank"] == rank)
    start = time.perf_counter()
    os.kill(victim["pid"], signal.SIGKILL)
    try:
        status: int | None = server.process.wait(ENDED_S)
    except subprocess.TimeoutExpired:  # a service that hangs on without a rank is a result
        status = None
    seconds = round(time.perf_counter() - start, 1)
    return {"rank": victim["rank"], "ended": status is not None, "exit": status, "seconds": seconds}


if __name__ == "__main__":
    main()
