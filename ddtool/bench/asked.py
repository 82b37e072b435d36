"""What the operator typed, as a design and its workloads. Pure, but for reading workload files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ddtool.bench import arms as all_arms
from ddtool.bench import passes, workloads
from ddtool.bench.passes import Design
from ddtool.bench.workloads import Workload
from ddtool.errors import UsageError
from ddtool.profile import Profile

Number = TypeVar("Number", int, float)
BOUND = re.compile(r"(ttft|tpot|e2e)=([0-9.]+)(ms|s)?")
MOST_CONCURRENCY = 1024


def design(
    profile: Profile | None,
    arms: Sequence[str],
    workload: Sequence[str],
    *,
    concurrency: str | None,
    rate: str | None,
    tokens: int,
    repeats: int,
    visits: int,
    temperature: float | None,
    slo: str | None = None,
    prompts: int | None = None,
    seed: int = 1,
    vocab: int | None = None,
    ignore_eos: bool = False,
    flush: bool = True,
    lossless: bool = False,
) -> tuple[Design, dict[str, Workload]]:
    """The design, and its workloads by name. Raises UsageError for anything that is not of its form."""
    loaded = load_all(workload, profile, seed, vocab)
    sampling = preferred_sampling(profile) if profile else {}
    heat = float(sampling.get("temperature", 0.0)) if temperature is None else temperature
    rates = numbers(rate, float, "--rate") if rate is not None else []
    loads = (
        default_concurrency(profile, rates)
        if concurrency is None
        else numbers(concurrency, int, "--concurrency")
    )
    cells = passes.cells(
        list(loaded.values()),
        loads,
        rates,
        temperature=heat,
        tokens=tokens,
        prompts=prompts,
        lossless=lossless,
    )
    own = next((arm for arm in arms if profile and is_own(arm, profile)), None)
    made = Design(
        arms=list(arms),
        cells=cells,
        visits=visits,
        repeats=repeats,
        tokens=tokens,
        temperature=heat,
        seed=seed,
        flush=flush,
        ignore_eos=ignore_eos,
        lossless=lossless,
        timeout_s=float(profile.service.deadlines.request_s) if profile else 120.0,
        own=own,
        slo=bounds(slo) if slo is not None else {},
    )
    return made, loaded


def load_all(
    names: Sequence[str], profile: Profile | None, seed: int, vocab: int | None = None
) -> dict[str, Workload]:
    """The workloads named, each of them perhaps several with commas between."""
    shape = profile.model.shape if profile else None
    known = vocab or (shape.vocab if shape else None)
    typed = [name.strip() for text in names for name in text.split(",")]
    found = [workloads.load(name, vocab=known, seed=seed) for name in typed]
    by_name = {workload.name: workload for workload in found}
    if len(by_name) != len(found):
        raise UsageError("two workloads have the same name", hint="rename one of the files")
    return by_name


def is_own(arm: str, profile: Profile) -> bool:
    try:
        return all_arms.is_own(all_arms.parse(arm, profile), profile)
    except UsageError:  # with --url an arm is whatever its server is called
        return False


def preferred_sampling(profile: Profile) -> Mapping[str, Any]:
    """What requests of this profile's service are sampled with when they do not say so."""
    given = profile.flag("preferred-sampling-params")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise UsageError(
                f"server_args.preferred-sampling-params is not JSON: {error}", hint="ddtool profile validate"
            ) from error
    return given if isinstance(given, Mapping) else {}


def temperature_said(profile: Profile | None, made: Design, typed: float | None) -> str:
    """Where the temperature comes from, for the plan."""
    if typed is not None:
        return f"temperature {made.temperature:g}, as asked"
    if profile and "temperature" in preferred_sampling(profile):
        return f"temperature {made.temperature:g}, the profile's preferred-sampling-params"
    return "temperature 0 (greedy): the profile names none; --temperature sets another"


def default_concurrency(profile: Profile | None, rates: Sequence[float]) -> list[int]:
    """One user, and the objective's; nothing when only rates were asked for."""
    if rates:
        return []
    wanted = profile.objective.concurrency if profile and profile.objective else 1
    return sorted({1, wanted})


def numbers(
    text: str, kind: Callable[[str], Number], option: str, most: int = MOST_CONCURRENCY
) -> list[Number]:
    """`1,4,16`: each above 0 and up to `most`, none twice."""
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < one <= most for one in found) or len(set(found)) != len(found):
        raise UsageError(
            f"{option} {text}: numbers above 0 and up to {most}, with commas between, none of them twice",
            hint=f"{option} 1,4,16" if most == MOST_CONCURRENCY else f"{option} 4096,32768",
        )
    return found


def bounds(text: str) -> dict[str, float]:
    """`ttft=500ms,tpot=20ms` in milliseconds."""
    found = {}
    for part in text.split(","):
        match = BOUND.fullmatch(part.strip())
        try:
            value = float(match[2]) * (1000 if match[3] == "s" else 1) if match else 0.0
        except ValueError:
            value = 0.0
        if match is None or not value > 0:
            raise UsageError(
                f"--slo {text}: not of the form NAME=TIME", hint="--slo ttft=500ms,tpot=20ms (or e2e)"
            )
        found[match[1]] = value
    return found


def notes(profile: Profile | None, made: Design, loaded: Mapping[str, Workload]) -> list[str]:
    """What a reader of the result must know of this design."""
    found = []
    for cell in made.cells:
        held = len(loaded[cell.workload].prompts)
        if cell.prompts > held:
            found.append(
                f"{cell.key}: {cell.prompts} requests a pass of {held} prompts: some are asked twice, and the second "
                "time the prefix cache may know them"
            )
    most = profile.flag("max-running-requests") if profile else None
    most = most if isinstance(most, int) else None
    waiting = [cell.key for cell in made.cells if most and (cell.concurrency or 0) > most]
    if waiting:
        found.append(
            f"{', '.join(waiting)}: the server runs {most} requests at once (max-running-requests), the others wait"
        )
    captured = (
        max(profile.graphs.bs or [profile.graphs.max_bs or 0]) if profile and profile.graphs.enabled else 0
    )
    eager = [
        cell.key for cell in made.cells if 0 < captured < min(cell.concurrency or 0, most or MOST_CONCURRENCY)
    ]
    if eager:
        found.append(
            f"{', '.join(eager)}: graphs are captured for {captured} requests at most (graphs.max_bs), and larger "
            "batches are decoded without"
        )
    if made.lossless and made.temperature == 0 and not made.asks_plain:
        found.append("losslessness is judged against plain decoding, and plain does not take part")
    return found
