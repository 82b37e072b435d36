"""A `ddtool.situation/1` with names for what `explain` asks of it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from ddtool.agent.names import GATE_DROP_IN_FILE
from ddtool.deploy.outage import in_flight

Json = Mapping[str, Any]
FULL_MIB = 16  # no room for a transaction's own notes
LOW_MIB = 200
LOOKING = ("status", "explain", "releases", "logs", "crash last", "crash bundle", "diag status", "audit")
TRIALS = ("diag run", "bench")  # transactions that are undone at their end, whatever came of them
BUSY = 0.10  # of a card's memory: what a clean stop leaves is below


@dataclass(frozen=True)
class Look:
    """`found`: the situation; `ours`: the engine that this ddtool carries; `profile` and `host`: what the operator's
    commands have to name, "" where theirs is the default; `shell`: what runs a command on the host. `by_unit`: the
    operator has no profile of it, so a verb that only looks names the unit."""

    unit: str
    found: Json
    ours: str
    profile: str = ""
    host: str = ""
    shell: str = "ssh HOST"
    by_unit: bool = False

    # What to type

    def run(self, verb: str) -> str:
        if self.by_unit and verb.startswith(LOOKING):
            return f"ddtool {verb}" + ("" if "--unit" in verb else f" --unit {self.unit}") + self._at()
        enough = "--unit" in verb and self.host  # no profile is needed then, and none is taken
        return f"ddtool {verb}" + (f" -p {self.profile}" if self.profile and not enough else "") + self._at()

    def deploy(self, *flags: str) -> str:
        return self.run_on("deploy", *flags)

    def run_on(self, verb: str, *flags: str) -> str:
        """For verbs that take as an argument what others take as -p."""
        return " ".join([f"ddtool {verb}", *filter(None, [self.profile]), *flags]) + self._at()

    def attach(self) -> str:
        """To watch what changes the host now."""
        assert self.lock
        kind = self.lock["kind"]
        if kind == "diag run":
            return self.run("diag run --attach")
        return self.run_on("bench" if kind == "bench" else "deploy", "--attach")

    def _at(self) -> str:
        return f" --host {self.host}" if self.host else ""

    def on_host(self, command: str) -> str:
        return f"{self.shell} {shlex.quote(command)}"

    # The unit

    @cached_property
    def state(self) -> Json:
        state: Json = self.found["unit"]
        return state

    @property
    def systemd(self) -> Json:
        return self.found["systemd"] or {}

    @property
    def release(self) -> Json | None:
        release: Json | None = self.found["release"]
        return release

    @property
    def active(self) -> str:
        return str(self.state.get("active"))

    @property
    def up(self) -> bool:
        return self.active == "active"

    @property
    def down(self) -> bool:
        return self.active in ("inactive", "failed")

    @property
    def off(self) -> bool:
        return self.release is not None and self.down

    @property
    def unanswered(self) -> bool:
        return self.up and not self.healthy

    @property
    def failed(self) -> bool:
        return self.active == "failed"

    @property
    def exists(self) -> bool:
        return bool(self.state.get("exists"))

    @property
    def age_s(self) -> float:
        return float(self.systemd.get("age_s") or 0.0)

    @property
    def start_s(self) -> float:
        """Its deadline from start to healthy."""
        return float(self.release["gate"]["start_s"]) if self.release else 0.0

    @property
    def other_release(self) -> bool:
        """What runs was not started from the release that is deployed."""
        return bool(self.state.get("processes") and self.release and self.found["runs"] != self.release["id"])

    @property
    def edited(self) -> bool:
        wanted = (self.release or {}).get("unit_sha256")
        return bool(wanted and self.found["unit_sha256"] and self.found["unit_sha256"] != wanted)

    @property
    def gate_open(self) -> bool:
        return any(path.endswith(GATE_DROP_IN_FILE) for path in self.state.get("drop_ins", []))

    @property
    def drop_ins(self) -> list[str]:
        return [path for path in self.state.get("drop_ins", []) if not path.endswith(GATE_DROP_IN_FILE)]

    # Whether it answers

    @property
    def healthy(self) -> bool:
        return bool(self.found["health"] and self.found["health"]["ok"])

    @property
    def health(self) -> str:
        return (
            str(self.found["health"]["detail"]) if self.found["health"] else "nothing is known of its health"
        )

    @property
    def listens(self) -> bool:
        return bool(self.found["port"]) and not self.found["port"]["free"]

    @property
    def foreign_listener(self) -> str:
        """Who answers on its port in its place; "" when nobody does."""
        port = self.found["port"]
        ours = {item["pid"] for item in self.state.get("processes", [])}
        if not self.listens or port["pid"] is None or port["pid"] in ours:
            return ""
        return f"pid {port['pid']} ({port['title'][:80]})"

    @property
    def requests(self) -> str:
        """`3 requests in flight`, or that nobody knows."""
        count = in_flight(self.found["requests"])
        if count is None:
            return "requests in flight unknown"
        return f"{count or 'no'} request{'' if count == 1 else 's'} in flight"

    @property
    def waiting(self) -> int:
        return int((self.found["requests"] or {}).get("waiting", 0))

    @property
    def tp(self) -> int:
        return int(self.release["config"].get("tp-size", 1)) if self.release else 1

    @property
    def ranks(self) -> list[Json]:
        return list(self.diagnostics.get("ranks", []))

    # What was done to it

    @property
    def lock(self) -> Json | None:
        lock: Json | None = self.found["transactions"]["lock"]
        return lock

    @property
    def dead(self) -> Json | None:
        dead: list[Json] = self.found["transactions"]["dead"]
        return dead[0] if dead else None

    @property
    def last(self) -> Json:
        """The last transaction about it in the audit; {} without any."""
        return self.found["last"] or {}

    @property
    def broke_off(self) -> bool:
        return bool(self.last) and not self.last["ok"] and self.last["kind"] not in TRIALS

    @property
    def crash(self) -> Json | None:
        crash: Json | None = self.found["crash"]
        return crash

    @property
    def crashed(self) -> bool:
        """The run that ended last ended badly, and evidence of it is kept. A stop asked for leaves none."""
        kept = self.found["evidence"]
        return bool(kept) and kept[0]["invocation"] == self.state.get("invocation")

    @property
    def cause(self) -> str:
        """Why its last run ended, in the verdict's words, else in systemd's."""
        crash = self.crash
        if crash is None or not (self.crashed or self.up):
            result, status = self.state.get("result"), self.state.get("exit_status")
            return f"it ended with result {result}, exit status {status}"
        if crash["category"] == "no_crash":
            return str(crash["why"])
        name = crash["category"] + (f" / {crash['subcode']}" if crash["subcode"] else "")
        return f"{name}: {crash['cause']}".rstrip(".")

    @property
    def crashed_in_this_run(self) -> bool:
        """systemd restarted it since somebody started it, and evidence of why is there."""
        return int(self.state.get("restarts", 0)) > 0 and self.crash is not None

    # Files and host

    @property
    def diagnostics(self) -> Json:
        return self.found["diagnostics"] or {}

    def files(self, state: str) -> list[str]:
        return [item["file"] for item in self.diagnostics.get("files", []) if item["state"] == state]

    @property
    def patches(self) -> list[Json]:
        """Diagnostics that are on; a fix changes nothing that anybody should wonder about."""
        return [item for item in self.diagnostics.get("patches", []) if item["kind"] == "diagnostic"]

    @property
    def expired(self) -> list[str]:
        return [item["name"] for item in self.patches if item["expired"]]

    @property
    def free_mib(self) -> int:
        return int(self.found["host"]["state_free_mib"])

    @property
    def orphans(self) -> list[Json]:
        return list(self.found["orphans"])

    @property
    def left_behind(self) -> list[Json]:
        """Those that a run of this unit left."""
        return [item for item in self.orphans if item["ours"]]

    @property
    def busy_cards(self) -> list[Json]:
        return [
            card for card in self.found["gpus"] if card["memory_used_mib"] > BUSY * card["memory_total_mib"]
        ]


class Situation(NamedTuple):
    """A row of the tables. `facts`: the parts of the situation that it rests on, for --json."""

    code: str
    applies: Callable[[Look], Any]
    sentence: Callable[[Look], str]
    next_command: Callable[[Look], str]
    facts: tuple[str, ...] = ("unit",)


def some(names: list[str], most: int = 2) -> str:
    """`a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def clock(unix: float) -> str:
    """The operator's zone."""
    return datetime.fromtimestamp(unix).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def did(last: Json) -> str:
    """`alice@desk's deploy of 2026-01-01 12:00:00`, of a line of the audit."""
    return f"{last['who']}'s {last['kind']} of {clock(last['unix'])}"
