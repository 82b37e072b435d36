"""ddtool profile: what can be deployed, what it comes to, whether it can work, and where it goes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import JsonOpt, SetOpt

if TYPE_CHECKING:
    from ddtool.profile.report import Report

app = typer.Typer(help="Profiles: one service in full, apart from its host.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Profile name or path.")]


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="profile")


@app.command("list")
def list_(as_json: JsonOpt = False) -> None:
    """Every profile that can be named, with its host where one is bound."""
    from ddtool.cli import output
    from ddtool.profile.report import listing

    rows = listing()
    if as_json:
        output.emit("profile.list", {"profiles": [row.as_json() for row in rows]})
        return
    cells = [(row.name, row.host or "not bound", row.summary, row.path) for row in rows]
    output.stdout().print(output.table(None, ("profile", "host", "what", "file"), cells))


@app.command()
def show(name: Name, overrides: SetOpt = None, as_json: JsonOpt = False) -> None:
    """The merged profile and what follows from it: widths, captures, memory, command, environment, unit."""
    from ddtool.cli import output
    from ddtool.profile import load
    from ddtool.profile.report import report

    made = report(load(name, overrides or ()))
    if as_json:
        output.emit("profile.show", made.as_json())
        return
    _show(made)


@app.command()
def validate(name: Name, overrides: SetOpt = None, as_json: JsonOpt = False) -> None:
    """Refuse what cannot work, before a host is touched. Exit 2 when something is refused."""
    from ddtool.cli import output
    from ddtool.profile import load
    from ddtool.profile.report import findings_json
    from ddtool.profile.validate import validate as check

    profile = load(name, overrides or ())
    findings = check(profile)
    refused = any(finding.level == "refuse" for finding in findings)
    if as_json:
        data = {"profile": profile.name, "ok": not refused, "findings": findings_json(findings)}
        output.emit("profile.validate", data)
    else:
        _findings(findings)
        output.words(f"{profile.name} {'cannot work' if refused else 'can be deployed'}")
    if refused:
        raise typer.Exit(2)


@app.command()
def bind(
    name: Name, host: Annotated[str, typer.Argument(help="What `ssh HOST` would reach, or sandbox:NAME.")]
) -> None:
    """Remember the host that a profile goes to, in your own configuration."""
    from ddtool.cli import output
    from ddtool.profile import bind as binding
    from ddtool.profile import load

    profile = load(name)
    binding.bind(profile.name, host)
    output.words(f"{profile.name} goes to {host} from now on ({binding.bindings_file()})")


@app.command("from-unit")
def from_unit(
    host: Annotated[str, typer.Argument(help="What `ssh HOST` would reach, or sandbox:NAME.")],
    unit: Annotated[str, typer.Argument(help="A systemd unit that somebody made by hand.")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FILE", help="Write the profile there.", show_default=False)
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """A hand-made unit as a profile; what it cannot say is listed. Exit 2 when the profile cannot be deployed yet.

    The host is only read. Keys and tokens become ${env:NAME}, and their values stay on the host.
    """
    from ddtool.cli import handmade, output
    from ddtool.deploy.handmade import judged, read_unit

    made = read_unit(host, unit)
    text = made.text(host)
    refused, findings = judged(text, made.profile["service"]["unit"])
    usable = refused is None and not any(finding.level == "refuse" for finding in findings)
    if out:
        Path(out).write_text(text, encoding="utf-8")
    if as_json:
        output.emit("profile.from-unit", handmade.as_json(made, refused, findings, usable))
    else:
        if not out:
            output.stdout().print(text, soft_wrap=True, end="", markup=False, highlight=False)
        handmade.show(made, refused, findings)
        if out and usable:
            output.words(f"Next: ddtool deploy {out} --host {host} --take-over --dry-run", "green")
    if not usable:
        raise typer.Exit(2)


def _show(made: Report) -> None:
    from rich.syntax import Syntax

    from ddtool.cli import output

    console = output.stdout()
    _section("profile", f"{made.profile.name}, from {made.profile.source}")
    console.print(Syntax(made.merged_yaml, "yaml", background_color="default", word_wrap=True))
    _section("graphs", made.multiple_text)
    rows = [(row.worker, row.tokens, row.why, row.kept, row.dropped) for row in made.graph_rows]
    console.print(output.table(None, ("worker", "tokens", "why", "captured", "dropped"), rows))
    _section("memory", made.memory_text)
    if made.memory_rows:
        console.print(output.table(None, ("per rank", "GiB", "what"), made.memory_rows))
    _section("checks", "what `ddtool profile validate` says")
    _findings(made.findings)
    _section("command", "what systemd starts; every flag travels in the config file")
    console.print(made.command, soft_wrap=True)
    _section("config.yaml", "SGLang's --config, 0600, secrets filled in when a deploy is applied")
    console.print(made.config_yaml, soft_wrap=True, end="")
    _section("env", "secret variables, in a file of mode 0600")
    console.print("\n".join(f"{name}={value}" for name, value in made.secret_environment.items()) or "none")
    _section("unit", f"/etc/systemd/system/{made.profile.service.unit}.service")
    console.print(made.unit, soft_wrap=True, end="")


def _section(name: str, explanation: str) -> None:
    from rich.text import Text

    from ddtool.cli import output

    output.stdout().print(Text.assemble("\n", (name, "bold"), "  ", (output.safe(explanation), "dim")))


def _findings(findings: list[Any]) -> None:
    from rich.text import Text

    from ddtool.cli import output

    styles = {"refuse": "bold red", "warn": "yellow", "note": "cyan"}
    rows = [
        (
            Text(found.level, styles[found.level]),
            found.key,
            "; ".join(filter(None, (found.reason, found.fix))),
        )
        for found in findings
    ]
    if rows:
        output.stdout().print(output.table(None, ("level", "key", "finding"), rows))
    else:
        output.stdout().print("none")
