"""What sudo and shells say when the agent cannot start, and the error that comes of it."""

from __future__ import annotations

import pytest

from ddtool.errors import DdtoolError, PreflightError, PythonMissing, SudoNeedsPassword
from ddtool.transport.start import explain_start_failure
from ddtool.transport.text import last_lines, printable


@pytest.mark.parametrize(
    ("stderr", "status", "cls", "hint"),
    [
        (
            "sudo: a password is required\n",
            1,
            SudoNeedsPassword,
            "ubuntu ALL=(root) NOPASSWD: /usr/bin/python3",
        ),
        (
            "sudo: a terminal is required to read the password; use -S\nsudo: a password is required\n",
            1,
            SudoNeedsPassword,
            "NOPASSWD",
        ),
        (
            "sudo: sorry, you must have a tty to run sudo\n",
            1,
            SudoNeedsPassword,
            "Defaults:ubuntu !requiretty",
        ),
        ("sudo: Ein Passwort ist notwendig\n", 1, SudoNeedsPassword, "NOPASSWD"),
        ("ubuntu is not in the sudoers file.\n", 1, SudoNeedsPassword, "NOPASSWD"),
        (
            "Sorry, user ubuntu is not allowed to execute '/usr/bin/python3 -I' as root on gpu.\n",
            1,
            SudoNeedsPassword,
            "NOPASSWD",
        ),
        ("sh: 1: sudo: not found\n", 127, PreflightError, "User root"),
        ("bash: line 1: sudo: command not found\n", 127, PreflightError, "User root"),
        ("ddtool: no python3 on this host\n", 127, PythonMissing, "install python3"),
        ("sh: 1: exec: python3: Permission denied\n", 126, PreflightError, "findmnt"),
        ("sudo: unable to execute /usr/bin/python3: Permission denied\n", 1, PreflightError, "findmnt"),
    ],
)
def test_known_causes(stderr: str, status: int, cls: type[DdtoolError], hint: str) -> None:
    error = explain_start_failure(stderr, status, "ubuntu", "gpu")
    assert type(error) is cls
    assert error.exit_code == 4
    assert hint in (error.hint or "")
    assert "gpu" in error.message


def test_who_may_not_use_sudo_needs_somebody_who_is_root_there() -> None:
    error = explain_start_failure("ubuntu is not in the sudoers file.\n", 1, "ubuntu", "gpu")
    assert (error.hint or "").startswith("as root there: sudo visudo -f /etc/sudoers.d/ddtool   #")


def test_noise_before_the_cause_does_not_hide_it() -> None:
    stderr = "Welcome!\nsudo: unable to resolve host gpu: Name or service not known\nsudo: a password is required\n"
    assert isinstance(explain_start_failure(stderr, 1, "ubuntu", "gpu"), SudoNeedsPassword)


def test_an_unknown_cause_shows_the_last_lines_without_control_characters() -> None:
    stderr = "".join(f"line {n}\n" for n in range(20)) + "\x1b[31mboom\x1b[0m\x07 [/bold]\n"
    error = explain_start_failure(stderr, 134, "ubuntu", "gpu")
    assert type(error) is PreflightError
    assert "exit status 134" in error.message
    assert (error.why or "").splitlines()[-1] == "boom [/bold]"
    assert "line 19" in (error.why or "") and "line 5" not in (error.why or "")


def test_no_word_and_no_status() -> None:
    error = explain_start_failure("", None, "ubuntu", "gpu")
    assert "without an exit status" in error.message
    assert "it wrote nothing" in (error.why or "")


def test_a_missing_program_of_another_name_is_no_missing_sudo() -> None:
    error = explain_start_failure("sh: 1: pseudo: not found\n", 127, "u", "gpu")
    assert "no sudo" not in error.message and "exit status 127" in error.message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link", "alink"),
        ("\x9b31mred", "31mred"),
        ("tab\there\r\n", "tab here\n"),
        ("\x1b[2J\x1b[1;1Hclean", "clean"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_last_lines() -> None:
    assert last_lines("a\n\nb\n \nc\n", 2) == "b\nc"
