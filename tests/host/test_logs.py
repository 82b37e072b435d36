"""Following a real journal over real ssh: no record lost, none twice, every gap said."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType

import pytest
from support import mini
from support.remote import output, ssh, until

from ddtool.deploy.session import open_agent
from ddtool.journal.follow import LinkEvent, Request, follow
from ddtool.journal.records import Record
from ddtool.sandbox import Sandbox, exec_inside

pytestmark = pytest.mark.host

UNIT = "sglang-mini"  # the unit of mini's profile, which the command line tests name
STOP = "/run/stop-numbers"
ROOM = "/etc/systemd/journald.conf.d/zz-room.conf"  # the sandbox's journal holds 64 MB
# Numbered lines at a steady rate until told to stop; then the count.
WRITER = f"""
import itertools, os, sys, time
rate = float(sys.argv[1])
begun = time.monotonic()
for number in itertools.count(1):
    print(f"[2025-11-29 19:01:02 TP{{number % 2}}] number {{number}}", flush=number % 10 == 0)
    if number % 10 == 0:
        time.sleep(max(0, begun + number / rate - time.monotonic()))
        if os.path.exists("{STOP}"):
            break
print("total", number, flush=True)
"""
SERVICE = """
[Service]
ExecStart=/usr/bin/python3 /opt/writer.py {rate}
LogRateLimitIntervalSec={interval}
LogRateLimitBurst={burst}
[Install]
WantedBy=multi-user.target
"""


def write_unit(host: Sandbox, rate: int, interval: str = "1us", burst: int = 4000000000) -> None:
    text = SERVICE.format(rate=rate, interval=interval, burst=burst)
    output(host, f"cat > /etc/systemd/system/{UNIT}.service && systemctl daemon-reload", input=text)


@pytest.fixture
def writer(host: Sandbox) -> Iterator[Sandbox]:
    """The host with the writer's unit, not started, and a persistent journal that is empty."""
    output(host, f"mkdir -p /var/log/journal; rm -f {ROOM}; systemctl restart systemd-journald")
    output(host, "cat > /opt/writer.py", input=WRITER)
    write_unit(host, 1000)
    output(host, f"rm -f {STOP}; journalctl -q --rotate; journalctl -q --vacuum-time=1s")
    yield host
    output(host, f"systemctl disable -q --now {UNIT}; systemctl reset-failed {UNIT} || true")


def numbers(records: list[Record]) -> list[int]:
    return [int(record.text.rpartition(" ")[2]) for record in records if "] number " in record.text]


def write_all(host: Sandbox) -> None:
    """The writer starts and ends; all that it says, and systemd of it, is in the journal."""

    def said(text: str) -> bool:
        return ssh(host, f"journalctl -q -o cat -u {UNIT} | grep -q '{text}'").returncode == 0

    output(host, f"systemctl start {UNIT}")
    until(lambda: said("number 500$"), timeout=60)
    output(host, f"touch {STOP}")
    until(lambda: said("^total ") and said("Deactivated"), timeout=60)


def reading(host: Sandbox, **options: object) -> Iterator[Record]:
    return follow(lambda: open_agent(f"sandbox:{host.name}"), Request(UNIT, **options))


def take(records: Iterator[Record], count: int) -> list[Record]:
    return [next(records) for _ in range(count)]


@pytest.mark.parametrize("cuts", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_cuts_at_random_bytes_lose_and_repeat_nothing(writer: Sandbox, faults: ModuleType, cuts: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    got: list[Record] = []
    events: list[LinkEvent] = []

    def cut_once() -> None:
        seen, told_before = len(got), len(events)
        until(lambda: len(got) > seen, timeout=30)
        faults.cut_after(writer, chance.randrange(1, 150_000))
        until(lambda: len(events) == told_before + 2, timeout=30)  # lost, and back

    def cut_often() -> None:
        try:
            for _ in range(cuts):
                cut_once()
        finally:
            output(writer, f"touch {STOP}")

    # All of it has room, however slow this machine is: what is lost here is lost by the reader.
    room = "[Journal]\\nSystemMaxUse=2G\\n"
    output(writer, f"printf '{room}' > {ROOM}; systemctl restart systemd-journald; systemctl start {UNIT}")
    cutter = threading.Thread(target=cut_often)
    cutter.start()
    request = Request(UNIT, follow=True, since="invocation")
    for record in follow(lambda: open_agent(f"sandbox:{writer.name}"), request, on_event=events.append):
        got.append(record)
        if record.text.startswith("total "):
            break
    cutter.join()
    total = int(got[-1].text.split()[1])
    assert [event.error is not None for event in events] == [True, False] * cuts
    assert total > 500 * cuts
    assert [record.gap for record in got if record.gap] == []
    assert numbers(got) == list(range(1, total + 1))
    assert {record.rank for record in got if "number" in record.text} == {0, 1}
    print(f"{cuts} cuts, {len(got)} records, {total} numbered lines, none lost or doubled")


def test_a_vacuum_while_the_link_is_down_is_one_gap(writer: Sandbox, faults: ModuleType) -> None:
    output(writer, f"systemctl start {UNIT}")
    records = reading(writer, follow=True, since="invocation")
    before = take(records, 200)
    faults.refuse(writer)
    script = f"sleep 1; touch {STOP}; sleep 1; journalctl -q --rotate; journalctl -q --vacuum-time=1s"
    assert exec_inside(writer, ["sh", "-c", f"{script}; rm {STOP}; systemctl start {UNIT}"]).returncode == 0
    faults.clear(writer)
    after = []
    while not any(record.gap for record in after):
        after.append(next(records))
    after += take(records, 100)
    gaps = [record for record in after if record.gap]
    (gap,) = gaps
    at = after.index(gap)
    assert gap.gap is not None
    assert gap.gap.reason == "vacuum"
    assert gap.gap.start == (after[at - 1] if at else before[-1]).cursor
    assert gap.gap.end == after[at + 1].cursor
    kept = numbers(after[at:])
    assert kept == list(range(kept[0], kept[0] + len(kept)))


@pytest.mark.parametrize("rotations", [1, 4])
def test_a_vacuum_of_what_a_slow_reader_has_not_read_is_a_gap(
    writer: Sandbox, faults: ModuleType, rotations: int
) -> None:
    """The reader never stops: journald takes away files that it stands before, or in, or has never seen."""
    write_unit(writer, 20000)
    output(writer, f"systemctl start {UNIT}")
    records = reading(writer, follow=True, since="invocation")
    got = take(records, 200)
    faults.stall(writer)  # its journalctl soon waits for room in the pipe
    script = "sleep 1; journalctl -q --rotate; " * rotations
    script += f"sleep 1; journalctl -q --vacuum-time=1s; sleep 1; touch {STOP}"
    assert exec_inside(writer, ["sh", "-c", script]).returncode == 0
    faults.clear(writer)
    while not got[-1].text.startswith("total "):
        got.append(next(records))
    assert skipped_silently(got) == []
    assert {record.gap.reason for record in got if record.gap} == {"vacuum"}


def test_files_that_are_made_and_vacuumed_before_the_reader_sees_them_are_a_gap(writer: Sandbox) -> None:
    """journalctl fails at nothing here: it goes on in the next file that there is, without a word."""
    output(writer, f"systemctl start {UNIT}")
    records = reading(writer, follow=True, since="invocation")
    got = take(records, 3000)
    script = f"""
        sleep 1; stuck=$(pidof journalctl); kill -STOP $stuck
        for time in 1 2 3; do sleep 0.5; journalctl -q --rotate; done
        journalctl -q --vacuum-time=1ms; kill -CONT $stuck
        sleep 1; touch {STOP}
    """
    meanwhile = threading.Thread(target=output, args=[writer, script])
    meanwhile.start()
    while not got[-1].text.startswith("total "):
        got.append(next(records))
    meanwhile.join()
    assert skipped_silently(got) == []
    assert [record.gap.reason for record in got if record.gap] == ["vacuum"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flood_through_a_small_journal_skips_nothing_silently(writer: Sandbox, faults: ModuleType) -> None:
    write_unit(writer, 8000)
    output(writer, f"systemctl start {UNIT}")

    def disturb() -> None:
        try:
            for number in range(8):
                (faults.refuse if number % 2 else faults.stall)(writer)
                time.sleep(4)
                faults.clear(writer)
                time.sleep(2)
        finally:
            output(writer, f"touch {STOP}")

    meanwhile = threading.Thread(target=disturb)
    meanwhile.start()
    got: list[Record] = []
    for record in reading(writer, follow=True, since="invocation"):
        got.append(record)
        if record.text.startswith("total "):
            break
    meanwhile.join()
    total = int(got[-1].text.split()[1])
    gaps = [record.gap.reason for record in got if record.gap]
    print(f"{total} numbered lines, {total - len(numbers(got))} missing, {len(gaps)} gaps")
    assert skipped_silently(got) == []
    assert numbers(got) == sorted(set(numbers(got)))
    assert set(gaps) <= {"vacuum"}


def skipped_silently(records: list[Record]) -> list[tuple[str, str]]:
    told = [record for record in records if record.gap or "] number " in record.text]
    return [
        (before.text, after.text)
        for before, after in itertools.pairwise(told)
        if not before.gap and not after.gap and numbers([after]) != [numbers([before])[0] + 1]
    ]


def test_a_reboot_is_one_gap(writer: Sandbox, faults: ModuleType) -> None:
    output(writer, f"systemctl enable -q --now {UNIT}")
    records = reading(writer, follow=True, since="invocation")
    seen = take(records, 300)
    faults.power_reset(writer)
    while not any(record.gap for record in seen) or len(numbers(seen[-50:])) < 50:
        seen.append(next(records))
    gaps = [record for record in seen if record.gap]
    (gap,) = gaps
    at = seen.index(gap)
    assert gap.gap is not None
    assert (gap.gap.reason, gap.gap.start, gap.gap.end) == ("boot", seen[at - 1].cursor, seen[at + 1].cursor)
    assert seen[at - 1].boot != seen[at + 1].boot
    first, second = numbers(seen[:at]), numbers(seen[at:])
    assert first == list(range(1, len(first) + 1))
    assert second == list(range(1, len(second) + 1))


def test_lines_that_journald_drops_are_a_gap(writer: Sandbox) -> None:
    write_unit(writer, 20000, interval="1s", burst=100)
    output(writer, f"systemctl start {UNIT}")
    records = reading(writer, follow=True, since="invocation")
    gap = next(record for record in records if record.gap)
    assert gap.gap is not None
    assert gap.gap.reason == "suppression"
    assert "Suppressed" in gap.text
    assert gap.gap.start


def test_the_first_lines_of_a_unit_without_a_record_are_not_lost(writer: Sandbox) -> None:
    records = reading(writer, follow=True, limit=0)
    threading.Timer(1.0, output, [writer, f"systemctl start {UNIT}"]).start()
    assert numbers(take(records, 60))[:20] == list(range(1, 21))


def test_selections(writer: Sandbox) -> None:
    write_all(writer)
    everything = list(reading(writer))
    assert numbers(everything) == list(range(1, len(numbers(everything)) + 1))
    # journald reads two sockets: systemd's word may come a few lines after the service's first or before its last.
    assert "pid1" in {record.source for record in everything[:50]}
    assert "pid1" in {record.source for record in everything[-50:]}
    assert [record.seq for record in list(reading(writer, limit=5))] == [
        record.seq for record in everything[-5:]
    ]
    odd = list(reading(writer, rank=1, grep=r"number \d+1$", limit=3))
    assert [number % 10 for number in numbers(odd)] == [1, 1, 1]
    cursor = everything[-4].cursor
    assert [record.seq for record in reading(writer, after_cursor=cursor)] == [
        record.seq for record in everything[-3:]
    ]
    assert list(reading(writer, since="10min", level="error")) == []


def cli(host: Sandbox, *options: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ddtool",
        "logs",
        "-p",
        str(mini.PROFILE),
        "--host",
        f"sandbox:{host.name}",
        *options,
    ]


def test_the_command_prints_people_and_programs_what_they_need(writer: Sandbox) -> None:
    write_all(writer)
    options = {"capture_output": True, "text": True, "timeout": 60}
    shown = subprocess.run(cli(writer, "-n", "40"), **options)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert any("systemd" in line for line in shown.stdout.splitlines())
    assert " TP1 " in shown.stdout
    lines = subprocess.run(cli(writer, "-n", "3", "--json"), **options).stdout.splitlines()
    assert [json.loads(line)["schema"] for line in lines] == ["ddtool.record/1"] * 3
    raw = subprocess.run(cli(writer, "--raw", "--grep", "^total"), **options).stdout
    assert raw.startswith("total ")
    assert subprocess.run(cli(writer, "--grep", "["), **options).returncode == 2


def test_interrupting_a_follow_is_quiet(writer: Sandbox) -> None:
    output(writer, f"systemctl start {UNIT}")
    command = subprocess.Popen(
        cli(writer, "--follow"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert command.stdout
    while "number" not in command.stdout.readline():
        assert command.poll() is None
    command.send_signal(signal.SIGINT)
    _, words = command.communicate(timeout=20)
    assert (command.returncode, words) == (130, "")
