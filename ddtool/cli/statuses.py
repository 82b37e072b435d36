"""`status` as a person reads it."""

from __future__ import annotations

from typing import Any

from ddtool.cli import output

Found = dict[str, Any]
DRIFTED = ("foreign", "missing", "lost-by-upgrade")


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
    """Name and value of each line, only those that have something to say."""
    unit, release, transactions = found["unit"], found["release"], found["transactions"]
    lines: list[tuple[str, str]] = []
    if release:
        made = output.when(release["created_unix"])
        lines += [
            ("release", f"{release['id']} of profile {release['profile']}, made {made}"),
            ("engine", f"{answers(release)}; sglang {release['wheel']}"),
        ]
    since, restarts = unit.get("since") or "-", unit.get("restarts", 0)
    lines.append(("unit", f"{unit.get('active')} since {since}, {restarts} restarts, {unit.get('enabled')}"))
    if found["adopted"]:
        lines.append(("taken over", taken_over(found)))
    lines += diagnostics(found["diagnostics"])
    if found["standins"]:
        names = ", ".join(item["name"] for item in found["standins"])
        lines.append(("CPU stand-ins", f"{names}: speed means nothing here"))
    if transactions["lock"]:
        owner = transactions["lock"]
        lines.append(("lock", f"{owner['kind']} {owner['unit']} by {owner['who']}"))
    for dead in transactions["dead"]:
        what = f"{dead['kind']} of {dead['unit']} by {dead['who']}"
        lines.append(("killed", f"{what}: the next changing command settles it"))
    if found["crash"]:
        lines.append(("last crash", last_crash(found["crash"], len(found["evidence"]))))
    return lines


def taken_over(found: Found) -> str:
    """What is kept of the unit that somebody made by hand, and whose process runs."""
    kept = f"{output.when(found['adopted']['unix'])}; ddtool remove --restore-unit gives the unit back"
    if found["unit"].get("processes") and not found["runs"]:
        return f"{kept}. The process of before still runs: ddtool restart runs the release"
    return kept


def last_crash(crash: Found, kept: int) -> str:
    """When, what, and how often; the page is `ddtool crash last`."""
    name = crash["category"] + (f" / {crash['subcode']}" if crash["subcode"] else "")
    seen = crash["seen"]
    again = seen and seen["count"] > 1
    times = f", seen {seen['count']} times since {output.when(seen['first_unix'])}" if again else ""
    what = crash["why"] if crash["category"] == "no_crash" else f"{name}{times}. {crash['cause']}"
    return f"{output.when(crash['unix'])}: {what} ({kept} kept: ddtool crash last)"


def answers(release: Found) -> str:
    """Who answers the algorithm, and whether the host runs the engine that this ddtool carries."""
    from ddtool.engine import engine_id

    if release["engine"] is None:
        return f"the installed SGLang answers {release['algorithm']}"
    ours = engine_id()
    note = "as in this ddtool" if release["engine"] == ours else f"this ddtool carries {ours}"
    return f"ddtool's engine {release['engine']} answers {release['algorithm']} ({note})"


def diagnostics(state: Found | None) -> list[tuple[str, str]]:
    """One line per enabled patch, and one per managed file that is not as it should be."""
    from ddtool.diagnostics import view

    if state is None:
        return []
    ranks = len(state["ranks"])
    lines = [
        (
            patch["kind"],
            f"{patch['name']}: {'on disk' if patch['on_disk'] else 'NOT on disk'}, "
            f"loaded by {len(patch['loaded'])} of {ranks} ranks" + view.expiry(patch),
        )
        for patch in state["patches"]
    ]
    lines += [
        ("drift", f"{item['file']}: {item['state']}") for item in state["files"] if item["state"] in DRIFTED
    ]
    if state["restart_needed"]:
        lines.append(("restart", "needed: some ranks run other code than the files on disk"))
    return lines or [("diagnostics", "none")]
