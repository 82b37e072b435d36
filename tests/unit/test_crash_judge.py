"""The rules by which the first cause is chosen, each with the log that needs it."""

from __future__ import annotations

import io

import pytest
from support import crashlog

from ddtool.crash.classify import Context, classify
from ddtool.crash.model import Verdict
from ddtool.crash.signatures import catalogue

HIT = "[2026-03-02 04:12:{second} TP{rank}] Scheduler hit an exception: Traceback (most recent call last):"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 94 GiB."
XID = "kernel: NVRM: Xid (PCI:0000:41:00): 79, pid=0, GPU has fallen off the bus."
IMA = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
BUG = "KeyError: 17"
TIMEOUT = (
    "[rank0]:[E302 04:22:30.1 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=900, OpType=ALLREDUCE, NumelIn=5, NumelOut=5, Timeout(ms)=600000) ran for 600044 milliseconds"
)
PEER = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:40122"


def failure(error: str, rank: int = 0, second: int = 30, frame: str = "managers/scheduler.py") -> list[str]:
    return [
        HIT.format(second=second, rank=rank),
        f'  File "/srv/sglang/srt/{frame}", line 9, in run',
        "    go()",
        error,
    ]


def verdict(lines: list[str], form: str = "cat", context: Context | None = None) -> Verdict:
    return classify(io.BytesIO(crashlog.dressed(lines, form).encode()), context)


def serving() -> list[str]:
    return crashlog.until("serving")


def test_the_kernel_line_wins_over_the_text_of_the_same_second() -> None:
    found = verdict([*serving(), *failure(IMA), XID, *crashlog.KILLED], "short")
    assert found.category == "gpu_unreachable"


def test_later_than_that_time_decides() -> None:
    log = [*serving(), *failure(BUG, second=30), *failure(OOM, rank=3, second=55), *crashlog.KILLED]
    found = verdict(log)
    assert found.category == "sched_bug"
    assert found.first_cause and found.first_cause.text == BUG


def test_within_a_second_what_says_more_wins() -> None:
    assert (
        verdict([*serving(), *failure(BUG), *failure(OOM, rank=3), *crashlog.KILLED]).category
        == "oom_runtime"
    )


def test_a_dead_gpu_explains_a_hang() -> None:
    found = verdict([*serving(), TIMEOUT, XID, *crashlog.KILLED])
    assert found.category == "gpu_unreachable"


def test_a_messenger_counts_only_alone() -> None:
    assert verdict([*serving(), *failure(PEER), *crashlog.KILLED]).category == "peer_rank_lost"
    later = [*failure(PEER, second=30), *failure(OOM, rank=3, second=40)]
    assert verdict([*serving(), *later, *crashlog.KILLED]).category == "oom_runtime"


def test_what_batches_outlive_is_no_crash() -> None:
    log = [*serving(), *failure(OOM), *crashlog.SERVED_ON]
    assert verdict(log).category == "no_crash"


def test_unless_the_unit_ended_soon_after() -> None:
    log = [*serving(), *failure(OOM), *crashlog.SERVED_ON, *crashlog.manager("killed")]
    assert verdict(log).category == "oom_runtime"


def test_a_stop_on_purpose_is_no_crash_whatever_follows() -> None:
    log = [
        *serving(),
        "systemd: Stopping big.service - Big model...",
        *failure(PEER),
        *crashlog.manager("exit 1"),
    ]
    found = verdict(log, "short")
    assert (found.category, found.subcode) == ("no_crash", "stopped")


def test_a_crash_before_the_stop_counts() -> None:
    log = [*serving(), *failure(OOM), "systemd: Stopping big.service - Big model..."]
    assert verdict(log, "short").category == "oom_runtime"


def test_the_earliest_attempt_that_shows_a_cause() -> None:
    loop: list[str] = []
    for error in (None, OOM, BUG):
        loop += ["systemd: Started big.service - Big model.", *crashlog.until("args")]
        loop += failure(error) if error else []
        loop += crashlog.manager("exit 1")
        loop += ["systemd: big.service: Scheduled restart job, restart counter is at 1."]
    found = verdict(loop, "short")
    assert found.category == "oom_load"


def test_a_request_that_failed_is_no_crash_while_the_service_goes_on() -> None:
    request = [
        "[2026-03-02 04:12:30] Error in request: Traceback (most recent call last):",
        '  File "/srv/sglang/srt/entrypoints/openai/serving_base.py", line 9, in handle',
        "    go()",
        "ValueError: Invalid JSON in tool arguments",
    ]
    assert verdict([*serving(), *request]).category == "no_crash"


def test_a_logger_that_reports_trouble_is_believed_only_at_a_bad_end() -> None:
    warning = "[2026-03-02 04:10:08 TP0] No space left on device while writing the usage report"
    assert verdict([*crashlog.until("load"), warning]).category == "no_crash"
    ended = verdict([*crashlog.until("load"), warning, *crashlog.manager("exit 1")])
    assert (ended.category, ended.confidence) == ("host_capacity", "medium")


def test_unknown_says_where_to_look() -> None:
    lines = [
        *crashlog.until("capture"),
        "[2026-03-02 04:12:30 TP1] something odd failed here",
        *crashlog.KILLED,
    ]
    found = verdict([*lines, *crashlog.manager("killed")], "short")
    assert (found.category, found.confidence) == ("unknown", "low")
    assert found.first_cause and "something odd failed" in found.first_cause.text
    assert any("kernel log" in item for item in found.missing)


def test_status_9_alone_is_no_host_oom() -> None:
    found = verdict([*serving(), *crashlog.KILLED, *crashlog.manager("killed")], "short")
    assert found.category == "unknown"


def test_a_child_killed_before_the_server_ended_its_own_is() -> None:
    child = "[2026-03-02 04:12:30] Subprocess scheduler_3 (pid=4903) crashed with exit code -9."
    assert verdict([*serving(), child, *crashlog.KILLED]).category == "host_oom_kill"
    assert verdict([*serving(), *failure(IMA), *crashlog.KILLED, child]).category == "cuda_memory_fault"


def test_a_watched_hang_is_named_by_its_phase() -> None:
    found = verdict(crashlog.until("capture"), context=Context(hang_phase="capture"))
    assert (found.category, found.subcode) == ("sched_hang", "hang-capture")
    caused = verdict([*crashlog.until("capture"), *failure(OOM)], context=Context(hang_phase="capture"))
    assert caused.category == "oom_graph_capture"


def test_what_the_host_knows_is_told() -> None:
    context = Context(diagnostics=["graph-copy"], drift=["cuda_graph_runner.py is foreign"], outcome=None)
    found = verdict([*serving(), *failure(BUG), *crashlog.KILLED], context=context)
    assert found.cause.endswith("; enabled and silent: graph-copy.")
    assert "cuda_graph_runner.py is foreign" in found.remedy
    ran = verdict([*serving(), *failure(BUG), *crashlog.KILLED], context=Context(outcome="crashed elsewhere"))
    assert "crashed elsewhere" in ran.cause


def test_ranks_say_who_was_first() -> None:
    log = [*serving(), *failure(OOM, rank=3), *failure(OOM, rank=1), *failure(PEER, rank=5, second=31)]
    found = verdict([*log, *crashlog.KILLED])
    ranks = {row["rank"]: row for row in found.ranks}
    assert [rank for rank, row in ranks.items() if row["first"]] == [3]
    assert ranks[1]["text"] == "torch.OutOfMemoryError: CUDA out of memory, tried to allocate 2.00 GiB"
    assert "closed by peer" in ranks[5]["text"]
    assert found.first_cause and found.first_cause.rank == 3


def test_a_rank_without_phases_of_its_own_was_where_the_others_were() -> None:
    log = [*serving(), *failure(OOM, rank=3), *failure(PEER, rank=5, second=31), *crashlog.KILLED]
    found = verdict([*log, *crashlog.manager("killed")])
    assert {row["rank"]: row["phase"] for row in found.ranks} == {0: "serving", 3: "serving", 5: "serving"}


def test_what_the_evidence_left_out_is_missing() -> None:
    log = [*serving(), "systemd: the middle of this run is left out here", *failure(OOM), *crashlog.KILLED]
    found = verdict(log, "short")
    assert any("left out here" in item for item in found.missing), found.missing


@pytest.mark.parametrize(
    ("frame", "code", "worker"),
    [
        ("speculative/dflash_worker.py", "self.draft_worker.forward(batch)", "draft"),
        ("speculative/dflash_worker.py", "self.target_worker.forward(batch)", "target"),
        ("managers/scheduler.py", "go()", None),
    ],
)
def test_worker(frame: str, code: str, worker: str | None) -> None:
    lines = [line.replace("go()", code) for line in failure(OOM, frame=frame)]
    found = verdict([*serving(), *lines, *crashlog.KILLED])
    assert found.first_cause and found.first_cause.worker == worker


def test_a_log_that_ends_inside_a_traceback_says_so() -> None:
    found = verdict([*serving(), *failure(OOM)[:-1]])
    assert (found.category, found.confidence) == ("no_crash", "low")
    assert "the exception itself" in found.missing[0]


def test_empty_input_is_no_crash() -> None:
    assert verdict([]).category == "no_crash"
    assert classify(io.BytesIO(b"")).category == "no_crash"


@pytest.mark.parametrize(
    "said",
    [
        "May 21 10:11:12 host sglang[{n}]: said",
        "May 21 10:11:12 host kernel: python[{n}]: segfault at 0",
        "[2026-03-02 04:12:30 TP{n}] said",
        "[rank{n}]: said",
        "[default{n}]: said",
        "[E x] [Rank {n}] said",
        "(Worker pid={n}) said",
        "host:{n}:1 [0] said",
        'ddtool-diag/1 {{"event": "none", "rank": {n}}}',
        'ddtool-diag/1 {{"event": "none", "index": -9}}',
        "server_args=ServerArgs(context_length={n})",
        '  File "/srv/sglang/srt/cuda_graph_runner.py", line {n}, in run',
        "RuntimeError: The size of tensor a ({n}) must match the size of tensor b (33)",
        '{{"schema": "ddtool.record/1", "text": "said", "unix_us": {n}, "rank": {n}, "pid": {n}}}',
        '{{"__CURSOR": "c", "MESSAGE": "said", "__REALTIME_TIMESTAMP": "{n}", "_PID": "{n}"}}',
        "2026-05-21T10:11:12Z stderr P RuntimeError: [rank{n}\n2026-05-21T10:11:12Z stderr F {n}]: said",
    ],
)
@pytest.mark.parametrize("digits", [4000, 5000])  # Python reads up to 4300 as one number
def test_no_number_in_a_log_is_too_long(said: str, digits: int) -> None:
    lines = [said.format(n="9" * digits), *failure("RuntimeError: The size of tensor a (8) must match 33")]
    sizes = failure("RuntimeError: The size of tensor a (8) must match the size of tensor b (33)")
    found = verdict([*lines, *sizes, said.format(n="9" * digits), *crashlog.KILLED])
    assert found.category != "no_crash"


def test_every_category_and_next_command_exists() -> None:
    from typer.main import get_command

    from ddtool.cli import application

    known, top = catalogue(), get_command(application())
    commands = [category.next for category in known.categories.values()]
    commands += [each.next for each in known.signatures if each.next]
    commands += [loss.next for each in known.signatures for loss in each.loss]
    for command in commands:
        group = top
        for word in command.split()[1:]:
            if not hasattr(group, "commands") or word.startswith("-"):
                break
            assert word in group.commands, command
            group = group.commands[word]
