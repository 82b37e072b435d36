"""Losslessness on the host: where answers differ from plain decoding's, one more start of plain says whether it was a
near tie. Only then, because only the answers tell what there is to ask.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ddtool.bench import judge, lossless, on_host
from ddtool.bench.lossless import Ask
from ddtool.bench.on_host import Measurement
from ddtool.bench.passes import PLAIN, Design
from ddtool.bench.store import Folder, read_json
from ddtool.deploy import apply as transactions

Json = dict[str, Any]
ANSWERS = "judged.json"
Question = tuple[str, tuple[int, ...]]  # a prompt's hash, and what was said after it


def questions(run: Folder) -> list[Question]:
    """What the samples leave to ask, each once, whether or not it has been answered."""
    about, found = run.run, dict[Question, None]()
    if not Design.from_json(about["plan"]).asks_plain:
        return []

    def note(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        found[prompt, tuple(said)] = None
        return []

    lossless.judged(about, run.lines(), note, about.get("dtype") or "bfloat16")
    return list(found)


def known(run: Folder) -> Ask:
    """A judge that has the answers that were asked for before."""
    answers = answers_of(run)

    def ask(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        return judge.likeliest({"meta_info": {"output_top_logprobs": answers.get(key(prompt, said))}})

    return ask


def unknown(run: Folder) -> list[Question]:
    """Those of its questions that nobody has been asked yet."""
    answers = answers_of(run)
    return [one for one in questions(run) if key(*one) not in answers]


def key(prompt: str, said: Sequence[int]) -> str:
    return f"{prompt} {hashlib.sha256(json.dumps(list(said)).encode()).hexdigest()[:16]}"


def answers_of(run: Folder) -> Json:
    """By `key`."""
    path = run.path / ANSWERS
    return read_json(path) if path.exists() else {}


def keep(run: Folder, judged: Json) -> None:
    """The answers of a transaction, by `key`, beside the samples."""
    run.keep(ANSWERS, {**answers_of(run), **judged})


def document(this: Measurement, run: Folder, asked: Sequence[Question]) -> Json:
    """The transaction that starts plain once more: as a visit of it, with questions in place of passes."""
    plain = this.built[PLAIN]
    prompts = {prompt.sha: dict(prompt.given) for one in this.workloads.values() for prompt in one.prompts}
    body = {name: value for name, value in judge.question([]).items() if name != "input_ids"}
    work: Mapping[str, Any] = {
        "step": "bench-judge",
        "run": run.path.name,
        "prompts": {name: prompts[name] for name in {prompt for prompt, _ in asked}},
        "questions": {key(prompt, said): {"prompt": prompt, "said": list(said)} for prompt, said in asked},
        "body": body,
    }
    steps = [
        *on_host.opening(this, [plain], time.time()),
        *on_host.server_steps(this, plain, "plain, to judge near ties", work, begins=True),
    ]
    return transactions.temporary(on_host.KIND, this.unit, steps)
