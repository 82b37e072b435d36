"""What an experiment with a diagnostic has shown: pure, from the log of the run and how it went.

fired                 an event of the diagnostic that is a finding
crashed elsewhere     the service ended while it served, and the diagnostic said nothing
not fired             every request was answered, and the diagnostic said nothing
hung                  not ready, or a request not answered, when the time was over
other failure first   the service ended before it served: what the diagnostic watches was never reached

Silence refutes the hypothesis only where the patched code ran: its marker `reached` says that it did.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from .journal_text import marker
from .start_log import PHASES

Json = Dict[str, Any]
FIRED, ELSEWHERE, NOT_FIRED = "fired", "crashed elsewhere", "not fired"
HUNG, OTHER_FIRST = "hung", "other failure first"
CONFIRMED, REFUTED, INCONCLUSIVE = "confirmed", "refuted", "inconclusive"

ABOUT_ITSELF = ("unproven", "blind", "unmeasured")  # its proof, or its own check, failed
REACHED = "reached"
NO_FINDING = ("loaded", REACHED, *ABOUT_ITSELF)
RANK = re.compile(r"\bTP(\d+)\b")
# SGLang answers requests of its own before it calls itself ready, so a batch counts as serving, too.
SERVING = re.compile(r"Uvicorn running|Application startup complete|(?:Prefill|Decode) batch[, ]")
KEPT_EVENTS = 100


@dataclass
class Seen:
    """`asked`: requests sent; `answered`: with 200; `refused`: with something else; the others got no answer.

    `ended`: `{result, exit_status}` of a unit that is no longer active.
    `not_reached`: what it means that the patched code never ran, and what to do then.
    """

    log: str
    patch: str
    sha: str
    not_reached: str = ""
    ready: bool = False
    ended: Optional[Json] = None
    rank_of: Dict[int, int] = field(default_factory=dict)  # pid → rank, of the processes that were seen alive
    asked: int = 0
    answered: int = 0
    refused: int = 0
    events: List[Json] = field(init=False)
    failures: List[Json] = field(init=False)
    loaded_by: List[Json] = field(init=False)
    reached_by: List[Json] = field(init=False)

    def __post_init__(self) -> None:
        markers = [item for item in map(marker, self.log.splitlines()) if item is not None]
        ours = [item for item in markers if (item.get("patch"), item.get("sha")) == (self.patch, self.sha)]
        self.events = [item for item in ours if item.get("event") not in NO_FINDING]
        self.failures = [item for item in ours if item.get("event") in ABOUT_ITSELF]
        for item in self.events:
            if item.get("rank") is None:
                item["rank"] = self.rank_of.get(item.get("pid", 0))
        self.loaded_by = self._processes(ours)
        self.reached_by = self._processes([item for item in ours if item.get("event") == REACHED])

    def _processes(self, markers: List[Json]) -> List[Json]:
        pids = sorted({item["pid"] for item in markers if "pid" in item})
        return [{"pid": pid, "rank": self.rank_of.get(pid)} for pid in pids]

    @property
    def stuck(self) -> bool:
        """It lives, and is not ready or owes an answer."""
        owes = self.answered + self.refused < self.asked
        return self.ended is None and (owes or not self.ready)


def judge(seen: Seen) -> Json:
    """`{outcome, conclusion (of the hypothesis), why, phase, ranks, counts, events, failures, loaded_by,
    reached_by}`."""
    outcome = outcome_of(seen)
    ranks = phases(seen.log)
    conclusion, why = conclude(seen, outcome)
    return {
        "outcome": outcome,
        "conclusion": conclusion,
        "why": why,
        "phase": phase_of(seen, ranks),
        "ranks": ranks,
        "counts": dict(Counter(str(item.get("event")) for item in seen.events)),
        "events": seen.events[:KEPT_EVENTS],
        "failures": seen.failures[:KEPT_EVENTS],
        "loaded_by": seen.loaded_by,
        "reached_by": seen.reached_by,
    }


def outcome_of(seen: Seen) -> str:
    if seen.events:
        return FIRED
    if seen.ended is not None:
        return ELSEWHERE if seen.ready or SERVING.search(seen.log) else OTHER_FIRST
    if seen.stuck:
        return HUNG
    return NOT_FIRED


def conclude(seen: Seen, outcome: str) -> Tuple[str, str]:
    """What the outcome says about the hypothesis, and why it does not say more."""
    if outcome == FIRED:
        return CONFIRMED, ""
    if outcome == OTHER_FIRST:
        return INCONCLUSIVE, "the service failed before it served a request"
    if outcome == HUNG:
        return INCONCLUSIVE, "nothing had ended when the time was over"
    if not seen.loaded_by:
        return INCONCLUSIVE, "no process reported that it had loaded the patched file"
    blind = next((item for item in seen.failures if item["event"] != "unproven"), None)
    if blind is not None:
        return INCONCLUSIVE, f"the diagnostic's own check failed: {blind.get('why')}"
    if outcome == NOT_FIRED and seen.refused:
        return INCONCLUSIVE, f"{seen.refused} of {seen.asked} requests were refused"
    if not seen.reached_by:
        return INCONCLUSIVE, ": ".join(filter(None, ("the patched code never ran", seen.not_reached)))
    return REFUTED, ""


def phases(log: str) -> Dict[str, str]:
    """Rank ("" for lines that name none) → the last phase of a start that it reported."""
    reached: Dict[str, str] = {}
    for line in log.splitlines():
        for pattern, phase in PHASES:
            if pattern.search(line):
                rank = RANK.search(line)
                reached[rank.group(1) if rank else ""] = phase
    return reached


def phase_of(seen: Seen, reached: Dict[str, str]) -> str:
    """How far the slowest rank got."""
    if seen.ready:
        return "answering requests" if seen.stuck else "serving"
    order = [phase for _, phase in PHASES]
    ranks = [phase for rank, phase in reached.items() if rank] or list(reached.values())
    return min(ranks, key=order.index) if ranks else "before its first line"
