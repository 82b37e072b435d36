"""A host that answers what it likes."""

from __future__ import annotations

import struct

import pytest
from rich.text import Text

from ddtool.cli import output
from ddtool.errors import DdtoolError, HostError
from ddtool.transport.agent import Agent


class FalseHost:
    """Answers the handshake, and then what it likes."""

    name, user, state, run, become = "false", "root", "/s", "/r", False

    def __init__(
        self, *frames: bytes, hello: bytes = b'{"have": true, "python": [3, 11, 2], "uid": 0}'
    ) -> None:
        self._data = b"\nddtool-agent/1 " + hello + b"\n"
        self._data += b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)

    def open(self, command: str) -> FalseHost:
        return self

    def send(self, data: bytes) -> None:
        return

    def recv(self, size: int, timeout: float) -> bytes:
        part, self._data = self._data[:size], self._data[size:]
        return part

    def stderr_tail(self) -> str:
        return ""

    def exit_status(self, timeout: float) -> int:
        return 1

    def close(self) -> None:
        return


@pytest.mark.parametrize("hello", [b"{}", b"[]", b"null", b"{", b'{"have": 1, "python": "x", "uid": null}'])
def test_a_false_greeting_is_an_error_with_words(hello: bytes) -> None:
    with pytest.raises(HostError):
        Agent(FalseHost(hello=hello))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "frame",
    [
        *(b"{", b"[]", b"7", b"null", b"\xff\xfe", b"[" * 200_000, b'{"id": 1, "n": ' + b"9" * 9000 + b"}"),
        *(b'{"id": 1, "ok": false}', b'{"id": 1, "ok": false, "error": 7}'),
        b'{"id": 1, "ok": false, "error": {"class": ["x"], "message": {"a": 1}, "hint": 3}}',
    ],
)
def test_a_false_answer_is_an_error_with_words(frame: bytes) -> None:
    agent = Agent(FalseHost(frame))  # type: ignore[arg-type]
    with pytest.raises(DdtoolError):
        agent.call("status")


def test_a_host_does_not_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Even where a call forgot `safe`: the consoles clean what they print. Colours of ddtool's own go on."""
    nasty = "a\x1b]0;owned\x07b\x9b31mc\u202ed\x08\x7f[bold]e[/bold]"
    for make in (output.stdout, output.stderr):
        make().print(nasty, style="red")
        make().print(output.table(nasty, (nasty,), [[Text(nasty)]]))
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "[bold]e[/bold]" in text
        assert not set(text) & set("\x1b\x07\x08\x7f\x9b\u202e")
