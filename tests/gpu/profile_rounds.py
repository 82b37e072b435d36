"""Where a round's time goes: SGLang's profiler over some rounds of each arm, added up.

    python3 tests/gpu/profile_rounds.py --name light --target DIR --draft DIR --arms chain tree:32 --commit SHA

A cell an arm: time between rounds, time that the GPU works in it, launches, copies to the host, and what takes longest.
The profiler slows the host down; `arms.py` says how long a round takes without it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cells
from server import Arm, Server, platform

PORT = 33000
LONGEST = 15
TRACE_S = 120
ON_GPU = {"kernel", "gpu_memcpy", "gpu_memset"}
COLLECTIVE = ("nccl", "cross_device_reduce", "all_reduce", "allreduce", "all_gather")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", type=cells.run_name, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", default=["chain", "tree:32"])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--tp", type=int, default=1)
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, f"profile-{options.name}")
    for text in options.arms:
        name = f"{cells.arm_file(text)}-b{options.batch}"
        if done.missing([name]):
            done.write(name, {"arm": text, "batch": options.batch, **profile(text, name, options, done)})
        print(line(done.read(name)), flush=True)


def profile(text: str, name: str, options: argparse.Namespace, done: cells.Cells) -> dict[str, Any]:
    flags, environment = platform(options.platform)
    flags |= {"model-path": options.target, "tp-size": options.tp, **Arm.parse(text, options.draft).flags}
    traces = options.cells / "traces" / name
    shutil.rmtree(traces, ignore_errors=True)
    prompts = cells.prompts(options.batch)
    server = Server(flags, PORT, done.log(name), environment)
    try:
        server.wait()
        server.generate(prompts, 64, 0)
        # one step more than rounds: the first is the prefill
        activities = ["CPU", "GPU"] if options.platform == "gpu" else ["CPU"]
        server.post(
            "/start_profile",
            {"output_dir": str(traces), "num_steps": options.rounds + 1, "activities": activities},
        )
        server.generate(prompts, 16 * options.rounds, 0)
        trace = finished_trace(traces)
    finally:
        server.stop()
        done.save()
    return totals(json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"], options.rounds)


def finished_trace(folder: Path) -> Path:
    """The server writes it when the steps are over; it is whole when it no longer grows. The first rank's."""
    deadline, size = time.monotonic() + TRACE_S, -1
    while time.monotonic() < deadline:
        found = sorted(folder.glob("*TP-0*.trace.json.gz")) or sorted(folder.glob("*.trace.json.gz"))
        if found and found[0].stat().st_size == size:
            return found[0]
        size = found[0].stat().st_size if found else -1
        time.sleep(2)
    raise RuntimeError(f"no trace in {folder} after {TRACE_S} s")


def totals(events: Iterable[Mapping[str, Any]], rounds: int) -> dict[str, Any]:
    """Per round, over all events of a Chrome trace with a duration."""
    timed = [event for event in events if event.get("ph") == "X"]
    device = [event for event in timed if event.get("cat") in ON_GPU]
    host = [event for event in timed if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    spans = device or timed
    elapsed = max(event["ts"] + event["dur"] for event in spans) - min(event["ts"] for event in spans)
    calls = Counter(event["name"] for event in host)
    busy = sum(event["dur"] for event in device)
    reducing = sum(event["dur"] for event in device if any(word in event["name"] for word in COLLECTIVE))
    return {
        "rounds": rounds,
        "us_between_rounds": round(elapsed / rounds, 1),
        "gpu_busy_us": round(busy / rounds, 1),
        "gpu_idle_us": round((elapsed - busy) / rounds, 1),  # mostly waiting for the host
        "collectives_us": round(reducing / rounds, 1),
        "gpu_operations": round(len(device) / rounds, 1),
        "copies_to_host": round(sum("DtoH" in event["name"] for event in device) / rounds, 2),
        "host_calls": {name: round(count / rounds, 2) for name, count in calls.most_common(LONGEST)},
        "longest_on_gpu_us": longest(device, rounds),
        "longest_on_host_us": longest([event for event in timed if event.get("cat") == "cpu_op"], rounds),
    }


def longest(events: Iterable[Mapping[str, Any]], rounds: int) -> dict[str, float]:
    """Microseconds a round by name. Host operations contain each other."""
    total: Counter[str] = Counter()
    for event in events:
        total[event["name"][:100]] += event["dur"]
    return {name: round(duration / rounds, 2) for name, duration in total.most_common(LONGEST)}


def line(cell: Mapping[str, Any]) -> str:
    return (
        f"{cell['arm']:10} batch {cell['batch']}: {cell['us_between_rounds']} us between rounds, GPU busy "
        f"{cell['gpu_busy_us']} us, {cell['gpu_operations']} operations, {cell['copies_to_host']} copies to the host"
    )


if __name__ == "__main__":
    main()
