"""Rules of the command line as a whole: exit codes, streams, imports, documentation."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli import ddtool
from typer.main import get_command

import ddtool as package
from ddtool import errors
from ddtool.cli import MODULES, application

CLI = Path(package.__file__).parent / "cli"
DOCS = Path(__file__).parents[2] / "docs"
HEAVY = ("torch", "paramiko", "pydantic", "yaml", "httpx")


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.name)
def test_no_exit_is_returned_and_no_error_is_swallowed(path: Path) -> None:
    """`return typer.Exit(3)` exits 0, and a bare except would turn Exit into success."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Return) and node.value is not None:
            assert "Exit" not in ast.unparse(node.value), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            caught = ast.unparse(node.type) if node.type else ""
            assert caught not in ("", "Exception", "BaseException"), f"{path.name}:{node.lineno}"


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys, ddtool.cli; ddtool.cli.application(); "
        "print([name for name in sys.argv[1:] if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script, *HEAVY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_verb_named_loads_its_own_module_and_no_other() -> None:
    """The table says of each module what it registers; for help, or a word that is no verb, all of them are there."""
    whole = get_command(application())
    assert {name.split()[0] for name in whole.commands} == {
        verb for verbs in MODULES.values() for verb in verbs
    }  # type: ignore[attr-defined]
    for verbs in MODULES.values():
        for verb in verbs:
            part = get_command(application([verb, "--help"]))
            assert {name.split()[0] for name in part.commands} == set(verbs)  # type: ignore[attr-defined]
    for words in ([], ["--help"], ["no-such-command"]):
        assert get_command(application(words)).commands.keys() == whole.commands.keys()  # type: ignore[attr-defined]


def test_every_command_is_documented() -> None:
    """The reference is generated from the commands; a command without words of its own fails here too."""
    spec = importlib.util.spec_from_file_location("generate_reference", DOCS / "generate_reference.py")
    assert spec and spec.loader
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert (DOCS / "reference.md").read_text() == generate.reference(), "run docs/generate_reference.py"
    for name, command in generate.commands(get_command(application())):
        assert command.help, name
        assert all(item.help for item in command.params if item.name != "help"), name


def test_every_error_class_has_an_exit_code_of_the_table() -> None:
    found = {errors.DdtoolError}
    while more := {sub for cls in found for sub in cls.__subclasses__()} - found:
        found |= more
    codes = {cls.__name__: cls.exit_code for cls in found if cls.__module__ == "ddtool.errors"}
    assert set(codes.values()) == {1, 2, 3, 4, 5, 6, 7, 8}
    assert {cls.name for cls in agent_errors()} <= set(errors.AGENT_ERRORS)


def agent_errors() -> list[type]:
    from ddtool.agent import errors as agent

    return [
        cls for cls in vars(agent).values() if isinstance(cls, type) and issubclass(cls, agent.AgentError)
    ]


def test_bad_arguments_exit_2() -> None:
    assert ddtool("deploy", "--no-such-option").returncode == 2
    assert ddtool("no-such-command").returncode == 2


def test_unknown_profile_says_what_there_is() -> None:
    done = ddtool("deploy", "k26-ddtre", "--offline")
    assert done.returncode == 2
    assert "k26-ddtree" in done.stderr
    assert done.stdout == ""


def test_unbound_profile_exits_2_with_the_command_that_binds_it() -> None:
    done = ddtool("status", "-p", "k26-ddtree")
    assert done.returncode == 2
    assert "ddtool profile bind k26-ddtree HOST" in done.stderr


def test_offline_plan_of_the_real_target_is_complete() -> None:
    shown = ddtool("deploy", "k26-ddtree", "--dry-run", "--offline")
    assert shown.returncode == 0, shown.stderr
    for words in ("tp-size: 8", "speculative-num-draft-tokens: 33", "ConditionPathExists=", "assumed"):
        assert words in shown.stdout


def test_without_a_terminal_a_change_needs_yes() -> None:
    from ddtool.cli.output import confirm

    with pytest.raises(errors.UsageError) as error:
        confirm("Apply?", yes=False)
    assert error.value.hint == "add --yes"


def test_remote_text_is_data() -> None:
    from ddtool.cli.output import safe

    assert safe("\x1b[31mred\x1b[0m [/bold] \x07") == "[31mred[0m [/bold] "
