"""Keys that need a passphrase: asked for at a terminal, last of all, and nowhere else."""

from __future__ import annotations

import base64
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.sshd import USER, Sshd, certify, keygen, public, ssh_agent
from support.sshhost import Config, assert_reaches, behind, new_threads

from ddtool.deploy import session
from ddtool.errors import AuthenticationFailed
from ddtool.transport import jumpkeys, keyfiles
from ddtool.transport.checkup import Step, check
from ddtool.transport.dial import Deadline
from ddtool.transport.ssh import connect
from ddtool.transport.sshhost import SshHost
from ddtool.transport.sshresolve import resolve, resolve_hops

SECRET = "correct horse"


@pytest.fixture
def locked(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A key with a passphrase that the host lets in; no file is remembered from another test."""
    monkeypatch.setattr(keyfiles, "_unlocked", {})
    monkeypatch.setattr(jumpkeys, "_unlocked", {})
    key = tmp_path / "locked"
    key.write_bytes(config.server.user_rsa.read_bytes())
    key.chmod(0o600)
    Path(f"{key}.pub").write_text(Path(f"{config.server.user_rsa}.pub").read_text())
    subprocess.run(["ssh-keygen", "-q", "-p", "-P", "", "-N", SECRET, "-f", str(key)], check=True)
    return key


class Person:
    """Answers each question with the next of `answers`, then with nothing."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), []

    def __call__(self, path: str) -> str | None:
        self.asked.append(path)
        return self.answers.pop(0) if self.answers else None


def ask(config: Config, person: Person, timeout: float = 10, **options: object) -> SshHost:
    return connect("gpu", ssh_config=config.write(**options), connect_timeout_s=timeout, ask=person)


def test_an_encrypted_key_is_named_and_never_asked_for(config: Config, tmp_path: Path) -> None:
    locked = keygen(tmp_path / "locked", "ed25519", "secret")
    error = config.failure(AuthenticationFailed, IdentityFile=locked)
    assert f"passed over: {locked}: needs a passphrase" in (error.why or "")
    assert f"ssh-add {locked}" in (error.hint or "")


def test_a_person_is_asked_again_after_a_wrong_answer(config: Config, locked: Path) -> None:
    person = Person("wrong", SECRET)
    assert_reaches(ask(config, person, IdentityFile=locked))
    assert person.asked == [str(locked)] * 2


def test_a_command_that_goes_there_early_asks_in_the_foreground(
    config: Config, locked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Ctrl-C at the question gives the terminal its echo back."""
    file, asked = config.write(IdentityFile=locked), []

    def getpass(prompt: str) -> str:
        asked.append((prompt, threading.current_thread() is threading.main_thread()))
        return SECRET

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", getpass)
    monkeypatch.setattr(session, "ssh_name", lambda name: (name, file))
    monkeypatch.setattr(session, "_start", lambda host: host)
    session.open_soon("gpu")
    host: Any = session.open_agent("gpu")
    assert_reaches(host)
    assert asked == [(f"passphrase of {locked}: ", True)]


def test_a_key_stays_unlocked_for_the_next_connection(config: Config, locked: Path) -> None:
    assert_reaches(ask(config, Person(SECRET), IdentityFile=locked))
    person = Person()
    assert_reaches(ask(config, person, IdentityFile=locked))
    assert not person.asked


def test_three_wrong_answers_are_enough(config: Config, locked: Path) -> None:
    person = Person("a", "b", "c", SECRET)
    with pytest.raises(AuthenticationFailed) as caught:
        ask(config, person, IdentityFile=locked)
    assert len(person.asked) == 3
    assert f"passed over: {locked}: needs a passphrase" in (caught.value.why or "")


def test_nobody_is_asked_while_another_key_is_good(config: Config, locked: Path) -> None:
    person = Person()
    assert_reaches(ask(config, person, IdentityFile=f"{locked}\n  IdentityFile {config.server.user}"))
    assert not person.asked


def test_a_locked_key_with_a_certificate(config: Config, tmp_path: Path) -> None:
    authority, key = keygen(tmp_path / "authority"), keygen(tmp_path / "key", "ed25519", SECRET)
    certify(authority, key, "-n", USER)
    with Sshd(tmp_path / "run", [config.server.ed25519], [f"cert-authority {public(authority)}"]) as sshd:
        config.know(f"[127.0.0.1]:{sshd.port} {public(config.server.ed25519)}")
        assert_reaches(ask(config, Person(SECRET), IdentityFile=key, Port=sshd.port))


def test_the_time_of_a_person_is_not_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("ddtool.transport.dial.time.monotonic", lambda: now)
    deadline = Deadline(10)
    with deadline.paused():
        now += 60
    assert deadline.remaining() == 10
    now += 10
    assert deadline.passed


def test_at_a_terminal_without_echo(config: Config, locked: Path) -> None:
    """A process that has a terminal is asked there; its own output stays clean."""
    said, status = at_terminal(
        f"from ddtool.transport.ssh import connect\n"
        f"host = connect('gpu', ssh_config={config.write(IdentityFile=locked)!r}, connect_timeout_s=20)\n"
        f"print(host.where)\n",
        SECRET,
    )
    assert status == 0, said
    assert f"passphrase of {locked}: " in said
    assert SECRET not in said
    assert f"{USER}@127.0.0.1:{config.server.port}" in said


def at_terminal(program: str, answer: str) -> tuple[str, int]:
    """Run Python code at a terminal of its own; `answer` is typed at its question. All it showed, and its status."""
    ours, theirs = pty.openpty()
    start = "import os; os.setsid(); os.close(os.open(os.ttyname(0), os.O_RDWR))\n"  # makes it the controlling terminal
    process = subprocess.Popen(
        [sys.executable, "-c", start + program],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        process_group=None,
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
            if said.endswith(b": ") and answer:
                os.write(ours, answer.encode() + b"\n")
                answer = ""
    except OSError:  # Linux's word for the end of a terminal
        pass
    os.close(ours)
    return said.decode(), process.wait(20)


@pytest.mark.parametrize("hop", ["a", "b"])
def test_a_jump_host_s_key(config: Config, locked: Path, hop: str) -> None:
    """The jump host's ssh has no terminal: ddtool asks and signs for it; in the next connection nobody is asked."""
    options = behind(config, "a", "b", **{hop: {"IdentityFile": locked}})
    person = Person("wrong", SECRET)
    before = threading.enumerate()
    assert_reaches(ask(config, person, **options))
    assert person.asked == [str(locked)] * 2
    assert_reaches(ask(config, Person(), **options))
    assert not new_threads(before)


def test_a_jump_host_s_key_and_its_agent(config: Config, locked: Path, tmp_path: Path) -> None:
    """What is unlocked stands before the agent's keys, which go on working; here each has one of two hops."""
    with ssh_agent(tmp_path, config.server.user) as agent:
        both = {"IdentityFile": locked, "IdentityAgent": agent, "IdentitiesOnly": "no"}
        person = Person()
        assert_reaches(ask(config, person, **behind(config, "a", a=both)))
        assert not person.asked
    person = Person(SECRET)
    assert_reaches(ask(config, person, **behind(config, "a", a=both)))  # its agent is gone
    assert person.asked == [str(locked)]


def test_a_key_of_a_jump_host_s_jump_host(config: Config, locked: Path) -> None:
    options = behind(config, "a", "b", a={"IdentityFile": locked}, b={"ProxyJump": "a"})
    person = Person(SECRET)
    assert_reaches(ask(config, person, **{**options, "ProxyJump": "b"}))
    assert person.asked == [str(locked)]


def test_nobody_to_ask_for_a_jump_host_s_key(config: Config, locked: Path) -> None:
    options = behind(config, "a", "b", b={"IdentityFile": locked})
    error = config.failure(AuthenticationFailed, **options)
    assert f"passed over: {locked}: needs a passphrase" in (error.why or "")
    assert (error.hint or "").startswith(
        f"eval $(ssh-agent); ssh-add {locked}   # for the jump host b; or: ssh -J a b"
    )


def test_a_window_is_never_opened_for_a_passphrase(
    config: Config, locked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ssh of a jump host would use SSH_ASKPASS, which may put a window on a screen that nobody looks at."""
    program = tmp_path / "askpass"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/asked\necho {SECRET}\n")
    program.chmod(0o700)
    monkeypatch.setenv("SSH_ASKPASS", str(program))
    monkeypatch.setenv("DISPLAY", ":0")
    for hop in ("a", "b"):
        config.failure(AuthenticationFailed, **behind(config, "a", "b", **{hop: {"IdentityFile": locked}}))
    by_hand = f"ssh -F {config.file} -W %h:%p a"
    config.failure(
        AuthenticationFailed,
        **{**behind(config, "a", a={"IdentityFile": locked}), "ProxyJump": None, "ProxyCommand": by_hand},
    )
    assert not (tmp_path / "asked").exists()


def test_doctor_asks_for_a_jump_host_s_key_once(config: Config, locked: Path) -> None:
    file = config.write(**behind(config, "a", "b", a={"IdentityFile": locked}))
    gpu = resolve("gpu", file, environ=os.environ)
    person, found = Person(SECRET), list[Step]()
    hops = resolve_hops(gpu, environ=os.environ)
    check(gpu, found.append, hops=hops, environ=os.environ, ask=person)
    assert [step.name for step in found][:4] == ["jump a", "proxy", "key exchange", "host key"]
    assert person.asked == [str(locked)]


def test_a_security_key_is_sent_to_the_agent(config: Config, tmp_path: Path) -> None:
    key = tmp_path / "sk"
    key.write_text(security_key())
    key.chmod(0o600)
    error = config.failure(AuthenticationFailed, IdentityFile=key)
    assert f"passed over: {key}: a security key works through the agent only: ssh-add" in (error.why or "")


def security_key() -> str:
    """A private key file of type sk-ssh-ed25519, whose secret stays in a device that nobody has."""

    def string(data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + data

    public_half = string(b"sk-ssh-ed25519@openssh.com") + string(bytes(32)) + string(b"ssh:")
    secret = bytes(8) + public_half + b"\1" + string(b"handle") + string(b"") + string(b"comment")
    secret += bytes(range(1, 1 + -len(secret) % 8))
    body = b"openssh-key-v1\0" + string(b"none") * 2 + string(b"") + (1).to_bytes(4, "big")
    text = base64.encodebytes(body + string(public_half) + string(secret)).decode()
    return f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n"
