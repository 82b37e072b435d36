"""One log in every format: the same messages, ranks and sources come out."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.crash.model import Line
from ddtool.crash.prefixes import NO_YEAR, peel, stamp_us
from ddtool.crash.source import read

# (writer, pid, what the program printed) → (message, rank, source)
PRINTED = [
    ("systemd", 1, "Started sglang.service - SGLang inference server."),
    ("sglang", 481, "[2026-05-21 10:11:12] server_args=ServerArgs(model_path='/models/K2', port=30000)"),
    ("sglang", 482, "[2026-05-21 10:11:13 TP3] Load weight begin. avail mem=93.41 GB"),
    (
        "sglang",
        482,
        "[2026-05-21 10:12:31 DP1 TP3 EP3] Scheduler hit an exception: Traceback (most recent call last):",
    ),
    ("sglang", 482, '  File "/opt/sglang/srt/managers/scheduler.py", line 4062, in run_scheduler_process'),
    ("sglang", 482, "    scheduler.run_event_loop()"),
    ("sglang", 482, "RuntimeError: The size of tensor a (8) must match the size of tensor b (33)"),
    ("sglang", 482, ""),
    ("sglang", 483, "[rank5]: ValueError: no"),
    ("sglang", 483, "[rank5]:[W521 10:12:32.201133771 TCPStore.cpp:125] [c10d] recvValue failed"),
    ("sglang", 481, "(Worker_TP2 pid=484) ERROR 05-21 10:12:32 [core.py:866]     return self.step()"),
    ("kernel", None, "NVRM: Xid (PCI:0000:2b:00): 31, pid=482, name=python3, MMU Fault"),
    ("systemd", 1, "sglang.service: Main process exited, code=killed, status=9/KILL"),
    ("sglang", 483, 'ddtool-diag/1 {"patch": "graph-copy", "event": "none", "rank": 5}'),
]
EXPECTED = [
    ("Started sglang.service - SGLang inference server.", None, "pid1"),
    ("server_args=ServerArgs(model_path='/models/K2', port=30000)", None, "unit"),
    ("Load weight begin. avail mem=93.41 GB", 3, "unit"),
    ("Scheduler hit an exception: Traceback (most recent call last):", 3, "unit"),
    ('  File "/opt/sglang/srt/managers/scheduler.py", line 4062, in run_scheduler_process', None, "unit"),
    ("    scheduler.run_event_loop()", None, "unit"),
    ("RuntimeError: The size of tensor a (8) must match the size of tensor b (33)", None, "unit"),
    ("", None, "unit"),
    ("ValueError: no", 5, "unit"),
    ("[rank5]:[W521 10:12:32.201133771 TCPStore.cpp:125] [c10d] recvValue failed", 5, "unit"),
    ("    return self.step()", 2, "unit"),
    ("NVRM: Xid (PCI:0000:2b:00): 31, pid=482, name=python3, MMU Fault", None, "kernel"),
    ("sglang.service: Main process exited, code=killed, status=9/KILL", None, "pid1"),
    ('ddtool-diag/1 {"patch": "graph-copy", "event": "none", "rank": 5}', 5, "unit"),
]

Writer = Callable[[str, "int | None", str], str]


def _tag(ident: str, pid: int | None) -> str:
    return f"{ident}[{pid}]:" if pid else f"{ident}:"


def _journal(stamp: str) -> Writer:
    return lambda ident, pid, text: f"{stamp} {_tag(ident, pid)} {text}"


def _entry(ident: str, pid: int | None, text: str) -> str:
    kernel = ident == "kernel"
    return json.dumps(
        {
            "__CURSOR": "s=1;i=2;b=3",
            "__REALTIME_TIMESTAMP": "1779358272000000",
            "_TRANSPORT": "kernel" if kernel else "stdout",
            "SYSLOG_IDENTIFIER": ident,
            **({"_PID": str(pid)} if pid else {}),
            "MESSAGE": list(b"\x1b[31m" + text.encode()) if "tensor" in text else text,
        }
    )


FORMATS: dict[str, Writer] = {
    "cat": lambda ident, pid, text: text,
    "short": _journal("May 21 10:11:12 gpu-host"),
    "short, padded day": _journal("May  1 10:11:12 gpu-host"),
    "short, no host": _journal("May 21 10:11:12"),
    "short-precise": _journal("May 21 10:11:12.123456 gpu-host"),
    "short-iso": _journal("2026-05-21T10:11:12+0000 gpu-host"),
    "short-iso-precise": _journal("2026-05-21T10:11:12.123456+02:00 gpu-host"),
    "short-full": _journal("Thu 2026-05-21 10:11:12 UTC gpu-host"),
    "short-unix": _journal("1779358272.123456 gpu-host"),
    "short-monotonic": _journal("[    5.123456] gpu-host"),
    "short-delta": _journal("[    5.123456 <    0.000123 >] gpu-host"),
    "syslog with priority": _journal("<30>May 21 10:11:12 gpu-host"),
    "rfc 5424": lambda ident, pid, text: (
        f"<30>1 2026-05-21T10:11:12.1Z gpu-host {ident} {pid or '-'} - - {text}"
    ),
    "docker logs -t": lambda ident, pid, text: f"2026-05-21T10:11:12.123456789Z {text}",
    "docker compose": lambda ident, pid, text: f"sglang-1  | {text}",
    "docker compose -t, coloured": lambda ident, pid, text: (
        f"\x1b[36msglang-1  |\x1b[0m 2026-05-21T10:11:12.123456789Z {text}"
    ),
    "kubectl --prefix": lambda ident, pid, text: f"[pod/sglang-0/server] {text}",
    "kubectl --prefix --timestamps": lambda ident, pid, text: (
        f"[pod/sglang-0/server] 2026-05-21T10:11:12.1Z {text}"
    ),
    "container runtime": lambda ident, pid, text: f"2026-05-21T10:11:12.123456789+02:00 stderr F {text}",
    "docker json-file": lambda ident, pid, text: json.dumps(
        {"log": text + "\n", "stream": "stderr", "time": "2026-05-21T10:11:12.123456789Z"}
    ),
    "fluent bit": lambda ident, pid, text: json.dumps(
        {"log": text, "@timestamp": "2026-05-21T10:11:12Z", "kubernetes": {"container_name": "server"}}
    ),
    "json logger": lambda ident, pid, text: json.dumps({"timestamp": 1779358272.5, "message": text}),
    "journal json": _entry,
    "journal json, server-sent events": lambda *line: f"data: {_entry(*line)}",
    "journal json sequence": lambda *line: f"\x1e{_entry(*line)}",
    "our records": lambda ident, pid, text: json.dumps(
        {
            "schema": "ddtool.record/1",
            "source": {"systemd": "pid1", "kernel": "kernel"}.get(ident, "unit"),
            "unix_us": 1779358272000000,
            "pid": pid,
            "rank": None,
            "level": None,
            "text": text,
        }
    ),
}


def parsed(text: str) -> list[Line]:
    return list(read(io.BytesIO(text.encode())))


def facts(lines: list[Line]) -> list[tuple[str, int | None, str]]:
    return [(line.text, line.rank, line.source) for line in lines]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_every_format_gives_the_same_messages(name: str, line_end: str) -> None:
    found = parsed("".join(FORMATS[name](*line) + line_end for line in PRINTED))
    assert facts(found) == EXPECTED
    assert [line.number for line in found] == list(range(1, len(PRINTED) + 1))


def test_formats_may_change_from_line_to_line() -> None:
    writers = list(FORMATS.values())
    found = parsed("\n".join(writers[i % len(writers)](*line) for i, line in enumerate(PRINTED * 3)))
    assert [line.text for line in found] == [text for text, _, _ in EXPECTED * 3]


def test_a_prefix_says_who_and_when() -> None:
    line = peel("May 21 10:11:12.5 gpu-host sglang[48211]: [2026-05-21 10:11:12 TP3] text")
    assert (line.ident, line.pid, line.rank, line.level, line.text) == ("sglang", 48211, 3, "info", "text")
    assert line.unix_us == stamp_us(f"{NO_YEAR}-05-21T10:11:12.500000Z")


@pytest.mark.parametrize(
    ("stamp", "same_as"),
    [
        ("2026-05-21T12:11:12+0200", "2026-05-21T10:11:12Z"),
        ("2026-05-21T05:41:12.000-04:30", "2026-05-21T10:11:12Z"),
        ("2026-05-21 10:11:12,000", "2026-05-21T10:11:12Z"),
        ("Thu 2026-05-21 10:11:12 UTC", "2026-05-21T10:11:12Z"),
        ("1779358272.000000", "2026-05-21T10:11:12Z"),
    ],
)
def test_stamps_of_one_moment_are_one_number(stamp: str, same_as: str) -> None:
    assert stamp_us(stamp) == stamp_us(same_as) == 1779358272000000


@pytest.mark.parametrize("stamp", ["", "[    5.1]", "19:01:01", "2026-13-41T99:99:99Z", "Foo 99 1"])
def test_what_is_no_moment_has_no_number(stamp: str) -> None:
    assert stamp_us(stamp) is None


@pytest.mark.parametrize(
    ("text", "message", "rank", "pid", "level"),
    [
        ("[19:01:01 TP1] Init nccl begin.", "Init nccl begin.", 1, None, None),
        ("[2026-05-21 10:11:12.123 TP0 EP1] x", "x", 0, None, "info"),
        ("(EngineCore_DP0 pid=2211) INFO 03-18 11:22:31 [eagle.py:1120] x", "x", None, 2211, "info"),
        (
            "(VllmWorker rank=6 pid=3063) ERROR 03-27 05:30:55 [multiproc_executor.py:338] x",
            "x",
            6,
            3063,
            "error",
        ),
        ("(RayWorkerVllm pid=5085, ip=10.0.0.2) x", "x", None, 5085, None),
        ("(pid=5085) x", "x", None, 5085, None),
        ("ERROR 02-03 13:14:04 llm_engine.py:706] x", "x", None, None, "error"),
        ("2026-05-21 10:11:12,123 - sglang.srt - ERROR - x", "x", None, None, "error"),
        ("2026-05-21 10:11:12.123 | WARNING  | mod.sub:run:12 - x", "x", None, None, "warning"),
        ("[default3]: x", "x", 3, None, None),
        ("[1,2]<stderr>: x", "x", 2, None, None),
        ("[rank3] torch.AcceleratorError: x", "torch.AcceleratorError: x", 3, None, None),
        ("[  812.123456] NVRM: Xid (PCI:0000:2b:00): 79", "NVRM: Xid (PCI:0000:2b:00): 79", None, None, None),
        ("[Thu May 21 10:11:12 2026] NVRM: x", "NVRM: x", None, None, None),
        ("    [2026-05-21 10:11:12 TP2] indented by the paste", "indented by the paste", 2, None, "info"),
    ],
)
def test_the_programs_own_marks(
    text: str, message: str, rank: int | None, pid: int | None, level: str | None
) -> None:
    line = peel(text)
    assert (line.text, line.rank, line.pid) == (message, rank, pid)
    assert level is None or line.level == level


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CHECK_EQ(input.size(0), residual.size(0)) failed. 8 vs 32",
        "   12 | #include <Python.h>",
        "12 | int main()",
        " 1 0x000000000005bb28 ncclGroupCommJoin()  /dvs/nccl/group.h:113",
        "gpu-host:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion with status=12",
        "[E ProcessGroupNCCL.cpp:475] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)",
        "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1515: block: [0,0,0] Assertion `x` failed.",
        "[Gloo] Rank 0 is connected to 7 peer ranks",
        "{not json",
        "*** SIGBUS received at time=1692931519 on cpu 133 ***",
    ],
)
def test_a_message_without_marks_stays_whole(text: str) -> None:
    assert peel(text).text == text


def test_libraries_that_say_rank_or_pid_inside_the_message() -> None:
    assert peel("[E ProcessGroupNCCL.cpp:475] [Rank 4] Watchdog caught").rank == 4
    assert (
        peel("[rank3]:[E421 04:13:43.4 ProcessGroupGloo.cpp:143] [PG ID 2 PG GUID 3 Rank 3] x").rank
        is not None
    )
    assert peel("gpu-host:984:1357 [4] NCCL INFO x").pid == 984


def test_long_lines_that_engines_cut_are_whole_again() -> None:
    docker = [
        {"log": "RuntimeError: The size ", "stream": "stderr"},
        {"log": "from another stream\n", "stream": "stdout"},
        {"log": "of tensor a\n", "stream": "stderr"},
        {"log": "never ended", "stream": "stderr"},
    ]
    found = parsed("\n".join(map(json.dumps, docker)))
    assert [(line.number, line.text) for line in found] == [
        (2, "from another stream"),
        (3, "RuntimeError: The size of tensor a"),
        (4, "never ended"),
    ]
    cut = {"__CURSOR": "c", "__REALTIME_TIMESTAMP": "1", "_PID": "7", "_STREAM_ID": "s"}
    journal = [cut | {"MESSAGE": "RuntimeError: The ", "_LINE_BREAK": "line-max"}, cut | {"MESSAGE": "size"}]
    assert [line.text for line in parsed("\n".join(map(json.dumps, journal)))] == ["RuntimeError: The size"]
    runtime = ["2026-05-21T10:11:12Z stderr P RuntimeError: The ", "2026-05-21T10:11:12Z stderr F size"]
    assert [line.text for line in parsed("\n".join(runtime))] == ["RuntimeError: The size"]


def test_a_logger_that_puts_a_traceback_in_a_field() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\nValueError: no'
    found = parsed("first\n" + json.dumps({"level": "ERROR", "msg": "failed", "exc_info": trace}) + "\nlast")
    assert [line.number for line in found] == [1, 2, 2, 2, 2, 2, 3]
    assert found[1].text == "failed"
    assert (found[5].text, found[5].level) == ("ValueError: no", "error")


def test_a_collectors_level_is_no_level() -> None:
    """Everything on stdout is INFO to it, a traceback's lines too."""
    (line,) = parsed(json.dumps({"level": "INFO", "message": "RuntimeError: no"}))
    assert line.level == "error"
    (line,) = parsed(json.dumps({"level": "INFO", "message": "    return self.step()"}))
    assert line.level is None
    (line,) = parsed(json.dumps({"severity": "WARN", "message": "careful"}))
    assert line.level == "warning"


def test_a_null_message_and_other_oddities_of_the_journal() -> None:
    entries = [
        {"__CURSOR": "c", "MESSAGE": None},
        {"__CURSOR": "c", "MESSAGE": [[72, 105], "there"]},
        {"__CURSOR": "c", "MESSAGE": [300]},
        {"__CURSOR": "c", "MESSAGE": {"a": 1}},
        {"__CURSOR": "c", "MESSAGE": "x", "_PID": "many", "__REALTIME_TIMESTAMP": "soon"},
    ]
    found = parsed("\n".join(map(json.dumps, entries)))
    assert [line.text for line in found[:3]] == ["", "Hi", "there"]
    assert {line.number for line in found} == {1, 2, 3, 4, 5}


@given(st.text())
def test_no_text_is_too_odd(text: str) -> None:
    assert isinstance(peel(text).text, str)
