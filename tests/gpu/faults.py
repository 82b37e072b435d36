"""Both crashes that this tool was written for, on a real GPU and on purpose, without and with diagnostics.

    python3 tests/gpu/faults.py --pair DIR --commit SHA [--fault none-copy | narrow-graph | no-fault]

Each server gets `saboteur.py` as a plugin and the case's diagnostics in its SGLang, starts, and is asked for some
tokens. A cell holds what came of it, and for each diagnostic the outcome that `diag run` would name (judged by the same
code; there is no systemd here); beside it lie the output, and the same lines as records, for the crash catalogue.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cells
from server import Arm, Server, platform

from ddtool.agent.compose import compose
from ddtool.agent.outcome import ELSEWHERE, FIRED, NOT_FIRED, Seen, judge
from ddtool.diagnostics import definition

PORT = 32500
HERE = Path(__file__).resolve().parent
PATCHED = "sglang/srt/model_executor/cuda_graph_runner.py"
TELLING = ("Error: ", "ddtool-diag/1", "DDTREE", "crashed with exit code")


@dataclass(frozen=True)
class Case:
    """expected: a line of the output must contain it. outcomes: of each diagnostic that is in SGLang's file."""

    fault: str
    variant: str
    expected: str
    guard: bool = True
    survives: bool = False
    outcomes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.fault}-{self.variant}"


NONE = "'NoneType' object has no attribute"
WIDER = "The size of tensor a (8) must match the size of tensor b (33)"
CASES = [
    Case("none-copy", "stock", NONE),
    Case("none-copy", "diagnosed", "positions (src, index 4 of", outcomes={"graph-copy": FIRED}),
    Case("none-copy", "shapes", NONE, outcomes={"graph-shapes": ELSEWHERE}),
    Case("narrow-graph", "stock", WIDER, guard=False),
    Case(
        "narrow-graph",
        "diagnosed",
        "input_ids (index 0): [33] into [8]",
        guard=False,
        outcomes={"graph-copy": FIRED},
    ),
    Case(
        "narrow-graph",
        "shapes",
        '"buffer": "input_ids", "captured": 8, "incoming": 33',
        guard=False,
        outcomes={"graph-shapes": FIRED},
    ),
    Case("narrow-graph", "guarded", "captured for 8 tokens a request, this batch has 33", survives=True),
    Case(
        "no-fault",
        "diagnosed",
        '"event": "loaded"',
        survives=True,
        outcomes={"graph-copy": NOT_FIRED, "graph-shapes": NOT_FIRED},
    ),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", type=Path, required=True, help="folder with target/ and draft/; block 8")
    parser.add_argument("--fault", choices=sorted({case.fault for case in CASES}), help="default: all")
    cells.common_options(parser)
    options = parser.parse_args()
    done = cells.open_cells(options, "faults")
    chosen = [case for case in CASES if options.fault in (None, case.fault)]
    missing = done.missing([case.name for case in chosen])
    overlays = {
        names: make_overlay(done.folder.with_name("-".join(("overlay", *(names or ("stock",))))), names)
        for names in {tuple(case.outcomes) for case in chosen if case.name in missing}
    }

    def run(case: Case) -> None:
        number = CASES.index(case)
        done.write(
            case.name, provoke(case, options, done, overlays[tuple(case.outcomes)], PORT + 50 * number)
        )

    with ThreadPoolExecutor() as pool:  # a start takes half a minute, and the card has room
        list(pool.map(run, [case for case in chosen if case.name in missing]))
    results = [done.read(case.name) for case in chosen]
    for result in results:
        print(
            f"{result['cell']:24} {'as expected' if result['as_expected'] else 'NOT AS EXPECTED'}: {result['found']}"
        )
    sys.exit(0 if all(result["as_expected"] for result in results) else 1)


def make_overlay(folder: Path, names: tuple[str, ...]) -> list[str]:
    """Folders for the front of PYTHONPATH: the saboteur's plugin, and SGLang with the diagnostics in one file."""
    shutil.rmtree(folder, ignore_errors=True)
    plugin = folder / "plugin"
    info = plugin / "gpu_saboteur-1.dist-info"
    info.mkdir(parents=True)
    shutil.copy(HERE / "saboteur.py", plugin / "gpu_saboteur.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpu-saboteur\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[sglang.srt.plugins]\nsaboteur = gpu_saboteur:load\n")
    if not names:
        return [str(plugin)]
    site = site_of_sglang()
    shutil.copytree(site / "sglang", folder / "site" / "sglang", copy_function=os.symlink)
    target = folder / "site" / PATCHED
    target.unlink()  # a link: writing through it would change the installed file
    target.write_bytes(patched((site / PATCHED).read_bytes(), names))
    return [str(plugin), str(folder / "site")]


def site_of_sglang() -> Path:
    """Where it is installed; not imported, which would take half a minute."""
    return next(Path(entry) for entry in sys.path if (Path(entry) / PATCHED).is_file())


def patched(content: bytes, names: tuple[str, ...]) -> bytes:
    patches = [definition.load(name).to_json() for name in names]
    # The agent asks for a folder whose bin/python the engine runs on
    with tempfile.TemporaryDirectory() as venv:
        python = Path(venv) / "bin" / "python"
        python.parent.mkdir()
        python.symlink_to(sys.executable)
        (composed,) = compose(venv, [(PATCHED, content, patches)])
    if composed.unknown:
        raise SystemExit(f"not known on this release: {composed.unknown}")
    return composed.content


def provoke(
    case: Case, options: argparse.Namespace, done: cells.Cells, overlay: list[str], port: int
) -> dict[str, Any]:
    flags, environment = platform(options.platform)
    arm = Arm.parse("tree:32", options.pair / "draft")
    flags |= {"model-path": options.pair / "target", "skip-server-warmup": True, **arm.flags}
    if options.platform == "gpu":
        flags |= {"cuda-graph-max-bs": 2, "max-running-requests": 2, "mem-fraction-static": 0.5}
    environment = {
        **environment,
        "GPU_FAULT": case.fault,
        "GPU_FAULT_GUARD": "on" if case.guard else "off",
        "PYTHONPATH": os.pathsep.join([*overlay, os.environ["PYTHONPATH"]]),
    }
    log = done.log(case.name)
    server = Server(flags, port, log, environment)
    try:
        answered = ask(server)
        status = None if answered else ended(server.process)
    finally:
        server.stop()
    lines = log.read_text(errors="replace").splitlines()
    write_records(done.folder / f"{case.name}.records.jsonl", lines, server.process.pid)
    found = [line for line in lines if case.expected in line]
    judged = {name: judgement(name, lines, answered, status) for name in case.outcomes}
    outcomes = {name: item["outcome"] for name, item in judged.items()}
    return {
        "fault": case.fault,
        "expected": case.expected,
        "found": found[0] if found else None,
        "survived": answered,
        "as_expected": bool(found) and answered == case.survives and outcomes == dict(case.outcomes),
        "experiments": judged,
        "exit": status,
        "argv": server.argv,
        "environment": {name: value for name, value in environment.items() if name.startswith("GPU_FAULT")},
        "telling_lines": [
            line for line in lines if any(word in line for word in TELLING) and len(line) < 2000
        ][-20:],
    }


def judgement(name: str, lines: list[str], answered: bool, status: int | None) -> dict[str, Any]:
    """What `diag run NAME` would say of this log: the one request that was sent either got its answer or ended it."""
    patch = definition.load(name)
    assert patch.hypothesis is not None
    text = "\n".join(lines)
    seen = Seen(
        text,
        name,
        patch.sha,
        patch.hypothesis.not_reached,
        ready=answered or "Uvicorn running" in text,
        asked=1,
        answered=int(answered),
    )
    if not answered:
        seen.ended = {"result": "exit-code", "exit_status": status}
    judged = judge(seen)
    kept = {key: judged[key] for key in ("outcome", "conclusion", "why", "events")}
    sentence = {"confirmed": patch.hypothesis.fired, "refuted": patch.hypothesis.not_fired}
    return {**kept, "hypothesis": sentence.get(judged["conclusion"]), "source": "local-runner"}


def ask(server: Server) -> bool:
    """Whether it answered. Prefill alone says the first token, so it takes a second one to decode."""
    try:
        server.wait()
        server.generate(cells.prompts(1), 16, 0)
    except (OSError, RuntimeError):
        return False
    return True


def ended(process: subprocess.Popen[bytes]) -> int | None:
    """Its exit status; None if it hangs on without its scheduler."""
    try:
        return process.wait(60)
    except subprocess.TimeoutExpired:
        return None


def write_records(path: Path, lines: list[str], pid: int) -> None:
    """In the journal's format, though no journal was there: `source` says so."""
    with path.open("w") as file:
        for number, text in enumerate(lines):
            record = dict.fromkeys(("boot", "cursor", "unix_us", "rank", "level"))
            record |= {
                "schema": "ddtool.record/1",
                "seq": number,
                "source": "local-runner",
                "pid": pid,
                "text": text,
            }
            file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
