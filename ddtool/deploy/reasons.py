"""Why a service does not work: the ordered table of reasons, of which the first that applies is told. Pure.

First what keeps anybody from changing the host, then a service that is not there, that is down, and that is up and does
not answer. The last row catches whatever else is not a running service.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddtool.deploy.look import FULL_MIB, Look, Situation, clock, did, some


def locked(look: Look) -> str:
    assert look.lock
    lock = look.lock
    age = look.found["host"]["unix"] - lock["since_unix"]
    return f"{lock['who']} is changing this host for {max(age, 0):.0f} s now: {lock['kind']} {lock['unit']}"


def killed(look: Look) -> str:
    assert look.dead
    dead = look.dead
    starts = "until then no unit of ddtool starts" if look.found["txn_open"] else "nothing of it counts"
    return (
        f"{dead['who']}'s {dead['kind']} of {dead['unit']} was killed half-way; {starts}, and the next changing "
        "command undoes or finishes it"
    )


def orphans(look: Look) -> str:
    pids = some([str(item["pid"]) for item in look.orphans])
    if look.left_behind:
        return (
            f"{look.unit} is stopped, and processes of an earlier run live on and hold its cards: pid {pids}"
        )
    return f"{look.unit} is stopped, and SGLang runs here outside of any service, in a shell or container: pid {pids}"


def stopped_by(look: Look) -> str:
    where = "" if look.state.get("enabled") == "enabled" else "; a reboot leaves it off"
    return f"{look.unit} is stopped, by {did(look.last)}{where}"


def stopped_outside(look: Look) -> str:
    """SGLang ends an orderly stop by a signal to itself, so a stop by hand may read as `failed`."""
    last = f"; the last that ddtool did is {did(look.last)}" if look.last else ""
    return f"{look.unit} is stopped, and not by ddtool: by hand, or by the host's shutdown{last}"


def starting(look: Look) -> str:
    before = max(look.found["starts"], default=0.0)
    usual = f"its last starts took up to {before:.0f} s" if before else "no start of it was timed before"
    return f"{look.unit} has been starting for {look.age_s:.0f} s; {usual}"


def undeployed(look: Look) -> str:
    others = [name for name in look.found["services"] if name != look.unit]
    here = f"; ddtool's services here are {some(others, 5)}" if others else ""
    return f"{look.unit} is not on this host{here}"


def look_at_others(look: Look) -> str:
    return look.run(f"status --unit {look.found['services'][0]}")


def is_starting(look: Look) -> bool:
    young = look.age_s < look.start_s and not answers_badly(look)
    return look.active == "activating" or (look.unanswered and young)


def answers_badly(look: Look) -> bool:
    """A connection is taken and nothing comes back; while SGLang warms up it answers 503."""
    return look.listens and "does not answer" in look.health


def end_orphans(look: Look) -> str:
    """What a run of this unit left is ended; at what may be somebody's work one looks first."""
    if look.left_behind:
        return look.on_host("kill -9 " + " ".join(str(item["pid"]) for item in look.left_behind))
    return look.on_host(
        "ps -o pid,user,lstart,args -p " + ",".join(str(item["pid"]) for item in look.orphans)
    )


REASONS: Sequence[Situation] = (
    # Nobody can change this host now
    Situation(
        "no-systemd",
        lambda look: not look.found["host"]["systemd"],
        lambda look: "this host does not boot systemd, so nothing of ddtool runs on it",
        lambda look: look.run("doctor"),
        ("host",),
    ),
    Situation("locked", lambda look: look.lock, locked, lambda look: look.attach(), ("transactions",)),
    Situation(
        "disk-full",
        lambda look: look.free_mib < FULL_MIB and (look.dead or not look.healthy),
        lambda look: (
            f"{look.free_mib} MiB are free where /var/lib/ddtool lies: nothing can be changed or undone"
        ),
        lambda look: look.on_host("df -h /var/lib/ddtool"),
        ("host", "transactions"),
    ),
    Situation("killed", lambda look: look.dead, killed, lambda look: look.run("start"), ("transactions",)),
    Situation(
        "starts-blocked",
        lambda look: look.found["txn_open"],
        lambda look: (
            "the host went down during a change, and systemd starts no unit of ddtool until that is settled"
        ),
        lambda look: look.run("start"),
        ("txn_open", "transactions"),
    ),
    # It is not there
    Situation(
        "first-deploy-failed",
        lambda look: not look.release and not look.exists and look.broke_off,
        lambda look: f"{look.unit} was never deployed: {did(look.last)} failed: {look.last['error']}",
        lambda look: look.run("crash last") if look.crash else look.deploy("--dry-run"),
        ("last", "crash"),
    ),
    Situation(
        "foreign-unit",
        lambda look: not look.release and look.exists,
        lambda look: f"{look.state['path']} is {look.active}, and not ddtool's",
        lambda look: look.deploy("--take-over", "--dry-run"),
    ),
    Situation(
        "elsewhere",
        lambda look: not look.release and look.found["services"],
        undeployed,
        look_at_others,
        ("services",),
    ),
    Situation("not-deployed", lambda look: not look.release, undeployed, lambda look: look.deploy()),
    Situation(
        "unit-masked",
        lambda look: look.systemd.get("load") == "masked",
        lambda look: f"{look.unit} is masked: somebody forbade systemd to start it",
        lambda look: look.on_host(f"systemctl unmask {look.unit}"),
        ("systemd",),
    ),
    Situation(
        "unit-gone",
        lambda look: not look.exists,
        lambda look: f"the unit file of {look.unit} is gone; its release is still here",
        lambda look: look.deploy(),
        ("unit", "release"),
    ),
    Situation(
        "unit-unreadable",
        lambda look: look.systemd.get("load") not in ("loaded", None),
        lambda look: (
            f"systemd cannot read {look.state['path']}: {look.systemd['error'] or look.systemd['load']}"
        ),
        lambda look: look.deploy("--take-over"),
        ("systemd",),
    ),
    # It is down
    Situation(
        "crash-loop",
        lambda look: look.state.get("sub") == "auto-restart",
        lambda look: (
            f"{look.unit} crashes, and systemd restarts it ({look.state['restarts']} times so far): {look.cause}"
        ),
        lambda look: look.run("crash last"),
        ("unit", "crash"),
    ),
    Situation(
        "program-missing",
        lambda look: look.failed and look.state.get("exit_status") == 203,
        lambda look: (
            f"systemd cannot run its program: is {look.release['venv'] if look.release else ''} still there?"
        ),
        lambda look: look.run("doctor"),
    ),
    Situation(
        "gave-up",
        lambda look: look.failed and look.state.get("result") == "start-limit-hit",
        lambda look: f"{look.unit} crashed so often that systemd gave up restarting it: {look.cause}",
        lambda look: look.run("crash last"),
        ("unit", "crash"),
    ),
    Situation(
        "port-taken",
        lambda look: look.off and look.foreign_listener,
        lambda look: (
            f"{look.unit} cannot start: {look.foreign_listener} has port {look.found['port']['port']}"
        ),
        lambda look: look.on_host(f"systemctl status {look.found['port']['pid']}"),
        ("unit", "port"),
    ),
    Situation(
        "crashed",
        lambda look: look.down and look.crashed,
        lambda look: f"{look.unit} crashed at {clock(look.found['crash']['unix'])}: {look.cause}",
        lambda look: look.run("crash last"),
        ("unit", "crash"),
    ),
    Situation(
        "out-of-memory",
        lambda look: look.failed and look.state.get("result") == "oom-kill",
        lambda look: f"the kernel killed {look.unit}, because the host was out of memory",
        lambda look: look.run("logs --kernel --lines 200"),
    ),
    Situation(
        "failed",
        lambda look: look.failed and look.state.get("result") != "signal",
        lambda look: f"{look.unit} is down, and no evidence of its end was kept: {look.cause}",
        lambda look: look.run("logs --lines 200"),
    ),
    Situation(
        "skipped",
        lambda look: look.down and look.systemd.get("skipped"),
        lambda look: f"systemd skipped the last start of {look.unit}, because a change was open then",
        lambda look: look.run("start"),
        ("systemd",),
    ),
    Situation("orphans", lambda look: look.off and look.orphans, orphans, end_orphans, ("orphans",)),
    Situation(
        "cards-busy",
        lambda look: look.off and look.busy_cards,
        lambda look: (
            f"{look.unit} is stopped, and {len(look.busy_cards)} cards are in use by others all the same"
        ),
        lambda look: look.on_host("nvidia-smi"),
        ("gpus",),
    ),
    Situation(
        "stopped",
        lambda look: look.active == "inactive" and look.last.get("kind") == "stop" and look.last["ok"],
        stopped_by,
        lambda look: look.run("start"),
        ("unit", "last"),
    ),
    Situation(
        "stopped-outside",
        lambda look: look.down,
        stopped_outside,
        lambda look: look.run("start"),
        ("unit", "last"),
    ),
    Situation(
        "stopping",
        lambda look: look.active == "deactivating",
        lambda look: f"{look.unit} is being stopped; {len(look.state['processes'])} processes are left",
        lambda look: look.run("status"),
    ),
    # It is up and does not answer
    Situation(
        "other-answers",
        lambda look: look.up and look.foreign_listener,
        lambda look: (
            f"{look.unit} runs, but {look.foreign_listener} answers on its port {look.found['port']['port']}"
        ),
        lambda look: look.on_host(f"systemctl status {look.found['port']['pid']}"),
        ("unit", "port"),
    ),
    Situation(
        "starting",
        is_starting,
        starting,
        lambda look: look.run("logs --follow"),
        ("unit", "systemd", "starts"),
    ),
    Situation(
        "never-ready",
        lambda look: look.unanswered and not look.listens,
        lambda look: (
            f"{look.unit} runs for {look.age_s:.0f} s and listens nowhere, past its {look.start_s:.0f} s"
        ),
        lambda look: look.run("crash bundle --now"),
        ("unit", "systemd", "port"),
    ),
    Situation(
        "unwell",
        lambda look: look.unanswered,
        lambda look: f"{look.unit} runs and does not work: {look.health}, {look.requests}",
        lambda look: look.run("crash bundle --now"),
        ("unit", "health", "requests"),
    ),
    Situation(
        "ranks-missing",
        lambda look: look.up and 0 < len(look.ranks) < look.tp,
        lambda look: f"{look.unit} answers with {len(look.ranks)} of its {look.tp} ranks",
        lambda look: look.run("crash bundle --now"),
        ("unit", "diagnostics"),
    ),
    Situation(
        "odd-state",
        lambda look: not look.up,
        lambda look: f"{look.unit} is {look.active} ({look.state.get('sub')})",
        lambda look: look.on_host(f"systemctl status {look.unit}"),
    ),
)
