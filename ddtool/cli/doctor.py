"""`ddtool doctor` and `ddtool doctor ssh`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileArg, SetOpt

if TYPE_CHECKING:
    from ddtool.transport.checkup import Step

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}

# A dozen defaults say nothing; these are worth a row whoever set them.
ALWAYS_SHOWN = ("hostname", "port", "user", "userknownhostsfile")

HostArg = Annotated[
    str | None,
    typer.Argument(
        help="Host for ssh; default: DDTOOL_HOST or the current profile's binding.", show_default=False
    ),
]


def register(app: typer.Typer) -> None:
    app.command()(doctor)
    app.command("doctor ssh")(doctor_ssh)


def doctor(
    profile: ProfileArg = None, host: HostOpt = None, overrides: SetOpt = None, json: JsonOpt = False
) -> None:
    """Can this host run this profile? Looks at everything a deploy needs and touches nothing. Exit 4 when it can't.
    How the host is reached, and why it is not: `ddtool doctor ssh`.
    """
    from rich.text import Text

    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.preflight import failures

    chosen, name = options.selected(profile, overrides, host)
    with Deployment(chosen, name) as deployment:
        checks = deployment.checks()
        installed = deployment.target_facts["venv"]["exists"]
        if chosen.engine.provider == "plugin" and installed and not failures(checks):
            output.words("asking the host's SGLang who answers DDTREE …", "dim")
            checks.append(deployment.check_engine())
        if json:
            shown = {"host": name, "checks": [vars(check) for check in checks], "facts": deployment.facts}
            output.emit("doctor", {**shown, "round_trips": deployment.round_trips})
        else:
            rows = [
                (
                    Text(*MARKS[check.state]),
                    check.name,
                    check.detail + (f"\n→ {check.hint}" if check.hint else ""),
                )
                for check in checks
            ]
            output.stdout().print(output.table(f"{chosen.name} on {name}", ("", "what", "found"), rows))
        if failures(checks):
            raise typer.Exit(4)


def doctor_ssh(host: HostArg = None, json: JsonOpt = False) -> None:
    """How ssh reaches a host: what was set where, the keys in order, known_hosts, and a connection step by step.
    Leaves nothing there. Exit 3 when the host is not reached, 4 when the agent cannot start on it.
    """
    import os

    from ddtool.cli import options, output
    from ddtool.deploy.session import ssh_name
    from ddtool.errors import UsageError
    from ddtool.transport.checkup import check
    from ddtool.transport.describe import describe
    from ddtool.transport.sshresolve import resolve, resolve_hops

    wanted = host or options.host_of(None, None)
    if wanted == "local":
        raise UsageError("local is this machine, reached without ssh", hint="ddtool doctor ssh HOST")
    name, ssh_config = ssh_name(wanted)
    config = resolve(name, ssh_config, environ=os.environ)
    hops = resolve_hops(config, environ=os.environ)
    found = describe(config, os.environ, hops)
    if json:
        steps: list[Step] = []
        error = check(config, steps.append, hops=hops, environ=os.environ)
        output.emit("doctor.ssh", {**found, "steps": [step.data() for step in steps], "ok": error is None})
    else:
        _show_resolution(found)
        output.stdout().print("connection", style="bold")
        error = check(config, _show_step, hops=hops, environ=os.environ)
    if error and not json:
        output.report_error(error)
    if error:
        raise typer.Exit(error.exit_code)


def _show_resolution(found: dict[str, Any]) -> None:
    from ddtool.cli import output
    from ddtool.transport.describe import DEFAULT

    options = [
        (row["option"], "\n".join(row["values"]), row["source"])
        for row in found["options"]
        if row["source"] != DEFAULT or row["option"] in ALWAYS_SHOWN
    ]
    _section(f"{found['name']} is {found['target']}", ("option", "value", "set by"), options)
    for option in found["not_obeyed"]:
        output.stdout().print(f"  not obeyed: {output.safe(option)}", style="yellow", soft_wrap=True)
    if found["jumps"]:
        hops = [(n, hop["name"], hop["target"], hop["via"] or "") for n, hop in enumerate(found["jumps"], 1)]
        _section("jump hosts, in order", ("", "name", "is", "through"), hops)
    _section("keys, in the order of offering", ("", "key", "from", "with"), _keys(found))
    for reason in found["passed_over"]:
        output.stdout().print(f"  passed over: {output.safe(reason)}", soft_wrap=True)
    files = [(each["path"], "" if each["exists"] else "not there") for each in found["known_hosts"]]
    _section("known_hosts files, read only", ("file", ""), files)
    known = [
        (key["marker"] or "", f"{key['type']} {key['fingerprint']}", key["source"])
        for key in found["known_keys"]
    ]
    _section(f"known for {' or '.join(found['looked_up'])}", ("", "key", "in"), known)


def _section(title: str, columns: tuple[str, ...], rows: Sequence[tuple[object, ...]]) -> None:
    from ddtool.cli import output

    console = output.stdout()
    console.print(output.safe(title) + ("" if rows else ": none"), style="bold", soft_wrap=True)
    if rows:
        console.print(output.table(None, columns, rows))


def _keys(found: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    rows = [
        (
            str(number),
            f"{key['type']} {key['fingerprint']}",
            key["source"],
            "\n".join(filter(None, [key["certificate"], key["doubt"]])),
        )
        for number, key in enumerate(found["keys"], start=1)
    ]
    locked = [
        (str(number), "(needs a passphrase)", path, "asked for at a terminal, last")
        for number, path in enumerate(found["locked"], start=len(rows) + 1)
    ]
    return rows + locked


def _show_step(step: Step) -> None:
    from rich.text import Text

    from ddtool.cli import output

    mark = MARKS["fail" if step.error else "ok"]
    line = Text.assemble(
        "  ", (f"{mark[0]:4}", mark[1]), f" {output.safe(step.name)}: {output.safe(step.detail)}"
    )
    output.stdout().print(line.append(f"  {step.seconds:.2f} s", style="dim"), soft_wrap=True)
