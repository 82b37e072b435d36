"""One run of the service under a diagnostic: wait until it is ready, provoke, watch. What it means: `outcome`."""

from __future__ import annotations

import threading
import time
from typing import Any, Callable, Dict, List, Optional

from . import client, evidence, outcome, start_log, unit
from .errors import AgentError, Unhealthy
from .gate import Gate
from .journal_text import marker
from .proof import rank_of
from .registry import Context

POLL_S = 0.1
GRACE_S = 2.0  # after the last answer: what other ranks still print, or the crash that follows the answer
ERROR_GRACE_S = 10.0  # an answer that is an error may come while the service goes down
ENDING_S = 120.0  # the unit's own evidence is written while it ends
LOG_LINES = 20_000
SHOWN_MARKERS = 20
BODY_CHARS = 300

Json = Dict[str, Any]
Emit = Callable[..., None]


class Experiment:
    """`spec`: `{patch, sha, hypothesis: {fired, not_fired, not_reached}, requests: [{path, body}], timeout_s}`; the
    requests are sent at once. `gate`: of the release that runs, with its API key."""

    def __init__(self, ctx: Context, name: str, spec: Json, gate: Json, emit: Emit) -> None:
        self.ctx = ctx
        self.name = name
        self.spec = spec
        self.gate = gate
        self.emit = emit
        self.invocation = unit.show(name).get("InvocationID", "")
        self.answers: List[Json] = []
        self._markers = 0
        self._phase = start_log.reporter(emit)

    def run(self) -> Json:
        """The judgement of `outcome.judge`, and `{patch, sha, hypothesis, invocation, ready_s, requests, asked, ended,
        evidence}`; `hypothesis` is the sentence that came true, null when it was not tested."""
        begun = time.monotonic()
        ready_s = None
        ranks: Dict[int, Optional[int]] = {}
        with start_log.follow(self.invocation, self._heard):
            if self._becomes_ready():
                ready_s = round(time.monotonic() - begun, 1)
                self.emit("healthy", seconds=ready_s)
                ranks = {item.pid: rank_of(item.title) for item in unit.processes(self.name)}
                self._provoke()
            ended = self._end_of_unit()
        seen = outcome.Seen(
            log=start_log.text(self.invocation, LOG_LINES),
            patch=self.spec["patch"],
            sha=self.spec["sha"],
            not_reached=self.spec["hypothesis"]["not_reached"],
            ready=ready_s is not None,
            ended=ended,
            rank_of={pid: rank for pid, rank in ranks.items() if rank is not None},
            asked=len(self.spec["requests"]) if ready_s is not None else 0,
            answered=sum(item["status"] == 200 for item in self.answers),
            refused=sum(item["status"] != 200 for item in self.answers),
        )
        judged = outcome.judge(seen)
        worth_keeping = ended is not None or seen.stuck
        said = {outcome.CONFIRMED: "fired", outcome.REFUTED: "not_fired"}.get(judged["conclusion"])
        return {
            "patch": self.spec["patch"],
            "sha": self.spec["sha"],
            **judged,
            "hypothesis": self.spec["hypothesis"][said] if said else None,
            "invocation": self.invocation,
            "ready_s": ready_s,
            "asked": seen.asked,
            "requests": self.answers,
            "ended": ended,
            "evidence": self._keep(judged["outcome"]) if worth_keeping else None,
        }

    def _becomes_ready(self) -> bool:
        try:
            Gate(self.name, self.gate, self.emit).wait_healthy()
        except Unhealthy as error:
            self.emit("observed", what=error.message)
            return False
        return True

    def _provoke(self) -> None:
        """Send every request at once and wait for the answers, the unit's end, or the end of the time."""
        deadline = time.monotonic() + self.spec["timeout_s"]
        wanted = self.spec["requests"]
        self.emit("provoking", requests=len(wanted), seconds=self.spec["timeout_s"])
        for item in wanted:  # daemons: a request that never ends must not keep this process
            threading.Thread(target=self._ask, args=(item, deadline), daemon=True).start()
        quiet_at = None
        while time.monotonic() < deadline:
            if not unit.is_active(unit.show(self.name)):
                return
            if quiet_at is None and len(self.answers) == len(wanted):
                broken = any(item["status"] >= 500 for item in self.answers)
                quiet_at = time.monotonic() + (ERROR_GRACE_S if broken else GRACE_S)
            if quiet_at is not None and time.monotonic() > quiet_at:
                return
            time.sleep(POLL_S)

    def _ask(self, item: Json, deadline: float) -> None:
        """One request: `{status, seconds, body?}` into `answers`. One that got no answer leaves nothing there."""
        address, port, key = self.gate["address"], self.gate["port"], self.gate.get("api_key")
        patience = max(1.0, deadline - time.monotonic())
        try:
            answer = client.request(address, port, item["path"], item["body"], key, patience)
        except OSError as error:
            self.emit("observed", what=f"a request got no answer: {error}")
            return
        row: Json = {"status": answer.status, "seconds": round(answer.seconds, 3)}
        if answer.status != 200:
            row["body"] = str(answer.body)[:BODY_CHARS]
        self.answers.append(row)
        self.emit("answer", **row)

    def _end_of_unit(self) -> Optional[Json]:
        """`{result, exit_status}` once a unit that is ending has ended; None while it runs on."""
        deadline = time.monotonic() + ENDING_S
        while True:
            state = unit.show(self.name)
            if not unit.is_active(state):
                return {"result": state.get("Result"), "exit_status": int(state.get("ExecMainStatus") or 0)}
            if state.get("ActiveState") != "deactivating" or time.monotonic() > deadline:
                return None
            time.sleep(POLL_S)

    def _heard(self, line: str) -> None:
        """The operator sees phases as they come, and the diagnostic's first events."""
        self._phase(line)
        item = marker(line)
        if item is None or item.get("patch") != self.spec["patch"]:
            return
        if item.get("event") not in outcome.NO_FINDING:  # of the others there are a few for each process
            self._markers += 1
        if self._markers <= SHOWN_MARKERS:
            self.emit("marker", marker=item)

    def _keep(self, result: str) -> Optional[Json]:
        why = f"diag run {self.spec['patch']}: {result}"
        try:
            return evidence.of_failure(self.ctx, self.name, self.invocation, why, self.emit)
        except (OSError, AgentError) as error:  # no room for evidence is no reason to lose the outcome
            self.emit("observed", what=f"the evidence could not be kept: {error}")
            return None
