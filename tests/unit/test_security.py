"""Who may not do what: each test is an attack that worked once, or that must never work. docs/security.md tells of all.

The attackers: a local user of the host, the service itself, a hostile host, and whoever sends a bundle or a log.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from rich.text import Text
from support.cli import ddtool

from ddtool.agent import (
    careful,
    client,
    collect,
    disk,
    evidence,
    facts,
    listener,
    proof,
    record,
    redact,
    rounds,
    safeguard,
    unit,
)
from ddtool.agent.errors import PreflightError
from ddtool.agent.registry import Context, require_own
from ddtool.cli import output
from ddtool.crash import bundle
from ddtool.errors import DdtoolError, HostError, ProfileError, UsageError
from ddtool.profile import launch, load
from ddtool.transport import bootstrap
from ddtool.transport.agent import Agent

SECRET = "root:$6$only-root-may-read-this"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="plays root against another user")


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    made = Context(state=tmp_path / "state", run=tmp_path / "run", units=tmp_path / "units")
    for folder in (made.state, made.run / "svc", made.units):
        folder.mkdir(parents=True)
    return made


@pytest.fixture
def shadow(tmp_path: Path) -> Path:
    path = tmp_path / "shadow"
    path.write_text(json.dumps({"patches": [{"name": SECRET, "sha": ""}], "root": SECRET}))
    return path


def own_start() -> int:
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])


# The run folder belongs to the service, which may run as another user


def test_a_proof_that_is_a_link_shows_no_other_file(ctx: Context, shadow: Path) -> None:
    name = f"{os.getpid()}-{own_start()}"
    (ctx.run / "svc" / f"{name}.json").symlink_to(shadow)
    assert evidence.proofs(ctx, "svc") == []
    (row,) = proof.loaded(ctx.run / "svc", [(os.getpid(), own_start(), "sglang::scheduler_TP0")])
    assert row["patches"] is None


def test_stacks_that_are_a_link_do_not_get_into_the_evidence(ctx: Context, shadow: Path) -> None:
    (ctx.run / "svc" / "1-1.stacks").symlink_to(shadow)
    os.link(shadow, ctx.run / "svc" / "2-2.stacks")
    (ctx.run / "svc" / "3-3.stacks").write_text("Thread 0x1 (most recent call first)")
    folder = ctx.state / "evidence"
    folder.mkdir()
    evidence._save_proofs(ctx, "svc", folder)
    assert SECRET not in "".join(path.read_text() for path in folder.iterdir())
    assert "most recent call first" in (folder / "3-3.stacks").read_text()


def test_the_stacks_of_a_proof_lead_nowhere_else(
    ctx: Context, shadow: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record names the file, and used to name any file."""
    record = {"pid": os.getpid(), "start": own_start(), "stacks": f"../../{shadow.name}"}
    (ctx.run / "svc" / f"{os.getpid()}-{own_start()}.json").write_text(json.dumps(record))
    me = unit.process(os.getpid())
    monkeypatch.setattr(unit, "processes", lambda name: [me])
    monkeypatch.setattr(evidence, "STACKS_S", 0.0)
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    assert SECRET not in "\n".join(evidence.dump_stacks(ctx, "svc", lambda event, **fields: None))


def test_a_proof_cannot_aim_a_signal_at_another_process(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGUSR2 ends whoever has no handler for it: sshd, a database, PID 1's children."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as victim:
        start = unit.process(victim.pid)
        assert start is not None
        name = f"{victim.pid}-{start.start}"
        record = {"pid": victim.pid, "start": start.start, "stacks": f"{name}.stacks"}
        (ctx.run / "svc" / f"{name}.json").write_text(json.dumps(record))
        (ctx.run / "svc" / f"{name}.stacks").touch()
        monkeypatch.setattr(unit, "processes", lambda name: [])  # it is not the unit's
        monkeypatch.setattr(evidence, "STACKS_S", 0.2)
        evidence.dump_stacks(ctx, "svc", lambda event, **fields: None)
        time.sleep(0.2)
        assert victim.poll() is None
        victim.kill()


def test_a_proof_cannot_have_other_files_deleted(ctx: Context, tmp_path: Path) -> None:
    """The pid went into a glob pattern: `../../victim` there was a way out."""
    victim = tmp_path / "victim-1.conf"
    victim.touch()
    (ctx.run / "svc" / "9-9.json").write_text(json.dumps({"pid": "../../victim", "start": 1}))
    (ctx.run / "svc" / "8-8.json").write_text(json.dumps({"pid": "*", "start": "*"}))
    alive = ctx.run / "svc" / f"{os.getpid()}-{own_start()}.json"
    alive.write_text("{}")
    evidence.drop_dead_proofs(ctx, "svc")
    assert victim.exists() and alive.exists()
    assert [path.name for path in (ctx.run / "svc").iterdir()] == [alive.name]


@pytest.mark.parametrize(
    "text", ["[]", "7", "null", '{"start": 1}', '{"pid": null}', "[" * 90_000, '{"pid": ' + "9" * 9000 + "}"]
)
def test_a_proof_that_is_no_proof_costs_only_itself(ctx: Context, text: str) -> None:
    (ctx.run / "svc" / "1-1.json").write_text(text)
    (ctx.run / "svc" / "2-2.json").write_text('{"patches": []}')
    assert {"pid": 2, "start": 2, "patches": []} in evidence.proofs(ctx, "svc")
    evidence.drop_dead_proofs(ctx, "svc")


@pytest.mark.timeout(10)
def test_a_pipe_keeps_nobody_waiting(ctx: Context) -> None:
    os.mkfifo(ctx.run / "svc" / "1-1.json")
    os.mkfifo(ctx.run / "svc" / "1-1.stacks")
    assert evidence.proofs(ctx, "svc") == []
    folder = ctx.state / "evidence"
    folder.mkdir()
    evidence._save_proofs(ctx, "svc", folder)


def test_only_so_much_is_read(tmp_path: Path) -> None:
    path = tmp_path / "1-1.stacks"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert len(careful.read(path, 1000)) == 1000
    assert careful.read_record(path) is None


def test_a_trace_that_became_a_link_is_not_followed(ctx: Context, shadow: Path) -> None:
    with rounds.RoundTrace(ctx, "svc") as trace:
        (path,) = (ctx.run / "svc").iterdir()
        path.unlink()
        path.symlink_to(shadow)
        with pytest.raises(OSError, match="symbolic link"):
            trace.lines()


def test_the_mark_of_an_experiment_is_not_made_through_a_link(ctx: Context, tmp_path: Path) -> None:
    """`touch` made /etc/nologin where the link led."""
    nologin = tmp_path / "nologin"
    safeguard.running(ctx, "svc").symlink_to(nologin)
    safeguard.arm(ctx, "svc")
    assert not nologin.exists() and safeguard.running(ctx, "svc").is_file()


# While a service is down, anybody may listen on its port


class Stranger(threading.Thread):
    """Another user's server on a port: keeps what it is sent."""

    def __init__(self, answer: bytes = b"HTTP/1.0 200 OK\r\n\r\n{}", drip: bool = False) -> None:
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.socket.getsockname()[1]
        self.heard = b""
        self._answer, self._drip = answer, drip
        self.start()

    def run(self) -> None:
        try:
            while True:
                peer, _ = self.socket.accept()
                with peer:
                    peer.settimeout(1.0)
                    self.heard += peer.recv(4096)
                    if not self._drip:
                        peer.sendall(self._answer)
                    while self._drip:
                        peer.sendall(b"x")
                        time.sleep(0.05)
        except OSError:
            return


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    made = Stranger()
    yield made
    made.socket.close()


def test_a_stranger_on_the_port_is_not_sent_the_api_key(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)  # so that the listener is somebody else's
    with pytest.raises(OSError, match="its API key was not sent"):
        client.request("127.0.0.1", stranger.port, "/health", api_key=client.Key("k" * 20, "svc"))
    assert b"k" * 20 not in stranger.heard
    monkeypatch.setattr(listener, "users", lambda name: {os.getuid()})  # the unit's own user
    assert client.request("127.0.0.1", stranger.port, "/", api_key=client.Key("k" * 20, "svc")).status == 200


@pytest.mark.parametrize(
    ("family", "bound", "asked"),
    [
        (socket.AF_INET, "127.0.0.1", "127.0.0.1"),
        (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
        (socket.AF_INET6, "::1", "::1"),
        (socket.AF_INET6, "::", "127.0.0.1"),
    ],
)
def test_the_listener_is_found_by_its_address(family: int, bound: str, asked: str) -> None:
    with socket.socket(family) as server:
        server.bind((bound, 0))
        server.listen()
        port = server.getsockname()[1]
        assert listener.owners(asked, port) == {os.geteuid()}
    assert listener.owners(asked, port) == set()


def test_one_address_is_not_another(stranger: Stranger) -> None:
    assert listener.owners("127.0.0.2", stranger.port) == set()


@pytest.mark.timeout(20)
def test_a_peer_that_drips_is_left_at_the_deadline() -> None:
    stranger = Stranger(drip=True)
    begun = time.monotonic()
    with pytest.raises(OSError, match=r"timed out|whole answer|broken answer"):
        client.request("127.0.0.1", stranger.port, "/health", timeout=0.5)
    assert time.monotonic() - begun < 5
    stranger.socket.close()


def test_an_endless_answer_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_BYTES", 1000)
    stranger = Stranger(b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 5000)
    with pytest.raises(OSError, match="larger than"):
        client.request("127.0.0.1", stranger.port, "/health", timeout=5)
    stranger.socket.close()


# The state folder: what lies there is run as root


@pytest.mark.parametrize("which", ["state", "run"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_is_refused(ctx: Context, which: str, mode: int) -> None:
    folder: Path = getattr(ctx, which)
    folder.chmod(mode)
    with pytest.raises(PreflightError, match=f"{folder}.*others than root"):
        require_own(ctx)
    folder.chmod(0o700)
    require_own(ctx)


def test_so_is_one_below_a_folder_of_somebody_else(ctx: Context, tmp_path: Path) -> None:
    """They would rename it, and put another one in its place. Behind a link, too."""
    real = tmp_path / "theirs"
    ctx.state.replace(real)
    ctx.state.symlink_to(real)
    require_own(ctx)
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="others than root"):
        require_own(ctx)
    tmp_path.chmod(0o700)


@needs_root
def test_the_agent_is_not_run_from_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """The file itself may be root's and whole; its folder decides what the name means a moment later."""
    data = bootstrap.agent_zipapp()
    sha = bootstrap.digest(data)
    place = tmp_path / "agent" / f"{sha}.pyz"
    place.parent.mkdir()
    place.write_bytes(data)
    place.chmod(0o600)

    def have() -> bool:
        done = subprocess.run(
            [sys.executable, "-I", "-c", bootstrap.LOADER, sha, str(tmp_path), str(tmp_path / "run")],
            input=b"",
            capture_output=True,
        )
        return bool(json.loads(done.stdout.split(b"ddtool-agent/1 ")[1].split(b"\n")[0])["have"])

    assert have()
    for folder in (tmp_path, place.parent):
        folder.chmod(0o777)
        assert not have()
        folder.chmod(0o700)
        os.chown(folder, 65534, 65534)
        assert not have()
        os.chown(folder, 0, 0)


# Secrets, however they are written


@pytest.mark.parametrize(
    "secret", ['pa"ss\\word/+=', "schlüssel-ü", "it's-a-'quoted'-one", "plain-and-simple"]
)
def test_a_secret_is_masked_in_every_form_of_it(ctx: Context, secret: str) -> None:
    folder = ctx.state / "services" / "svc" / "releases" / "0001"
    folder.mkdir(parents=True)
    (folder / "secrets.json").write_text(json.dumps({"KEY": secret}))
    values = redact.secret_values(ctx)
    texts = [secret, repr(secret), json.dumps(secret), json.dumps(repr(secret)), quote(secret, safe="")]
    record = json.dumps({"text": f"ServerArgs(api_key={secret!r})"}) + json.dumps(
        {"text": json.dumps(secret)}
    )
    cleaned = redact.mask_bytes("\n".join([*texts, record]).encode(), values).decode()
    assert cleaned.count(redact.MASK) == len(texts) + 2
    assert not any(form in cleaned for form in redact.forms(secret))
    assert redact.Redactor(ctx).clean({"a": [repr(secret)]}) == {
        "a": [repr(secret).replace(repr(secret)[1:-1], redact.MASK)]
    }


def test_evidence_has_no_secret_of_a_drop_in_or_a_command_line(
    ctx: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit's owner may set HF_TOKEN in a drop-in of his own, and other services have keys in their arguments."""
    said = {
        "unit.txt": b"Environment=HF_TOKEN=hf_literal-token MODE=fast\n",
        "unit-files.txt": b"# drop-in\n[Service]\nEnvironment=HF_TOKEN=hf_literal-token\n",
        "argv.txt": b"python -m other --api-key sk-other-service --port 1\n",
        "processes.txt": b"1 psql --password=hunter2hunter2 PGPASSWORD='quoted one'\n",
        "journal.jsonl": b'{"text": "using hf_literal-token for downloads"}\n',
    }
    monkeypatch.setattr(
        collect, "sources", lambda *_: ((name, lambda name=name: said[name]) for name in said)
    )
    monkeypatch.setattr(collect, "run", lambda command: said["unit-files.txt"])
    monkeypatch.setattr(collect, "argv", lambda name: said["argv.txt"])
    assert list(collect.gather(ctx, "svc", "run1", tmp_path)) == list(said)
    kept = {name: (tmp_path / name).read_text() for name in said}
    for secret in ("hf_literal-token", "sk-other-service", "hunter2hunter2", "quoted one"):
        assert [name for name, text in kept.items() if secret in text] == []
    assert "MODE=fast" in kept["unit.txt"] and "--port 1" in kept["argv.txt"]


def test_a_literal_secret_in_set_is_not_repeated() -> None:
    for key in ("service.api_key", "env.HF_TOKEN", "server_args.api-key"):
        done = ddtool("profile", "validate", "demo", "--set", f"{key}=literal-secret-1")
        assert done.returncode == 2 and "literal-secret-1" not in done.stdout + done.stderr


# A hostile host, and whoever sends a bundle


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
        make.cache_clear()
        make().print(nasty, style="red")
        make().print(output.table(nasty, (nasty,), [[Text(nasty)]]))
        make.cache_clear()
    shown = capsys.readouterr()
    for text in (shown.out, shown.err):
        assert "[bold]e[/bold]" in text
        assert not set(text) & set("\x1b\x07\x08\x7f\x9b\u202e")


def packed(contents: dict[str, bytes], **manifest: object) -> bytes:
    raw = io.BytesIO()
    about = {"schema": bundle.SCHEMA, "unit": "u", "invocation": "i", "unix": 0, "files": list(contents)}
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, data in {bundle.MANIFEST: json.dumps({**about, **manifest}).encode(), **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


def test_a_small_bundle_that_unpacks_to_very_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "ALL_BYTES", 1 << 20)
    bomb = packed({f"{number}.txt": bytes(200_000) for number in range(20)})
    assert len(bomb) < 50_000
    with pytest.raises(UsageError, match="holds more than"):
        bundle.unpack(bomb)


def test_names_in_a_bundle_lead_nowhere() -> None:
    nasty = {
        "../../etc/cron.d/x": b"1",
        "a/..": b"2",
        "/etc/passwd": b"3",
        "-rf": b"4",
        "b\n.txt": b"5",
        ".bashrc": b"6",
    }
    taken = bundle.unpack(packed({**nasty, "unit.txt": b"7"}))
    assert sorted(taken.files) == ["passwd", "unit.txt", "x"]
    assert bundle.name_of(bundle.unpack(packed({}, unit="../../home/x", invocation="/../\n"))).count("/") == 0


@pytest.mark.parametrize(
    "wrong", [{"unix": 1e300}, {"unix": "now"}, {"unix": None}, {"files": 7}, {"files": None}, {"schema": []}]
)
def test_a_manifest_of_wrong_things_is_refused_with_words(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bundle.unpack(packed({}, **wrong))


def test_links_and_devices_in_a_bundle_are_passed_over() -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        data = json.dumps({"schema": bundle.SCHEMA}).encode()
        member = tarfile.TarInfo(bundle.MANIFEST)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("unit.txt")
            link.type, link.linkname = kind, "/etc/shadow"
            tar.addfile(link)
    assert bundle.unpack(gzip.compress(raw.getvalue())).files == {}


# Profiles: from ./profiles, or from a bundle


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
        ),
        "a: &a [*a]\n",
        "a: " + "[" * 5000,
        "a: !!python/object/apply:os.system ['id']\n",
    ],
    ids=["a billion", "itself", "deep", "python"],
)
def test_a_profile_cannot_take_the_machine(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError):
        load(str(path))


def test_a_list_cannot_bring_in_an_option(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("extends: demo\nserver_args: {lora-paths: [a, --trust-remote-code]}\n")
    with pytest.raises(ProfileError, match="starts with a dash"):
        launch.config_file(load(str(path)), {})


# Installed files: RECORD is written by whoever made the wheel, or may write in the environment


def site(tmp_path: Path, record_rows: str) -> Path:
    info = tmp_path / "venv/lib/python3.11/site-packages/sglang-0.5.12.dist-info"
    info.mkdir(parents=True)
    (info.parent / "sglang").mkdir()
    (info / "RECORD").write_text(record_rows)
    return tmp_path / "venv"


def test_record_cannot_have_other_files_read(tmp_path: Path) -> None:
    out = "../" * (len(tmp_path.parts) + 5)
    venv = site(
        tmp_path, f"sglang/{out}dev/zero,sha256=AAAA,1\nsglang/a.py,sha256=AAAA,1\n/dev/zero,sha256=AA,1\n"
    )
    assert record.verify(record.find(str(venv))) == {"sglang/a.py": "missing"}


@pytest.mark.timeout(10)
def test_a_pipe_or_a_device_among_the_files_is_an_error(tmp_path: Path) -> None:
    venv = site(tmp_path, "sglang/a.py,sha256=AAAA,1\n")
    os.mkfifo(venv / "lib/python3.11/site-packages/sglang/a.py")
    with pytest.raises(OSError, match="not a regular file"):
        record.verify(record.find(str(venv)))
    with pytest.raises(OSError, match="not a regular file"):
        disk.digest(Path("/dev/zero"))


@needs_root
def test_a_venv_that_others_may_write_is_named(tmp_path: Path) -> None:
    """Root runs its Python: whoever may write there is root."""
    place = tmp_path / "home" / "venv"
    place.mkdir(parents=True)
    assert facts.others_may_write(place) == []
    os.chown(place.parent, 1000, 1000)
    assert facts.others_may_write(place) == [f"{place.parent} (uid 1000, mode 755)"]
    os.chown(place.parent, 0, 0)
    place.chmod(0o1777)
    assert facts.others_may_write(place) == [f"{place} (uid 0, mode 1777)"]
    place.chmod(0o755)
    place.parent.chmod(0o1777)  # as /tmp: nobody can rename what is root's there
    assert facts.others_may_write(place) == []
