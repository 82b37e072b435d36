"""Losslessness on the host: where answers differ from plain decoding's, one more start of plain says whether it was a
near tie. Only then, because only the answers tell what there is to ask.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddtool.bench import judge, lossless, on_host
from ddtool.bench.lossless import PLAIN, Ask
from ddtool.bench.on_host import Measurement
from ddtool.bench.store import Folder, read_json
from ddtool.deploy.apply import raise_for
from ddtool.deploy.plan import current_release, folder
from ddtool.deploy.release import release_step

Json = dict[str, Any]
Question = tuple[str, tuple[int, ...]]  # a prompt's hash, and what was said after it


def questions(run: Folder) -> list[Question]:
    """What the samples leave to ask, each once."""
    found: dict[Question, None] = {}

    def note(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        found[prompt, tuple(said)] = None
        return []

    lossless.judged(run.run, run.lines(), note, run.run.get("dtype") or "bfloat16")
    return list(found)


def known(run: Folder) -> Ask:
    """A judge that has the answers that were asked for before."""
    answers = read_json(path_of(run)) if path_of(run).exists() else {}

    def ask(prompt: str, said: Sequence[int]) -> list[tuple[int, float]]:
        return judge.likeliest({"meta_info": {"output_top_logprobs": answers.get(key(prompt, said))}})

    return ask


def unknown(run: Folder, asked: Sequence[Question]) -> list[Question]:
    answers = read_json(path_of(run)) if path_of(run).exists() else {}
    return [one for one in asked if key(*one) not in answers]


def key(prompt: str, said: Sequence[int]) -> str:
    return f"{prompt} {hashlib.sha256(json.dumps(list(said)).encode()).hexdigest()[:16]}"


def path_of(run: Folder) -> Path:
    return run.path / "judged.json"


def keep(run: Folder, asked: Sequence[Question], result: Json) -> None:
    """The answers of the transaction beside the samples. Raises what `raise_for` does where it failed."""
    raise_for(result)
    answers = read_json(path_of(run)) if path_of(run).exists() else {}
    for one, answer in zip(asked, result["judged"], strict=True):
        answers[key(*one)] = answer
    run.keep(path_of(run).name, answers)


def document(this: Measurement, asked: Sequence[Question]) -> Json:
    """The transaction that starts plain once more: as a visit of it, with questions in place of passes."""
    from ddtool.deploy import apply as transactions

    plain = this.built[PLAIN]
    prompts = {prompt.sha: dict(prompt.given) for one in this.workloads.values() for prompt in one.prompts}
    body = {name: value for name, value in judge.question([]).items() if name != "input_ids"}
    work: Mapping[str, Any] = {
        "step": "bench-judge",
        "prompts": {name: prompts[name] for name in {prompt for prompt, _ in asked}},
        "questions": [{"prompt": prompt, "said": list(said)} for prompt, said in asked],
        "body": body,
    }
    stop_s = (current_release(this.facts) or plain.release.meta)["stop_s"]
    steps: list[Json] = [{"step": "safeguard"}]
    if not plain.present:
        where = folder(this.state, this.unit, plain.ident)
        steps.append(release_step(plain.release, plain.ident, where, this.salt, time.time()))
    steps.append({"step": "stop", "stop_s": stop_s, "restore": True})
    steps += on_host.server_steps(this, plain, "plain, to judge near ties", work, begins=True)
    return {**transactions.transaction(on_host.KIND, this.unit, steps), "temporary": True}
