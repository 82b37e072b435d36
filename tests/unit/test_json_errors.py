"""A program that reads --json gets one object whatever happens, from every verb that has the option."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ddtool.cli import application, main
from ddtool.cli.output import confirm
from ddtool.errors import HostError, UsageError


def verbs(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, f"{prefix}{name} ")
        elif any("--json" in item.opts for item in command.params):
            yield f"{prefix}{name}", command


VERBS = dict(verbs(get_command(application())))


@pytest.fixture(autouse=True)
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No profile, no host, no configuration of the user's, and a folder without files."""
    for name in ("DDTOOL_HOST", "DDTOOL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str
) -> tuple[int, dict[str, Any], str]:
    """Exit status, the one object on stdout, and stderr."""
    monkeypatch.setattr(sys, "argv", ["ddtool", *words])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert out.count("\n") == 1, out + err
    return int(caught.value.code or 0), json.loads(out), err


def required(verb: str) -> list[str]:
    """A word for each argument that the verb cannot do without."""
    return [
        "nothing-there" for item in VERBS[verb].params if item.required and item.param_type_name == "argument"
    ]


def test_the_verbs_that_are_meant() -> None:
    assert (
        len(VERBS) > 30
        and {"deploy", "status", "logs", "diag run", "doctor ssh", "crash last"} <= VERBS.keys()
    )


# Those that ask for a host, or for something by name: there is neither here.
FAILING = [
    verb for verb in VERBS if required(verb) or any("--host" in item.opts for item in VERBS[verb].params)
]


@pytest.mark.parametrize("verb", FAILING)
def test_a_verb_that_fails(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, found, err = run(capsys, monkeypatch, *verb.split(), *required(verb), "--json")
    assert found["schema"] == "ddtool.error/1" and found.keys() == {"schema", "error"}
    error = found["error"]
    assert error.keys() == {"class", "message", "why", "hint", "exit_code"}
    assert error["exit_code"] == status in (2, 3) and error["hint"]
    assert f"error: {error['message']}" in err  # and in words beside


@pytest.mark.parametrize("verb", VERBS)
def test_arguments_that_no_verb_has(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    status, found, err = run(
        capsys, monkeypatch, *verb.split(), *required(verb), "--json", "--no-such-option"
    )
    assert (status, found["error"]["class"], found["error"]["exit_code"]) == (2, "UsageError", 2)
    assert "--no-such-option" in found["error"]["message"] and "error: " in err
    assert found["error"]["hint"].endswith(f"{verb} --help")


def test_a_verb_that_does_not_fail(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "log").write_text("all is well\n")
    for words in (["diag", "list"], ["profile", "list"], ["crash", "classify", "log"]):
        status, found, _ = run(capsys, monkeypatch, *words, "--json")
        assert status == 0 and found["schema"] != "ddtool.error/1"


def test_no_verb_and_an_error_of_a_host(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(capsys, monkeypatch, "depoly", "--json")[1]["error"]["exit_code"] == 2
    monkeypatch.setenv("DDTOOL_HOST", "name.invalid")
    status, found, _ = run(capsys, monkeypatch, "status", "--unit", "x", "--json")
    assert (status, found["error"]["class"]) == (3, "NameNotResolved")
    assert found["error"]["why"] and found["error"]["hint"]


class Experimented:
    """A deployment whose last experiment ended as `result` says, after which a file of the host is as `state` says."""

    host, unit, profile, round_trips = "h", "sglang-x", None, 3

    def __init__(self, result: dict[str, Any], state: str = "baseline") -> None:
        self.agent, self._result, self._state = self, result, state

    def __call__(self, profile: object, host: str) -> Experimented:
        return self

    def __enter__(self) -> Experimented:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stream(self, op: str) -> Iterator[dict[str, Any]]:
        yield {"event": "done", "result": self._result}

    def diagnostics(self) -> dict[str, Any]:
        return {"files": [{"file": "a.py", "state": self._state}]}


SEEN = {"outcome": "fired", "conclusion": "confirmed", "evidence": None}
NOT_UNDONE = {
    "ok": False,
    "error": {"class": "Unhealthy", "message": "the disk is full"},
    "rolled_back": False,
    "undo_problems": ["a.py"],
}


@pytest.mark.parametrize(
    ("experimented", "kind", "outcome"),
    [
        (Experimented({**NOT_UNDONE, "experiment": SEEN}), "DdtoolError", SEEN),
        (Experimented({"ok": True, "experiment": SEEN}, state="foreign"), "Drift", SEEN),
        (Experimented(NOT_UNDONE), "DdtoolError", None),  # it had no outcome yet
    ],
)
def test_a_host_that_could_not_be_put_back_hides_no_outcome(
    experimented: Experimented,
    kind: str,
    outcome: dict[str, Any] | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ddtool.cli.options.selected", lambda *_: (None, "h"))
    monkeypatch.setattr("ddtool.deploy.deployment.Deployment", experimented)
    experimented._result["kind"] = "diag run"
    status, found, _ = run(capsys, monkeypatch, "diag", "run", "--attach", "--json")
    error = found["error"]
    assert found["schema"] == "ddtool.error/1" and error["class"] == kind and error["exit_code"] == status
    assert error.get("experiment") == outcome


def test_an_answer_that_is_not_yes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    monkeypatch.setattr("ddtool.diagnostics.definition.load_all", lambda: confirm("Sure?", yes=False))
    status, found, _ = run(capsys, monkeypatch, "diag", "list", "--json")
    assert (status, found["error"]["class"], found["error"]["exit_code"]) == (1, "DdtoolError", 1)


def test_without_json_stdout_stays_empty(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["ddtool", "status"])
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "") and "error: " in err


def test_data_of_an_error() -> None:
    assert HostError("a", why="b", hint="c").data() == {
        "class": "HostError",
        "message": "a",
        "why": "b",
        "hint": "c",
        "exit_code": 3,
    }
    assert UsageError("a").data()["why"] is None
