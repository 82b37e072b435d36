"""Does it run at all: plain decoding, the chain and the tree, one server after the other.

    python3 tests/gpu/smoke.py --pair DIR --commit SHA

A cell an arm: accept length, tok/s, and where its greedy output differs from plain decoding's.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import cells
from measure import divergences, one_pass, summary
from server import Arm, Completion, Server, platform

PORT = 32000
REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", type=Path, required=True, help="folder with target/ and draft/")
    parser.add_argument("--arms", nargs="+", default=["plain", "chain", "tree:32"])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    cells.common_options(parser)
    options = parser.parse_args()
    done = cells.open_cells(options, "smoke")
    failed = []
    for text in options.arms:
        name = cells.arm_file(text)
        if done.missing([name]):
            try:
                done.write(name, measure(Arm.parse(text, options.pair / "draft"), options, done))
            except (RuntimeError, OSError) as error:  # the other arms are still worth their minutes
                failed.append(f"{text}: {error}")
                done.save()
                continue
        print(line(done.read(name)))
    if failed:
        raise SystemExit("\n\n".join(failed))


def measure(arm: Arm, options: argparse.Namespace, done: cells.Cells) -> dict[str, Any]:
    flags, environment = platform(options.platform)
    flags |= {"model-path": options.pair / "target", **arm.flags}
    texts = cells.prompts(options.prompts)
    server = Server(flags, PORT, done.log(cells.arm_file(arm.name)), environment)
    try:
        server.wait()
        one_pass(server, texts[:2], 1, options.tokens, 0)
        prefill = one_pass(server, texts, 1, 1, 0).seconds
        passes = [one_pass(server, texts, 1, options.tokens, 0) for _ in range(options.repeats)]
    finally:
        server.stop()
    outputs = [completion.ids for completion in passes[0].completions]
    return {
        "arm": arm.name,
        "argv": server.argv,
        **summary(passes, prefill),
        "outputs": outputs,
        "divergences": against_plain(outputs, texts, done) if arm.name != "plain" else [],
    }


def against_plain(outputs: list[list[int]], texts: list[str], done: cells.Cells) -> Any:
    if done.missing(["plain"]):
        return None
    plain = [Completion(ids, {}) for ids in done.read("plain")["outputs"]]
    return divergences(texts, plain, [Completion(ids, {}) for ids in outputs], None)


def line(cell: dict[str, Any]) -> str:
    differ = cell["divergences"]
    where = (
        "not compared"
        if differ is None
        else ", ".join(f"{d['prompt']}@{d['position']}" for d in differ) or "none"
    )
    return (
        f"{cell['arm']:12} {cell['tok_s']:8.1f} tok/s  accept {cell['accept_length']:.3f}  "
        f"{cell['ms_per_round']} ms a round  differs from plain: {where}"
    )


if __name__ == "__main__":
    main()
