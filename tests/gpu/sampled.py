"""At a temperature: do chain and tree draw tokens as plain decoding does? Thousands of answers an arm.

    python3 tests/gpu/sampled.py --name t1 --target DIR --draft DIR --arms chain tree:32 --commit SHA

Few prompts, asked often, short answers. Plain decoding is asked twice, so that chance has a row too, and every arm once
more at a lower temperature: a test that does not notice that says nothing. Servers live together and answer at the same
time, so no speed is claimed. A cell for each batch; every answer's token ids lie beside it, a line an arm.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cells
from arms import FALLBACK
from measure import one_pass
from server import Arm, Server, platform

from ddtool.bench import distribution

PLAIN, AGAIN = "plain", "plain again"
COOLER = 0.8  # of the temperature: what has to be noticed
Answers = dict[str, list[list[int]]]  # by prompt: the token ids of each


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--name", type=cells.run_name, required=True, help="of this run; its cells lie under it"
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--arms", nargs="+", required=True, help="chain, tree:BUDGET[:TOPK][:seed]")
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 1])
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--answers", type=int, default=600, help="of each arm to each prompt")
    parser.add_argument("--tokens", type=int, default=distribution.TOKENS, help="of an answer")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--port", type=int, default=32100, help="of the first server")
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, f"sampled-{options.name}")
    names = {f"b{batch}": batch for batch in options.batches}
    missing = done.missing(list(names))
    if missing:
        with ExitStack() as stack:
            stack.callback(done.save)  # logs of servers that did not start come back too
            servers = start(options, done, stack)
            drawn = {name: draw_all(servers, names[name], options) for name in missing}
        for name in missing:
            write_answers(done.folder / f"{name}.jsonl", drawn[name])
            done.write(name, judge(drawn[name], names[name], options, done))
    for name in names:
        print("\n".join(table(done.read(name))), flush=True)


def start(options: argparse.Namespace, done: cells.Cells, stack: ExitStack) -> dict[str, Server]:
    common, environment = platform(options.platform)
    common |= {"model-path": options.target, "tp-size": options.tp}
    servers = {}
    for number, text in enumerate([PLAIN, *options.arms]):
        flags = {**common, **Arm.parse(text, options.draft).flags}
        servers[text] = Server(
            flags, options.port + 100 * number, done.log(cells.arm_file(text)), environment
        )
        stack.callback(servers[text].stop)
    for server in servers.values():
        server.wait()
    return servers


def draw_all(servers: Mapping[str, Server], batch: int, options: argparse.Namespace) -> dict[str, Answers]:
    """By row: an arm's answers, then those at the lower temperature; plain decoding's are both of the first kind."""
    cool = options.temperature * COOLER

    def rows(arm: str) -> list[tuple[str, Answers]]:
        second = (AGAIN, options.temperature) if arm == PLAIN else (cooler(arm), cool)
        wanted = [(arm, options.temperature), second]
        return [(row, draw(servers[arm], batch, temperature, options)) for row, temperature in wanted]

    with ThreadPoolExecutor(len(servers)) as pool:
        return dict(row for of_arm in pool.map(rows, servers) for row in of_arm)


def draw(server: Server, batch: int, temperature: float, options: argparse.Namespace) -> Answers:
    texts = cells.prompts(options.prompts)
    asked = texts * options.answers
    found = one_pass(server, asked, batch, options.tokens, temperature).completions
    answers: Answers = {str(number): [] for number in range(len(texts))}
    for place, completion in enumerate(found):
        answers[str(place % len(texts))].append(completion.ids)
    return answers


def judge(
    drawn: Mapping[str, Answers], batch: int, options: argparse.Namespace, done: cells.Cells
) -> dict[str, Any]:
    """Each row against plain decoding's first."""
    rows = [row for row in drawn if row != PLAIN]
    with ProcessPoolExecutor(min(len(rows), 8)) as pool:
        found = list(pool.map(distribution.compare, [drawn[PLAIN]] * len(rows), [drawn[row] for row in rows]))
    return {
        "temperature": options.temperature,
        "batch": batch,
        "tokens": options.tokens,
        "rows": {
            row: {**one.to_json(), "differs": one.differs, "words": one.words}
            for row, one in zip(rows, found, strict=True)
        },
        "sampling_fell_back": [
            arm
            for arm in options.arms
            if FALLBACK in done.log(cells.arm_file(arm)).read_text(errors="replace").lower()
        ],
    }


def cooler(arm: str) -> str:
    return f"{arm} at {COOLER:g} T"


def write_answers(path: Path, drawn: Mapping[str, Answers]) -> None:
    lines = [json.dumps({"row": row, "answers": answers}) for row, answers in drawn.items()]
    path.write_text("\n".join(lines) + "\n")


def table(cell: Mapping[str, Any]) -> Iterator[str]:
    yield f"T {cell['temperature']:g}, batch {cell['batch']}"
    for row, one in cell["rows"].items():
        verdict = "DIFFERS" if one["differs"] else "equal"
        yield f"  {row:18} p {one['p']:.3f}  {verdict:8} {one['samples']} answers, sees {one['sees']}"
    if cell["sampling_fell_back"]:
        yield f"  greedy after all: {', '.join(cell['sampling_fell_back'])}"


if __name__ == "__main__":
    main()
