"""Verdicts where a deployment meets a crash: a transaction that kept evidence, and `status`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddtool.errors import DdtoolError
from ddtool.profile import Profile
from ddtool.transport.agent import Agent

Json = dict[str, Any]


def tell(agent: Agent, unit: str, profile: Profile, result: Json, on_event: Callable[[Json], None]) -> None:
    """If a transaction kept evidence of a run: judge it, put `verdict` into the result and report it as an event.

    What goes wrong on the way is reported too, and does not hide the transaction's own error.
    """
    evidence = result.get("evidence")
    if not evidence:
        return
    from ddtool.crash import history

    try:
        crash = history.last(agent, unit, profile, evidence["invocation"])
    except DdtoolError as error:
        on_event({"event": "no-verdict", "message": error.message})
        return
    # `no_crash`: the gate was not content with a service that runs.
    if crash and crash.verdict.category != "no_crash":
        result["verdict"] = crash.to_json()
        on_event({"event": "verdict", "crash": crash})


def last_of_status(agent: Agent, unit: str, profile: Profile | None, status: Json) -> Json | None:
    """The last crash of a status reply: `{unix, result, why, category, subcode, cause, seen}`; None without evidence.

    What somebody has judged before is taken from the host's memory; else it is judged, and not counted: status
    changes nothing.
    """
    if not status["evidence"]:
        return None
    manifest = status["evidence"][0]
    known = _known(status["crashes"], manifest["invocation"])
    if known is None:
        from ddtool.crash import history

        verdict = history.judge(agent, unit, manifest, profile, note=False).verdict
        known = {
            "category": verdict.category,
            "subcode": verdict.subcode,
            "cause": verdict.cause,
            "seen": None,
        }
    return {**{key: manifest.get(key) for key in ("unix", "result", "why")}, **known}


def _known(crashes: Json, invocation: str) -> Json | None:
    end = next((end for end in crashes["ends"] if end["invocation"] == invocation), None)
    entry = crashes["known"].get(end["fingerprint"]) if end else None
    if entry is None:
        return None
    from ddtool.crash import history  # most commands meet no crash, and it takes its time to import

    return {
        **{key: entry[key] for key in ("category", "subcode", "cause")},
        "seen": vars(history.seen_of(entry)),
    }
