"""The command line. Modules here parse, call one use case and render; everything heavy is imported inside commands."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

import ddtool
from ddtool.errors import DdtoolError, UsageError

BAD_ARGUMENTS: Any = typer.BadParameter.__base__  # of all such errors; typer does not export it

# The verbs of each module, which registers them itself; in the order of the help.
MODULES = {
    "deploy": ("deploy",),
    "service": ("status", "start", "stop", "restart", "rollback", "releases", "remove"),
    "explain": ("explain",),
    "audit": ("audit",),
    "generate": ("generate",),
    "bench": ("bench",),
    "tune": ("tune",),
    "logs": ("logs",),
    "doctor": ("doctor",),
    "diag": ("diag", "restore"),
    "crash": ("crash",),
    "baseline": ("baseline",),
    "profile": ("profile",),
    "sandbox": ("sandbox",),
    "wheelhouse": ("wheelhouse",),
}


class Verbs(TyperGroup):
    """Lets a command have a name of two words, such as `doctor ssh` beside `doctor [PROFILE]`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        two = " ".join(args[:2])
        if len(args) > 1 and two in self.commands:
            return two, self.commands[two], args[2:]
        return super().resolve_command(ctx, args)


def version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ddtool {ddtool.__version__}")
        raise typer.Exit


def root(
    show_version: bool = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Deploy, run, measure and debug DDTree speculative decoding on SGLang, on GPU hosts over SSH."""


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The whole command line; for `words` that name a verb only its module's part. typer builds every command that it
    is given at each start, which takes longer than parsing one of them."""
    app = typer.Typer(
        name="ddtool",
        cls=Verbs,
        help="Deploy, run, measure and debug DDTree speculative decoding on SGLang, on GPU hosts over SSH.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    verb = next((word for word in words if not word.startswith("-")), None)
    for module in [name for name, verbs in MODULES.items() if verb in verbs] or MODULES:
        import_module(f"ddtool.cli.{module}").register(app)
    return app


def main() -> None:
    """The console script. Errors of the tree become words on stderr and their class's exit code.

    With --json they are an object on stdout as well, and so are arguments that typer refuses, which it shows by itself
    otherwise.
    """
    atexit.register(gc.freeze)  # or Python looks for cycles in all that was imported before it ends: 70 ms
    as_json = "--json" in sys.argv[1:]
    try:
        sys.exit(application(sys.argv[1:])(prog_name="ddtool", standalone_mode=not as_json))
    except DdtoolError as error:
        fail(error, as_json)
    except BAD_ARGUMENTS as error:
        hint = f"{error.ctx.command_path} --help" if error.ctx else "ddtool --help"
        fail(UsageError(error.format_message(), hint=hint), as_json)
    except typer.Abort:  # at a question
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        sys.exit(141)


def fail(error: DdtoolError, as_json: bool) -> NoReturn:
    from ddtool.cli.output import emit, report_error

    report_error(error)
    if as_json:
        emit("error", {"error": error.data()})
    sys.exit(error.exit_code)
