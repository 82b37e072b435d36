"""A local user without rights, and a service that runs as one, against a real deployment. See docs/security.md."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import mini
from support.cli import ddtool, ok
from support.remote import output, ssh, until

from ddtool.crash import bundle
from ddtool.profile import systemd
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

UNIT, STATE, RUN = "sglang-mini", "/var/lib/ddtool", "/run/ddtool"
KEY = "key-of-the-service-0123"
ENV = {"MINI_KEY": KEY}
NASTY = [
    *(
        "%n",
        "%%",
        "%",
        "$HOME",
        "${HOME}",
        "$$",
        "",
        " ",
        "a b",
        ";",
        "&&",
        "|",
        "#",
        "a#b",
        "-x",
        "--",
        "@",
        "+",
        "!",
    ),
    *(
        "'",
        '"',
        "\\",
        "\\\\",
        "a\\",
        '"quoted"',
        "it's",
        "`id`",
        "$(id)",
        "{a,b}",
        "*",
        "~",
        "ü",
        "\u2028",
        "\u0085",
    ),
    *("=", "a=b", "\\n", "\\x41", "\\073", "x" * 3000, "[Service]", "ExecStart=/bin/false", "\U0001f600"),
]


@pytest.fixture(scope="module")
def deployed(host: Sandbox) -> Iterator[Sandbox]:
    mini.install(host)
    output(host, "useradd --create-home mallory && useradd --system svc")
    sets = ("--set", "service.api_key=${env:MINI_KEY}", "--set", "health.concurrent=0")
    ok("deploy", str(mini.PROFILE), *sets, "--yes", "--host", f"sandbox:{host.name}", env=ENV)
    yield host


def verb(host: Sandbox, *args: str) -> str:
    done = ddtool(*args, "-p", str(mini.PROFILE), "--host", f"sandbox:{host.name}", env=ENV)
    return done.stdout + done.stderr


def as_mallory(host: Sandbox, command: str) -> str:
    done = ssh(host, f"runuser -u mallory -- sh -c {shlex.quote(command)}")
    return done.stdout + done.stderr


def test_words_reach_a_program_as_they_are(host: Sandbox) -> None:
    """Through a real systemd: arguments, the unit's environment, and the environment file."""
    program = "/usr/bin/python3"
    code = "import json,os,sys;print(json.dumps([sys.argv[1:],{k:v for k,v in os.environ.items() if k[:2]=='X_'}]))"
    values = {f"X_{number}": word for number, word in enumerate(NASTY)}
    in_file = {f"X_F{number}": word for number, word in enumerate(NASTY)}
    text = "\n".join(
        [
            "[Service]",
            "Type=oneshot",
            f"ExecStart={systemd.command([program, '-c', code, *NASTY])}",
            *(f"Environment={systemd.assignment(name, value)}" for name, value in values.items()),
            "EnvironmentFile=/run/quoting.env",
            "StandardOutput=file:/run/quoting.out",
            f"SyslogIdentifier={systemd.text('100 % sure')}",
        ]
    )
    output(host, "cat > /run/quoting.env", input=systemd.environment_file(in_file))
    output(host, "cat > /run/systemd/system/quoting.service", input=text + "\n")
    output(host, "systemctl daemon-reload && systemctl start quoting")
    words, environment = json.loads(output(host, "cat /run/quoting.out"))
    assert words == NASTY
    assert environment == {**values, **in_file}


def test_others_can_neither_read_nor_write_what_ddtool_keeps(deployed: Sandbox) -> None:
    for command in (
        f"ls {STATE}",
        f"cat {STATE}/lock",
        f"ls {RUN}/{UNIT}",
        f"touch {STATE}/x",
        f"touch {RUN}/x",
    ):
        assert "denied" in as_mallory(deployed, command), command
    wide = (
        f"find {STATE} {RUN} /etc/systemd/system/{UNIT}.service* ! -type l \\( -perm /022 -o ! -user root \\)"
    )
    assert output(deployed, wide) == ""
    assert output(deployed, f"find {STATE} -type f -perm /077") == ""
    left = output(
        deployed, "find / -xdev -newer /etc/hostname -perm -o+w -type f ! -path '/proc/*' ! -path '/sys/*'"
    )
    assert [path for path in left.splitlines() if "ddtool" in path or "mini" in path] == []


def test_who_listens_in_place_of_the_service_gets_no_key(deployed: Sandbox) -> None:
    verb(deployed, "stop", "--yes")
    listen = (
        "import http.server as h\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        open('/home/mallory/heard','a').write(str(self.headers)+'.')\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(b'{}')\n"
        "    do_POST = do_GET\n"
        "open('/home/mallory/heard','w').close()\n"
        "h.HTTPServer(('127.0.0.1', 31000), H).serve_forever()"
    )
    output(deployed, "cat > /home/mallory/listen.py", input=listen)
    output(deployed, "systemd-run --quiet --unit squatter -p User=mallory python3 /home/mallory/listen.py")
    until(lambda: ssh(deployed, "test -e /home/mallory/heard").returncode == 0, 20)
    said = verb(deployed, "status") + verb(deployed, "generate", "hello")
    assert "was not sent" in said, said
    assert KEY not in output(deployed, "cat /home/mallory/heard")
    assert "31000 is taken by" in verb(deployed, "start", "--yes")
    output(deployed, "systemctl stop squatter")
    assert "error" not in verb(deployed, "start", "--yes")


def test_a_service_of_another_user_shows_no_file_of_root(deployed: Sandbox, tmp_path: Path) -> None:
    """Its run folder is its own. What it leaves there goes into evidence, which leaves the host."""
    secret = output(deployed, "cat /etc/shadow").splitlines()[0]
    pid = output(deployed, f"systemctl show {UNIT} -p MainPID --value")
    start = output(deployed, f"cat /proc/{pid}/stat").rpartition(")")[2].split()[19]
    output(deployed, f"chown svc {RUN}/{UNIT}")
    for link in (f"{pid}-{start}.stacks", "7-7.stacks", "8-8.json"):
        output(deployed, f"runuser -u svc -- ln -sfn /etc/shadow {RUN}/{UNIT}/{link}")
    output(deployed, f"runuser -u svc -- mkfifo {RUN}/{UNIT}/9-9.json")
    path = tmp_path / "now.tar.gz"
    assert "error" not in verb(deployed, "crash", "bundle", "--now", "--out", str(path))
    files = bundle.read(path).files
    assert "proofs.json" in files and "journal.jsonl" in files
    assert [name for name, data in files.items() if secret.encode() in data] == []
    assert secret not in verb(deployed, "status", "--json")
    output(deployed, f"chown root {RUN}/{UNIT} && rm {RUN}/{UNIT}/[789]-*")


def test_state_that_others_may_write_is_not_believed(deployed: Sandbox) -> None:
    output(deployed, f"chmod 777 {STATE}")
    assert "others than root" in verb(deployed, "restart", "--yes")
    output(deployed, f"chmod 700 {STATE}")
    assert "others than root" not in verb(deployed, "status")
