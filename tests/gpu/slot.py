"""What a lent machine is asked for, one command a slot of ten minutes:

    . tests/gpu/setup.sh && python3 tests/gpu/slot.py a --commit SHA

Give a slot again to go on where it was cut off. `--list` prints its commands instead. docs/gpu.md says what each is
for.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TREES = ("tree:32", "tree:31")  # 33 and 32 tokens wide: matrix kernels are made for the second


@dataclass(frozen=True)
class Step:
    """One run of a script of this folder."""

    script: str
    words: tuple[str, ...]

    @property
    def argv(self) -> list[str]:
        return [sys.executable, str(HERE / f"{self.script}.py"), *self.words]


@dataclass(frozen=True)
class Machine:
    """pair: folder with target/, draft/, draft-weak/. home: where heavy targets go. common: options of all scripts."""

    pair: Path
    home: Path
    common: tuple[str, ...]
    tp: int = 1

    def heavy(self, name: str, layers: int, ffn: int, experts: int | None = None) -> Step:
        words = (str(self.pair / "target"), str(self.home / name), "--layers", str(layers), "--ffn", str(ffn))
        return Step("heavy", words if experts is None else (*words, "--experts", str(experts)))

    def measured(self, script: str, name: str, target: str, draft: str = "draft", **options: Any) -> Step:
        """target: `light`, or a heavy one's name. options: the script's, with underscores; a list is several words."""
        folder = self.pair / "target" if target == "light" else self.home / target
        words = ["--name", name, "--target", str(folder), "--draft", str(self.pair / draft)]
        for option, value in {"tp": self.tp, **options}.items():
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"--{option.replace('_', '-')}", *map(str, values)]
        return Step(script, (*words, *self.common))


def heavy_target(on: Machine) -> list[Step]:
    """Tree against chain, greedy, strong drafter; batch 1 is where it counts."""
    arms = ["plain", "chain", *TREES]
    return [
        on.heavy("heavy", 72, 98304),
        on.measured("arms", "a-heavy", "heavy", arms=arms, temperatures=0, batches=[1, 4, 16]),
    ]


def acceptance(on: Machine) -> list[Step]:
    """Both drafters, greedy and sampled, with and without the chain's seed. Three repeats: no speed is claimed."""
    options = {"temperatures": [0, 1], "batches": 1, "prompts": 16, "repeats": 3}
    arms = ["plain", "chain", "tree:32", "tree:32:8:seed"]
    return [
        on.measured("arms", f"b-{draft}", "light", draft, arms=arms, **options)
        for draft in ("draft", "draft-weak")
    ]


def rounds(on: Machine) -> list[Step]:
    """What a round costs beside the target: over 500 rounds an arm, a profile, and the builder alone."""
    arms = ["chain", *TREES]
    return [
        on.measured("arms", "c-light", "light", arms=arms, temperatures=0, batches=1, prompts=16, repeats=9),
        on.measured("profile_rounds", "c-light", "light", arms=["chain", "tree:32"]),
        Step("builder", ("--budgets", "32", "--batches", "1", "32", *on.common)),
    ]


def two_cards(on: Machine) -> list[Step]:
    """The same outputs on two cards as on one, and 10,000 rounds without a hang."""
    arms = ["plain@1", "plain", "chain", "tree:32"]
    return [
        on.measured("arms", "d-tp2", "light", arms=arms, temperatures=0, batches=[1, 4]),
        on.measured("soak", "d-tp2", "light"),
    ]


def experts(on: Machine) -> list[Step]:
    """An expert-heavy target, where every verified token reads more weights: several widths give verify(N)."""
    arms = ["plain", "chain", "tree:16", "tree:32"]
    return [
        on.heavy("experts", 12, 1536, 384),  # 22 GB: four servers of it fit on a card
        on.measured("arms", "e-experts", "experts", arms=arms, temperatures=0, batches=[1, 4, 16]),
    ]


def tuned_dense(on: Machine) -> list[Step]:
    """`tune` on a heavy target: six budgets and more, half of them told from the others. Given twice or so.

    16 GB: its verification may have seven servers, and they are to live side by side.
    """
    return [on.heavy("heavy-16", 54, 98304), on.measured("tune", "f-dense", "heavy-16", together=5)]


def tuned_experts(on: Machine) -> list[Step]:
    """The same with experts, and SGLang's own count of those read."""
    return [
        lighter_experts(on),
        on.measured("tune", "g-experts", "experts-16", experts="384:8", together=5),
    ]


def tuned_weak(on: Machine) -> list[Step]:
    """Experts and the weak drafter, for 16 at a time: little is accepted, and every token reads more experts.

    It was thought that the chain wins here, if anywhere; small trees did.
    """
    return [
        lighter_experts(on),
        on.measured(
            "tune", "h-weak", "experts-16", "draft-weak", experts="384:8", concurrency="16,1", together=5
        ),
    ]


def lighter_experts(on: Machine) -> Step:
    return on.heavy("experts-16", 9, 1536, 384)


def tuned_on_two(on: Machine) -> list[Step]:
    """The heavy target on two cards: what the ranks' talk adds to a round is in the curve."""
    return [on.heavy("heavy", 72, 98304), on.measured("tune", "i-tp2", "heavy", together=5)]


def tuned_crowded(on: Machine) -> list[Step]:
    """Only large trees are fitted, for 32 requests at a time, where arithmetic is the limit and every one of them loses
    to the chain: `tune` has to find the small trees, which nobody measured. (It did: 1.27 times the chain.)
    """
    options = {"widths": "16,24,33,65", "concurrency": "32,1", "prompts": 32, "together": 5}
    return [on.heavy("heavy-16", 54, 98304), on.measured("tune", "j-crowded", "heavy-16", **options)]


def drawn(on: Machine) -> list[Step]:
    """At T = 1 chain and tree against plain decoding, by distribution: 2,400 answers an arm, 16 at once and alone."""
    return [on.measured("sampled", "t1", "light", arms=["chain", "tree:32"])]


def read(on: Machine) -> list[Step]:
    """Our load client beside SGLang's own, where there are cores for both: 1, 16 and 64 streams."""
    return [on.measured("clients", "light", "light", concurrency=[1, 16, 64])]


@dataclass(frozen=True)
class Slot:
    cards: int
    plan: Callable[[Machine], list[Step]]  # its steps, in order


SLOTS = {
    "a": Slot(1, heavy_target),
    "b": Slot(1, acceptance),
    "c": Slot(1, rounds),
    "d": Slot(2, two_cards),
    "e": Slot(1, experts),
    "f": Slot(1, tuned_dense),
    "g": Slot(1, tuned_experts),
    "h": Slot(1, tuned_weak),
    "i": Slot(2, tuned_on_two),
    "j": Slot(1, tuned_crowded),
    "k": Slot(1, drawn),
    "l": Slot(1, read),
}


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Adds what every plan takes, and reads the command line."""
    parser.add_argument("--commit", required=True, help="written into every cell")
    parser.add_argument("--pair", type=Path, default=Path(os.environ.get("PAIR", "/tmp/ddtool-gpu/pair")))
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("GPU_HOME", "/tmp/ddtool-gpu")))
    parser.add_argument(
        "--cells", type=Path, help="where cells are; those there are done. Default: HOME/cells"
    )
    parser.add_argument("--list", action="store_true", help="print the commands, run nothing")
    return parser.parse_args()


def machine(options: argparse.Namespace, tp: int) -> Machine:
    common = ("--commit", options.commit, "--cells", str(options.cells or options.home / "cells"))
    return Machine(options.pair, options.home, common, tp)


def execute(steps: list[Step], only_list: bool) -> None:
    """All of them, whatever fails: each is worth its minutes. Ends with status 1 if one did."""
    failed = []
    for step in steps:
        print(f"$ {shlex.join(step.argv)}", flush=True)
        if not only_list and subprocess.run(step.argv, check=False).returncode:
            failed.append(step.script)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("slot", choices=SLOTS)
    options = options_of(parser)
    chosen = SLOTS[options.slot]
    execute(chosen.plan(machine(options, chosen.cards)), options.list)


if __name__ == "__main__":
    main()
