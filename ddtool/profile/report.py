"""A profile with all that follows from it, for people and for programs (`--json`). Holds no secret."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from ddtool.errors import ProfileError
from ddtool.profile import bind
from ddtool.profile.derived import Capture, capture_multiple, captures, widths
from ddtool.profile.findings import Finding
from ddtool.profile.launch import argv, public_config, public_environment
from ddtool.profile.loading import load
from ddtool.profile.memory import GIB, MemoryPlan, plan
from ddtool.profile.prediction import predict
from ddtool.profile.schema import Profile
from ddtool.profile.search import available
from ddtool.profile.secrets import SecretText
from ddtool.profile.unit import unit_text
from ddtool.profile.validate import validate


@dataclass(frozen=True)
class Listed:
    """One profile of `profile list`; `summary` says what is wrong when it does not load."""

    name: str
    path: str
    summary: str
    host: str | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def listing() -> list[Listed]:
    hosts = bind.bindings()
    return [
        Listed(name, str(path), _summary(str(path)), hosts.get(name)) for name, path in available().items()
    ]


def _summary(path: str) -> str:
    try:
        profile = load(path if "/" in path else f"./{path}")
    except ProfileError as error:
        return f"does not load: {error.message.splitlines()[0]}"
    return profile.description or f"{profile.model.name}, {profile.speculative.algorithm}"


@dataclass(frozen=True)
class GraphRow:
    worker: str
    tokens: int
    why: str
    kept: str
    dropped: str


@dataclass(frozen=True)
class Report:
    profile: Profile
    captures: list[Capture]
    memory: MemoryPlan | None
    findings: list[Finding]

    @property
    def merged_yaml(self) -> str:
        return yaml.safe_dump(merged(self.profile), sort_keys=False, allow_unicode=True, width=76)

    @property
    def multiple_text(self) -> str:
        if not self.profile.graphs.enabled:
            return "off"
        multiple = capture_multiple(self.profile)
        return f"rows must divide by {multiple.value}: {multiple.reason}"

    @property
    def graph_rows(self) -> list[GraphRow]:
        captured = {capture.width.worker: capture for capture in self.captures}
        rows = []
        for width in widths(self.profile):
            capture = captured.get(width.worker)
            kept = ranges(capture.kept) if capture else "graphs are off"
            dropped = _dropped(capture) if capture else "–"
            rows.append(GraphRow(width.worker, width.tokens, width.why, kept, dropped))
        return rows

    @property
    def memory_text(self) -> str:
        if self.memory is None:
            return "no estimate: it needs parallel.card, model.shape with weights_gib, and a context length"
        card, fraction = self.memory.card, self.memory.fraction
        return f"estimate on a {card.name} of {card.memory_gib:g} GiB, mem-fraction-static {fraction:g}"

    @property
    def memory_rows(self) -> list[tuple[str, str, str]]:
        return _memory_rows(self.memory) if self.memory else []

    @property
    def command(self) -> str:
        return shlex.join(argv(self.profile))

    @property
    def config_yaml(self) -> str:
        return yaml.safe_dump(public_config(self.profile), sort_keys=False, allow_unicode=True)

    @property
    def secret_environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.profile.env.items() if isinstance(value, SecretText)}

    @property
    def unit(self) -> str:
        return unit_text(self.profile)

    def as_json(self) -> dict[str, Any]:
        prediction = predict(self.profile)
        memory = self.memory
        return {
            "profile": self.profile.model_dump(mode="json", exclude_none=True),
            "widths": [asdict(width) for width in widths(self.profile)],
            "capture_multiple": asdict(capture_multiple(self.profile)),
            "captures": [asdict(capture) for capture in self.captures],
            "memory": {**asdict_memory(memory), "outside_needed": memory.outside_needed} if memory else None,
            "prediction": asdict(prediction) if prediction else None,
            "findings": findings_json(self.findings),
            "argv": argv(self.profile),
            "config": public_config(self.profile),
            "environment": public_environment(self.profile),
            "secret_environment": self.secret_environment,
            "unit": self.unit,
        }


def report(profile: Profile) -> Report:
    return Report(profile, captures(profile), plan(profile), validate(profile))


def merged(profile: Profile) -> dict[str, Any]:
    """The profile as one YAML mapping without `extends`, defaults filled in, secrets as references."""
    return profile.model_dump(mode="json", exclude={"name", "source"}, exclude_none=True)


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    return [asdict(finding) for finding in findings]


def asdict_memory(memory: MemoryPlan) -> dict[str, Any]:
    plain = {key: value for key, value in vars(memory).items() if key not in ("card", "buffers")}
    buffers = [{**asdict(item), "total": item.total} for item in memory.buffers]
    return {"card": memory.card.model_dump(), **plain, "buffers": buffers}


def ranges(numbers: Sequence[int]) -> str:
    """`1-8, 10, 12`: ascending numbers, runs of three and more joined."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = []
    for run in runs:
        parts += [f"{run[0]}-{run[-1]}"] if len(run) > 2 else [str(number) for number in run]
    return ", ".join(parts)


def _dropped(capture: Capture) -> str:
    if not capture.dropped:
        return "none"
    by_reason: dict[str, list[int]] = {}
    for item in capture.dropped:
        reason = "too many requests" if "at once" in item.why else f"no multiple of {capture.multiple.value}"
        by_reason.setdefault(reason, []).append(item.batch)
    return "; ".join(f"{ranges(sizes)}: {reason}" for reason, sizes in by_reason.items())


def _memory_rows(memory: MemoryPlan) -> list[tuple[str, str, str]]:
    rows = [
        ("weights", f"{memory.weights:.2f}", "target, its share of the checkpoint"),
        (
            "KV pool",
            f"{memory.kv_pool:.2f}",
            f"{memory.pool_tokens:,} tokens of {memory.kv_bytes_per_token:,} bytes; context {memory.context:,}",
        ),
        ("left outside", f"{memory.outside:.2f}", f"{memory.outside_needed:.2f} needed for what follows"),
        ("activations", f"{memory.activations:.2f}", "SGLang's own rule for prefill chunks"),
        ("drafter", f"{memory.draft_weights:.2f}", "its weights"),
    ]
    for item in memory.buffers:
        parts = (
            f"attn_logits {item.attn_logits / GIB:.2f}, kv_indices {item.kv_indices / GIB:.2f}, "
            f"custom_mask {item.custom_mask / GIB:.2f}"
        )
        rows.append(
            (f"triton, {item.worker}", f"{item.total / GIB:.2f}", f"graphs of {item.tokens} rows: {parts}")
        )
    return rows
