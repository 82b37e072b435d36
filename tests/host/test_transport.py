"""Transport and agent on a real host: login as root and through sudo, noise, what is missing, a link that breaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType

import pytest

from ddtool import sandbox
from ddtool.errors import ConnectionLost, DdtoolError, PreflightError, PythonMissing, SudoNeedsPassword
from ddtool.sandbox import Sandbox, exec_inside
from ddtool.transport.agent import Agent
from ddtool.transport.bootstrap import agent_zipapp, digest
from ddtool.transport.checkup import Step, check
from ddtool.transport.ssh import connect
from ddtool.transport.sshhost import SshChannel, SshHost
from ddtool.transport.sshresolve import resolve

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
        "usermod -p '*' -s /bin/bash ubuntu; for file in python3 sudo; do"
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


def test_a_login_without_a_shell(changed: Login) -> None:
    changed.inside("usermod -s /usr/sbin/nologin ubuntu")
    with pytest.raises(PreflightError, match="ubuntu may run no commands"):
        Agent(changed("ubuntu"))


@pytest.fixture
def hardened(login: Login) -> Iterator[Login]:
    """Nothing may be executed from where files come and go, nor from the agent's own state."""
    folders = "/tmp /var/tmp /dev/shm /var/lib/ddtool /run/ddtool"
    login.inside(f"for at in {folders}; do mkdir -p $at; mount -t tmpfs -o noexec,mode=0700 tmpfs $at; done")
    yield login
    login.inside(f"for at in {folders}; do umount $at; done")


def test_mounts_without_exec_play_no_part(hardened: Login) -> None:
    host = hardened()
    with Agent(host):
        pass
    file = f"/var/lib/ddtool/agent/{digest(agent_zipapp())}.pyz"
    channel = host.open(f"umask 077; mkdir -p /var/lib/ddtool/agent; head -c {len(agent_zipapp())} > {file}")
    channel.send(agent_zipapp())
    assert channel.exit_status(10) == 0
    with Agent(host, zipapp=agent_zipapp()) as agent, pytest.raises(DdtoolError, match="no-such-request"):
        agent.call("no-such-request")


@pytest.mark.parametrize("user", ["root", "ubuntu"])
def test_a_python3_that_may_not_be_executed(login: Login, user: str) -> None:
    login.inside("at=$(readlink -f /usr/bin/python3); mount --bind $at $at; mount -o remount,bind,noexec $at")
    try:
        with pytest.raises(PreflightError, match="cannot be executed") as caught:
            Agent(login(user))
    finally:
        login.inside("umount $(readlink -f /usr/bin/python3)")
    assert "mounted noexec" in (caught.value.why or "") and "findmnt" in (caught.value.hint or "")


@pytest.mark.parametrize("user", ["root", "ubuntu"])
def test_doctor_ssh_leaves_nothing(login: Login, user: str) -> None:
    login.inside("touch /root/before")
    steps: list[Step] = []
    config = resolve(f"{user}@{login.sandbox.name}", str(login.sandbox.ssh_config), environ=os.environ)
    assert check(config, steps.append, environ=os.environ) is None
    became = "" if user == "root" else ", become through sudo -n from ubuntu"
    assert steps[-1].name == "agent" and steps[-1].detail.endswith(f", uid 0{became}")
    login.inside(
        "changed=$(find /etc /home /opt /root /srv /tmp /usr /var/lib /var/tmp -newercm /root/before"
        " ! -path '/var/lib/systemd/*' ! -path /root); echo $changed; test -z \"$changed\""
    )


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
