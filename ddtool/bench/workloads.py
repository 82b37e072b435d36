"""Workloads: named lists of prompts. The same prompts, in the same order, go to every arm.

code, chat, reasoning   built in, written for this (ddtool/bench/prompts/NAME.jsonl)
FILE.jsonl              a line a request: {"prompt" | "text" | "messages" | "input_ids", "max_tokens"?}
synthetic:IN:OUT        random token ids of the target's vocabulary, IN of them, and OUT tokens of answer
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddtool.errors import UsageError

PROMPTS = Path(__file__).parent / "prompts"
SYNTHETIC = re.compile(r"synthetic:([1-9][0-9]{0,6}):([1-9][0-9]{0,6})")
SYNTHETIC_PROMPTS, FEWEST_SYNTHETIC = 64, 8
SYNTHETIC_IDS = 1 << 22  # in all; of very long prompts there are fewer
LONGEST = 1 << 20  # tokens of a prompt, and of an answer
RESERVED_IDS = 256  # special tokens lie at the ends of a vocabulary; none of them is sent
KINDS = ("prompt", "text", "messages", "input_ids")
FORM = 'a line is {"prompt": TEXT} (or "text", "messages", "input_ids"), with "max_tokens" if it has its own'


@dataclass(frozen=True)
class Prompt:
    """`given`: `{"text": …}` or `{"input_ids": […]}`, as /generate takes it, or `{"messages": […]}`, which the server's
    chat template renders (agent/load.py). `sha`: of it, 16 hex digits."""

    given: Mapping[str, Any]
    max_tokens: int | None = None

    @property
    def sha(self) -> str:
        return hashlib.sha256(json.dumps(self.given, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Workload:
    """`fixed`: answers have their full length, whatever the model says."""

    name: str
    prompts: Sequence[Prompt]
    fixed: bool = False

    @property
    def sha(self) -> str:
        """Of all prompts, in order, with their own lengths."""
        total = hashlib.sha256()
        for prompt in self.prompts:
            total.update(f"{prompt.sha} {prompt.max_tokens}\n".encode())
        return total.hexdigest()


def built_in() -> list[str]:
    return sorted(path.stem for path in PROMPTS.glob("*.jsonl"))


def load(name: str, *, vocab: int | None, seed: int) -> Workload:
    """The workload of that name, file or form. `vocab`: the target's, for synthetic prompts.

    Raises UsageError naming file and line, or the form.
    """
    match = SYNTHETIC.fullmatch(name)
    if match:
        return synthetic(int(match[1]), int(match[2]), vocab, seed)
    path = PROMPTS / f"{name}.jsonl" if name in built_in() else Path(name)
    if not (name in built_in() or path.suffix == ".jsonl"):
        known = ", ".join(built_in())
        raise UsageError(
            f"not a workload: {name!r}", hint=f"--workload {known}, a FILE.jsonl, or synthetic:IN:OUT"
        )
    return from_file(path)


def from_file(path: Path) -> Workload:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}", hint=FORM) from error
    found = [prompt_in(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise UsageError(f"{path} has no prompt", hint=FORM)
    return Workload(key(path.stem), found)


def key(name: str) -> str:
    """A name that can stand in a cell's key."""
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower() or "file"


def prompt_in(line: str, where: str) -> Prompt:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not JSON: {error}", hint=FORM) from error
    if not isinstance(item, dict):
        raise UsageError(f"{where}: not an object", hint=FORM)
    kinds = [kind for kind in KINDS if kind in item]
    unknown = sorted(set(item) - {*KINDS, "max_tokens"})
    if len(kinds) != 1 or unknown:
        wrong = f"unknown {', '.join(unknown)}" if unknown else f"{' and '.join(kinds) or 'none'} of {KINDS}"
        raise UsageError(f"{where}: {wrong}", hint=FORM)
    tokens = item.get("max_tokens")
    if tokens is not None and not _is_count(tokens):
        raise UsageError(f"{where}: max_tokens is a number above 0", hint=FORM)
    return Prompt(given(kinds[0], item[kinds[0]], where), tokens)


def given(kind: str, value: Any, where: str) -> dict[str, Any]:
    if kind == "input_ids":
        if not isinstance(value, list) or not value or not all(_is_id(one) for one in value):
            raise UsageError(f"{where}: input_ids is a list of token ids", hint=FORM)
        return {"input_ids": value}
    if kind == "messages":
        if not isinstance(value, list) or not value or not all(_is_message(one) for one in value):
            raise UsageError(f'{where}: messages is a list of {{"role": …, "content": TEXT}}', hint=FORM)
        return {"messages": value}
    if not isinstance(value, str) or not value:
        raise UsageError(f"{where}: {kind} is a text", hint=FORM)
    return {"text": value}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("role", "content"))


def synthetic(length: int, answer: int, vocab: int | None, seed: int) -> Workload:
    """Token ids from the seed alone: the same on every machine. No two prompts share a beginning to speak of."""
    if vocab is None:
        raise UsageError(
            "synthetic prompts need the target's vocabulary, and nothing says how large it is",
            hint="give model.shape.vocab in the profile",
        )
    if max(length, answer) > LONGEST:
        raise UsageError(
            f"synthetic:{length}:{answer}: at most {LONGEST} tokens each",
            hint="--workload synthetic:4096:256",
        )
    count = max(FEWEST_SYNTHETIC, min(SYNTHETIC_PROMPTS, SYNTHETIC_IDS // length))
    low = min(RESERVED_IDS, vocab // 4)
    dice = random.Random(f"{seed} {length} {answer} {vocab}")  # noqa: S311  reproducible, not secret
    prompts = [
        Prompt({"input_ids": [dice.randrange(low, vocab - low) for _ in range(length)]}, answer)
        for _ in range(count)
    ]
    return Workload(f"synthetic-{length}-{answer}", prompts, fixed=True)


def taken(workload: Workload, count: int) -> Iterator[Prompt]:
    """The first `count` prompts, from the beginning again when there are fewer."""
    for number in range(count):
        yield workload.prompts[number % len(workload.prompts)]
