"""`doctor ssh`: what was resolved and which line set it, and a connection step by step."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.sshd import USER, certify, free_port, keygen
from support.sshhost import Config, behind, fingerprint

from ddtool.cli import main
from ddtool.errors import AuthenticationFailed, ConnectionRefused, HostKeyUnknown, NameNotResolved
from ddtool.transport.checkup import Step, check
from ddtool.transport.describe import describe
from ddtool.transport.sshresolve import resolve, resolve_hops

ENVIRON = dict(os.environ)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the agent becomes root, and this login is not")


def steps(config: Config, **options: object) -> tuple[list[Step], object]:
    found: list[Step] = []
    gpu = resolve("gpu", config.write(**options), environ=ENVIRON)
    hops = resolve_hops(gpu, environ=ENVIRON)
    error = check(gpu, found.append, hops=hops, environ=ENVIRON)
    assert [step.error for step in found[:-1]] == [None] * (len(found) - 1)
    assert found[-1].error is error
    return found, error


@as_root
def test_every_step_of_a_connection(config: Config) -> None:
    found, error = steps(config)
    assert error is None
    said = {step.name: step.detail for step in found}
    assert list(said) == ["name", "tcp", "key exchange", "host key", "login", "agent"]
    assert said["tcp"] == f"connected to 127.0.0.1:{config.server.port}"
    assert "SSH-2.0-OpenSSH" in said["key exchange"] and "ssh-ed25519" in said["key exchange"]
    assert (
        said["host key"]
        == f"ssh-ed25519 {fingerprint(config.server.ed25519)}; known in {config.known_hosts}:1"
    )
    assert str(config.server.user) in said["login"]
    assert said["agent"].startswith("python3 3.")


@pytest.mark.parametrize(
    ("options", "step", "cls"),
    [
        ({"HostName": "name.invalid"}, "name", NameNotResolved),
        ({"Port": "one that refuses"}, "tcp", ConnectionRefused),
        ({"UserKnownHostsFile": "none"}, "host key", HostKeyUnknown),
        ({"IdentityFile": "none"}, "login", AuthenticationFailed),
    ],
)
def test_the_step_that_failed(config: Config, options: dict[str, object], step: str, cls: type) -> None:
    if "Port" in options:
        options = {"Port": free_port()}
    found, error = steps(config, **options)
    assert type(error) is cls
    assert found[-1].name == step
    data = json.loads(json.dumps(found[-1].data()))
    assert (data["name"], data["ok"], data["error"]["class"]) == (step, False, cls.__name__)
    assert data["error"]["hint"]


@as_root
def test_each_jump_is_a_step(config: Config) -> None:
    found, error = steps(config, **behind(config, "a", "b"))
    assert error is None
    assert [step.name for step in found] == ["jump a", "proxy", "key exchange", "host key", "login", "agent"]
    assert found[0].detail.startswith(f"reaches {USER}@127.0.0.1:{config.server.port}: SSH-2.0-OpenSSH")


def test_a_jump_that_fails_is_where_it_ends(config: Config) -> None:
    found, error = steps(config, **behind(config, "a", "b", b={"Port": free_port()}))
    assert type(error) is ConnectionRefused
    assert [step.name for step in found] == ["jump a"]
    found, error = steps(config, **behind(config, "a", "b", b={"IdentityFile": "none"}))
    assert type(error) is AuthenticationFailed
    assert [step.name for step in found] == ["jump a", "proxy"]
    assert "the jump host b (hop 2 of 2)" in found[-1].detail


def test_each_option_and_the_line_that_set_it(tmp_path: Path) -> None:
    (tmp_path / "more").write_text(
        "Host *.example\n  Port 1\nHost gpu\n  Port 2222\n  ServerAliveInterval 7\n"
    )
    main_file = tmp_path / "config"
    main_file.write_text(
        "ConnectTimeout 9\n"
        f"Include {tmp_path}/more\n"
        "Match host gpu user nobody-else\n  Port 3\n"
        'Match host gpu exec "true"\n  HostKeyAlias = "the gpu"\n  Port 4\n'
        "Match all\n  User ubuntu\n"
        "Host *\n  User other\n  IdentityFile /k1\n  IdentityFile /k2\n"
    )
    config = resolve("gpu", str(main_file), environ=ENVIRON)
    found = {row["option"]: (row["values"], row["source"]) for row in describe(config, ENVIRON)["options"]}
    assert found["port"] == (["2222"], f"{tmp_path}/more:4")
    assert found["serveraliveinterval"] == (["7"], f"{tmp_path}/more:5")
    assert found["connecttimeout"] == (["9"], f"{main_file}:1")
    assert found["hostkeyalias"][1] == f"{main_file}:6"
    assert found["user"] == (["ubuntu"], f"{main_file}:9")
    assert found["identityfile"] == (["/k1", "/k2"], f"{main_file}:12")
    assert found["hostname"] == (["gpu"], "the name given")
    assert found["addressfamily"] == (["any"], "ssh's default")


@pytest.mark.parametrize(("name", "option"), [("me@gpu", "user"), ("ssh://gpu:24", "port")])
def test_what_the_name_itself_says(tmp_path: Path, name: str, option: str) -> None:
    (tmp_path / "config").write_text("Host gpu\n  User other\n  Port 3\n")
    config = resolve(name, str(tmp_path / "config"), environ=ENVIRON)
    rows = {row["option"]: row["source"] for row in describe(config, ENVIRON)["options"]}
    assert rows[option] == "the name given"
    assert rows[{"user": "port", "port": "user"}[option]].startswith(str(tmp_path))


def doctor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[str, str, int]:
    monkeypatch.setattr("sys.argv", ["ddtool", "doctor", "ssh", *arguments])
    monkeypatch.setenv("COLUMNS", "400")  # paths of a test's folder are long
    with pytest.raises(SystemExit) as caught:
        main()
    out, err = capsys.readouterr()
    return out, err, int(caught.value.code or 0)


@pytest.fixture
def gpu(config: Config, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A configuration that a name without -F finds: `ssh` on the PATH is the real one, given the file."""
    ssh = config.folder / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {config.file} "$@"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    return config


@as_root
def test_the_page(gpu: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    key = keygen(gpu.folder / "key", "ed25519", "secret")
    authority = keygen(gpu.folder / "authority")
    certified = keygen(gpu.folder / "certified")
    certify(authority, certified, "-n", "somebody", "-V", "20200101:20210101")
    files = f"{certified}\n  IdentityFile {gpu.server.user}\n  IdentityFile {key}"
    gpu.write(IdentityFile=files, RemoteCommand="uptime")
    out, err, status = doctor(capsys, monkeypatch, "gpu")
    assert status == 0, out + err
    assert f"gpu is {USER}@127.0.0.1:{gpu.server.port}" in out
    assert f"{gpu.file}:3" in out
    assert "has expired on 2021-01-01" in out
    assert "(needs a passphrase)" in out
    assert "not obeyed: remotecommand uptime" in out
    assert fingerprint(gpu.server.ed25519) in out
    assert "ok   login:" in out and "ok   agent:" in out


def test_the_page_of_a_failure(
    gpu: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.know()
    gpu.write()
    out, err, status = doctor(capsys, monkeypatch, "gpu")
    assert status == 3
    assert "FAIL host key: gpu: the host key is not known" in out
    assert "next: ssh gpu" in err


@as_root
def test_the_json(gpu: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    gpu.write()
    monkeypatch.setenv("DDTOOL_HOST", "gpu")
    out, err, status = doctor(capsys, monkeypatch, "gpu", "--json")
    shown = json.loads(out)
    assert (status, err, shown["schema"], shown["ok"]) == (0, "", "ddtool.doctor.ssh/1", True)
    assert [step["name"] for step in shown["steps"]][-1] == "agent"
    gpu.write(Port=free_port())
    out, err, status = doctor(capsys, monkeypatch, "gpu", "--json")
    shown = json.loads(out)
    assert (status, err, shown["ok"]) == (3, "", False)
    assert shown["steps"][-1]["error"]["class"] == "ConnectionRefused"


@as_root
def test_ssh_is_asked_once_for_each_name(
    gpu: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once more, in many words, for what set each option of the host itself."""
    ssh = gpu.folder / "bin" / "ssh"
    ssh.write_text(ssh.read_text().replace("exec", f'echo "$@" >> {gpu.folder}/calls\nexec', 1))
    gpu.write(**behind(gpu, "a", "b"))
    _, err, status = doctor(capsys, monkeypatch, "gpu")
    assert status == 0, err
    calls = (gpu.folder / "calls").read_text().splitlines()
    asked = [words.split()[-1] for words in calls if words.startswith("-G")]
    assert sorted(asked) == ["a", "b", "gpu", "gpu"]


def test_this_machine_has_no_way_over_ssh(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, err, status = doctor(capsys, monkeypatch, "local")
    assert status == 2 and "without ssh" in err


@as_root
def test_the_host_of_the_current_profile(
    gpu: Config, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu.write()
    monkeypatch.setenv("DDTOOL_HOST", "gpu")
    monkeypatch.setenv("DDTOOL_PROFILE", "demo")
    out, _, status = doctor(capsys, monkeypatch, "--json")
    assert (status, json.loads(out)["name"]) == (0, "gpu")
