"""A log becomes attempts, and what is no evidence is set aside."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.crashmut import CASES

from ddtool.crash.attempts import attempts
from ddtool.crash.model import Attempt, Line
from ddtool.crash.source import read

STARTED = "systemd[1]: Started sglang.service - SGLang inference server."
EXITED = "systemd[1]: sglang.service: Main process exited, code=killed, status=9/KILL"
FAILED = "systemd[1]: sglang.service: Failed with result 'signal'."
RESTART = "systemd[1]: sglang.service: Scheduled restart job, restart counter is at 1."
LIMIT = [
    "systemd[1]: sglang.service: Start request repeated too quickly.",
    "systemd[1]: sglang.service: Failed with result 'start-limit-hit'.",
    "systemd[1]: Failed to start sglang.service - SGLang inference server.",
]
ARGS = "sglang[481]: [2026-05-21 10:11:12] server_args=ServerArgs(model_path='/models/K2')"
LOAD = "sglang[482]: [2026-05-21 10:11:13 TP0] Load weight begin. avail mem=93.41 GB"
SERVES = "sglang[481]: [2026-05-21 10:12:22] The server is fired up and ready to roll!"
PREFILL = "sglang[482]: [2026-05-21 10:12:24 TP0] Prefill batch, #new-seq: 1, #new-token: 640, #queue-req: 0,"
DECODE = "sglang[482]: [2026-05-21 10:12:25 TP0] Decode batch, #running-req: 4, #token: 4160, #queue-req: 0,"
TRACE = [
    "sglang[482]: [2026-05-21 10:12:31 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    'sglang[482]:   File "/s/scheduler.py", line 4062, in run',
    "sglang[482]:     run()",
    "sglang[482]: RuntimeError: no",
]
QUIT = (
    "sglang[481]: [2026-05-21 10:12:32] SIGQUIT received. signum=None, frame=None. It usually means one child"
)


def journal(*lines: str) -> list[Line]:
    return list(read(io.BytesIO("\n".join(f"May 21 10:11:12 gpu-host {line}" for line in lines).encode())))


def plain(*lines: str) -> list[Line]:
    return list(read(io.BytesIO("\n".join(line.split(": ", 1)[-1] for line in lines).encode())))


def numbers(found: list[Attempt]) -> list[list[int]]:
    return [[line.number for line in attempt.lines] for attempt in found]


def aside(*lines: str) -> list[str]:
    return [line.text for attempt in attempts(journal(*lines)) for line in attempt.aside]


def test_no_lines_no_attempt() -> None:
    assert attempts([]) == []


@pytest.mark.parametrize("read_as", [journal, plain])
def test_a_restart_loop_is_split(read_as: object) -> None:
    loop = [STARTED, ARGS, LOAD, *TRACE, QUIT, EXITED, FAILED, RESTART]
    found = attempts(read_as(*loop, *loop, STARTED, ARGS, *LIMIT))  # type: ignore[operator]
    assert numbers(found) == [list(range(1, 12)), list(range(12, 23)), list(range(23, 28))]
    assert [len(attempt.tracebacks) for attempt in found] == [1, 1, 0]
    assert [attempt.end and attempt.end.number for attempt in found] == [8, 19, 25]


def test_an_older_systemd_says_stopped_between() -> None:
    stopped = "systemd[1]: Stopped sglang.service - SGLang inference server."
    found = attempts(journal(ARGS, EXITED, FAILED, RESTART, stopped, STARTED, ARGS))
    assert numbers(found) == [[1, 2, 3, 4, 5], [6, 7]]


def test_a_restart_that_nobody_announces() -> None:
    """A container's log has no service manager: the arguments are printed again."""
    loop = [ARGS, LOAD, *TRACE, QUIT]
    assert [attempt[0] for attempt in numbers(attempts(plain(*loop, *loop, *loop)))] == [1, 8, 15]


def test_a_new_process_after_the_death_of_the_old() -> None:
    late = "sglang[483]: late words of the old"
    new = ARGS.replace("481", "990").replace("server_args=", "Loading ")
    assert numbers(attempts(journal(ARGS, LOAD, EXITED, LOAD, FAILED, LOAD, new, late))) == [
        [1, 2, 3, 4, 5, 6],
        [7, 8],
    ]


def test_a_boot_of_the_machine_ends_an_attempt() -> None:
    boot = "-- Boot 0123456789abcdef0123456789abcdef --"
    lines = [
        *(f"May 21 10:11:12 gpu-host {line}" for line in (ARGS, LOAD)),
        boot,
        f"May 21 10:11:12 gpu-host {LOAD}",
    ]
    assert numbers(attempts(list(read(io.BytesIO("\n".join(lines).encode()))))) == [[1, 2], [3, 4]]


def test_starting_and_started_are_one_start() -> None:
    starting = "systemd[1]: Starting sglang.service - SGLang inference server..."
    assert len(attempts(journal(starting, ARGS, LOAD, STARTED, SERVES))) == 1
    assert len(attempts(journal(starting, ARGS, EXITED, FAILED, starting, ARGS, STARTED))) == 2


def test_two_nodes_that_start_together_are_one_attempt() -> None:
    assert len(attempts(plain(ARGS, ARGS, LOAD, LOAD))) == 1


def test_phases_of_every_rank() -> None:
    def said(rank: str, text: str) -> str:
        return f"sglang[48{rank[-1]}]: [2026-05-21 10:11:13{' ' if rank.strip() else ''}{rank}] {text}"

    (attempt,) = attempts(
        journal(
            ARGS,
            *[said(f"TP{rank}", "Init torch distributed begin.") for rank in (0, 1)],
            *[said(f"TP{rank}", "Load weight begin. avail mem=93.41 GB") for rank in (0, 1)],
            said("TP0", "Load weight end. type=K2"),
            said("TP0", "Memory pool end. avail mem=9.87 GB"),
            said("TP0", "Capture cuda graph begin. This can take up to several minutes."),
            said("TP0", "Capture cuda graph end. Time elapsed: 11.52 s."),
            said("TP0", "Init torch distributed begin."),
            said("TP0", "Load weight begin. avail mem=8.61 GB"),
            said("TP0", "Load weight end. type=DFlash"),
            said("TP0", "Capture draft cuda graph begin."),
            SERVES,
            DECODE,
            EXITED,
        )
    )
    assert [phase for _, phase in attempt.phases[0]] == [
        "init",
        "load",
        "pool",
        "capture",
        "draft_load",
        "pool",
        "capture",
        "serving",
        "ended",
    ]
    assert [attempt.phase_at(9, rank) for rank in (0, 1, 7, None)] == [
        "capture",
        "load",
        "capture",
        "capture",
    ]
    assert [attempt.phase_at(15, rank) for rank in (0, 1, 7, None)] == ["serving"] * 4
    assert (attempt.phase_at(0), attempt.phase_at(1)) == ("args", "args")


def test_a_process_that_said_its_rank_keeps_it() -> None:
    other = LOAD.replace("482", "483").replace("TP0", "TP1")
    (attempt,) = attempts(journal(ARGS, LOAD, other, "sglang[483]: NCCL WARN x", "sglang[481]: y"))
    assert [line.rank for line in attempt.lines] == [None, 0, 1, 1, None]
    shared = LOAD.replace("TP0", "TP1")
    (attempt,) = attempts(journal(ARGS, LOAD, shared, "sglang[482]: NCCL WARN x"))
    assert [line.rank for line in attempt.lines] == [None, 0, 1, None]
    (attempt,) = attempts(journal(ARGS, LOAD, "sglang[482]: NCCL WARN x"))
    assert attempt.lines[-1].rank is None  # nothing shows that other ranks have other pids


def test_a_prefill_alone_is_no_success() -> None:
    (first,) = attempts(journal(ARGS, SERVES, PREFILL, *TRACE))
    assert (first.served, first.last_good) == (False, None)
    (second,) = attempts(journal(ARGS, SERVES, PREFILL, PREFILL, *TRACE))
    assert (second.served, second.last_good) == (True, 3)
    (third,) = attempts(journal(ARGS, SERVES, PREFILL, *TRACE, DECODE))
    assert (third.served, third.last_good) == (True, 8)
    answered = 'sglang[481]: [2026-05-21 10:12:19] INFO:     127.0.0.1:40418 - "POST /v1/chat/completions HTTP/1.1" {}'
    assert attempts(journal(ARGS, answered.format("200 OK")))[0].served
    assert not attempts(journal(ARGS, answered.format("500 Internal Server Error")))[0].served


def test_other_units_and_other_processes_are_set_aside() -> None:
    others = [
        "kernel: NVRM: Xid (PCI:0000:c1:00): 31, pid=35097, name=ffmpeg, channel 0x5c, MMU Fault",
        "kernel: Out of memory: Killed process 9021 (java) total-vm:18521468kB",
        "kernel: ffmpeg[35097]: segfault at 0 ip 00007f",
        "systemd[1]: backup.service: A process of this unit has been killed by the OOM killer.",
        "systemd[1]: backup.service: Failed with result 'oom-kill'.",
        "systemd[1]: Started Session 3 of User root.",
        "backupd[77]: ERROR: RuntimeError: out of memory",
    ]
    assert aside(ARGS, LOAD, DECODE, *others, DECODE) == [line.split(": ", 1)[1] for line in others]
    assert len(attempts(journal(ARGS, LOAD, DECODE, *others, DECODE))) == 1


def test_kernel_lines_about_this_service_stay() -> None:
    ours = [
        "kernel: NVRM: Xid (PCI:0000:2b:00): 31, pid=482, name=whatever, MMU Fault",
        "kernel: NVRM: Xid (PCI:0000:2b:00): 31, pid=999, name=python3, MMU Fault",
        "kernel: NVRM: Xid (PCI:0000:2b:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception",
        "kernel: NVRM: Xid (PCI:0000:2b:00): 79, pid=1, name=Xorg, GPU has fallen off the bus.",
        "kernel: NVRM: Xid (PCI:0000:2b:00): 62, 224f811e 00008a70",
        "kernel: Out of memory: Killed process 48377 (sglang::schedul) total-vm:1kB",
        "kernel: oom_reaper: reaped process 482 (odd)",
        "kernel: Out of memory: Killed process 48378 (cicc) total-vm:1kB",
    ]
    assert aside(ARGS, LOAD, *ours) == []


def test_the_control_group_tells_one_python_from_another() -> None:
    task = "kernel: oom-kill:constraint=CONSTRAINT_NONE,task_memcg=/system.slice/{},task=python3,pid={},uid=0"
    killed = "kernel: Out of memory: Killed process {} (python3) total-vm:1kB"
    lines = [ARGS, LOAD, task.format("sglang.service", 600), killed.format(600)]
    lines += [task.format("notebook.service", 700), killed.format(700), EXITED]
    lines += ["systemd[1]: notebook.service: Failed with result 'oom-kill'."]
    assert [text[-40:] for text in aside(*lines)] == [
        line.split(": ", 1)[1][-40:] for line in (lines[4], lines[5], lines[7])
    ]


@pytest.mark.parametrize(
    "request_lines",
    [
        ["Receive: obj=GenerateReqInput(rid='1', text='RuntimeError: x. Traceback (most recent call last)')"],
        ["Finish: obj=GenerateReqInput(rid='1'), out={'text': 'NVRM: Xid 79'}"],
        ["Receive: obj=GenerateReqInput(text='why:", "RuntimeError: CUDA out of memory", "Killed', rid='1')"],
    ],
)
def test_text_of_logged_requests_is_no_evidence(request_lines: list[str]) -> None:
    first, *more = request_lines
    logged = [f"sglang[481]: [2026-05-21 10:12:24] {first}", *[f"sglang[481]: {line}" for line in more]]
    assert aside(ARGS, SERVES, *logged, DECODE, "sglang[481]: RuntimeError: ours") == request_lines


def test_a_logged_request_that_never_ends_hides_no_crash() -> None:
    cut = "sglang[481]: [2026-05-21 10:12:24] Receive: obj=GenerateReqInput(text='and then"
    (attempt,) = attempts(journal(ARGS, SERVES, cut, *TRACE, QUIT))
    assert len(attempt.tracebacks) == 1


def test_a_whole_hosts_journal_splits_no_attempt() -> None:
    others = [
        "systemd[1]: Started docker.service - Docker Application Container Engine.",
        "systemd[1]: Started session-3.scope - Session 3 of User root.",
        "systemd[1]: Starting apt-daily.service - Daily apt download activities...",
        "systemd[1]: Started Docker Application Container Engine.",
        "sshd[7]: Accepted publickey for root",
    ]
    for ident in ("sglang", "python3"):
        renamed = [line.replace("sglang[", f"{ident}[") for line in (ARGS, LOAD, *others, *TRACE)]
        started = STARTED.replace("sglang.service - SGLang", "model.service - Our model")
        found = attempts(journal(STARTED if ident == "sglang" else started, *renamed))
        assert len(found) == 1
        assert len(found[0].tracebacks) == 1


def test_an_ident_that_is_no_unit_name_is_ours_if_it_is_alone() -> None:
    ended = "systemd[1]: tokenspeed.service: Main process exited, code=exited, status=1/FAILURE"
    assert (
        aside("engine[9]: Capturing decode graph bs=1", "engine[9]: [rank3] torch.AcceleratorError: x", ended)
        == []
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_the_first_cause_of_every_labelled_case_is_evidence(case: dict[str, Any]) -> None:
    lines = list(read(io.BytesIO(case["log"].encode())))
    assert [line.number for line in lines] == list(range(1, case["log"].rstrip("\n").count("\n") + 2))
    found = attempts(lines)
    if number := case["first_cause_lineno"]:
        (line,) = [line for line in found[0].lines + found[-1].lines if line.number == number][:1]
        assert case["first_cause_line"] in line.text
    else:
        assert len(found) == 1
        assert found[0].end is None
        assert found[0].served or case["id"].startswith("gpu")  # which were cut before they served


LOGS = [case["log"].encode() for case in CASES[::9]]


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_no_mutation_of_a_log_loses_a_line(data: st.DataObject) -> None:
    lines = data.draw(st.sampled_from(LOGS)).split(b"\n")
    other = data.draw(st.sampled_from(LOGS)).split(b"\n")
    lines = data.draw(st.permutations(lines)) if data.draw(st.booleans()) else lines
    cut = data.draw(st.integers(0, len(lines)))
    mixed = b"\n".join([*lines[:cut], data.draw(st.binary(max_size=50)), *other[cut:]])
    read_lines = list(read(io.BytesIO(mixed)))
    found = attempts(read_lines)
    kept = [line.number for attempt in found for line in (*attempt.lines, *attempt.aside)]
    assert sorted(kept) == [line.number for line in read_lines]
