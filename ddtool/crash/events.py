"""What single lines tell about a service's life: phases, starts, ends, successes."""

from __future__ import annotations

import re

from ddtool.crash.model import Line

# Messages begin with these words once their prefix is gone (SGLang 0.4 to 0.5.23, vLLM). The second weight load of
# a rank is the draft's; `attempts` knows that, a line does not.
_PHASE = re.compile(
    r"(?P<args>server_args=|vLLM API server version|Starting vLLM)"
    r"|(?P<init>Init (?:torch distributed|nccl) |Initializing an? (?:V\d )?LLM engine|\[Gloo\] Rank \d+ is connected)"
    r"|(?P<draft_load>Loading draft(?:er)? model)"
    r"|(?P<load>Load weight begin|Starting to load model|Loading model weights|"
    r"(?:Multi-thread l|L)oading (?:safetensors checkpoint |pt checkpoint )?shards:)"
    r"|(?P<pool>Load weight end|Model loading took|KV Cache is allocated|Memory pool end|GPU KV cache size)"
    r"|(?P<capture>Capture .{0,80}\bbegin\b|Captur(?:e cuda graph bs|ing batches|ing CUDA graph|ing decode graph)|"
    r"Registering \d+ cuda graph addresses)"
    r"|(?P<serving>(?:INFO: +)?(?:Application startup complete|Uvicorn running on)|The server is fired up|"
    r"(?:Prefill|Decode) batch[,.( ]|(?:Engine \d+: )?Avg prompt throughput: )"
)
_DONE = re.compile(
    r"Decode batch[,.( ]|(?:Engine \d+: )?Avg prompt throughput: .*generation throughput: (?!0\.0 )|"
    r'(?:INFO: +)?\S+ - "POST /(?:v1/|generate|score|encode|classify|invocations)\S* HTTP/[\d.]+" 200|'
    r'(?:INFO: +)?\S+ - "GET /health_generate HTTP/[\d.]+" 200|Finish: obj='
)
_BATCH = re.compile(r"(?:Prefill|Decode) batch[,.( ]")

_UNIT_NAME = r"[\w@.:\\-]+\.(?:service|scope)"
UNIT_OF = re.compile(
    rf"(?P<unit>{_UNIT_NAME}): |(?:Start|Stopp|Fail|Reload|Finish)\w+ (?:to start )?(?P<named>{_UNIT_NAME})\b"
)
STARTS = re.compile(r"Start(?:ed|ing) (?!request|operation)")
STARTING = re.compile(r"Starting ")
BOOT = re.compile(r"-- (?:Boot [0-9a-f]{32} --|Reboot --)")
RESTARTS = re.compile(r".*(?:Scheduled restart job|Service RestartSec=.* expired, scheduling restart)")
# Said about a loop or about bookkeeping, after an attempt is over: they begin nothing.
_AFTERWARDS = re.compile(
    r"Stopped |Failed to start |.*: (?:Start request repeated too quickly|Failed with result 'start-limit-hit'|"
    r"Consumed |Triggering OnFailure|Unit entered failed state|Scheduled restart job)"
)
DEAD = re.compile(
    r".*: (?:Failed with result|Deactivated successfully|Succeeded\.|Unit entered failed state)|Stopped "
)
_MANAGER_END = re.compile(
    r".*: (?:(?:Main|Control) process exited|Failed |Deactivated|Succeeded\.|Killing process|State '[\w-]+' timed out|"
    r"[Ss]tart operation timed out|Start request repeated|Watchdog timeout|A process of this unit)|"
    r"Stopp(?:ing|ed) |Failed to start "
)
_PARENT_END = re.compile(
    r"Received sigquit|SIGQUIT received|Subprocess \S+ \(pid=\d+\) crashed|Child process unexpectedly failed|"
    r"(?:\w+: )?Rank \d+ scheduler died|EngineCore (?:failed to start|encountered a fatal)|"
    r"(?:\w+: )?Engine core initialization failed|(?:[\w.]+: )?EngineCore encountered an issue|"
    r"Gracefully exiting|(?:INFO: +)?Shutting down$"
)


def phase_of(line: Line) -> str | None:
    """The phase that this line says has begun; a load is always `load` here."""
    found = _PHASE.match(line.text) if line.source == "unit" else None
    return found.lastgroup if found else None


def is_good(line: Line) -> bool:
    """A batch or a request has succeeded. A prefill line comes before its batch runs and shows nothing."""
    return line.source == "unit" and _DONE.match(line.text) is not None


def is_batch(line: Line) -> bool:
    return line.source == "unit" and _BATCH.match(line.text) is not None


def is_end(line: Line) -> bool:
    """The service manager or the parent process says that it is over."""
    if line.source == "pid1":
        return _MANAGER_END.match(line.text) is not None
    return line.source == "unit" and _PARENT_END.match(line.text) is not None


def is_afterwards(line: Line) -> bool:
    return line.source == "pid1" and _AFTERWARDS.match(line.text) is not None
