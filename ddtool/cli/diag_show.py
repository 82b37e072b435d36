"""`ddtool diag show`: one diagnostic in words, or as a diff for the operator's own repository."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileOpt

if TYPE_CHECKING:
    from ddtool.diagnostics.definition import Definition
    from ddtool.diagnostics.diff import PatchDiff


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="The diagnostic's name.")],
    diff: Annotated[
        bool, typer.Option("--diff", help="Print what it changes, for `git apply` in your own repository.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="BASELINE",
            help="Where the diff starts: baseline (default), wheel or an adopted baseline on the host; or, without a "
            "host, FILE.whl or a checkout's ./FOLDER.",
            show_default=False,
        ),
    ] = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """One diagnostic: what it shows, its events, its cost, and the code that it inserts."""
    from ddtool.cli import output, typed
    from ddtool.diagnostics.definition import load
    from ddtool.diagnostics.diff import is_local

    typed.needs(ctx, "diff", "against", "profile", "host")
    if against is not None and is_local(against):
        typed.only(ctx, "against", "diff", why="no host is asked")
    patch = load(name)
    if diff:
        print_diff(patch, diff_of(patch, against or "baseline", profile, host), json)
    elif json:
        output.emit("diag.show", {**about(patch), "targets": patch.to_json()["targets"]})
    else:
        describe(patch)


def about(patch: Definition) -> dict[str, Any]:
    fields = ("name", "kind", "summary", "cost", "expires", "events", "releases", "sha")
    hypothesis = patch.hypothesis.model_dump() if patch.hypothesis else None
    absent = {release: item.model_dump() for release, item in patch.absent.items()}
    return {**{name: getattr(patch, name) for name in fields}, "hypothesis": hypothesis, "absent": absent}


def describe(patch: Definition) -> None:
    from ddtool.cli import output

    console = output.stdout()
    console.print(f"{patch.name} ({patch.kind})", style="bold")
    console.print(patch.summary)
    console.print(f"cost: {patch.cost}")
    if patch.expires:
        console.print(f"expires: {patch.expires} days after it was enabled")
    if patch.hypothesis:
        console.print(f"if it fires: {patch.hypothesis.fired}")
        console.print(f"if not: {patch.hypothesis.not_fired}")
        console.print(f"if its code never runs: {patch.hypothesis.not_reached}")
    console.print(output.table("events", ("event", "when, and its fields"), patch.events.items()))
    for release, absent in patch.absent.items():
        instead = f"; use {absent.replaced_by}" if absent.replaced_by else ""
        console.print(f"not for {release}: {absent.why}{instead}")
    for target in patch.targets:
        console.print(f"{target.file}, {target.function} ({', '.join(target.releases)})", style="bold")
        for edit in target.edits:
            console.print(f"  {edit.place} `{edit.anchor}`:", style="dim")
            console.print("\n".join(f"    {line}" for line in edit.code.splitlines()), soft_wrap=True)


def diff_of(patch: Definition, against: str, profile: str | None, host: str | None) -> PatchDiff:
    from ddtool.cli import options
    from ddtool.deploy.deployment import Deployment
    from ddtool.diagnostics import diff

    if diff.is_local(against):
        return diff.local(patch, against)
    chosen, name = options.selected(profile, None, host)
    with Deployment(chosen, name) as deployment:
        answer = deployment.agent.call(
            "diag.diff",
            deadline_s=60.0,
            venv=chosen.engine.venv,
            definition=patch.to_json(),
            against=against,
        )
    return diff.from_host(answer)


def print_diff(patch: Definition, found: PatchDiff, json: bool) -> None:
    """The diff alone to stdout, byte for byte unless that is a terminal; what it starts from, in words."""
    from ddtool.cli import output, plans

    if json:
        files = [
            {"file": one.file, "against": one.against, "diff": one.diff.decode("utf-8", "replace")}
            for one in found.files
        ]
        output.emit("diag.show", {**about(patch), "diff": files, "unknown": found.unknown})
        return
    plans.show_unknown(found.unknown)
    for one in found.files:
        output.words(f"{one.file}: against {one.against}")
        if sys.stdout.isatty():
            for line in one.diff.decode("utf-8", "replace").splitlines():
                output.stdout().print(output.safe(line), style=plans.diff_colour(line), soft_wrap=True)
        else:
            sys.stdout.buffer.write(one.diff)
            sys.stdout.buffer.flush()
