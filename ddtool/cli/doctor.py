"""`ddtool doctor`."""

from __future__ import annotations

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileArg, SetOpt

MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    profile: ProfileArg = None, host: HostOpt = None, overrides: SetOpt = None, json: JsonOpt = False
) -> None:
    """Can this host run this profile? Looks at everything a deploy needs and touches nothing. Exit 4 when it can't."""
    from rich.text import Text

    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.preflight import failures

    chosen, name = options.selected(profile, overrides, host)
    with Deployment(chosen, name) as deployment:
        checks = deployment.checks()
        if chosen.engine.provider == "plugin" and not failures(checks):
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
