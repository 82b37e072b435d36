"""The command line. Modules here parse, call one use case and render; everything heavy is imported inside commands."""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

import ddtool
from ddtool.cli import (
    audit,
    baseline,
    crash,
    deploy,
    diag,
    doctor,
    explain,
    generate,
    logs,
    profile,
    sandbox,
    service,
    wheelhouse,
)
from ddtool.errors import DdtoolError


class Verbs(TyperGroup):
    """Lets a command have a name of two words, such as `doctor ssh` beside `doctor [PROFILE]`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        two = " ".join(args[:2])
        if len(args) > 1 and two in self.commands:
            return two, self.commands[two], args[2:]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="ddtool",
    cls=Verbs,
    help="Deploy, run and debug DDTree speculative decoding on SGLang, on GPU hosts over SSH.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ddtool {ddtool.__version__}")
        raise typer.Exit


@app.callback()
def root(
    show_version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Deploy, run and debug DDTree speculative decoding on SGLang, on GPU hosts over SSH."""


deploy.register(app)
service.register(app)
explain.register(app)
audit.register(app)
generate.register(app)
logs.register(app)
doctor.register(app)
diag.register(app)
app.add_typer(crash.app, name="crash")
app.add_typer(baseline.app, name="baseline")
app.add_typer(profile.app, name="profile")
app.add_typer(sandbox.app, name="sandbox")
app.add_typer(wheelhouse.app, name="wheelhouse")


def main() -> None:
    """The console script. Errors of the tree become words on stderr and their class's exit code."""
    try:
        app()
    except DdtoolError as error:
        from ddtool.cli.output import report_error

        report_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        sys.exit(141)
