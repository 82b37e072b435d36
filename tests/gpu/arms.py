"""Arms against each other: their servers live together on one card and take strict turns.

    python3 tests/gpu/arms.py --name heavy-strong --target DIR --draft DIR --arms plain chain tree:32 --commit SHA

A cell for each temperature and batch, with all arms in it. Each repeat is one pass of every arm over the same prompts;
numbers are medians over repeats. Warm-up passes are not counted.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

import cells
from measure import Pass, divergences, one_pass, summary
from server import Arm, Server, platform, start_all

PORT = 32100
FALLBACK = "falling back to greedy"  # a chain that cannot sample says so, once


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--name", type=cells.run_name, required=True, help="of this run; its cells lie under it"
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument(
        "--arms", nargs="+", required=True, help="plain, chain, tree:BUDGET[:TOPK][:seed], each with @CARDS"
    )
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--prompts", type=int, default=8, help="a larger batch takes as many as it is large")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--env", nargs="*", default=[], metavar="NAME=VALUE", help="for the servers")
    parser.add_argument(
        "--switches", nargs="*", default=[], metavar="FLAG", help="of the servers, without dashes"
    )
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, options.name)
    grid = {cell_name(t, batch): (t, batch) for t, batch in product(options.temperatures, options.batches)}
    missing = done.missing(list(grid))
    if missing:
        with ExitStack() as stack:
            stack.callback(done.save)  # logs of servers that did not start come back too
            servers = start(options, done, stack)
            for name in missing:
                done.write(name, measure(servers, *grid[name], options))
                print(table(done.read(name)), flush=True)
    else:
        print("\n".join(table(done.read(name)) for name in grid))


def cell_name(temperature: float, batch: int) -> str:
    return f"t{temperature:g}-b{batch}".replace(".", "_")


def start(options: argparse.Namespace, done: cells.Cells, stack: ExitStack) -> dict[str, Server]:
    common, environment = platform(options.platform)
    common |= {
        "model-path": options.target,
        "tp-size": options.tp,
        **dict.fromkeys(options.switches, True),
    }
    flags = {text: {**common, **Arm.parse(text, options.draft).flags} for text in options.arms}
    environment = {**environment, **cells.variables(options.env)}
    return start_all(flags, PORT, done.arm_log, environment, stack)


def measure(
    servers: dict[str, Server], temperature: float, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    texts = cells.prompts(max(options.prompts, batch))
    passes: dict[str, list[Pass]] = {name: [] for name in servers}
    prefill: dict[str, float] = {}
    for name, server in servers.items():
        one_pass(server, texts[:batch], batch, options.tokens, temperature)
        prefill[name] = min(one_pass(server, texts, batch, 1, temperature).seconds for _ in range(3))
    for repeat in range(options.repeats):
        order = list(servers)[repeat % len(servers) :] + list(servers)[: repeat % len(servers)]
        for name in order:
            passes[name].append(one_pass(servers[name], texts, batch, options.tokens, temperature))
    results = {
        name: {
            **summary(passes[name], prefill[name]),
            "divergences": compare(servers, passes, name, texts) if temperature == 0 else None,
            "sampling_fell_back": FALLBACK in servers[name].log.read_text(errors="replace").lower(),
            "argv": servers[name].argv,
        }
        for name in servers
    }
    return {
        "temperature": temperature,
        "batch": batch,
        "prompts": len(texts),
        "tokens": options.tokens,
        "repeats": options.repeats,
        "tp": options.tp,
        "environment": cells.variables(options.env),
        "arms": results,
    }


def compare(servers: dict[str, Server], passes: dict[str, list[Pass]], name: str, texts: list[str]) -> Any:
    """Against plain decoding, where it takes part, on one card if it does there; with the gap between the target's two
    best tokens at each difference."""
    judge = next((plain for plain in ("plain@1", "plain") if plain in servers), name)
    if name == judge:
        return None
    expected, found = passes[judge][0].completions, passes[name][0].completions
    return divergences(texts, expected, found, servers[judge])


def table(cell: dict[str, Any]) -> str:
    arms = cell["arms"]
    lines = [f"T {cell['temperature']:g}, batch {cell['batch']}"]
    base = arms.get("chain") or next(iter(arms.values()))
    for name, arm in arms.items():
        speed, accept = arm["tok_s"] / base["tok_s"], arm["accept_length"] / base["accept_length"]
        differ = (
            ""
            if arm["divergences"] is None
            else f"  {len(arm['divergences'])} of {cell['prompts']} differ from plain"
        )
        lines.append(
            f"  {name:16} {arm['tok_s']:8.1f} tok/s ({speed:.3f})  accept {arm['accept_length']:.3f} ({accept:.3f})  "
            f"{arm['ms_per_round']} ms a round{differ}{'  SAMPLING FELL BACK' if arm['sampling_fell_back'] else ''}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
