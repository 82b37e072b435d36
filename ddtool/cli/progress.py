"""Events of a transaction as lines on stderr: one a step or phase, with the time since it began."""

from __future__ import annotations

import json
from typing import Any

from ddtool.cli.output import words

Event = dict[str, Any]


def show(event: Event) -> None:
    if event["event"] == "verdict":
        import sys

        from ddtool.cli.crash import show_crash

        show_crash(event["crash"], sys.stderr)
        return
    text = describe(event)
    if text:
        style = "red" if event["event"] in ("failed", "undo-failed") else None
        at = f"{event['elapsed_s']:7.1f} s" if "elapsed_s" in event else " " * 9
        words(f"{at}  {text}", style)


def describe(event: Event) -> str | None:
    """One line for an event of ddtool.agent.run; None for what a person need not see."""
    kind = event["event"]
    if kind == "step":
        return f"[{event['number']}] {event['title']}"
    if kind == "phase":
        percent = f" {event['percent']} %" if event.get("percent") is not None else ""
        return f"    {event['phase']}{percent}"
    if kind == "sending":
        return (
            f"    {event['done'] / event['total']:4.0%} of {event['total'] >> 20} MiB sent, {event['file']}"
        )
    if kind == "link-lost":
        return f"    {event['message']}; going on with a new connection"
    if kind == "installing":
        return f"    {event['what']}"
    if kind == "installed":
        return f"    {event['packages']} packages in place"
    if kind == "healthy":
        return f"    /health answers after {event['seconds']} s"
    if kind == "completion":
        return f"    completion {event['number']} of {event['of']}"
    if kind == "concurrent":
        return f"    {event['number']} completions at once"
    if kind == "provoking":
        return f"    {event['requests']} requests, at most {event['seconds']:.0f} s"
    if kind == "answer":
        return f"    answered with {event['status']} after {event['seconds']} s"
    if kind == "observed":
        return f"    {event['what']}"
    if kind == "marker":
        said = {key: value for key, value in event["marker"].items() if key not in ("patch", "sha")}
        return f"    {event['marker']['patch']} says {json.dumps(said)}"
    if kind == "draining":
        return f"    {in_flight(event)}; at most {event['left_s']:.0f} s more"
    if kind == "waiting":
        return f"    waiting for {event['what']}"
    if kind == "stacks":
        return f"    stacks asked of {len(event['processes'])} processes"
    if kind == "tail":
        lines = "\n".join(f"    | {line}" for line in event["lines"])
        return f"its last words (all of them on the host in {event['evidence']}):\n{lines}"
    if kind == "no-verdict":
        return f"no verdict: {event['message']}"
    if kind == "failed":
        return f"failed: {event['message']}"
    if kind == "undo":
        return f"undo: {event['title']}"
    if kind == "undo-failed":
        return f"undo of {event['title']!r} failed: {event['message']}"
    return None


def in_flight(event: Event) -> str:
    if "unknown" in event:
        return f"how many requests are in flight is not known: {event['unknown']}"
    return f"in flight: {event['running']} running, {event['waiting']} waiting"
