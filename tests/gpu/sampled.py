"""At a temperature: do chain and tree draw tokens as plain decoding does? Thousands of answers an arm.

    python3 tests/gpu/sampled.py --name t1 --target DIR --draft DIR --arms chain tree:32 --commit SHA

Few prompts, asked often, short answers. Plain decoding is asked twice, so that chance has a row too, and every arm once
more at a lower temperature: a test that does not notice that says nothing. Servers live together and answer at the same
time, so no speed is claimed. A cell for each batch. Every answer's token ids and verify rounds lie beside it, after a
line that says how they were drawn, a line an arm; they are there as soon as they are drawn, and not drawn again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cells
from arms import FALLBACK
from measure import one_pass
from server import Arm, Server, platform, start_all

from ddtool.bench import distribution

PLAIN, AGAIN = "plain", "plain again"
COOLER = 0.8  # of the temperature: what has to be noticed
Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """By prompt: the token ids of each answer, and how many rounds verified it; no number where nothing is drafted."""

    answers: dict[str, list[list[int]]]
    rounds: dict[str, list[int | None]]

    @property
    def verified(self) -> list[tuple[int, int]]:
        """(tokens, rounds) of each answer that was drafted."""
        return [
            (len(ids), count)
            for prompt, counts in self.rounds.items()
            for ids, count in zip(self.answers[prompt], counts, strict=True)
            if count
        ]

    @property
    def accept_length(self) -> float:
        """As SGLang counts: prefill's token is among them, which is much of a short answer. 1 for plain decoding."""
        rounds = sum(rounds for _, rounds in self.verified)
        return sum(tokens for tokens, _ in self.verified) / rounds if rounds else 1.0

    @property
    def accepted(self) -> int:
        """Drafted tokens that were kept: neither prefill's nor the one that every round says itself."""
        return sum(tokens - 1 - rounds for tokens, rounds in self.verified)


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
    undrawn = [name for name in missing if not answers_file(done, name).exists()]
    if undrawn:
        with ExitStack() as stack:
            stack.callback(done.save)  # logs of servers that did not start come back too
            servers = start(options, done, stack)
            for name in undrawn:
                rows = draw_all(servers, names[name], options)
                write_answers(done, name, drawn_by(servers, names[name], options, done), rows)
    for name in missing:
        done.write(name, judge(*read_answers(done, name)))
    for name in names:
        print("\n".join(table(done.read(name))), flush=True)


def start(options: argparse.Namespace, done: cells.Cells, stack: ExitStack) -> dict[str, Server]:
    common, environment = platform(options.platform)
    common |= {"model-path": options.target, "tp-size": options.tp}
    flags = {text: {**common, **Arm.parse(text, options.draft).flags} for text in [PLAIN, *options.arms]}
    return start_all(flags, options.port, done.arm_log, environment, stack)


def draw_all(servers: Mapping[str, Server], batch: int, options: argparse.Namespace) -> dict[str, Row]:
    """By row: an arm's answers, then those at the lower temperature; plain decoding's are both of the first kind."""
    cool = options.temperature * COOLER

    def rows(arm: str) -> list[tuple[str, Row]]:
        second = (AGAIN, options.temperature) if arm == PLAIN else (cooler(arm), cool)
        wanted = [(arm, options.temperature), second]
        return [(row, draw(servers[arm], batch, temperature, options)) for row, temperature in wanted]

    with ThreadPoolExecutor(len(servers)) as pool:
        return dict(row for of_arm in pool.map(rows, servers) for row in of_arm)


def draw(server: Server, batch: int, temperature: float, options: argparse.Namespace) -> Row:
    texts = cells.prompts(options.prompts)
    found = one_pass(server, texts * options.answers, batch, options.tokens, temperature).completions
    by_prompt = {str(number): found[number :: len(texts)] for number in range(len(texts))}
    return Row(
        {prompt: [one.ids for one in asked] for prompt, asked in by_prompt.items()},
        {prompt: [one.meta.get("spec_verify_ct") for one in asked] for prompt, asked in by_prompt.items()},
    )


def drawn_by(
    servers: Mapping[str, Server], batch: int, options: argparse.Namespace, done: cells.Cells
) -> Json:
    """Of the cell, what is known only while these servers are there."""
    return {
        **done.fingerprint,
        "temperature": options.temperature,
        "batch": batch,
        "tokens": options.tokens,
        "argv": {arm: server.argv for arm, server in servers.items()},
        "sampling_fell_back": [
            arm
            for arm, server in servers.items()
            if FALLBACK in server.log.read_text(errors="replace").lower()
        ],
    }


def judge(about: Json, drawn: Mapping[str, Row]) -> Json:
    """Each row against plain decoding's first; and whether an arm is what its name says, for a server that drafts
    nothing draws as plain decoding does."""
    others = [row for row in drawn if row != PLAIN]
    plain = drawn[PLAIN].answers
    with ProcessPoolExecutor(min(len(others), 8)) as pool:
        found = list(
            pool.map(distribution.compare, [plain] * len(others), [drawn[row].answers for row in others])
        )
    return {
        **about,
        "rows": {
            row: {
                **one.to_json(),
                "differs": one.differs,
                "words": one.words,
                "accept_length": round(drawn[row].accept_length, 4),
                "accepted": drawn[row].accepted,
            }
            for row, one in zip(others, found, strict=True)
        },
        "accepted_nothing": [row for row in others if row != AGAIN and not drawn[row].accepted],
    }


def cooler(arm: str) -> str:
    return f"{arm} at {COOLER:g} T"


def answers_file(done: cells.Cells, name: str) -> Path:
    return done.folder / f"{name}.jsonl"


def write_answers(done: cells.Cells, name: str, about: Json, drawn: Mapping[str, Row]) -> None:
    lines = [about, *({"row": row, **asdict(one)} for row, one in drawn.items())]
    cells.whole(answers_file(done, name), "".join(json.dumps(line) + "\n" for line in lines))
    done.save()


def read_answers(done: cells.Cells, name: str) -> tuple[Json, dict[str, Row]]:
    about, *rows = map(json.loads, answers_file(done, name).read_text().splitlines())
    return about, {row["row"]: Row(row["answers"], row["rounds"]) for row in rows}


def table(cell: Json) -> Iterator[str]:
    yield f"T {cell['temperature']:g}, batch {cell['batch']}"
    for row, one in cell["rows"].items():
        verdict = "DIFFERS" if one["differs"] else "equal"
        accept = f"accept {one['accept_length']:.3f}"
        yield f"  {row:18} p {one['p']:.3f}  {verdict:8} {accept}  {one['samples']} answers, sees {one['sees']}"
    if cell["accepted_nothing"]:
        yield f"  ACCEPTED NOTHING, so they say nothing of speculation: {', '.join(cell['accepted_nothing'])}"
    if cell["sampling_fell_back"]:
        yield f"  greedy after all: {', '.join(cell['sampling_fell_back'])}"


if __name__ == "__main__":
    main()
