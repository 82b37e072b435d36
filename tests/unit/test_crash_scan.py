"""A log too long to read: what is kept of it, and that nothing that matters is lost."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtool.crash import scan, source
from ddtool.crash.attempts import attempts
from ddtool.crash.model import Line
from ddtool.crash.signatures import catalogue

BATCH = "[2026-05-21 10:12:{:02d} TP0] Decode batch, #running-req: 4, #token: 4160, token usage: 0.02, cuda graph: True"
CRASH = [
    "[2026-05-21 10:12:31 TP3] Scheduler hit an exception: Traceback (most recent call last):",
    '  File "/s/managers/scheduler.py", line 4062, in run_scheduler_process',
    "    scheduler.run_event_loop()",
    "RuntimeError: The size of tensor a (8) must match the size of tensor b (33) at non-singleton dimension 0",
    "",
    "[2026-05-21 10:12:32] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
]
START = [
    "Started sglang.service - SGLang inference server.",
    "[2026-05-21 10:10:00] server_args=ServerArgs(port=1)",
]
WIDTHS = r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b \((?P<b>\d+)\)"


def batches(count: int) -> list[str]:
    return [BATCH.format(index % 60) for index in range(count)]


def kept(lines: Iterable[str], wanted: Sequence[str] = (WIDTHS,), block: int = 4096) -> list[tuple[int, str]]:
    raw = "\n".join(lines).encode()
    cut = [raw[start : start + block] for start in range(0, len(raw), block)]
    return [(number, line.decode()) for number, line in scan.interesting(cut, wanted)]


def test_a_crash_is_kept_with_its_surroundings_and_true_numbers() -> None:
    log = [*START, *batches(5000), *CRASH, *batches(5000)]
    found = kept(log)
    assert all(log[number - 1] == line for number, line in found)
    numbers = [number for number, _ in found]
    assert numbers == sorted(set(numbers))
    assert set(range(5003 - scan.BEFORE, 5008 + scan.AFTER)) <= set(numbers)
    assert {1, 2, 3, len(log) - scan.END + 1, len(log)} <= set(numbers)
    assert len(numbers) < 1000


@pytest.mark.parametrize("block", [1, 63, 4096, 1 << 20])
def test_the_cut_of_the_blocks_changes_nothing(block: int) -> None:
    log = [*START, *batches(600), *CRASH, *batches(600), "end without a line end"]
    assert kept(log, block=block) == kept(log)


def test_every_attempt_of_a_restart_loop_is_kept_apart() -> None:
    log = [line for _ in range(40) for line in [*START, *batches(300), *CRASH]]
    raw = "\n".join(log).encode()
    found = attempts(list(source.of_raw(scan.interesting([raw], [WIDTHS]))))
    assert len(found) == 40
    assert all(attempt.tracebacks[0].rank == 3 and attempt.served for attempt in found)


def test_noise_does_not_drown_what_comes_after_it() -> None:
    noise = ["[2026-05-21 10:12:31] ValueError: a request was refused"] * 12_000
    numbers = {number for number, _ in kept([*START, *noise, *batches(500), *CRASH, *batches(3000)])}
    error = 2 + 12_000 + 500 + 4
    assert error in numbers
    assert len(numbers) < scan.KIND_LIMIT * 200


def test_of_endless_failures_the_first_and_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "HEAD_LINES", 1000)
    monkeypatch.setattr(scan, "TAIL_LINES", 500)
    log = [line for _ in range(400) for line in [*START, *CRASH]]
    numbers = [number for number, _ in kept(log)]
    assert numbers == [*range(1, 1001), *range(len(log) - 499, len(log) + 1)]


def test_a_line_without_an_end_is_bounded() -> None:
    blocks = (b"x" * (1 << 20) for _ in range(8))
    found = list(scan.interesting(blocks, []))
    assert [number for number, _ in found] == [1]
    assert len(found[0][1]) <= 1 << 20


def test_bytes_of_a_journal_entry_are_found() -> None:
    message = list(b"RuntimeError: The size of tensor a (8) must match the size of tensor b (33)\x1b[0m")
    log = [
        *batches(3000),
        f'{{"__CURSOR":"c","MESSAGE":{message},"_PID":"7"}}'.replace(" ", ""),
        *batches(3000),
    ]
    assert 3001 in {number for number, _ in kept(log)}


def test_small_input_is_read_whole_and_long_input_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    log = "\n".join([*START, *batches(3000), *CRASH, *batches(3000)]).encode()
    assert len(source.lines(io.BytesIO(log), [WIDTHS])) == 6008
    monkeypatch.setattr(source, "WHOLE_LIMIT", 10_000)
    monkeypatch.setattr(source, "BLOCK", 4096)
    found = source.lines(io.BytesIO(log), [WIDTHS])
    assert len(found) < 1000
    whole = {line.number: line for line in source.read(io.BytesIO(log))}
    assert all(whole[line.number] == line for line in found)


PREFIXES = [
    "",
    "May 21 10:11:12 host sglang[1]: ",
    "2026-05-21T10:11:12Z ",
    "sglang-1  | ",
    "2026-05-21T10:11:12Z stderr F ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"^usage: |^\s+\[-", "usage: launch_server.py [-h]"),
        (r"\Aerror: (\w+) \1$", "error: twice twice"),
        (r"(?<!not )found(?! it)", "found something"),
        (r"size [^\]\[)]+ of [^]]x", "size a of bx"),
        (r'said "(?P<word>\w+)" and (?P=word)\Z', 'said "no" and no'),
        (r"a(?=b(c|[)]))b", "abc"),
        (r"kv.{0,40}pool.{2,}?is [0-9a-f]{3} \{1,2\}", "kv and the pool now is 0af {1,2}"),
        (r"^(\w+\.)*(Key|Value)Error\b", "module.ValueError: no"),
        (r"(?i)^([\w. /-]{1,80}: )?error: argument \S+", "launch.py: Error: argument --tp"),
        (r"x(\w*y)?z|^\s{,4}what\(\)", "xay xabyz"),
        (r"[\]^a]{2}[^\]]\\\(", "^]b\\("),
    ],
)
def test_a_relaxed_pattern_finds_the_message_behind_any_prefix(
    pattern: str, message: str, prefix: str
) -> None:
    import re2

    assert re.search(pattern, message)
    assert re2.search(scan.relaxed(pattern).encode(), f"routine\n{prefix}{message}\r\nroutine".encode())
    assert not re2.search(
        scan.relaxed(pattern).encode(), b"[2026-05-21 10:12:01 TP0] token usage: 0.02, #queue-req: 0"
    )


def test_every_signature_can_be_scanned_for() -> None:
    scan._Needles(catalogue().patterns())


def test_routine_lines_are_no_hit() -> None:
    """Or the scan is ten times slower."""
    needles = scan._Needles(catalogue().patterns())
    routine = [
        *batches(1),
        "[2026-05-21 10:12:01 TP0] Prefill batch, #new-seq: 1, #new-token: 640, #cached-token: 0, token usage: 0.01",
    ]
    for line in routine:
        raw = f"May 21 10:12:31 gpu-host sglang[48211]: {line}".encode()
        assert needles.first(raw, 0) is None, line


@given(
    st.lists(
        st.sampled_from(
            [*START, *CRASH, *batches(3), "", "\x00\xff", '{"log": "x"', "-- Boot " + "0" * 32 + " --"]
        )
    )
)
def test_whatever_is_kept_is_in_order(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = list(source.of_raw(scan.interesting([text.encode()], [WIDTHS])))
    assert all(isinstance(line, Line) for line in found)
    assert [line.number for line in found] == list(
        range(1, text.count("\n") + 1 + (text[-1:] not in ("", "\n")))
    )
