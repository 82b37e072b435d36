"""What in a log is no evidence about this service: other units, other processes, text of logged requests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ddtool.crash import events
from ddtool.crash.model import Line

# Words by which a program is known to be an inference server or its helper, whatever its unit is called.
_OURS = re.compile(
    r"sglang|sgl_kernel|vllm|ddtool|torch|NCCL|CUDA|cuda|server_args=|Traceback \(most|flashinfer|safetensors"
)
# Names of processes: of the engines, of their workers, of the compilers that they start.
_COMM = re.compile(
    r"python|sgl|vllm|ray\b|ray:|pt_main|pt_data|torch|engine|worker|scheduler|detoken|tokenizer|multiproc|cuda-|"
    r"cc1plus|cicc|ptxas|nvcc|ninja",
    re.IGNORECASE,
)
_DESCRIBED = re.compile(r"sglang|vllm|ddtool|inference|LLM")
_WITNESS = re.compile(
    r"nvidia|nv-|fabricmanager|earlyoom|container|kubelet|docker"
)  # they speak about the host
_REQUEST = re.compile(
    r"(?P<sglang>Receive: obj=|Finish: obj=)|request\.(?:received|finished) obj=|Received request \S+: "
)
# The last line of one that has line ends in it; code that it quotes ends in a bracket too.
_REQUEST_END = re.compile(
    r".*\b(?:sampling_params|return_logprob|stream|session_params|lora_path|modalities|rid|meta_info|finish_reason)\b"
    r".*[)}]$"
)
_QUOTE_LINES = 400  # lines that one logged request may go on for
_PID = re.compile(r"\bpid[= ]'?(\d+)|\bPID (\d+)|\bProcess (\d+)", re.I)

_KILLED = re.compile(
    r"(?:Memory cgroup out|Out) of memory: Kill(?:ed)? process (?P<pid>\d+) \((?P<comm>[^)]*)"
)
_INVOKED = re.compile(r"(?P<comm>\S+) invoked oom-killer")
_OOM_TASK = re.compile(r"oom-kill:.*task_memcg=(?P<group>[^,]*),task=(?P<comm>[^,]*),pid=(?P<pid>\d+)")
_REAPED = re.compile(r"oom_reaper: reaped process (?P<pid>\d+) \((?P<comm>[^)]*)")
_XID = re.compile(r"NVRM: Xid \(\S+\): (?P<xid>\d+), pid='?(?P<pid>\d+)'?, name=(?P<comm>[^,\s]+)")
_SEGFAULT = re.compile(r"(?P<comm>\S+?)\[(?P<pid>\d+)\]: segfault at|traps: (?P<comm2>\S+?)\[(?P<pid2>\d+)\]")
_OF_ONE_PROCESS = {"13", "31", "43", "45", "68", "69", "94"}  # Xids that a program brings upon itself
_NAMES_PROCESS = (_KILLED, _OOM_TASK, _REAPED, _INVOKED, _SEGFAULT, _XID)
_COMM_LENGTH = 15  # characters of a name that the kernel keeps
_OOMD = re.compile(r"Killed (?P<group>/\S+) due to memory ")  # systemd-oomd
_GROUP_UNIT = re.compile(r"/([\w@.:\\-]+\.(?:service|scope))(?:/|$)")


def divide(lines: Sequence[Line]) -> tuple[list[Line], list[Line]]:
    """(lines that may be evidence, lines set aside), both in order."""
    quoted = set(_quoted(lines))
    strangers = _foreign_idents(lines)
    strangers |= _neighbours([line for line in lines if line.ident not in strangers])
    unit_lines = [line for line in lines if line.source == "unit" and line.ident not in strangers]
    units = _foreign_units(lines, unit_lines, strangers)
    servers = {line.ident for line in unit_lines if line.ident}
    processes = _Processes(lines, unit_lines, units)
    kept: list[Line] = []
    aside: list[Line] = []
    for index, line in enumerate(lines):
        other = (
            index in quoted
            or (line.source == "unit" and line.ident in strangers)
            or (line.source == "pid1" and _is_foreign_unit(line, units, servers))
            or (line.source == "kernel" and processes.is_foreign(line))
        )
        (aside if other else kept).append(line)
    return kept, aside


def _quoted(lines: Sequence[Line]) -> Iterator[int]:
    """Indices of logged requests and answers, with the lines that a text with line ends, or journald, broke off."""
    open_for: dict[tuple[str | None, int | None], int] = {}
    for index, line in enumerate(lines):
        if line.source != "unit":
            continue
        writer = (line.ident, line.pid)
        if request := _REQUEST.match(line.text):
            yield index
            ends = not request["sglang"] or line.text.endswith((")", "}"))
            open_for[writer] = 0 if ends else _QUOTE_LINES
        elif open_for.get(writer, 0):
            if _has_stamp(line):
                open_for[writer] = 0
                continue
            yield index
            open_for[writer] = 0 if _REQUEST_END.match(line.text) else open_for[writer] - 1


def _has_stamp(line: Line) -> bool:
    return line.level == "info" or line.rank is not None


def _foreign_idents(lines: Iterable[Line]) -> set[str | None]:
    """Writers in a whole host's journal that are no inference server; none if no writer is one."""
    ours: set[str | None] = set()
    writers: set[str | None] = set()
    for line in lines:
        if line.source == "unit":
            writers.add(line.ident)
            if line.ident not in ours and (_OURS.search(line.text) or _COMM.match(line.ident or "")):
                ours.add(line.ident)
    if not ours or len(writers) == 1:
        return set()
    return {writer for writer in writers - ours if writer and not _WITNESS.match(writer)}


def _neighbours(lines: Sequence[Line]) -> set[str | None]:
    """Writers that are called like another unit than the server's: they may use a GPU too, but they never start or
    serve a model. None if no writer does, or several units might be the server's."""
    servers = {line.ident for line in lines if line.source == "unit" and _serves(line)}
    if not servers:
        return set()
    writers = {line.ident for line in lines if line.source == "unit" and line.ident} - servers
    units = {unit for line in lines if line.source == "pid1" and (unit := unit_of(line))}
    others = {unit for unit in units if not any(ident and _akin(unit, ident) for ident in servers)}
    return {ident for ident in writers if any(_akin(unit, ident) for unit in others)}


def _serves(line: Line) -> bool:
    return events.phase_of(line) is not None or events.is_good(line)


def _foreign_units(lines: Sequence[Line], unit_lines: Sequence[Line], strangers: set[str | None]) -> set[str]:
    """Units that are not the service's: the service's has a name or a description like it, or else has not ended
    before its last success and is not what another writer is called."""
    idents = {line.ident for line in unit_lines if line.ident}
    ends: dict[str, int] = {}
    named: set[str] = set()
    for line in lines:
        if line.source == "pid1" and (unit := unit_of(line)):
            ends[unit] = line.number if events.is_end(line) else ends.get(unit, 0)
            if _DESCRIBED.search(line.text) or any(_akin(unit, ident) for ident in idents):
                named.add(unit)
    if named:
        return set(ends) - named
    last_good = max((line.number for line in unit_lines if events.is_good(line)), default=0)
    return {
        unit
        for unit, end in ends.items()
        if 0 < end < last_good
        or not unit.endswith(".service")
        or any(ident and _akin(unit, ident) for ident in strangers)
    }


def _akin(unit: str, ident: str) -> bool:
    stem = re.split(r"[@.]", unit)[0].lower()
    return stem == ident.lower() or (len(ident) > 3 and (ident.lower() in stem or stem in ident.lower()))


def unit_of(line: Line) -> str | None:
    """The unit that a line of the service manager is about, if it says so."""
    found = events.UNIT_OF.match(line.text)
    return (found["unit"] or found["named"]) if found else None


def _is_foreign_unit(line: Line, units: set[str], servers: set[str]) -> bool:
    unit = unit_of(line)
    if unit:
        return unit in units
    if killed := _OOMD.match(line.text):
        group = _GROUP_UNIT.search(killed["group"])
        return not group or not (
            _DESCRIBED.search(group[1]) or any(_akin(group[1], ident) for ident in servers)
        )
    # "Started Session 3 of User root": a description without a unit, which may be ours only if it says so.
    described = re.match(r"(?:Start|Stopp|Finish|Reload)\w+ (.*)", line.text)
    return described is not None and not _DESCRIBED.search(described[1])


class _Processes:
    """Whose processes the kernel speaks of."""

    def __init__(self, lines: Iterable[Line], unit_lines: Iterable[Line], foreign_units: set[str]) -> None:
        self._foreign_units = foreign_units
        self._pids: set[int] = set()
        self._comms: set[str] = set()
        self._units: dict[int, str] = {}  # pid → unit in whose control group the kernel found it
        for line in unit_lines:
            self._comms.add((line.ident or "")[:_COMM_LENGTH])
            if line.pid is not None:
                self._pids.add(line.pid)
            if "pid" in line.text or "PID" in line.text or "Process " in line.text:
                found = _PID.finditer(line.text[:2000])
                self._pids.update(int(next(filter(None, match.groups()))) for match in found)
        for line in lines:
            task = _OOM_TASK.search(line.text) if line.source == "kernel" else None
            if task and (unit := _GROUP_UNIT.search(task["group"])):
                self._units[int(task["pid"])] = unit[1]

    def is_foreign(self, line: Line) -> bool:
        found = next((match for each in _NAMES_PROCESS if (match := each.search(line.text))), None)
        if found is None:
            return False
        named = found.groupdict()
        if "xid" in named and named["xid"] not in _OF_ONE_PROCESS:
            return False  # about the GPU, whoever used it
        pid = int(named.get("pid") or named.get("pid2") or 0)
        comm = named.get("comm") or named.get("comm2") or ""
        if pid in self._pids:
            return False
        if pid in self._units:
            return self._units[pid] in self._foreign_units or self._is_elsewhere(self._units[pid])
        return not (not comm or comm.startswith("<") or comm in self._comms or _COMM.match(comm))

    def _is_elsewhere(self, unit: str) -> bool:
        """Whether a unit is not called like the server, which has a telling name itself."""
        telling = [comm for comm in self._comms if _DESCRIBED.search(comm)]
        return (
            bool(telling)
            and unit.endswith(".service")
            and not (_DESCRIBED.search(unit) or any(_akin(unit, comm) for comm in telling))
        )
