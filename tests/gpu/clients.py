"""ddtool's load client beside sglang.bench_serving on a card, where the server is not the one that is short of CPU.

    python3 tests/gpu/clients.py --name light --target DIR --draft DIR --commit SHA

One server, and `benchmarks/bench_client.py` against it: both clients ask the same, by turns. A cell for each number of
streams. Plain decoding says a token an event, which is the most that a client can be asked to read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cells
from server import Arm, Server, platform

BOTH = Path(__file__).resolve().parents[2] / "benchmarks" / "bench_client.py"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--name", type=cells.run_name, required=True, help="of this run; its cells lie under it"
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--arm", default="plain", help="plain, chain, tree:BUDGET[:TOPK][:seed]")
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 16, 64], help="streams")
    parser.add_argument("--rounds", type=int, default=3, help="both clients once in each")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--port", type=int, default=32100)
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, f"clients-{options.name}")
    names = {f"c{width}": width for width in options.concurrency}
    missing = done.missing(list(names))
    if missing:
        with ExitStack() as stack:
            stack.callback(done.save)  # the log of a server that did not start comes back too
            server = start(options, done, stack)
            for name in missing:
                said = subprocess.run(command(options, names[name]), stdout=subprocess.PIPE, check=True)
                done.write(name, {"argv": server.argv, **json.loads(said.stdout)})
    for name in names:
        print(line(name, done.read(name)), flush=True)


def start(options: argparse.Namespace, done: cells.Cells, stack: ExitStack) -> Server:
    flags, environment = platform(options.platform, max(options.concurrency), options.tokens)
    flags |= {"model-path": options.target, "tp-size": options.tp}
    flags |= Arm.parse(options.arm, options.draft).flags
    server = Server(flags, options.port, done.log(cells.arm_file(options.arm)), environment)
    stack.callback(server.stop)
    server.wait()
    return server


def command(options: argparse.Namespace, width: int) -> list[str]:
    """bench_serving is run by this Python, with what its server has on PYTHONPATH."""
    given = {
        "url": f"http://127.0.0.1:{options.port}",
        "sglang-python": sys.executable,
        "pythonpath": os.environ.get("PYTHONPATH", ""),
        "tokenizer": options.target,
        "concurrency": width,
        "rounds": options.rounds,
        "tokens": options.tokens,
    }
    return [sys.executable, str(BOTH), *(f"--{name}={value}" for name, value in given.items())]


def line(name: str, cell: dict[str, Any]) -> str:
    """Ours to theirs."""
    (ratios,) = cell["ratios"].values()
    return f"{name:4} " + "  ".join(f"{metric} {found['median']:.3f}" for metric, found in ratios.items())


if __name__ == "__main__":
    main()
