"""`status` as a person reads it."""

from __future__ import annotations

from typing import Any

from ddtool.cli import output

Found = dict[str, Any]


def as_wanted(found: Found) -> bool:
    """Deployed, not stopped half-way by a failure, and answering when it runs. Stopped on purpose is as wanted."""
    unit = found["unit"]
    if found["release"] is None or found["transactions"]["dead"]:
        return False
    if unit.get("active") == "inactive" and unit.get("result") == "success":
        return True
    return unit.get("active") == "active" and bool(found["health"]) and bool(found["health"]["ok"])


def show(name: str, host: str, found: Found) -> None:
    console = output.stdout()
    good = as_wanted(found)
    console.print(
        output.safe(f"{name} on {host}: {headline(found)}"), style="bold green" if good else "bold red"
    )
    console.print(output.table(None, ("", ""), rows(found)))
    if found["unit"].get("processes"):
        columns = ("pid", "process")
        listed = [(item["pid"], item["title"]) for item in found["unit"]["processes"]]
        console.print(output.table("processes", columns, listed))


def headline(found: Found) -> str:
    if found["release"] is None:
        return "not deployed by ddtool"
    unit = found["unit"]
    if unit.get("active") == "active":
        return found["health"]["detail"] if found["health"] else "running"
    if unit.get("result") == "success":
        return "stopped"
    return f"{unit.get('active')}, result {unit.get('result')}, exit status {unit.get('exit_status')}"


def rows(found: Found) -> list[tuple[str, str]]:
    unit, release = found["unit"], found["release"]
    lines = []
    if release:
        lines.append(
            (
                "release",
                f"{release['id']} of profile {release['profile']}, made {output.when(release['created_unix'])}",
            )
        )
        lines.append(
            ("engine", f"{release['provider']} answers {release['algorithm']}; sglang {release['wheel']}")
        )
    lines.append(
        (
            "unit",
            f"{unit.get('active')} since {unit.get('since') or '-'}, {unit.get('restarts', 0)} restarts, {unit.get('enabled')}",
        )
    )
    lines.append(("diagnostics", diagnostics(found["diagnostics"])))
    if found["standins"]:
        lines.append(("CPU stand-ins", ", ".join(item["name"] for item in found["standins"])))
    owner = found["transactions"]["lock"]
    if owner:
        lines.append(("lock", f"{owner['kind']} {owner['unit']} by {owner['who']}"))
    for dead in found["transactions"]["dead"]:
        lines.append(
            (
                "killed",
                f"{dead['kind']} of {dead['unit']} by {dead['who']}: the next changing command settles it",
            )
        )
    if found["evidence"]:
        last = found["evidence"][0]
        lines.append(("evidence", f"{len(found['evidence'])} kept; last {output.when(last['unix'])}: {last['result']}"))
    return lines


def diagnostics(state: Found | None) -> str:
    return "none" if not state else str(state)
