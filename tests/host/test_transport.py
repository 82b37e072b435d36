"""Transport and agent on a real host: login as root and through sudo, noise, what is missing, a link that breaks."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from ddtool import sandbox
from ddtool.errors import ConnectionLost, PreflightError, PythonMissing, SudoNeedsPassword
from ddtool.sandbox import Sandbox, exec_inside
from ddtool.transport.agent import Agent
from ddtool.transport.ssh import SshChannel, SshHost, connect

pytestmark = pytest.mark.host
SUDOERS = "/etc/sudoers.d/90-sandbox"


@pytest.fixture
def login(host: Sandbox) -> Iterator[Login]:
    login = Login(host)
    yield login
    login.close()


class Login:
    """Connections to the sandbox, closed with the test, and shell commands inside that need no connection."""

    def __init__(self, host: Sandbox) -> None:
        self.sandbox = host
        self._open: list[SshHost] = []

    def __call__(self, user: str = "root") -> SshHost:
        name = f"{user}@{self.sandbox.name}"
        host = connect(name, ssh_config=str(self.sandbox.ssh_config), connect_timeout_s=10)
        self._open.append(host)
        return host

    def inside(self, script: str) -> None:
        status = exec_inside(self.sandbox, ["sh", "-ec", script])
        assert status.returncode == 0, status

    def close(self) -> None:
        for host in self._open:
            host.close()


@pytest.fixture
def changed(login: Login) -> Iterator[Login]:
    """Whatever the test does to sudo, python3 and .bashrc inside is undone."""
    kept = f"cp -a {SUDOERS} /root/sudoers; cp -a /home/ubuntu/.bashrc /root/bashrc"
    back = (
        f"cp -a /root/sudoers {SUDOERS}; cp -a /root/bashrc /home/ubuntu/.bashrc; passwd -q -d ubuntu || true;"
        "usermod -p '*' ubuntu; for file in python3 sudo; do"
        " if [ -e /usr/bin/$file.away ]; then mv /usr/bin/$file.away /usr/bin/$file; fi; done"
    )
    login.inside(kept)
    yield login
    login.inside(back)


def read_all(channel: SshChannel) -> bytes:
    return b"".join(iter(lambda: channel.recv(65536, 10), b""))


@pytest.mark.parametrize("user", ["root", "ubuntu"])
def test_the_agent_starts_as_root(login: Login, user: str) -> None:
    with Agent(login(user)) as agent:
        assert agent.round_trips == 0


def test_noise_of_the_login_shell_is_skipped(changed: Login) -> None:
    noise = "echo Welcome; printf '\\033[31mred, and no line feed'"
    changed.inside(f"cat > /home/ubuntu/.bashrc <<'END'\n{noise}\nEND")
    host = changed("ubuntu")
    assert read_all(host.open("true")) == b"Welcome\n\x1b[31mred, and no line feed"
    with Agent(host):
        pass


def test_sudo_that_wants_a_password(changed: Login) -> None:
    changed.inside(f"echo 'ubuntu ALL=(ALL) ALL' > {SUDOERS}")
    with pytest.raises(SudoNeedsPassword) as caught:
        Agent(changed("ubuntu"))
    assert "ubuntu ALL=(root) NOPASSWD: /usr/bin/python3" in (caught.value.hint or "")


def test_the_line_that_the_error_names_is_enough(changed: Login) -> None:
    changed.inside(f"echo 'ubuntu ALL=(root) NOPASSWD: /usr/bin/python3' > {SUDOERS}")
    with Agent(changed("ubuntu")):
        pass


def test_a_login_that_is_no_sudoer(changed: Login) -> None:
    changed.inside(f"echo '# nobody' > {SUDOERS}")
    with pytest.raises(SudoNeedsPassword):
        Agent(changed("ubuntu"))


def test_a_host_without_sudo(changed: Login) -> None:
    changed.inside("mv /usr/bin/sudo /usr/bin/sudo.away")
    with pytest.raises(PreflightError, match="no sudo"):
        Agent(changed("ubuntu"))


def test_a_host_without_python3(changed: Login) -> None:
    changed.inside("mv /usr/bin/python3 /usr/bin/python3.away")
    with pytest.raises(PythonMissing):
        Agent(changed())


def test_a_link_reset_while_a_command_runs(login: Login, faults: ModuleType) -> None:
    channel = login().open("echo first; exec sleep 60")
    assert channel.recv(100, 10) == b"first\n"
    faults.cut(login.sandbox)
    with pytest.raises(ConnectionLost):
        channel.recv(100, 10)


def test_a_reboot_ends_the_connection_and_the_same_key_is_trusted_after_it(
    login: Login, faults: ModuleType
) -> None:
    channel = login().open("exec sleep 60")
    faults.power_off(login.sandbox)
    with pytest.raises(ConnectionLost):
        channel.recv(100, 10)
    login.sandbox = faults.power_on(login.sandbox)
    with Agent(login()):
        pass
    assert sandbox.find(login.sandbox.name)
