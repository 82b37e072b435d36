"""Labelled logs as they get into a chat window: cut off, interleaved, garbled, with lines missing."""

from __future__ import annotations

import io
import random
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ddtool.crash import source
from ddtool.crash.attempts import attempts
from ddtool.crash.classify import classify
from ddtool.crash.scene import Scene, chain

DATA = Path(__file__).parents[1] / "data"


def labelled(folder: str) -> list[dict[str, Any]]:
    return [yaml.load(path.read_bytes(), yaml.CSafeLoader) for path in sorted((DATA / folder).glob("*.yaml"))]


CASES = labelled("crash_cases")
MORE = labelled("crash_cases_more")  # written by somebody else after the signatures
CRASHES = [case for case in CASES if case["first_cause_lineno"]]


@dataclass(frozen=True)
class Block:
    """Lines of the first cause: the whole traceback it is part of, else itself. 0-based, end excluded."""

    start: int
    end: int


def block_of(case: dict[str, Any]) -> Block:
    number = case["first_cause_lineno"]
    lines = list(source.read(io.BytesIO(case["log"].encode())))
    for attempt in attempts(lines):
        scene = Scene(attempt)
        line = next((line for line in attempt.lines if line.number == number), None)
        last = scene.chain(line) if line else None
        if last:
            numbers = [each.number for block in chain(last) for each in block.lines]
            return Block(min(numbers) - 1, max(numbers))
    return Block(number - 1, number)


@cache
def blocks() -> dict[str, Block]:
    return {case["id"]: block_of(case) for case in CRASHES}


def cut_tail(lines: list[bytes], block: Block, rng: random.Random) -> list[bytes]:
    return lines[: rng.randint(block.end, len(lines))]


def cut_head(lines: list[bytes], block: Block, rng: random.Random) -> list[bytes]:
    return lines[rng.randint(0, block.start) :]


def drop_lines(lines: list[bytes], block: Block, rng: random.Random) -> list[bytes]:
    return [
        line for index, line in enumerate(lines) if block.start <= index < block.end or rng.random() > 0.15
    ]


def garble(lines: list[bytes], block: Block, rng: random.Random) -> list[bytes]:
    """Random bytes into a tenth of the other lines, and lines of random bytes between them."""
    found = []
    for index, line in enumerate(lines):
        if not block.start <= index < block.end:
            if rng.random() < 0.1 and line:
                at = rng.randrange(len(line))
                line = line[:at] + rng.randbytes(rng.randint(1, 20)).replace(b"\n", b"") + line[at + 3 :]
            if rng.random() < 0.03:
                found.append(rng.randbytes(40).replace(b"\n", b""))
        found.append(line)
    return found


def shuffle_ranks(lines: list[bytes], block: Block, rng: random.Random) -> list[bytes]:
    """Lines behind the first cause come in another order, as from processes that write at once."""
    behind = lines[block.end :]
    for index in range(len(behind) - 1):
        if rng.random() < 0.4:
            behind[index], behind[index + 1] = behind[index + 1], behind[index]
    return lines[: block.end] + behind


KEEPING = [cut_tail, cut_head, drop_lines, garble, shuffle_ranks]


def run(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """`count` mutations: intact and kept (the first cause is whole; its category stays), before, unknown and seen too
    early (the log ends before the first cause; "unknown" is true where exits are in view, another name never is)."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    lost = []
    for _ in range(count):
        case = rng.choice(CRASHES)
        block = blocks()[case["id"]]
        lines = case["log"].encode().split(b"\n")
        if rng.random() < 0.25:
            verdict = classify(io.BytesIO(b"\n".join(lines[: rng.randint(0, block.start)])))
            counts["before"] += 1
            counts["unknown"] += verdict.category == "unknown"
            if verdict.category not in ("no_crash", "unknown"):
                counts["seen too early"] += 1
                lost.append(f"{case['id']}: before it {verdict.category}")
            continue
        mutate = rng.choice(KEEPING)
        verdict = classify(io.BytesIO(b"\n".join(mutate(lines, block, rng))))
        counts["intact"] += 1
        if verdict.category == case["category"]:
            counts["kept"] += 1
        else:
            lost.append(f"{case['id']}: {mutate.__name__} {case['category']} -> {verdict.category}")
    return counts, lost
