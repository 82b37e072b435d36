"""Runs the fault matrix: `python tests/host/fault_matrix.py [--verbs A,B] [--faults C,D] [--out DIR] [--docs PAGE]`.

One JSON a cell in DIR. A cell whose file is there is not run again, so a run that was broken off goes on, and several
may run side by side with other verbs each. As root. `--table` runs nothing and writes the table of what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from support.matrix import table
from support.matrix.cells import Ready, run_cell
from support.matrix.injections import INJECTIONS
from support.matrix.stages import SMALL_DISK, STAGES, Stage, use_doctored_agent
from support.matrix.verbs import VERBS

from ddtool import sandbox

OUT = Path("docs/results/2026-11-30-fault-matrix")


def main() -> int:
    chosen = arguments()
    out: Path = chosen.out
    out.mkdir(parents=True, exist_ok=True)
    if not chosen.table:
        with environment() as folder:
            run(chosen.verbs, chosen.faults, out, folder, chosen.seed)
    text = table.write(out)
    if chosen.docs:
        table.put_into(chosen.docs, text)
    print(text)
    return 1 if table.losses(out) else 0


def arguments() -> argparse.Namespace:
    def names(known: dict[str, object]) -> object:
        def parse(text: str) -> list[str]:
            found = [name.strip() for name in text.split(",")]
            unknown = [name for name in found if name not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
            return found

        return parse

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verbs", type=names(VERBS), default=list(VERBS))
    parser.add_argument("--faults", type=names(INJECTIONS), default=list(INJECTIONS))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--docs", type=Path, help="page to put the table into")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="only write the table of what is there")
    return parser.parse_args()


@contextmanager
def environment() -> Iterator[Path]:
    """A folder of this run's own; no setting of whoever runs it reaches ddtool, and no sandbox outlives it."""
    folder = Path(tempfile.mkdtemp(prefix="ddtool-matrix-"))
    for name in [name for name in os.environ if name.startswith("DDTOOL_") and name != "DDTOOL_CACHE"]:
        del os.environ[name]
    for kind in ("CONFIG", "CACHE", "DATA", "STATE"):
        os.environ[f"XDG_{kind}_HOME"] = str(folder / kind.lower())
    os.environ |= {"NO_COLOR": "1", "DDTOOL_SANDBOX_STATE": str(folder / "sandboxes")}
    use_doctored_agent()
    try:
        yield folder
    finally:
        for host in sandbox.running():
            sandbox.down(host.name)
        shutil.rmtree(folder)


def run(verbs: Sequence[str], faults: Sequence[str], out: Path, folder: Path, seed: int) -> None:
    stage: tuple[str, Stage] | None = None
    for name in sorted(verbs, key=lambda name: list(STAGES).index(VERBS[name].stage)):
        while waiting := [fault for fault in faults if not file_of(out, name, fault).exists()]:
            wanted = VERBS[name].stage
            if stage is None or stage[0] != wanted:
                stage = (wanted, fresh_stage(wanted, folder))
            ready = Ready.make(name, stage[1], seed)
            if run_verb(ready, waiting, out):
                ready.leave()
            else:
                stage = None  # what a loss leaves must not spoil the next cells
    sandbox.down(STAGE_HOST)


STAGE_HOST = "matrix"


def fresh_stage(name: str, folder: Path) -> Stage:
    own = Path(tempfile.mkdtemp(dir=folder))
    sandbox.down(STAGE_HOST)
    return STAGES[name](sandbox.up(STAGE_HOST, owner=os.getpid(), disk=SMALL_DISK), own)


def run_verb(ready: Ready, faults: Sequence[str], out: Path) -> bool:
    """False: a cell ended in a loss, and the host is no longer what the next one needs."""
    for fault in faults:
        cell = run_cell(ready, INJECTIONS[fault], list(INJECTIONS).index(fault))
        text = json.dumps(cell, indent=1, ensure_ascii=False)
        file_of(out, ready.name, fault).write_text(text + "\n")
        print(f"{ready.name} × {fault}: {cell['outcome']}", flush=True)
        if "LOSS" in cell["outcome"]:
            return False
    return True


def file_of(out: Path, verb: str, fault: str) -> Path:
    slug = "-".join("".join(c if c.isalnum() else " " for c in f"{verb} on {fault}").split())
    return out / f"{slug}.json"


if __name__ == "__main__":
    sys.exit(main())
