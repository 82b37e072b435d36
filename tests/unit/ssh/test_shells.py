"""The agent started through login shells as they are: fish and csh, noise, and shells that run nothing.

sshd runs the forced command in place of what it was asked for, which is then `SHELL -c COMMAND`, as for a login shell.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sshd import Sshd, public
from support.sshhost import Config, Server

from ddtool.errors import ConnectTimeout, DdtoolError, HostError, PreflightError, PythonMissing
from ddtool.transport import agent as client
from ddtool.transport.agent import Agent
from ddtool.transport.bootstrap import LOADER, agent_zipapp, digest, parcel, start_command


class Shell:
    """A host whose login shell is a script of the test's own."""

    def __init__(self, config: Config, port: int, script: Path) -> None:
        self.config, self.port, self.script = config, port, script
        config.know(f"[127.0.0.1]:{port} {public(config.server.ed25519)}")

    def start(self, script: str) -> Agent:
        """The agent on a host whose login shell is `script`, which has the command as $SSH_ORIGINAL_COMMAND."""
        self.script.write_text(f"#!/bin/sh\n{script}\n")
        self.script.chmod(0o755)
        host = self.config.connect(Port=self.port)
        host.become = os.geteuid() == 0  # no sudo is needed, and none may be there
        try:
            return Agent(host)
        except BaseException:
            host.close()
            raise

    def failure(self, cls: type[DdtoolError], script: str) -> str:
        with pytest.raises(DdtoolError) as caught:
            self.start(script)
        error = caught.value
        assert type(error) is cls
        assert error.exit_code == (3 if issubclass(cls, HostError) else 4)
        assert error.hint
        return f"{error.message}\n{error.why}\n{error.hint}"

    def works(self, script: str) -> None:
        with self.start(script) as agent, pytest.raises(DdtoolError, match="no-such-request"):
            agent.call("no-such-request")
        agent.host.close()


@pytest.fixture(scope="module")
def sshd(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    folder = tmp_path_factory.mktemp("shell")
    script = folder / "shell"
    with Sshd(folder, [server.ed25519], [public(server.user)], f"ForceCommand {script}\n") as sshd:
        yield sshd.port, script


@pytest.fixture
def shell(config: Config, sshd: tuple[int, Path]) -> Shell:
    return Shell(config, *sshd)


RUN = 'exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"'


@pytest.mark.parametrize("name", ["dash", "bash", "fish", "tcsh"])
def test_login_shells(shell: Shell, name: str) -> None:
    path = shutil.which(name)
    if not path and not os.environ.get("CI"):
        pytest.skip(f"no {name} here")
    shell.works(f'exec {path} -c "$SSH_ORIGINAL_COMMAND"')


def test_the_command_needs_no_shell_s_own_quoting() -> None:
    """Words between plain single quotes: no shell reads anything else into them, not even csh's history or nushell."""
    words = start_command("0" * 64, "/var/lib/ddtool", "/run/ddtool", become=True).split("'")
    assert [word for word in words[::2] if word.strip() not in ("", "sh -c")] == []
    assert not any(char in word for word in words[1::2] for char in "\\!\n")
    assert max(map(len, words)) < 4096  # csh has a bound on a word


@pytest.mark.parametrize(
    "noise",
    [
        "echo Welcome",
        "printf 'red \\033[31m, and no line feed'",
        "printf '\\0\\377\\r\\n\\0'",
        "head -c 200000 /dev/zero",
        "yes ddtool-agent/1 | head -n 3000",
        "echo 'stty: standard input: Inappropriate ioctl' >&2",
        "head -c 2000000 /dev/zero >&2",
    ],
)
def test_noise_of_start_up_files(shell: Shell, noise: str) -> None:
    shell.works(f"{noise}\n{RUN}")


def test_noise_without_end(shell: Shell) -> None:
    said = shell.failure(PreflightError, "exec yes hello there")
    assert "prints without end" in said and "hello there" in said and "[ -t 1 ]" in said
    assert "prints without end" in shell.failure(PreflightError, "exec cat /dev/zero")


def test_a_start_up_file_that_waits(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HANDSHAKE_S", 2.0)
    said = shell.failure(ConnectTimeout, "echo Choose a project:; exec sleep 20")
    assert "the agent did not start" in said and "Choose a project:" in said


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 0", "ended with exit status 0 before it answered\nit wrote nothing: a start-up file"),
        ("echo no such thing here >&2; exit 3", "ended with exit status 3 before it answered\nno such thing"),
        ("exec /usr/sbin/nologin", "may run no commands on gpu\nThis account is currently not available."),
        ("kill -9 $$", "ended without an exit status"),
    ],
)
def test_a_shell_that_runs_nothing(shell: Shell, script: str, words: str) -> None:
    assert words in shell.failure(PreflightError, script)


def test_a_login_for_sftp_only(config: Config, tmp_path: Path) -> None:
    options = "ForceCommand internal-sftp\n"
    with Sshd(tmp_path / "run", [config.server.ed25519], [public(config.server.user)], options) as sshd:
        said = Shell(config, sshd.port, tmp_path / "unused").failure(PreflightError, "")
    assert "may run no commands" in said and "allows sftp connections only" in said


def test_no_python3(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "sh").symlink_to("/bin/sh")
    said = shell.failure(PythonMissing, f"PATH={tmp_path} {RUN}")
    assert "gpu has no python3" in said


def python3(folder: Path, before: str) -> str:
    """A PATH whose python3 runs `before` ahead of the code it is given."""
    wrapped = folder / "python3"
    wrapped.write_text(
        f"#!/bin/sh\n# python3 -I -S -c CODE ARGUMENTS\nshift 3\n"
        f'exec {sys.executable} -I -c "import sys; {before}; exec(sys.argv.pop(1))" "$@"\n'
    )
    wrapped.chmod(0o755)
    return f"PATH={folder}:$PATH {RUN}"


def test_a_python3_that_is_too_old(shell: Shell, tmp_path: Path) -> None:
    old = python3(tmp_path, "sys.version_info = (3, 6, 9, 'final', 0)")
    assert "python3 is 3.6.9; the agent needs 3.8 or later" in shell.failure(PreflightError, old)


RESTRICTED = """
real = os.memfd_create
def memfd_create(name, flags):
    if flags != {allowed}:
        raise OSError(22, "refused")
    return real(name, 0)
os.memfd_create = memfd_create
"""


@pytest.mark.parametrize(
    "kernel",
    [RESTRICTED.format(allowed=8), RESTRICTED.format(allowed=0), "del os.memfd_create"],
    ids=["wants a seal", "knows no seals", "has no memory files"],
)
def test_the_loader_on_other_kernels(tmp_path: Path, kernel: str) -> None:
    """Where programs in memory are restricted or unknown, the agent still runs without a file that is left behind."""
    zipapp = agent_zipapp()
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-c",
            f"import os\n{kernel}\n{LOADER}",
            *("serve", "--state", str(tmp_path), "--run", str(tmp_path), digest(zipapp)),
        ],
        input=parcel(zipapp),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"ddtool-agent/1 ") == 2
    assert list(tmp_path.iterdir()) == []
