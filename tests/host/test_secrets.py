"""A secret of the profile reaches the service and nothing else: no output, plan, journal, process list or open file."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support import mini
from support.cli import ddtool
from support.remote import output

from ddtool.crash import bundle
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(600)]

UNIT = "sglang-mini"
PROFILE = str(mini.PROFILE)
SECRETS = {"KILL_KEY": "sentinel-" + secrets.token_hex(12), "KILL_TOKEN": "sentinel-" + secrets.token_hex(12)}
SETS = ("--set", "service.api_key=${env:KILL_KEY}", "--set", "env.MINI_TOKEN=prefix-${env:KILL_TOKEN}")
TRACES = ["sentinel-"]
TRACES += [base64.b64encode(b"sentinel-"[skip:])[: (9 - skip) // 3 * 4].decode() for skip in range(3)]
BACKWARDS = json.dumps([trace[::-1] for trace in TRACES])  # so that what looks for them is not found itself


# Who shows a trace: files that others may read, processes' arguments, what systemd and the journal tell.
SEARCH = r"""
import json, os, subprocess, sys
traces = [trace[::-1].encode() for trace in json.loads(sys.argv[1])]
def has(data):
    return any(trace in data for trace in traces)
found = {"private": [], "open": [], "told": []}
for top in ("/etc", "/var", "/run", "/tmp", "/root", "/opt", "/home", "/usr/local", "/dev/shm"):
    for folder, _, names in os.walk(top):
        if folder.startswith("/var/log/journal") or folder.startswith("/run/log/journal"):
            continue
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.isfile(path) or os.path.islink(path) or not has(open(path, "rb").read()):
                continue
            wide = os.stat(path).st_mode & 0o177 or not path.startswith("/var/lib/ddtool/")
            found["open" if wide else "private"].append(path)
for command in (["journalctl", "--all", "-o", "export"], ["systemctl", "show", "--all", "*"],
                ["systemctl", "cat", "sglang-mini"], ["ps", "axww"]):
    if has(subprocess.run(command, capture_output=True).stdout):
        found["told"].append(command)
print(json.dumps(found))
"""
WATCH = r"""
import glob, json, sys, time
traces = [trace[::-1].encode() for trace in json.loads(sys.argv[1])]
while True:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read()
        except OSError:
            continue
        if any(trace in words for trace in traces):
            with open("/run/seen", "ab") as seen:
                seen.write(words + b"\n")
    time.sleep(0.02)
"""


@dataclass
class Teller:
    """Runs ddtool with the secrets in its environment and keeps all that it says."""

    host: Sandbox
    said: dict[str, str] = field(default_factory=dict)

    def __call__(self, *args: str, status: int = 0) -> str:
        done = ddtool(
            *args, env={**SECRETS, "DDTOOL_HOST": f"sandbox:{self.host.name}", "DDTOOL_PROFILE": PROFILE}
        )
        assert done.returncode == status, (args, done.returncode, done.stdout, done.stderr)
        self.said[" ".join(args)] = done.stdout + done.stderr
        return done.stdout

    def search(self) -> dict[str, list[str]]:
        shown = output(self.host, f"python3 -I - '{BACKWARDS}'", input=SEARCH)
        found: dict[str, list[str]] = json.loads(shown)
        return found

    def check(self) -> None:
        assert [args for args, text in self.said.items() if any(trace in text for trace in TRACES)] == []


@pytest.fixture(scope="module")
def tell(host: Sandbox) -> Iterator[Teller]:
    mini.install(host)
    output(host, "cat > /run/watch.py", input=WATCH)
    output(host, f"systemd-run --quiet --unit watcher python3 /run/watch.py '{BACKWARDS}'")
    teller = Teller(host)
    for args in (("--dry-run",), ("--dry-run", "--json"), ("--offline",), ("--offline", "--json")):
        teller("deploy", PROFILE, *SETS, *args)
    teller("deploy", PROFILE, *SETS, "--yes")
    yield teller


def test_the_service_has_its_secrets(tell: Teller) -> None:
    assert json.loads(tell("generate", "one two", "--json"))["text"]  # with the key; without it: 401
    main = output(tell.host, f"systemctl show {UNIT} -p MainPID --value")
    assert SECRETS["KILL_TOKEN"] in output(tell.host, f"cat /proc/{main}/environ")


def test_every_command_keeps_them(tell: Teller) -> None:
    deploy = ("deploy", PROFILE, *SETS)
    tell(*deploy, "--yes", "--json")
    for args in (
        *(("status",), ("releases",), ("doctor", PROFILE, *SETS), ("diag", "status"), ("baseline", "list")),
        *(("generate", "one"), ("restart", "--yes"), ("profile", "show", PROFILE, *SETS)),
    ):
        tell(*args)
        tell(*args, "--json")
    for args in ((), ("--json",), ("--raw",), ("--since", "1h"), ("--grep", "server_args")):
        tell("logs", *args)
    tell(*deploy, "--set", "server_args.context-length=2048", "--dry-run", "--json")
    tell(*deploy, "--set", "server_args.context-length=2048", "--yes")
    tell("rollback", "--yes", "--json")
    tell.check()


def test_a_failed_deploy_and_its_evidence_keep_them(tell: Teller) -> None:
    """The traceback, the evidence's journal and unit, the killed plan."""
    crash = ("--set", "env.MINI_CRASH=start")
    tell("deploy", PROFILE, *SETS, *crash, "--yes", status=7)
    tell("deploy", PROFILE, *SETS, *crash, "--yes", "--json", status=7)
    tell("status")
    tell("status", "--json")
    tell.check()
    assert output(tell.host, "ls /var/lib/ddtool/evidence/*/journal.jsonl")
    assert output(tell.host, "ls /var/lib/ddtool/txn/*/result.json")


def test_a_bundle_keeps_them(tell: Teller, tmp_path: Path) -> None:
    """Its files are packed, so no reply's text shows what is in them."""
    tell("crash", "last")
    tell("crash", "last", "--json")
    for number, options in enumerate(((), ("--with-requests",), ("--now",))):
        path = tmp_path / f"{number}.tar.gz"
        tell("crash", "bundle", "--out", str(path), *options)
        tell("crash", "classify", str(path))
        files = bundle.read(path).files
        assert b"api-key: '[secret]'" in files["config.yaml"] or b"api-key: [secret]" in files["config.yaml"]
        assert [name for name in files if any(trace.encode() in files[name] for trace in TRACES)] == []
    tell.check()


def test_the_host_shows_them_to_nobody(tell: Teller) -> None:
    found = tell.search()
    assert found["open"] == [] and found["told"] == []
    names = {Path(path).name for path in found["private"]}
    assert names == {"config.yaml", "env", "secrets.json"}, found["private"]
    assert all("/releases/" in path for path in found["private"])
    assert output(tell.host, "systemctl is-active watcher; cat /run/seen 2>/dev/null || true") == "active"
    assert output(tell.host, "stat -c %a /var/lib/ddtool") == "700"


def test_what_the_service_itself_prints_is_redacted_on_its_way_out(tell: Teller) -> None:
    """By value, in the reply: a service that leaks its environment into its journal leaks it to nobody else."""
    folder = f"/etc/systemd/system/{UNIT}.service.d"
    leak = "[Service]\nExecStartPre=/bin/sh -c 'echo the token is $MINI_TOKEN, honestly'\n"
    output(tell.host, f"mkdir -p {folder} && cat > {folder}/leak.conf && systemctl daemon-reload", input=leak)
    tell("restart", "--yes")
    for args in ((), ("--json",), ("--raw",)):
        assert "the token is prefix-[secret], honestly" in tell("logs", *args)
    tell("deploy", PROFILE, *SETS, "--set", "env.MINI_CRASH=start", "--yes", status=7)
    tell.check()
    assert not [path for path in tell.search()["private"] if "/evidence/" in path]
    output(tell.host, f"rm {folder}/leak.conf && systemctl daemon-reload")


def test_the_operators_own_files_hold_none(tell: Teller) -> None:
    homes = [Path(os.environ[f"XDG_{kind}_HOME"]) for kind in ("CONFIG", "CACHE", "DATA", "STATE")]
    kept = [path for home in homes if home.exists() for path in home.rglob("*") if path.is_file()]
    assert [path for path in kept if any(trace.encode() in path.read_bytes() for trace in TRACES)] == []
