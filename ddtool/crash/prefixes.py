"""What stands before a message: the marks of journalctl, syslog, dmesg, docker, Kubernetes, and of the program itself.

A line is peeled from the outside inwards. Every layer is optional, so one input may mix formats, and a line
without any mark is simply its message. Indentation behind the last mark stays: tracebacks need it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache

from ddtool.agent.journal_text import level_of_text, rank_of_text
from ddtool.crash.lines import spoken
from ddtool.crash.model import Source

# A year that these stamps do not say: theirs are good for differences only. 1972 has a 29 February.
NO_YEAR = 1972

_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?:{'|'.join(_MONTHS)})"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_ISO = rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"
_SHORT = rf"{_MONTH} [ \d]\d {_CLOCK}"  # journalctl short, short-precise; syslog
_FULL = rf"{_DAY} \d{{4}}-\d\d-\d\d {_CLOCK} [A-Z]{{2,5}}"  # short-full, with-unit
_UNIX = r"\d{10}\.\d{6}"  # short-unix
_BOOT = r"\[ *\d+\.\d{6}\]"  # short-monotonic
_DELTA = r"\[ *\d+\.\d{6} <[ \d.]*>\]"  # short-delta
# A host is left out by --no-hostname and some daemons. Without a pid only the kernel is believed, except behind a
# stamp that nothing but a journal writes: "2026-05-21T10:11:12Z Loading failed: …" is a container's line.
_NAME = r"[^\s\[\]\"'{}:]{1,64}(?::[^\s\[\]\"'{}:]{1,64})*?"
_WRITER = rf"(?:[\w.-]+ )?(?P<ident>(?:{_NAME}(?=\[\d+\]:))|kernel(?=:))(?:\[(?P<pid>\d+)\])?:(?: |$)"

_JOURNAL = re.compile(
    rf"(?:<\d{{1,3}}>)?\s*(?P<stamp>{_SHORT}|{_ISO}|{_FULL}|{_UNIX}|{_BOOT}|{_DELTA}) {_WRITER}"
)
_JOURNAL_NO_PID = re.compile(
    rf"(?:<\d{{1,3}}>)?\s*(?P<stamp>{_SHORT}) [\w.-]+ (?P<ident>{_NAME})(?P<pid>):(?: |$)"
)
_SYSLOG = re.compile(  # RFC 5424
    rf"<\d{{1,3}}>1 (?P<stamp>{_ISO}) \S+ (?P<ident>\S+) (?P<pid>\d+|-) \S+ (?:-|\[.*?\])(?: |$)"
)
_DMESG = re.compile(
    rf"(?:[a-z]+ *:[a-z]+ *: )?\[(?: *\d+\.\d{{6}}|{_DAY} {_MONTH} [ \d]\d {_CLOCK} \d{{4}})\] "
)
_COMPOSE = re.compile(
    r"\[?(?P<ident>(?=[\d.-]*[A-Za-z])\w[\w.@/-]{0,80}?)\]? *\|(?: |$)"
)  # podman: in brackets
_POD = re.compile(r"\[(?:pod/)?(?P<ident>[\w.-]+(?:/[\w.-]+)+)\](?: |$)")
_CRI = re.compile(rf"(?P<stamp>{_ISO}) (?P<stream>stdout|stderr) (?P<tag>[FP])(?: |$)")
_STAMP = re.compile(rf"(?P<stamp>{_ISO})(?: |$)")
_LAUNCHER = re.compile(r"\[(?:default)(?P<rank>\d+)\]: ?|\[\d+,(?P<mpi>\d+)\]<std(?:out|err)>: ?")

_SGLANG = re.compile(rf"\s*\[(?P<stamp>(?:\d{{4}}-\d\d-\d\d )?{_CLOCK})(?P<where>(?: [A-Z_]+\d+)*)\](?: |$)")
_WORKER = re.compile(
    r"\((?P<name>[A-Za-z]\w*) (?:rank=(?P<rank>\d+) )?pid=(?P<pid>\d+)(?:, ip=[\d.]+)?\)(?: |$)"
)
_PLAIN_PID = re.compile(r"\(pid=(?P<pid>\d+)(?:, ip=[\d.]+)?\) ")
_VLLM = re.compile(
    rf"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d {_CLOCK} \[?[\w./-]+(?:\.py)?:\d+\](?: |$)"
)
_LOGGING = re.compile(
    rf"(?P<stamp>{_ISO})(?: - [\w.]+ - | ?\| ?| )\[?(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\]?"
    r"(?: - |\s*\| [\w.<>]+:[\w.<>]+:\d+ - |:? )"
)
_TORCH = re.compile(r"\[rank(?P<rank>\d+)\](?P<colon>:?)(?P<space> ?)")
_TP = re.compile(r"TP(\d+)")
_GROUP_RANK = re.compile(r"\[[^\]]*\] \[(?:PG [^\]]*)?Rank (\d+)\]")
_NCCL = re.compile(r"[\w.-]+:(?P<pid>\d+):\d+ \[\d+\] ")

KERNEL_TEXT = re.compile(
    r"NVRM: |(?:Memory cgroup o|O)ut of memory: Kill|oom-kill:constraint=|oom_reaper: |\S+ invoked oom-killer: |"
    r"Tasks state \(memory|nvidia-nvswitch|nvidia \d{4}:|pcieport |traps: |\S+\[\d+\]: segfault at |"
    r"mce: \[Hardware Error\]"
)
_UNIT_NAME = r"[\w@.:\\-]+\.(?:service|scope|slice|socket|mount|target)"
MANAGER_TEXT = re.compile(
    rf"(?:{_UNIT_NAME}: (?:Main process exited|Control process exited|Failed |A process of this unit|Scheduled restart|"
    r"Start(?:-pre|-post)? (?:request|operation)|Consumed |Deactivated|Killing process|State '|Succeeded|Changing to|"
    r"Watchdog timeout|Service (?:hold-off|RestartSec)|Unit |Referenced but unset|Got notification|Found left-over|"
    rf"Unable to locate)|(?:Started|Starting|Stopped|Stopping|Failed to start|Reloading) .*(?:{_UNIT_NAME}|\.\.\.|\.)$)"
)
_MANAGERS = ("systemd", "systemd-coredump", "systemd-oomd", "systemd-journald", "(sd-")


@dataclass(slots=True)
class Peeled:
    """A message and what its marks said."""

    text: str
    source: Source | None = None  # None: the marks do not say
    ident: str | None = None
    unix_us: int | None = None
    pid: int | None = None
    rank: int | None = None
    level: str | None = None
    stream: str | None = None  # of a container, where its runtime says it
    partial: bool = False  # the next line of this stream is the rest of this one


def peel(text: str) -> Peeled:
    """The message of one cleaned line. Never fails: an unknown mark is part of the message."""
    line = Peeled(text)
    for layer in _LAYERS:
        layer(line)
    if not line.partial:
        line.text = line.text.rstrip()
    if line.source is None:
        line.source = source_of(line.text)
    if line.rank is None:
        line.rank = rank_of_text(line.text)
    return line


@lru_cache(maxsize=256)
def stamp_us(stamp: str) -> int | None:
    """Microseconds since 1970 of any stamp that a journal line begins with; UTC where it names no zone."""
    try:
        if stamp[0] == "[" or stamp[2] == ":":
            return None  # since boot, or a time of day: another clock than all others
        if stamp[0].isdigit():
            return _of(datetime.fromisoformat(stamp[:19]), stamp[19:]) if "-" in stamp else _of_number(stamp)
        if stamp[8] == "-":  # "Thu 2026-05-21 10:11:12 UTC"
            return stamp_us(stamp[4:].rpartition(" ")[0])
        hour, minute, second = map(int, stamp[7:15].split(":"))
        moment = datetime(NO_YEAR, _MONTHS.index(stamp[:3]) + 1, int(stamp[4:6]), hour, minute, second)
        return _of(moment, stamp[15:])
    except (ValueError, IndexError, OverflowError):
        return None


def _of_number(stamp: str) -> int:
    seconds, _, fraction = stamp.partition(".")
    return int(seconds) * 1_000_000 + int(fraction.ljust(6, "0")[:6] or 0)


_REST = re.compile(r"(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):?(\d\d))?")


def _of(moment: datetime, rest: str) -> int:
    found = _REST.match(rest)
    assert found  # every part is optional
    fraction, _, sign, hours, minutes = found.groups()
    seconds = int(moment.replace(tzinfo=timezone.utc).timestamp())
    if sign:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= offset if sign == "+" else -offset
    return seconds * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])


# Layers, from the outside inwards. Each takes its mark off the text if the text begins with it.


def _container(line: Peeled) -> None:
    for mark in (_COMPOSE, _POD):
        if found := mark.match(line.text):
            line.ident = found["ident"]
            line.text = line.text[found.end() :]
    if found := _CRI.match(line.text):
        line.unix_us = stamp_us(found["stamp"])
        line.ident = line.ident or "container"
        line.stream, line.partial = found["stream"], found["tag"] == "P"
        line.text = line.text[found.end() :]


def _journal(line: Peeled) -> None:
    found = _JOURNAL.match(line.text) or _JOURNAL_NO_PID.match(line.text) or _SYSLOG.match(line.text)
    if not found:
        return
    line.unix_us = stamp_us(found["stamp"])
    line.ident = found["ident"]
    if (pid := found["pid"]) and pid != "-":
        line.pid = int(pid)
    line.text = line.text[found.end() :]
    line.source = "unit"
    if line.ident == "kernel":
        line.source = "kernel"
        if boot := _DMESG.match(line.text):
            line.text = line.text[boot.end() :]
    elif line.ident.startswith(_MANAGERS):
        line.source = "pid1"


def _stamp(line: Peeled) -> None:
    """`docker logs -t`, `kubectl logs --timestamps`; a program's own stamp if that is all."""
    if (found := _STAMP.match(line.text)) and not _LOGGING.match(line.text):
        line.unix_us = line.unix_us or stamp_us(found["stamp"])
        line.text = line.text[found.end() :]


def _kernel(line: Peeled) -> None:
    if line.ident is None and (found := _DMESG.match(line.text)):
        line.source, line.ident = "kernel", "kernel"
        line.text = line.text[found.end() :]


def _launcher(line: Peeled) -> None:
    if found := _LAUNCHER.match(line.text):
        line.rank = int(found["rank"] or found["mpi"])
        line.text = line.text[found.end() :]


def _program(line: Peeled) -> None:
    """SGLang's, vLLM's and Python logging's marks: they say rank, worker process and level."""
    line.level = level_of_text(line.text)
    if found := _SGLANG.match(line.text):  # indented as well: a paste may be
        line.unix_us = line.unix_us or stamp_us(found["stamp"])
        line.level = line.level or "info"
        if rank := _TP.search(found["where"]):
            line.rank = int(rank[1])
    elif found := _WORKER.match(line.text) or _PLAIN_PID.match(line.text):
        line.pid = int(found["pid"])
        named = found.groupdict()
        rank_text = named.get("rank") or ((tp := _TP.search(named.get("name") or "")) and tp[1])
        line.rank = int(rank_text) if rank_text else line.rank
    if found:
        line.text = line.text[found.end() :]
    if found := _VLLM.match(line.text) or _LOGGING.match(line.text):
        line.level = found["level"].lower()
        line.text = line.text[found.end() :]


def _torch(line: Peeled) -> None:
    """`[rank3]: message` of torch's exception hook. `[rank3]:[E521 …` of its C++ log and NCCL's `host:pid:thread`
    stay: they are the message."""
    if found := _TORCH.match(line.text):
        line.rank = int(found["rank"])
        if found["space"] or found.end() == len(line.text):
            line.text = line.text[found.end() :]
    elif line.rank is None and (found := _GROUP_RANK.match(line.text)):
        line.rank = int(found[1])
    elif found := _NCCL.match(line.text):
        line.pid = int(found["pid"])


def source_of(text: str) -> Source:
    """Who says so, by the message alone: `journalctl -o cat` does not tell."""
    text = text[:500]
    if KERNEL_TEXT.match(text):
        return "kernel"
    return "pid1" if MANAGER_TEXT.match(text) else "unit"


def _progress(line: Peeled) -> None:
    if not line.partial:
        line.text = spoken(line.text)


_LAYERS = (_container, _journal, _stamp, _kernel, _progress, _launcher, _program, _torch)
