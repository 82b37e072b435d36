"""`ssh -G` run for real on small configurations, and the commands built from what it says."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from ddtool.errors import ConnectTimeout, HostError, UsageError
from ddtool.transport.hostkey import preferred_algorithms
from ddtool.transport.knownhosts import parse as parse_known_hosts
from ddtool.transport.proxy import proxy_argv
from ddtool.transport.sshconfig import SshConfig, parse, split_paths
from ddtool.transport.sshresolve import check_name, resolve

HOME = pwd.getpwuid(os.getuid()).pw_dir
ME = pwd.getpwuid(os.getuid()).pw_name
ENVIRON = {"PATH": os.environ["PATH"], "SSH_AUTH_SOCK": "/run/agent.sock", "KEYS": "/keys"}


def resolved(tmp_path: Path, text: str, name: str = "gpu") -> SshConfig:
    file = tmp_path / "config"
    file.write_text(text)
    return resolve(name, str(file), environ=ENVIRON)


def test_include_match_and_wildcards_are_ssh_s_own(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host gpu\n HostName 10.0.0.7\n User ubuntu\n")
    text = f'Include {tmp_path}/more\nMatch host 10.0.0.* exec "true"\n Port 2222\nHost *\n User other\n'
    config = resolved(tmp_path, text)
    assert config.where == "ubuntu@10.0.0.7:2222"


def test_canonical_names_are_ssh_s_own(tmp_path: Path) -> None:
    """CanonicalizeHostname looks the name up and reads the configuration again with what it found."""
    if os.geteuid() or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("takes root, for a hosts file of its own")
    (tmp_path / "hosts").write_text("127.0.0.7 gpu.example.\n")
    ssh = tmp_path / "ssh"
    inner = f'mount --bind {tmp_path}/hosts /etc/hosts && exec {shutil.which("ssh")} "$@"'
    ssh.write_text(f"#!/bin/sh\nexec unshare -m sh -c '{inner}' ssh \"$@\"\n")
    ssh.chmod(0o700)
    (tmp_path / "config").write_text(
        "CanonicalizeHostname yes\nCanonicalDomains other.example example\n"
        "Match canonical host *.example\n User found\nHost gpu\n Port 2222\n"
    )
    environ = {**ENVIRON, "PATH": f"{tmp_path}:{ENVIRON['PATH']}"}
    assert resolve("gpu", str(tmp_path / "config"), environ=environ).where == "found@gpu.example:2222"


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("gpu", f"{ME}@gpu:22"),
        ("ubuntu@gpu", "ubuntu@gpu:22"),
        ("ssh://ubuntu@gpu:2222", "ubuntu@gpu:2222"),
        ("::1", f"{ME}@[::1]:22"),
        ("GPU.Example", f"{ME}@gpu.example:22"),
    ],
)
def test_forms_of_a_name(tmp_path: Path, name: str, where: str) -> None:
    assert resolved(tmp_path, "", name).where == where


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-oProxyCommand=touch x",
        "--",
        "a b",
        "a;b",
        "a\nb",
        "$(id)",
        "`id`",
        "user@-x",
        "ssh://-x",
        "a|b",
        "a'b",
    ],
)
def test_names_that_are_no_hosts(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_name(name)
    assert caught.value.hint


def test_paths_and_tokens(tmp_path: Path) -> None:
    text = (
        "Host gpu\n HostName %h.example\n User u\n HostKeyAlias alias\n"
        ' IdentityFile ~/keys/%r@%n\n IdentityFile "~/a b"\n'
        " IdentityFile ${KEYS}/%k-%%\n CertificateFile %d/%p-cert.pub\n"
        f" UserKnownHostsFile ~/k1 {tmp_path}/k2\n GlobalKnownHostsFile none\n"
        " IdentitiesOnly yes\n IdentityAgent none\n ServerAliveInterval 7\n ConnectTimeout 9\n"
        " RevokedHostKeys ~/revoked\n"
    )
    config = resolved(tmp_path, text)
    assert config.hostname == "gpu.example"
    assert config.identity_files == (f"{HOME}/keys/u@gpu", f"{HOME}/a b", "/keys/alias-%")
    assert config.certificate_files == (f"{HOME}/22-cert.pub",)
    assert config.known_hosts == (f"{HOME}/k1", f"{tmp_path}/k2")
    assert (config.identities_only, config.identity_agent) == (True, None)
    assert (config.server_alive_interval_s, config.connect_timeout_s) == (7, 9)
    assert config.revoked_host_keys == f"{HOME}/revoked"


def test_the_hash_of_a_connection_is_ssh_s_own(tmp_path: Path) -> None:
    """Which numbers go into %C differs between releases of OpenSSH."""
    (key,) = resolved(tmp_path, "Host gpu\n IdentityFile /keys/%C\n ControlPath ~/%h\n").identity_files
    assert re.fullmatch(r"/keys/[0-9a-f]{40}", key)


def test_defaults(tmp_path: Path) -> None:
    config = resolved(tmp_path, "Host gpu\n ProxyJump none\n")
    assert config.identity_agent == "/run/agent.sock"
    assert f"{HOME}/.ssh/id_ed25519" in config.identity_files
    assert config.known_hosts[0] == f"{HOME}/.ssh/known_hosts"
    assert (config.proxy_jump, config.proxy_command, config.connect_timeout_s) == (None, None, None)
    assert proxy_argv(config, ENVIRON) is None


@pytest.mark.parametrize(
    ("agent", "path"), [("SSH_AUTH_SOCK", "/run/agent.sock"), ("$KEYS", "/keys"), ("/x", "/x")]
)
def test_identity_agent(tmp_path: Path, agent: str, path: str) -> None:
    assert resolved(tmp_path, f"Host gpu\n IdentityAgent {agent}\n").identity_agent == path


def test_known_hosts_paths_with_blanks(tmp_path: Path) -> None:
    (tmp_path / "a b").touch()
    assert split_paths(f"{tmp_path}/x {tmp_path}/a b /y") == (f"{tmp_path}/x", f"{tmp_path}/a b", "/y")


def test_a_jump_is_ssh_itself(tmp_path: Path) -> None:
    config = resolved(
        tmp_path, "Host gpu\n HostName 10.0.0.7\n Port 2222\n ProxyJump one,ssh://two:23,u@three:24\n"
    )
    argv = proxy_argv(config, ENVIRON)
    assert argv is not None
    assert argv[:3] == ["ssh", "-F", str(tmp_path / "config")]
    assert argv[-8:] == ["-W", "[10.0.0.7]:2222", "-l", "u", "-p", "24", "--", "three"]
    through = argv[-11].partition("ProxyCommand=")[2]
    assert shlex.split(through)[-6:] == ["-W", "[%h]:%p", "-p", "23", "--", "two"]
    first = shlex.split(through)[-9].partition("ProxyCommand=")[2]
    assert shlex.split(first)[-4:] == ["-W", "[%%h]:%%p", "--", "one"]  # a % for the ssh that it stands in
    for hop in (argv, shlex.split(through), shlex.split(first)):
        assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no"} <= set(hop)


@pytest.mark.parametrize(
    ("hop", "arguments"),
    [
        ("jump", ["--", "jump"]),
        ("ssh://u@jump:24/", ["-l", "u", "-p", "24", "--", "jump"]),
        ("u@domain@jump", ["-l", "u@domain", "--", "jump"]),
        ("[fe80::1]:24", ["-p", "24", "--", "fe80::1"]),
        ("fe80::1", ["--", "fe80::1"]),
    ],
)
def test_forms_of_a_jump(hop: str, arguments: list[str]) -> None:
    config = parse("gpu", None, f"hostname gpu\nport 22\nuser u\nproxyjump {hop}\n", {})
    argv = proxy_argv(config, ENVIRON)
    assert argv is not None
    assert argv[argv.index("-W") + 2 :] == arguments


def test_a_proxy_command_has_its_tokens_and_the_user_s_shell(tmp_path: Path) -> None:
    config = resolved(
        tmp_path, "Host gpu\n HostName 10.0.0.7\n User u\n ProxyCommand nc -X 5 %h %p # %r %n %%\n"
    )
    assert proxy_argv(config, {"SHELL": "/bin/zsh"}) == [
        "/bin/zsh",
        "-c",
        "exec nc -X 5 10.0.0.7 22 # u gpu %",
    ]


def test_a_broken_configuration_is_said_in_ssh_s_words(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="configuration") as caught:
        resolved(tmp_path, "Host gpu\n Bogus yes\n")
    assert "Bad configuration option: bogus" in (caught.value.why or "")
    with pytest.raises(HostError) as caught:
        resolve("gpu", str(tmp_path / "missing"), environ=ENVIRON)
    assert "missing" in (caught.value.why or "")


def test_a_match_exec_that_hangs_is_bounded(tmp_path: Path) -> None:
    (tmp_path / "config").write_text('Match exec "exec sleep 60"\n Port 1\n')
    with pytest.raises(ConnectTimeout, match=r"within 0\.3 s"):
        resolve("gpu", str(tmp_path / "config"), environ=ENVIRON, timeout_s=0.3)


def test_no_ssh_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError, match="no ssh"):
        resolve("gpu", environ={"PATH": str(tmp_path)})


def test_a_name_never_becomes_an_option_of_ssh(tmp_path: Path) -> None:
    """The arguments that ssh really gets, seen by a stand-in for it."""
    seen = tmp_path / "seen"
    stand_in = tmp_path / "ssh"
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {seen}\n')
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    resolve("gpu", environ={"PATH": f"{tmp_path}:{ENVIRON['PATH']}"})
    assert seen.read_text().splitlines() == ["-G", "-o", "ControlPath=%C", "--", "gpu"]


def test_options_that_are_not_obeyed_are_listed(tmp_path: Path) -> None:
    config = resolved(tmp_path, "Host gpu\n RemoteCommand uptime\n")
    assert config.not_obeyed == ("remotecommand uptime",)


def test_known_key_types_are_offered_first() -> None:
    blob = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    entries = parse_known_hosts(f"gpu ssh-ed25519 {blob}", "kh")
    config = parse("gpu", None, "hostname gpu\nport 22\nuser u\n", {})
    supported = ("ecdsa-sha2-nistp256", "rsa-sha2-512", "ssh-ed25519")
    offered = preferred_algorithms(config, entries, supported)
    assert offered[:3] == ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512")
    assert offered[3:] == tuple(f"{name}-cert-v01@openssh.com" for name in supported)  # a last resort
    allowed = parse("gpu", None, "hostname gpu\nport 22\nuser u\nhostkeyalgorithms rsa-sha2-512\n", {})
    assert preferred_algorithms(allowed, entries, supported) == ("rsa-sha2-512",)
    none = parse("gpu", None, "hostname gpu\nport 22\nuser u\nhostkeyalgorithms ssh-dss\n", {})
    with pytest.raises(HostError, match="leaves no host key algorithms"):
        preferred_algorithms(none, entries, supported)


def test_certificates_are_asked_for_where_an_authority_is_trusted() -> None:
    blob = "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
    entries = parse_known_hosts(f"@cert-authority g* ssh-ed25519 {blob}", "kh")
    config = parse("gpu", None, "hostname gpu\nport 22\nuser u\n", {})
    offered = preferred_algorithms(config, entries, ("rsa-sha2-512", "ssh-ed25519"))
    suffix = "-cert-v01@openssh.com"
    assert offered == (f"rsa-sha2-512{suffix}", f"ssh-ed25519{suffix}", "rsa-sha2-512", "ssh-ed25519")
