"""Bundles: the archive of the host, its copy on the operator's machine, and what never travels."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ddtool.agent import bundle as on_host
from ddtool.agent import collect, crashes
from ddtool.agent.prompts import records_without_requests, without_requests
from ddtool.agent.registry import OPS, Context
from ddtool.crash import bundle, evidence, history
from ddtool.errors import DdtoolError, UsageError

RUN = "4f1c9a2b" * 4
MANIFEST: dict[str, Any] = {
    "schema": "ddtool.evidence/1",
    "invocation": RUN,
    "boot": "b",
    "unix": 1764442862.5,
    "release": "0001-aa",
    "unit": "sglang",
    "result": "exit-code",
    "exit_status": "3",
    "why": "",
    "files": ["journal.jsonl", "unit.txt"],
}
PROMPT = "my private question"
LOGGED = [
    f"[2025-11-29 19:01:02] Receive: obj=GenerateReqInput(rid='7', text='{PROMPT}')",
    f"[2025-11-29 19:01:02] Finish: obj=GenerateReqInput(rid='7', text='{PROMPT}'), out={{'text': '{PROMPT}'}}",
    f"Receive OpenAI: obj={{'messages': [{{'content': '{PROMPT}'}}]}}",
    json.dumps({"timestamp": "t", "event": "request.received", "rid": "7", "obj": {"text": PROMPT}}),
]


def record(text: str) -> bytes:
    return json.dumps({"schema": "ddtool.record/1", "source": "unit", "text": text}).encode() + b"\n"


@pytest.fixture
def host(tmp_path: Path) -> Context:
    """A host that keeps one crash, with logged requests and a secret of a release in it."""
    ctx = Context(state=tmp_path / "state", run=tmp_path / "run")
    release = ctx.state / "services/sglang/releases/0001-aa"
    release.mkdir(parents=True)
    (release / "secrets.json").write_text(json.dumps({"KEY": "sentinel-5"}))
    folder = ctx.state / "evidence" / RUN
    folder.mkdir(parents=True)
    lines = [record(text) for text in [*LOGGED, "RuntimeError: object key=sentinel-5"]]
    (folder / "journal.jsonl").write_bytes(b"".join(lines) + b'{"text": "cut')
    (folder / "unit.txt").write_text("Environment=A=sentinel-5\n")
    (folder / "manifest.json").write_text(json.dumps(MANIFEST))
    return ctx


def fetched(ctx: Context, **options: Any) -> bundle.Bundle:
    pieces = [piece for piece in on_host.crash_read(ctx, RUN, **options) if piece]
    return bundle.unpack(b"".join(map(base64.b64decode, pieces)))


def texts_of(found: bundle.Bundle) -> list[str]:
    """What its journal says, but for the line that was cut short."""
    lines = found.files["journal.jsonl"].splitlines()
    return [json.loads(line)["text"] for line in lines if line.endswith(b"}")]


def test_what_leaves_the_host_holds_no_secret_and_no_request(host: Context) -> None:
    found = fetched(host)
    assert set(found.files) == {"journal.jsonl", "unit.txt"}
    everything = b"".join(found.files.values())
    assert b"sentinel-5" not in everything and PROMPT.encode() not in everything
    texts = texts_of(found)
    assert len(texts) == 5 and "characters of a request removed" in texts[0]
    assert texts[0].startswith("[2025-11-29 19:01:02] Receive: obj=") and texts[4].endswith("[secret]")


def test_requests_travel_when_they_are_asked_for(host: Context) -> None:
    assert texts_of(fetched(host, with_requests=True))[: len(LOGGED)] == LOGGED


def test_only_what_is_named_travels(host: Context) -> None:
    assert set(fetched(host, names=["unit.txt", "../../secrets.json"]).files) == {"unit.txt"}


@pytest.mark.parametrize("line", LOGGED)
def test_a_logged_request_loses_its_text_whatever_its_form(line: str) -> None:
    assert PROMPT not in without_requests(line)


@pytest.mark.parametrize(
    "line", ["KeyError: 'obj'", "obj=1", "[2025-11-29 19:01:02 TP0] Decode batch, #obj: 3"]
)
def test_other_lines_stay(line: str) -> None:
    assert without_requests(line) == line
    assert records_without_requests(record(line)) == record(line)


def test_a_bundle_is_read_back(tmp_path: Path, host: Context) -> None:
    made = fetched(host).with_files({"verdict.json": b"{}"})
    path = tmp_path / "some.tar.gz"
    bundle.write(made, path)
    assert bundle.is_bundle(path) and path.stat().st_mode & 0o777 == 0o600
    again = bundle.read(path)
    assert again == made
    assert again.manifest["files"] == ["journal.jsonl", "unit.txt", "verdict.json"]
    with pytest.raises(UsageError, match="there already"):
        bundle.write(made, path)
    with tarfile.open(path) as tar:
        assert tar.getnames()[0] == "ddtool-sglang-20251129T190102-4f1c9a2b/manifest.json"


def test_a_folder_on_the_host_is_a_bundle_too(host: Context) -> None:
    folder = host.state / "evidence" / RUN
    assert bundle.is_bundle(folder)
    assert len(texts_of(bundle.read(folder))) == 5


@pytest.mark.parametrize("data", [b"", b"[2025-11-29] a log", b"\x1f\x8b\x08broken", b"\x28\xb5\x2f\xfdzstd"])
def test_a_log_is_no_bundle(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(data)
    assert not bundle.is_bundle(path)
    assert not bundle.is_bundle(tmp_path / "nowhere")


def archive(**files: bytes) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        archive(other=b"{}"),
        archive(**{"manifest.json": b"not json"}),
        archive(**{"manifest.json": b"[]"}),
        archive(**{"manifest.json": b'{"schema": "ddtool.evidence/9"}'}),
        archive(**{"manifest.json": b"{}" * 9000})[:-40],
    ],
    ids=["no manifest", "no JSON", "no object", "another version", "cut off"],  # the bytes hold the time
)
def test_a_damaged_or_foreign_archive_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(UsageError):
        bundle.unpack(data)


def test_a_file_of_a_bundle_that_is_no_object_holds_nothing() -> None:
    for data in (b"", b"[]", b"{cut", b'{"a": ' + b"[" * 100_000):
        assert bundle.Bundle(MANIFEST, {"installation.json": data}).json("installation.json") == {}


STACK = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 359 in wait

Current thread 0x00007f02 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 655 in wait
  File "/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 42 in wait_for_nothing
  File "/venv/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 90 in run
"""
PROCESSES = """\
    PID    PPID STAT   RSS ELAPSED COMMAND
      7       1 Ssl   9000      20 python -m sglang.launch_server --config c
      8       7 Sl    9000      19 sglang::scheduler_TP0
      9       7 Sl    9000      19 sglang::scheduler_TP1
     10       7 Sl    9000      19 sglang::detokenizer
"""


def hung_run(why: str) -> bundle.Bundle:
    journal = record("[2025-11-29 19:01:02 TP0] Init torch distributed begin.") + record(
        "[2025-11-29 19:01:03 TP1] Load weight begin. avail mem=95.00 GB"
    )
    files = {f"{pid}-5.stacks": STACK.encode() for pid in (7, 8, 9, 10, 11)}
    files |= {"journal.jsonl": journal, "processes.txt": PROCESSES.encode()}
    return bundle.Bundle({**MANIFEST, "result": "gate", "why": why}, files)


def test_a_hang_is_told_with_its_phase_and_its_stacks() -> None:
    verdict = evidence.classify(hung_run("sglang was not ready after 4 s: nothing listens"))
    assert (verdict.category, verdict.subcode) == ("sched_hang", "hang-load")
    where = "sglang/srt/managers/scheduler.py:42 wait_for_nothing"
    assert f"server, rank 0, rank 1, detokenizer, pid 11: {where}." in verdict.cause


def test_a_gate_that_wants_a_better_service_saw_no_hang() -> None:
    verdict = evidence.classify(hung_run("sglang: accept length 1.10 is below the floor of 2.00"))
    assert verdict.category == "no_crash"


def test_a_run_whose_journal_lost_its_end_has_ended_all_the_same() -> None:
    served = record("[2025-11-29 19:01:03 TP0] Decode batch, #running-req: 1, cuda graph: True") * 3
    ended = bundle.Bundle(MANIFEST, {"journal.jsonl": served})
    assert evidence.classify(ended).category != "no_crash"
    running = bundle.Bundle({**MANIFEST, "result": "running"}, {"journal.jsonl": served})
    assert evidence.classify(running).category == "no_crash"


def test_drift_is_told_in_a_verdict() -> None:
    installation = {
        "diagnostics": {
            "files": [{"file": "sglang/a.py", "state": "foreign"}, {"file": "b.py", "state": "ours"}]
        },
        "sglang": {"modified": ["b.py", *(f"c{number}.py" for number in range(7))], "missing": []},
    }
    assert list(evidence.drift(installation)) == [
        "sglang/a.py is foreign",
        "modified since the wheel: c0.py, c1.py, c2.py, c3.py, c4.py and 2 more",
    ]
    assert list(evidence.drift({})) == []


class Local:
    """The host's own functions in place of an agent."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.asked: list[str] = []

    def call(self, op: str, *, deadline_s: float = 30.0, **args: Any) -> Any:
        self.asked.append(op)
        return OPS[op](self.ctx, **args)

    def stream(self, op: str, **args: Any) -> Any:
        self.asked.append(op)
        return (item for item in OPS[op](self.ctx, **args) if item is not None)


def crashed(ctx: Context, invocation: str, unix: float, error: str) -> None:
    """A bad end that nobody has looked at."""
    manifest = {**MANIFEST, "invocation": invocation, "unix": unix, "files": ["journal.jsonl"]}
    folder = ctx.state / "evidence" / invocation
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = ["Load weight begin.", "Scheduler hit an exception: Traceback (most recent call last):"]
    stamped = [record(f"[2025-11-29 19:01:02 TP0] {line}") for line in lines]
    (folder / "journal.jsonl").write_bytes(b"".join(stamped) + record(error))
    crashes.ended(ctx, manifest)


def test_crashes_of_a_night_are_judged_and_counted_when_somebody_asks(tmp_path: Path) -> None:
    agent = Local(Context(state=tmp_path))
    for number in range(3):
        crashed(agent.ctx, f"night{number}", 100.0 + number, f"RuntimeError: boom at step 4{number}")
    last = history.last(agent, "sglang", None)
    assert last and last.manifest["invocation"] == "night2"
    assert last.seen == history.Seen(3, 100.0, 102.0)
    agent.asked.clear()
    again = history.last(agent, "sglang", None)
    assert again and again.seen == last.seen and again.verdict == last.verdict
    assert agent.asked == ["crash.list", "crash.read", "crash.note"]


def test_another_crash_is_another_fingerprint_and_no_evidence_is_no_crash(tmp_path: Path) -> None:
    agent = Local(Context(state=tmp_path))
    assert history.last(agent, "sglang", None) is None
    crashed(agent.ctx, "one", 100.0, "RuntimeError: boom")
    crashed(agent.ctx, "two", 101.0, "OSError: [Errno 98] Address already in use")
    last = history.last(agent, "sglang", None)
    assert last and last.seen and last.seen.count == 1
    first = history.last(agent, "sglang", None, "one")
    assert first and first.manifest["invocation"] == "one"
    assert first.verdict.fingerprint != last.verdict.fingerprint


def test_a_host_that_cannot_write_costs_the_count_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Local(Context(state=tmp_path))
    crashed(agent.ctx, "one", 100.0, "RuntimeError: boom")

    def full(ctx: Context, **args: Any) -> None:
        raise DdtoolError("no space left to write")

    monkeypatch.setitem(OPS, "crash.note", full)
    last = history.last(agent, "sglang", None)
    assert last and last.seen is None and last.verdict.first_cause


def ends(ctx: Context) -> list[str]:
    return [end["invocation"] for end in crashes.history(ctx, "sglang")["ends"]]


def test_a_bad_end_counts_once_whoever_reports_it(tmp_path: Path) -> None:
    ctx = Context(state=tmp_path)
    verdict = {"fingerprint": "v1:a", "category": "c", "subcode": None, "cause": "x" * 9999}
    for number in range(3):
        run = {**MANIFEST, "invocation": f"run{number}", "unix": 100.0 + number}
        crashes.ended(ctx, run)
        crashes.ended(ctx, {**run, "why": "the gate saw it too"})
        for _ in range(2):
            noted = crashes.note(ctx, "sglang", f"run{number}", verdict)
            assert noted and (noted["count"], noted["first_unix"], noted["last_unix"]) == (
                number + 1,
                100.0,
                100.0 + number,
            )
    assert ends(ctx) == ["run0", "run1", "run2"]
    assert crashes.note(ctx, "sglang", "of another unit", verdict) is None
    assert crashes.note(ctx, "sglang", "run0", {**verdict, "fingerprint": None}) is None


def test_the_history_stays_small_and_its_counts_stay_right(tmp_path: Path) -> None:
    ctx = Context(state=tmp_path)
    for number in range(130):
        crashes.ended(
            ctx, {**MANIFEST, "invocation": f"run{number}", "unix": float(number), "why": "w" * 5000}
        )
        kind = "often" if number % 2 else f"once-{number}"
        crashes.note(
            ctx,
            "sglang",
            f"run{number}",
            {"fingerprint": kind, "category": "c", "subcode": None, "cause": "y" * 5000},
        )
    found = crashes.history(ctx, "sglang")
    assert len(found["ends"]) == 50 and len(found["known"]) == 50
    assert found["known"]["often"]["count"] == 65 and found["known"]["often"]["first_unix"] == 1.0
    assert (tmp_path / "evidence/sglang.json").stat().st_size < 128 << 10


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "ddtool.crashes/9"}'])
def test_a_history_that_cannot_be_read_is_begun_anew(tmp_path: Path, text: str) -> None:
    ctx = Context(state=tmp_path)
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence/sglang.json").write_text(text)
    crashes.ended(ctx, MANIFEST)
    assert ends(ctx) == [RUN]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("HF_TOKEN=abc", "HF_TOKEN=[secret]"),
        ("aws_secret_access=abc", "aws_secret_access=[secret]"),
        ("HTTPS_PROXY=http://me:pw@proxy:3128", "HTTPS_PROXY=http://[secret]@proxy:3128"),
        ("NCCL_PROTO=LL128", "NCCL_PROTO=LL128"),
        ("EMPTY_KEY=", "EMPTY_KEY="),
    ],
)
def test_the_environment_is_masked_by_name_too(line: str, shown: str) -> None:
    assert collect.masked(line) == shown


def test_a_command_that_hangs_or_floods_costs_its_own_file_only() -> None:
    assert b"did not end in time" in collect.run(["sh", "-c", "echo begun; exec sleep 30"], seconds=0.3)
    flood = collect.run(["sh", "-c", "yes"], most=10_000)
    assert len(flood) < 10_100 and b"it goes on" in flood
