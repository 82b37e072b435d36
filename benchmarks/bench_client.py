"""ddtool's load client against sglang.bench_serving: the same requests to the same server, by turns, in one run.

    python benchmarks/bench_client.py --sglang-python PYTHON --tokenizer FOLDER --url http://127.0.0.1:30000
    python benchmarks/bench_client.py --sglang-python PYTHON --tokenizer FOLDER --synthetic 2000
    python benchmarks/bench_client.py --sandbox

PYTHON has SGLang; with stand-ins for what has no CPU build it also needs `--pythonpath`. `--synthetic` starts
stream_server.py with that many tokens a second for each stream; `--sandbox` starts real SGLang on this machine's CPU in
a sandbox host, and runs this script in there. Prints one JSON object: each run, and by concurrency the ratios of
ddtool's client to bench_serving's figures, of one round each.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from ddtool.agent import load  # noqa: E402

if TYPE_CHECKING:
    from ddtool.sandbox import Sandbox

METRICS = ("tok_s", "tpot_mean_ms", "tpot_median_ms", "ttft_median_ms", "itl_mean_ms")
PROMPTS = [
    "for name in os.listdir(",
    "import os\n",
    "def read(path):\n    with open(path) as",
    "class Reader:\n    def __init__(self,",
]
# It imports `datasets` for one of its data sets, which is not used here and is not everywhere installed.
BOOT = """
import runpy, sys, types
try:
    import datasets
except ImportError:
    sys.modules["datasets"] = types.SimpleNamespace(load_dataset=None)
runpy.run_module("sglang.bench_serving", run_name="__main__", alter_sys=True)
"""
Json = dict[str, Any]


def ours(args: argparse.Namespace, width: int) -> Json:
    """One pass of ddtool's client."""
    address = urlsplit(args.url)
    params = {"temperature": 0.0, "max_new_tokens": args.tokens, "ignore_eos": True}
    requests = [
        {"index": index, "prompt": "", "body": {"text": prompt, "sampling_params": params}}
        for index, prompt in enumerate(prompts(args, width))
    ]
    spec = {
        "pass": "ours",
        "attempt": 1,
        "address": address.hostname,
        "port": address.port,
        "requests": requests,
        "warmup": requests[:1],
        "concurrency": width,
        "flush_cache": True,
        "timeout_s": 600,
    }
    lines: list[Json] = []
    begun = time.process_time()
    end = load.run_pass(spec, lines.append, threading.Event())
    used = time.process_time() - begun
    samples = [line for line in lines if line["kind"] == "sample"]
    errors = [sample["error"] for sample in samples if sample["error"]]
    if errors:
        raise SystemExit(f"{len(errors)} of {len(samples)} requests failed: {errors[0]}")
    events = sum(len(sample["chunks"]) for sample in samples)
    tokens = sum(sample["completion_tokens"] for sample in samples)
    tpots = [tpot(sample) for sample in samples]
    gaps = [gap for sample in samples for gap in itl(sample["chunks"])]
    return {
        "tok_s": tokens / end["seconds"],
        "tpot_mean_ms": 1000 * statistics.mean(tpots),
        "tpot_median_ms": 1000 * statistics.median(tpots),
        "ttft_median_ms": 1000 * statistics.median(sample["chunks"][0][0] for sample in samples),
        "itl_mean_ms": 1000 * statistics.mean(gaps),
        "seconds": end["seconds"],
        "tokens": tokens,
        "events": events,
        "cpu_us_per_event": 1e6 * used / events,
    }


def tpot(sample: Json) -> float:
    return float((sample["e2e_s"] - sample["chunks"][0][0]) / (sample["completion_tokens"] - 1))


def itl(chunks: list[list[float]]) -> list[float]:
    """As bench_serving has it: an event's gap is shared out over its tokens."""
    found = []
    for (before, had), (now, has) in pairwise(chunks):
        found += [(now - before) / (has - had)] * int(has - had)
    return found


def theirs(args: argparse.Namespace, width: int) -> Json:
    """One run of sglang.bench_serving, with its own figures."""
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder, "prompts.jsonl"), Path(folder, "out.jsonl")
        turns = [[{"content": prompt}, {"content": "x"}] for prompt in prompts(args, width)]
        data.write_text("".join(json.dumps({"conversations": item}) + "\n" for item in turns))
        command = [
            args.sglang_python,
            "-c",
            BOOT,
            "--backend",
            "sglang",
            "--base-url",
            args.url,
        ]
        command += ["--model", args.tokenizer, "--dataset-name", "custom", "--dataset-path", str(data)]
        command += ["--num-prompts", str(len(turns)), "--sharegpt-output-len", str(args.tokens)]
        command += ["--max-concurrency", str(width), "--flush-cache", "--disable-tqdm"]
        command += ["--ready-check-timeout-sec", "0", "--output-file", str(out)]
        env = {**os.environ, "PYTHONPATH": args.pythonpath or "", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode or not out.exists():
            raise SystemExit(f"bench_serving failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        said = json.loads(out.read_text())
    if said["completed"] != len(turns):
        raise SystemExit(f"bench_serving completed {said['completed']} of {len(turns)} requests")
    return {
        "tok_s": said["output_throughput"],
        "tpot_mean_ms": said["mean_tpot_ms"],
        "tpot_median_ms": said["median_tpot_ms"],
        "ttft_median_ms": said["median_ttft_ms"],
        "itl_mean_ms": said["mean_itl_ms"],
        "seconds": said["duration"],
        "tokens": said["total_output_tokens"],
    }


def prompts(args: argparse.Namespace, width: int) -> list[str]:
    """The same for both; no two alike, so that none is in the cache."""
    return [f"# {index}\n{PROMPTS[index % len(PROMPTS)]}" for index in range(max(8, width * args.per_user))]


def measure(args: argparse.Namespace) -> Json:
    runs = []
    for number in range(args.rounds):
        for width in args.concurrency:
            order = [ours, theirs] if number % 2 == 0 else [theirs, ours]
            for client in order:
                runs.append(
                    {"round": number, "concurrency": width, "client": client.__name__, **client(args, width)}
                )
                print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    return {"runs": runs, "ratios": {str(width): ratios(runs, width) for width in args.concurrency}}


def ratios(runs: list[Json], width: int) -> Json:
    """Ours to theirs: the median over the rounds, and each."""
    found = {}
    for metric in METRICS:
        by = {(run["round"], run["client"]): run[metric] for run in runs if run["concurrency"] == width}
        values = [by[number, "ours"] / by[number, "theirs"] for number, client in by if client == "ours"]
        found[metric] = {
            "median": round(statistics.median(values), 4),
            "values": [round(v, 4) for v in values],
        }
    return found


def synthetic(args: argparse.Namespace) -> Json:
    """Against stream_server.py in a process of its own."""
    command = [sys.executable, str(HERE / "stream_server.py"), "--tok-s", str(args.synthetic)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            args.url = f"http://127.0.0.1:{int(server.stdout.readline())}"
            return measure(args)
        finally:
            server.terminate()


def in_sandbox(args: argparse.Namespace) -> Json:
    """Real SGLang on the CPU, plain decoding with torch's own attention; both clients beside it."""
    sys.path.insert(0, str(HERE.parent / "tests"))
    import yaml
    from support.ddtree import PLAIN
    from support.engine_server import EngineServer

    from ddtool import profile as profiles
    from ddtool import sandbox
    from ddtool.profile import launch
    from ddtool.sandbox.image import engine_layers

    loaded = profiles.load("demo")
    flags = {**launch.config_file(loaded, {}), "port": 31000, "skip-server-warmup": True}
    flags |= {flag.replace("_", "-"): value for flag, value in PLAIN.items()}
    flags |= {"max-total-tokens": 16384, "max-running-requests": 64}
    host = sandbox.up(
        "bench-client",
        layers=engine_layers(print),
        disk="1g",
        memory="16g",
        owner=os.getpid(),
        publish=[31000],
    )
    try:
        server = EngineServer.start(
            host,
            "bench-client",
            31000,
            [loaded.engine.interpreter, "-m", "sglang.launch_server"],
            launch.environment(loaded, {}, release="/nonexistent"),
            yaml.safe_dump({flag: value for flag, value in flags.items() if value is not None}),
        )
        return inside(host, args, f"http://127.0.0.1:{server.port}", loaded.model.path)
    finally:
        sandbox.down("bench-client")


def inside(host: Sandbox, args: argparse.Namespace, url: str, tokenizer: str) -> Json:
    """This script in the sandbox, by its own python3; it needs nothing of ddtool but the agent."""
    from ddtool.sandbox import exec_inside

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        files = [
            *sorted((HERE.parent / "ddtool" / "agent").glob("*.py")),
            HERE.parent / "ddtool" / "__init__.py",
        ]
        for path in [*files, Path(__file__).resolve()]:
            tar.add(path, path.relative_to(HERE.parent))
    unpack = "mkdir -p /opt/client && base64 -d | tar -xf - -C /opt/client"
    exec_inside(host, ["sh", "-c", unpack], input=base64.b64encode(archive.getvalue()).decode())
    command = ["python3", "/opt/client/benchmarks/bench_client.py", "--url", url, "--tokenizer", tokenizer]
    command += ["--sglang-python", "/opt/sglang/venv/bin/python", "--pythonpath", "/opt/sglang/cpu-standins"]
    command += ["--rounds", str(args.rounds), "--tokens", str(args.tokens), "--per-user", str(args.per_user)]
    command += ["--concurrency", *map(str, args.concurrency)]
    done = exec_inside(host, command, timeout=3600)
    if done.returncode:
        raise SystemExit(f"in the sandbox: {done.stderr[-4000:]}")
    print(done.stderr, file=sys.stderr)
    found: Json = json.loads(done.stdout)
    return {"runs": found["runs"], "ratios": found["ratios"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", help="a server that runs on this machine")
    what.add_argument("--synthetic", type=float, metavar="TOK_S", help="tokens a second of each stream")
    what.add_argument("--sandbox", action="store_true", help="real SGLang on this machine's CPU")
    parser.add_argument("--sglang-python", help="a Python with SGLang in it")
    parser.add_argument("--pythonpath", help="what that Python needs besides")
    parser.add_argument("--tokenizer", help="a folder with a tokenizer, for bench_serving to count with")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument(
        "--per-user", type=int, default=4, help="requests for each concurrent user, at least 8 in all"
    )
    args = parser.parse_args()
    if not args.sandbox and not (args.sglang_python and args.tokenizer):
        parser.error("--sglang-python and --tokenizer are needed")
    load_before = os.getloadavg()
    found = in_sandbox(args) if args.sandbox else synthetic(args) if args.synthetic else measure(args)
    about = {
        "server": "SGLang on CPU"
        if args.sandbox
        else f"synthetic, {args.synthetic} tok/s"
        if args.synthetic
        else args.url,
        "unix": round(time.time()),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load_before": [round(value, 2) for value in load_before],
        "tokens": args.tokens,
        "per_user": args.per_user,
        "rounds": args.rounds,
    }
    print(json.dumps({**about, **found}, indent=1))


if __name__ == "__main__":
    main()
