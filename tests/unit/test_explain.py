"""`explain` on prepared situations. Ten were recorded on a sandbox host (situations.json); the others are those, with
what a real host answers in that situation put in its place.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddtool.deploy.explain import FINE, Explanation, explain
from ddtool.deploy.look import Look
from ddtool.deploy.reasons import REASONS
from ddtool.deploy.remarks import REMARKS

RECORDED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("situations.json").read_text())
UNIT = "sglang-mini"
PATH = f"/etc/systemd/system/{UNIT}.service"
Found = dict[str, Any]
Change = Callable[[Found], object]

PATCH = {
    "name": "graph-copy",
    "kind": "diagnostic",
    "sha": "ab" * 32,
    "on_disk": True,
    "lost": False,
    "files": ["sglang/a.py"],
    "expires": "2026-12-01",
    "expired": False,
    "loaded": [0, 1],
}
LOCK = {"txn": "t", "kind": "deploy", "unit": UNIT, "who": "eve@desk", "since_unix": 0.0}
OTHER = {"port": 31000, "free": False, "pid": 4242, "title": "python3 -m http.server 31000"}
CRASH = {
    "unix": 1795993756.5,
    "result": "signal",
    "why": "",
    "category": "oom_runtime",
    "subcode": "rank",
    "cause": "Rank 3 ran out of memory.",
    "seen": None,
}


def look(base: str, *changes: Change, **options: Any) -> Look:
    found = copy.deepcopy(RECORDED[base])
    for change in changes:
        change(found)
    return Look(UNIT, found, "ours", **options)


def told(base: str, *changes: Change, **options: Any) -> Explanation:
    return explain(look(base, *changes, **options))


def unit(**values: Any) -> Change:
    return lambda found: found["unit"].update(values)


def systemd(**values: Any) -> Change:
    return lambda found: found["systemd"].update(values)


def host(**values: Any) -> Change:
    return lambda found: found["host"].update(values)


def put(**values: Any) -> Change:
    return lambda found: found.update(copy.deepcopy(values))


def lock(kind: str = "deploy") -> Change:
    return lambda found: found["transactions"].update(
        lock={**LOCK, "kind": kind, "since_unix": found["host"]["unix"] - 45}
    )


def sick(detail: str, port: dict[str, Any] | None = None, age_s: float = 3.0) -> Change:
    def change(found: Found) -> None:
        found["health"] = {"ok": False, "detail": detail}
        found["systemd"]["age_s"] = age_s
        found["port"] = port or found["port"]

    return change


def not_ours(found: Found) -> None:
    found["orphans"][0]["ours"] = False


def file(state: str) -> Change:
    row = {"file": "sglang/srt/a.py", "state": state, "baseline": "wheel", "patches": ["graph-copy"]}
    return lambda found: found["diagnostics"].update(files=[row])


def patch(**values: Any) -> Change:
    return lambda found: found["diagnostics"].update(patches=[{**PATCH, **values}])


def stale(found: Found) -> None:
    found["diagnostics"]["restart_needed"] = True
    found["diagnostics"]["ranks"][0]["missing"] = ["graph-copy"]


def last(**values: Any) -> Change:
    return lambda found: found.update(last={**found["last"], **values})


def release(**values: Any) -> Change:
    return lambda found: found["release"].update(values)


FREE = {"port": 31000, "free": True}
CASES: list[tuple[str, str, list[Change], str, str]] = [
    # reason, recorded situation, changes, what the sentence says, next command
    ("no-systemd", "absent", [host(systemd=False), put(systemd=None)], "does not boot", "ddtool doctor"),
    ("locked", "fine", [lock()], "eve@desk is changing this host for 45 s now", "ddtool deploy --attach"),
    ("locked", "stopped", [lock("diag run")], "diag run sglang-mini", "ddtool diag run --attach"),
    ("locked", "fine", [lock("bench")], "bench sglang-mini", "ddtool bench --attach"),
    ("disk-full", "killed", [host(state_free_mib=2)], "2 MiB are free", "ssh HOST 'df -h /var/lib/ddtool'"),
    ("killed", "killed", [], "root@vm's restart of sglang-mini was killed", "ddtool start"),
    ("killed", "killed", [put(txn_open=True)], "until then no unit of ddtool starts", "ddtool start"),
    ("starts-blocked", "stopped", [put(txn_open=True)], "went down during a change", "ddtool start"),
    ("first-deploy-failed", "first-failed", [], "was never deployed: root@vm's deploy", "ddtool crash last"),
    (
        "foreign-unit",
        "absent",
        [unit(exists=True, active="active", path=PATH)],
        "not ddtool's",
        "--take-over",
    ),
    ("elsewhere", "absent", [put(services=["other", "third"])], "other, third", "status --unit other"),
    ("not-deployed", "absent", [], "is not on this host", "ddtool deploy"),
    ("unit-masked", "stopped", [systemd(load="masked")], "masked", f"systemctl unmask {UNIT}"),
    ("unit-gone", "stopped", [unit(exists=False), systemd(load="not-found")], "is gone", "ddtool deploy"),
    (
        "unit-unreadable",
        "stopped",
        [systemd(load="bad-setting", error="bad line")],
        "bad line",
        "--take-over",
    ),
    ("crash-loop", "crash-loop", [put(crash=CRASH)], "oom_runtime / rank: Rank 3", "ddtool crash last"),
    (
        "program-missing",
        "stopped",
        [unit(active="failed", exit_status=203)],
        "/opt/mini/venv",
        "ddtool doctor",
    ),
    ("gave-up", "crashed", [unit(active="failed", result="start-limit-hit")], "gave up", "ddtool crash last"),
    ("port-taken", "stopped", [put(port=OTHER)], "pid 4242 (python3", "systemctl status 4242"),
    ("crashed", "crashed", [put(crash=CRASH)], "Rank 3 ran out of memory", "ddtool crash last"),
    ("crashed", "crashed", [unit(active="failed")], "unknown: The service ended", "ddtool crash last"),
    ("out-of-memory", "stopped", [unit(active="failed", result="oom-kill")], "out of memory", "--kernel"),
    (
        "failed",
        "stopped",
        [unit(active="failed", result="exit-code", exit_status=1)],
        "exit status 1",
        "logs",
    ),
    ("skipped", "stopped", [systemd(skipped=True)], "skipped the last start", "ddtool start"),
    ("orphans", "orphans", [], "earlier run live on", "ssh HOST 'kill -9 1661'"),
    ("orphans", "orphans", [not_ours], "shell or container: pid 1661", "ps -o pid,user,lstart,args -p 1661"),
    (
        "cards-busy",
        "stopped",
        [put(gpus=[{"index": 0, "memory_used_mib": 90000, "memory_total_mib": 97000}])],
        "1 cards are in use",
        "ssh HOST nvidia-smi",
    ),
    ("stopped", "stopped", [], "is stopped, by root@vm's stop of", "ddtool start"),
    ("stopped", "stopped", [unit(enabled="disabled")], "a reboot leaves it off", "ddtool start"),
    ("stopped-outside", "stopped-outside", [], "not by ddtool", "ddtool start"),
    # SGLang kills itself at the end of an orderly stop, and no evidence is kept of that.
    (
        "stopped-outside",
        "stopped-outside",
        [unit(active="failed", result="signal")],
        "by hand",
        "ddtool start",
    ),
    ("stopping", "fine", [unit(active="deactivating")], "4 processes are left", "ddtool status"),
    ("other-answers", "fine", [put(port=OTHER)], "answers on its port 31000", "systemctl status 4242"),
    (
        "starting",
        "fine",
        [sick("nothing listens on 127.0.0.1:31000", FREE)],
        "for 3 s; its last starts",
        "logs",
    ),
    (
        "starting",
        "fine",
        [sick("/health answers 503 in 0.01 s"), put(starts=[])],
        "no start of it was",
        "logs",
    ),
    ("starting", "fine", [unit(active="activating", sub="start")], "has been starting", "logs --follow"),
    ("never-ready", "fine", [sick("nothing listens", FREE, age_s=99)], "past its 20 s", "crash bundle --now"),
    ("unwell", "fine", [sick("/health does not answer: timed out")], "does not work", "crash bundle --now"),
    ("unwell", "fine", [sick("/health answers 503", age_s=500)], "answers 503", "crash bundle --now"),
    (
        "ranks-missing",
        "fine",
        [lambda found: found["diagnostics"]["ranks"].pop()],
        "1 of its 2 ranks",
        "bundle",
    ),
    ("odd-state", "fine", [unit(active="maintenance", sub="dead")], "is maintenance", f"status {UNIT}"),
    ("gate-not-passed", "fine", [unit(drop_ins=[PATH + ".d/ddtool-gate.conf"])], "its gate", "ddtool deploy"),
    ("other-release-runs", "fine", [put(runs="0001-old")], "from release 0001-old", "ddtool restart"),
    ("other-release-runs", "fine", [put(runs=None, adopted={"unix": 1})], "before the takeover", "restart"),
    ("needs-restart", "fine", [stale], "1 of 2 ranks run other code", "ddtool restart"),
    ("lost-by-upgrade", "fine", [file("lost-by-upgrade")], "installed anew", "ddtool diag status"),
    ("foreign-edits", "fine", [file("foreign")], "sglang/srt/a.py", "ddtool restore --dry-run"),
    ("files-missing", "fine", [file("missing")], "is gone from", "ddtool restore --dry-run"),
    ("unit-edited", "edited", [], "edited by hand", "ddtool deploy --take-over --dry-run"),
    ("unit-not-reread", "fine", [systemd(reload=True)], "not read it again", "systemctl daemon-reload"),
    ("drop-in", "fine", [unit(drop_ins=[PATH + ".d/10-mine.conf"])], "10-mine.conf", f"systemctl cat {UNIT}"),
    (
        "wheel-changed",
        "fine",
        [put(wheel="0.5.13.post1 beef")],
        "is 0.5.13.post1 beef now",
        "deploy --dry-run",
    ),
    (
        "restarted",
        "fine",
        [unit(restarts=2), put(crash=CRASH)],
        "restarted 2 times: oom_runtime",
        "crash last",
    ),
    (
        "rolled-back",
        "fine",
        [last(ok=False, kind="deploy", rolled_back=True, error="too slow")],
        "because root@vm's deploy of",
        "ddtool crash last",
    ),
    ("not-enabled", "fine", [unit(enabled="disabled")], "next boot will not", f"systemctl enable {UNIT}"),
    ("disk-low", "fine", [host(state_free_mib=150)], "150 MiB are free", "df -h"),
    (
        "diagnostics-expired",
        "fine",
        [patch(expired=True)],
        "past its day",
        "diag disable graph-copy --restart",
    ),
    ("diagnostics-on", "fine", [patch()], "runs with graph-copy on", "ddtool diag status"),
    (
        "engine-differs",
        "fine",
        [release(engine="abc")],
        "engine abc, this ddtool has ours",
        "deploy --dry-run",
    ),
    ("queueing", "fine", [put(requests={"running": 4, "waiting": 9})], "13 requests in flight, 9", "logs"),
    ("fine", "fine", [], "works: release 0003-75039fc3, /health answers 200", "ddtool generate"),
    ("fine", "fine", [patch(kind="fix")], "no requests in flight", "ddtool generate"),
]


@pytest.mark.parametrize(
    ("code", "base", "changes", "words", "command"), CASES, ids=[f"{case[0]}-{case[1]}" for case in CASES]
)
def test_situation(code: str, base: str, changes: list[Change], words: str, command: str) -> None:
    explanation = told(base, *changes)
    assert explanation.reason == code, explanation
    assert words in explanation.sentence
    assert command in explanation.next_command
    assert "\n" not in explanation.sentence and not explanation.sentence.endswith(".")


def test_every_situation_is_prepared_and_has_facts_of_its_own() -> None:
    rows = [*REASONS, *REMARKS, FINE]
    codes = [item.code for item in rows]
    assert len(codes) == len(set(codes))
    assert {case[0] for case in CASES} == set(codes)
    assert all(set(item.facts) <= set(RECORDED["fine"]) for item in rows)


def test_the_manual_has_them_all_in_their_order() -> None:
    manual = Path(__file__).parents[2] / "docs" / "operate.md"
    rows = [line for line in manual.read_text().splitlines() if line.startswith("|") and "` |" in line]
    listed = [
        word for line in rows for word in re.findall(r"`([a-z-]+)`", line.split("|")[2]) if word != "reason"
    ]
    assert listed == [item.code for item in (*REASONS, *REMARKS, FINE)]


def test_the_first_that_applies_is_the_reason_and_remarks_come_beside() -> None:
    explanation = told("edited", stale, patch(), host(state_free_mib=100), lock())
    assert explanation.reason == "locked"
    assert [item["reason"] for item in explanation.also] == [
        *("needs-restart", "unit-edited", "unit-not-reread", "disk-low", "diagnostics-on"),
    ]
    healthy = told("edited", stale)
    assert healthy.reason == "needs-restart"
    assert "needs-restart" not in [item["reason"] for item in healthy.also]


@pytest.mark.parametrize("kind", ["diag run", "bench"])
def test_a_trial_that_failed_has_rolled_nothing_back(kind: str) -> None:
    """What runs is what ran before it, and would run if it had gone well."""
    explanation = told("fine", last(ok=False, kind=kind, rolled_back=True, error="an arm crashed"))
    assert explanation.reason == "fine"


def test_an_old_crash_explains_no_stop_of_today() -> None:
    """Evidence of an earlier run is kept; the run that ended now left none."""
    assert look("stopped").crash is not None
    assert told("stopped").reason == "stopped"
    failed = told("stopped", unit(active="failed", result="exit-code", exit_status=9))
    assert failed.reason == "failed" and "exit status 9" in failed.sentence


def test_unknown_requests_are_not_told_as_none() -> None:
    sentence = told("fine", put(requests={"unknown": "/v1/loads answers 404", "hopeless": True})).sentence
    assert "requests in flight unknown" in sentence


def test_commands_name_what_is_not_this_operators_default() -> None:
    there = {"profile": "k26", "host": "gpu1", "shell": "ssh gpu1"}
    assert told("stopped", **there).next_command == "ddtool start -p k26 --host gpu1"
    assert told("absent", **there).next_command == "ddtool deploy k26 --host gpu1"
    assert told("fine", lock(), **there).next_command == "ddtool deploy k26 --attach --host gpu1"
    assert told("fine", lock("bench"), **there).next_command == "ddtool bench k26 --attach --host gpu1"
    other = told("absent", put(services=["other"]), **there)
    assert other.next_command == "ddtool status --unit other --host gpu1", "which takes no -p"
    assert told("orphans", **there).next_command == "ssh gpu1 'kill -9 1661'"


def test_somebody_without_a_profile_looks_by_the_unit() -> None:
    """A verb that changes something needs the profile, and is told with the name that the release has."""
    there = {"profile": "k26", "host": "gpu1", "shell": "ssh gpu1", "by_unit": True}
    assert told("crashed", **there).next_command == f"ddtool crash last --unit {UNIT} --host gpu1"
    assert told("stopped", **there).next_command == "ddtool start -p k26 --host gpu1"


def test_what_json_has_is_json() -> None:
    for base in RECORDED:
        assert json.loads(json.dumps(vars(told(base))))["reason"]
