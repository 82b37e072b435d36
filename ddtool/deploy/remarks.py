"""What is remarkable about a service, working or not: the ordered table of remarks. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ddtool.deploy.look import LOW_MIB, Look, Situation, did, some


def other_release(look: Look) -> str:
    assert look.release
    runs = look.found["runs"]
    if runs is None and look.found["adopted"]:
        return f"the process of before the takeover goes on; release {look.release['id']} waits for a restart"
    what = f"release {runs}" if runs else "no release of ddtool"
    return f"what runs was started from {what}; deployed is {look.release['id']}"


def expired(look: Look) -> str:
    return f"the diagnostic {some(look.expired)} is past its day and still on"


def diagnosed(look: Look) -> str:
    names = [item["name"] for item in look.patches]
    return f"{look.unit} runs with {some(names)} on, so its speed is not the real one"


def lost(look: Look) -> str:
    return f"SGLang was installed anew over {some(look.files('lost-by-upgrade'))}: the patches there are gone"


def rolled_back(look: Look) -> str:
    assert look.release
    return f"{look.unit} runs release {look.release['id']}, because {did(look.last)} failed: {look.last['error']}"


REMARKS: Sequence[Situation] = (
    Situation(
        "gate-not-passed",
        lambda look: look.gate_open and not look.lock and not look.dead,
        lambda look: (
            f"{look.unit} never passed its gate: it is not restarted after a crash, nor counts as deployed"
        ),
        lambda look: look.deploy(),
    ),
    Situation(
        "other-release-runs",
        lambda look: look.other_release,
        other_release,
        lambda look: look.run("restart"),
        ("unit", "runs", "adopted"),
    ),
    Situation(
        "needs-restart",
        lambda look: look.diagnostics.get("restart_needed"),
        lambda look: (
            f"{sum(bool(row['missing'] or row['stale']) for row in look.ranks)} of {len(look.ranks)} ranks "
            "run other code than the files on disk"
        ),
        lambda look: look.run("restart"),
        ("diagnostics",),
    ),
    Situation(
        "lost-by-upgrade",
        lambda look: look.files("lost-by-upgrade"),
        lost,
        lambda look: look.run("diag status"),
        ("diagnostics",),
    ),
    Situation(
        "foreign-edits",
        lambda look: look.files("foreign"),
        lambda look: f"somebody edited {some(look.files('foreign'))} since ddtool wrote it",
        lambda look: look.run("restore --dry-run"),
        ("diagnostics",),
    ),
    Situation(
        "files-missing",
        lambda look: look.files("missing"),
        lambda look: f"{some(look.files('missing'))} is gone from the installed SGLang",
        lambda look: look.run("restore --dry-run"),
        ("diagnostics",),
    ),
    Situation(
        "unit-edited",
        lambda look: look.edited,
        lambda look: f"{look.state['path']} was edited by hand since ddtool wrote it",
        lambda look: look.deploy("--take-over", "--dry-run"),
        ("unit", "unit_sha256"),
    ),
    Situation(
        "unit-not-reread",
        lambda look: look.systemd.get("reload"),
        lambda look: f"the unit file of {look.unit} changed, and systemd has not read it again",
        lambda look: look.on_host("systemctl daemon-reload"),
        ("systemd",),
    ),
    Situation(
        "drop-in",
        lambda look: look.drop_ins,
        lambda look: f"{some(look.drop_ins)} changes this unit, and is not ddtool's",
        lambda look: look.on_host(f"systemctl cat {look.unit}"),
    ),
    Situation(
        "wheel-changed",
        lambda look: look.found["wheel"] and look.release and look.found["wheel"] != look.release["wheel"],
        lambda look: (
            f"the installed SGLang is {look.found['wheel']} now, not what this release was made with"
        ),
        lambda look: look.deploy("--dry-run"),
        ("wheel",),
    ),
    Situation(
        "restarted",
        lambda look: look.up and look.crashed_in_this_run,
        lambda look: f"{look.unit} crashed and was restarted {look.state['restarts']} times: {look.cause}",
        lambda look: look.run("crash last"),
        ("unit", "crash"),
    ),
    Situation(
        "rolled-back",
        lambda look: look.up and look.broke_off and look.last["rolled_back"],
        rolled_back,
        lambda look: look.run("crash last") if look.crash else look.run("audit"),
        ("last", "crash"),
    ),
    Situation(
        "not-enabled",
        lambda look: look.up and look.state.get("enabled") != "enabled",
        lambda look: f"{look.unit} runs, and the next boot will not start it ({look.state.get('enabled')})",
        lambda look: look.on_host(f"systemctl enable {look.unit}"),
    ),
    Situation(
        "disk-low",
        lambda look: look.free_mib < LOW_MIB,
        lambda look: f"{look.free_mib} MiB are free where /var/lib/ddtool lies; a deploy needs {LOW_MIB}",
        lambda look: look.on_host("df -h /var/lib/ddtool"),
        ("host",),
    ),
    Situation(
        "diagnostics-expired",
        lambda look: look.expired,
        expired,
        lambda look: look.run(f"diag disable {' '.join(look.expired)} --restart"),
        ("diagnostics",),
    ),
    Situation(
        "diagnostics-on",
        lambda look: look.patches and not look.expired,
        diagnosed,
        lambda look: look.run("diag status"),
        ("diagnostics",),
    ),
    Situation(
        "engine-differs",
        lambda look: look.release and look.release["engine"] not in (None, look.ours),
        lambda look: (
            f"{look.unit} runs ddtool's engine {look.found['release']['engine']}, this ddtool has {look.ours}"
        ),
        lambda look: look.deploy("--dry-run"),
        ("release",),
    ),
    Situation(
        "queueing",
        lambda look: look.up and look.waiting,
        lambda look: f"{look.unit} works at its limit: {look.requests}, {look.waiting} of them waiting",
        lambda look: look.run("logs --follow"),
        ("requests",),
    ),
)
