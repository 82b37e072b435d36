"""The rank that went away without a word: named where every other one reports the loss, and nowhere else."""

from __future__ import annotations

import io
import random

import pytest
from support import crashlog
from support.crashmut import CASES, KEEPING, block_of

from ddtool.crash.classify import classify
from ddtool.crash.model import Verdict

REAL = next(case for case in CASES if case["id"] == "gpu-rank-killed-tp2")
TODAY = "Another rank went away first; this log only shows the consequence: "
ONE_NODE = "tp_size=8, pp_size=1, dp_size=1, nnodes=1, node_rank=0, enable_dp_attention=False"
PEER = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Read error [127.0.0.1]:16821: "
    "Connection reset by peer"
)
BARRIER = (
    "ValueError: TP rank {rank} could finish the model loading, but there are other ranks that didn't finish "
    "loading. It is likely due to unexpected failures (e.g., OOM) or a slow node."
)
REMOTE = (
    "[rank{rank}]:[E302 04:12:30.1 ProcessGroupNCCL.cpp:2057] [PG ID 2 PG GUID 3 Rank {rank}] Process group "
    "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error"
)
STORE = (
    "[rank{rank}]:[W302 04:12:30.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=81): "
    "Connection reset by peer"
)
REMOTE_CLOSED = (
    "gpu-host:840:1400 [0] misc/socket.cc:880 NCCL WARN socketProgress: Connection closed by remote peer "
    "gpu-host<41211>"
)
WATCHDOG = (
    "[2026-03-02 04:12:30] Subprocess {name} (pid=4903) crashed with exit code {code}. "
    "Triggering SIGQUIT for cleanup..."
)
LAUNCHER = (
    "RuntimeError: Rank {rank} scheduler died during initialization (exit code: {code}). If exit code is -9 "
    "(SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
)


def start(sizes: str = ONE_NODE, announced: int = 8) -> list[str]:
    ranks = range(announced)
    return [
        f"[2026-03-02 04:10:00] server_args=ServerArgs(model_path='/models/Big', {sizes}, disable_cuda_graph=False)",
        *(f"[2026-03-02 04:10:02 TP{rank}] Init torch distributed begin." for rank in ranks),
        *(f"[2026-03-02 04:10:07 TP{rank}] Load weight begin. avail mem=93.10 GB" for rank in ranks),
        *(f"[2026-03-02 04:11:01 TP{rank}] Load weight end. type=Big, avail mem=20.00 GB" for rank in ranks),
    ]


def serving(sizes: str = ONE_NODE, announced: int = 8) -> list[str]:
    return [*start(sizes, announced), *crashlog.STEPS["serving"]]


def report(rank: int, error: str = PEER) -> list[str]:
    return [
        f"[2026-03-02 04:12:30 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "/srv/sglang/srt/managers/scheduler.py", line 1760, in recv_requests',
        "    recv_reqs = broadcast_pyobj(",
        error.format(rank=rank),
        "",
    ]


def reports(*ranks: int, error: str = PEER) -> list[str]:
    return [line for rank in ranks for line in report(rank, error)]


def all_but(*silent: int) -> list[str]:
    return reports(*(rank for rank in range(8) if rank not in silent))


def judged(lines: list[str], form: str = "cat") -> Verdict:
    return classify(io.BytesIO(crashlog.dressed(lines, form).encode()))


def names_nobody(verdict: Verdict) -> bool:
    told = (verdict.category, verdict.confidence, verdict.next_command)
    return verdict.cause.startswith(TODAY) and told == ("peer_rank_lost", "low", "ddtool logs --rank 0")


def test_a_scheduler_killed_on_two_gpus_is_named() -> None:
    found = classify(io.BytesIO(REAL["log"].encode()))
    assert found.cause.startswith(
        "Rank 1 alone says nothing of a loss: it is the one that went away; all else is the consequence: RuntimeError: "
    )
    assert (found.category, found.subcode, found.confidence) == ("peer_rank_lost", "gloo-peer-closed", "low")
    assert found.next_command == "ddtool logs --rank 1"
    assert [item.partition(" of ")[0] for item in found.missing] == ["the kernel log", "how the process"]
    assert "what ended rank 1," in found.remedy
    assert [(row["rank"], row["first"], row["text"] is None) for row in found.ranks] == [
        (0, False, False),
        (1, True, True),
    ]
    assert found.first_cause and (found.first_cause.rank, found.first_cause.line) == (
        0,
        REAL["first_cause_lineno"],
    )
    assert found.evidence[0].rank == 1 and found.evidence[0].text.startswith("Capture DDTREE graphs end.")


def test_a_mangled_log_names_the_same_rank_or_none() -> None:
    rng, block = random.Random(5), block_of(REAL)
    lines = REAL["log"].encode().split(b"\n")
    told = [classify(io.BytesIO(b"\n".join(rng.choice(KEEPING)(lines, block, rng)))) for _ in range(40)]
    named = [verdict.cause for verdict in told if not verdict.cause.startswith(TODAY)]
    assert all(cause.startswith("Rank 1 alone ") for cause in named)
    assert len(named) > 10


@pytest.mark.parametrize("form", ["cat", "short", "k8s", "compose", "journal"])
@pytest.mark.parametrize("silent", [0, 5])
def test_seven_of_eight_report(silent: int, form: str) -> None:
    found = judged([*serving(), *all_but(silent), *crashlog.KILLED], form)
    assert found.cause.startswith(
        f"Rank {silent} alone says nothing of a loss: it is the one that went away; "
    )
    assert found.next_command == f"ddtool logs --rank {silent}"
    assert [row["rank"] for row in found.ranks if row["first"]] == [silent]


def test_of_two_that_are_silent_none_is_named() -> None:
    assert names_nobody(judged([*serving(), *all_but(2, 5), *crashlog.KILLED]))


@pytest.mark.parametrize(
    "sizes",
    [
        "context_length=None",
        "tp_size=8, pp_size=1, dp_size=1",  # the line was cut before it says how many nodes
        ONE_NODE.replace("nnodes=1", "nnodes=2"),
        ONE_NODE.replace("tp_size=8", "tp_size=16"),
        ONE_NODE.replace("pp_size=1", "pp_size=2"),
        ONE_NODE.replace("dp_size=1", "dp_size=2"),
    ],
)
def test_where_ranks_may_be_out_of_view_none_is_named(sizes: str) -> None:
    assert names_nobody(judged([*serving(sizes), *all_but(5), *crashlog.KILLED]))


def test_ranks_of_attention_replicas_have_numbers_of_their_own() -> None:
    sizes = ONE_NODE.replace("dp_size=1", "dp_size=4").replace("attention=False", "attention=True")
    assert judged([*serving(sizes), *all_but(5), *crashlog.KILLED]).cause.startswith("Rank 5 alone ")


def test_without_the_server_arguments_none_is_named() -> None:
    assert names_nobody(judged([*serving()[1:], *all_but(5), *crashlog.KILLED]))


def test_a_rank_that_never_announced_anything_is_not_named() -> None:
    assert names_nobody(judged([*serving(announced=7), *reports(*range(7)), *crashlog.KILLED]))


@pytest.mark.parametrize(
    "line",
    [
        "[2026-03-02 04:12:30 TP5] Load weight begin. avail mem=93.10 GB",  # it goes on
        "[2026-03-02 04:12:30 TP5] Scheduler hit an exception: something that nobody knows",
        STORE.format(rank=5),
        REMOTE.format(rank=5),
        PEER,  # of a rank that it does not say
    ],
)
def test_one_that_may_have_spoken_is_not_named(line: str) -> None:
    assert names_nobody(judged([*serving(), *reports(0), line, *reports(1, 2, 3, 4, 6, 7), *crashlog.KILLED]))


def test_nor_one_that_complained_before() -> None:
    assert names_nobody(judged([*serving(), STORE.format(rank=5), *all_but(5), *crashlog.KILLED]))


def test_what_the_service_survived_is_neither_a_word_nor_a_report() -> None:
    batch = f"[2026-03-02 04:12:20 TP0] {crashlog.DECODE}"
    before = [*serving(), STORE.format(rank=5), REMOTE.format(rank=3), batch]
    assert judged([*before, *all_but(5), *crashlog.KILLED]).cause.startswith("Rank 5 alone ")
    assert names_nobody(judged([*before, *all_but(3, 5), *crashlog.KILLED]))


def test_last_words_that_nobody_knows_are_shown() -> None:
    words = "[2026-03-02 04:12:29 TP5] something odd failed here"
    found = judged([*serving(), words, *all_but(5), *crashlog.KILLED])
    assert found.cause.startswith("Rank 5 alone says nothing of a loss: ")
    assert (found.evidence[0].rank, found.evidence[0].text) == (5, "something odd failed here")


def test_what_the_server_killed_itself_is_not_named() -> None:
    assert names_nobody(judged([*serving(), *crashlog.KILLED, *all_but(5)]))


def test_a_log_that_breaks_off_may_lack_the_words_of_the_rank() -> None:
    assert names_nobody(judged([*serving(), *all_but(5)]))


def test_lost_lines_may_be_the_words_of_the_rank() -> None:
    lost = "systemd: Suppressed 312 messages from big.service"
    near = judged([*serving(), lost, *all_but(5), *crashlog.KILLED], "short")
    assert names_nobody(near) and any("journal lost" in item for item in near.missing)
    batches = [f"[2026-03-02 04:12:20 TP0] {crashlog.DECODE}"] * 500
    assert judged([*serving(), lost, *batches, *all_but(5), *crashlog.KILLED], "short").cause.startswith(
        "Rank 5 "
    )


def test_whoever_was_waited_for_at_a_barrier() -> None:
    waited = [line for rank in range(8) if rank != 3 for line in report(rank, BARRIER)]
    found = judged([*start(), *waited, *crashlog.KILLED])
    assert found.cause.startswith(
        "Rank 3 alone says nothing of a loss: it is the one that the others waited for; "
    )
    assert (found.subcode, found.next_command) == ("load-barrier", "ddtool logs --rank 3")


def test_the_process_groups_word_is_a_report_too() -> None:
    sizes = ONE_NODE.replace("tp_size=8", "tp_size=2")
    found = judged([*serving(sizes, 2), REMOTE.format(rank=0), *crashlog.KILLED])
    assert found.cause.startswith("Rank 1 alone says nothing of a loss: it is the one that went away; ")


def test_a_collective_that_timed_out_names_nobody() -> None:
    """The server kills whoever has not yet said so, so silence means nothing."""
    late = (
        "[rank{rank}]:[E302 04:22:30.1 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=900, OpType=ALLREDUCE, NumelIn=5, NumelOut=5, Timeout(ms)=600000) ran for 600044 ms"
    )
    found = judged([*serving(), *(late.format(rank=rank) for rank in range(7)), *crashlog.KILLED])
    assert (found.category, found.confidence) == ("nccl_timeout", "medium")
    assert "Rank 7" not in found.cause


def test_a_connection_that_the_other_side_closed_is_no_broken_transport() -> None:
    found = judged([*serving(), REMOTE_CLOSED, *crashlog.KILLED])
    assert names_nobody(found)
    failed = judged([*serving(), REMOTE_CLOSED, *report(3, "KeyError: 17"), *crashlog.KILLED])
    assert failed.category == "sched_bug"


class TestNamedBySglang:
    """What SGLang says of a rank goes before what the silence of one means."""

    def test_it_wins_where_several_are_silent(self) -> None:
        died = WATCHDOG.format(name="scheduler_5", code=1)
        found = judged([*serving(), *reports(0), died, *crashlog.KILLED])
        assert found.cause.startswith(
            "SGLang itself names rank 5, which ended with exit code 1; all else is "
        )
        assert found.next_command == "ddtool logs --rank 5"
        assert [row["rank"] for row in found.ranks if row["first"]] == [5]

    def test_it_wins_before_the_first_report(self) -> None:
        died = WATCHDOG.format(name="scheduler_5", code=1)
        found = judged([*serving(), died, *crashlog.KILLED, *all_but(5, 2)])
        assert found.cause.startswith("SGLang itself names rank 5, ")

    def test_the_launcher_names_one_too(self) -> None:
        found = judged([*start(), *reports(0), LAUNCHER.format(rank=2, code=1)])
        assert found.cause.startswith("SGLang itself names rank 2, which ended with exit code 1; ")

    @pytest.mark.parametrize(
        "died",
        [
            WATCHDOG.format(name="scheduler_0", code=1),  # it reports the loss of another itself
            WATCHDOG.format(name="scheduler_8", code=1),
            WATCHDOG.format(name="detokenizer", code=1),
        ],
    )
    def test_whom_it_names_against_the_silence_decides_nothing(self, died: str) -> None:
        assert names_nobody(judged([*serving(), *all_but(5), died, *crashlog.KILLED]))

    def test_a_number_is_a_ranks_only_without_replicas(self) -> None:
        sizes = ONE_NODE.replace("dp_size=1", "dp_size=4").replace("attention=False", "attention=True")
        died = WATCHDOG.format(name="scheduler_5", code=1)
        assert names_nobody(judged([*serving(sizes), *reports(0), died, *crashlog.KILLED]))

    def test_an_exit_code_that_is_a_cause_stays_one(self) -> None:
        killed = judged(
            [*serving(), *all_but(5), WATCHDOG.format(name="scheduler_5", code=-9), *crashlog.KILLED]
        )
        assert (killed.category, killed.subcode) == ("host_oom_kill", "exit-minus-9-no-kernel-line")

    def test_what_exits_with_255_has_a_number(self) -> None:
        found = judged([*start(), LAUNCHER.format(rank=2, code=255)])
        assert (found.category, found.subcode) == ("peer_rank_lost", "exit-255")
        assert found.cause == "Rank 2 exited by itself (255), and its own words are not in view."
        assert found.next_command == "ddtool logs --rank 2"
