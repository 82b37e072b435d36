"""The whole of `ddtool tune` on one lent card: predicted and measured budgets side by side.

    python3 tests/gpu/tune.py --name dense --target DIR --draft DIR --commit SHA [--experts 384:8]

Stages, each resumed where it was cut off: `fit` measures the chain and a tree of each width, and a server traces what
the drafter says; with --experts SGLang's recorder counts them; `verify` runs the answer against its neighbours; then
answer.json has what `ddtool tune --from FOLDER/fit` says, and half.json what half of the widths say of the others.
Servers are started while as long as the longest group took is left of --minutes: give the command again. The exit
status is 3 while there is more to do.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import cells
from server import AT_ONCE, REQUEST_S, Arm, Server, platform, start_all

from ddtool.agent.load import run_pass
from ddtool.agent.load_gpu import Sampler
from ddtool.bench import asked, passes
from ddtool.bench.compare import arrow, differences
from ddtool.bench.passes import Cell, Design, Pass
from ddtool.bench.store import Folder, Writer
from ddtool.bench.tune import answer, experts, plan, reading
from ddtool.bench.tune.found import Found, choice, tried
from ddtool.bench.tune.predict import Predictor
from ddtool.bench.tune.rounds import CONCURRENCY
from ddtool.bench.tune.trees import CHAIN
from ddtool.bench.workloads import Workload

MORE = 3  # exit status: there is more to do
COUNTED = "experts"  # the arm whose server counts experts
SAME = ("fingerprint", "plan", "how")  # of run.json
MAY_CHANGE = ("fingerprint.date", "fingerprint.commit")
Flags = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--name", type=cells.run_name, required=True, help="of this run; its files lie under it"
    )
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--experts", help="COUNT:CHOSEN of the target; without: dense")
    parser.add_argument("--block", type=int, default=8)
    parser.add_argument("--widths", default=",".join(map(str, plan.STEPS)))
    parser.add_argument("--concurrency", default="1,16", help="the answer is for the first")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--verify-repeats", type=int, default=6)
    parser.add_argument("--together", type=int, default=4, help="servers that live side by side on the card")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument(
        "--port", type=int, default=32100, help="of the first server; another for another card"
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="of this command")
    cells.common_options(parser)
    return parser


def main() -> None:
    options = parser().parse_args()
    done = cells.open_cells(options, options.name)
    rig = Rig(options, done)
    try:
        finished = run(rig)
    finally:
        done.save()
    sys.exit(0 if finished else MORE)


def run(rig: Rig) -> bool:
    """All stages, as far as time goes."""
    fit = rig.folder(
        "fit", lambda: plan.arms(plan.widths(rig.options.widths, rig.options.block)), rig.options.repeats
    )
    if not rig.measure(fit, rig.options.together) or not rig.trace(fit) or not rig.count_experts(fit):
        return False
    found = reading.found(fit, None)
    chosen = (
        found.main[0]
        if rig.first is None
        else next(one for one in found.main if one.concurrency == rig.first)
    )
    verify = rig.folder(
        "verify",
        lambda: [found.name(shape) for shape in tried(found, chosen)],
        rig.options.verify_repeats,
    )
    arms = Design.from_json(verify.run["plan"]).arms
    if not rig.measure(
        verify, 1 if rig.options.together == 1 else len(arms)
    ):  # what is compared runs side by side
        return False
    found = reading.found(fit, verify)
    told = answer.answer(found, reading.about(fit, verify), choice(found, chosen), chosen, "")
    halves = half(found)
    rig.done.write("answer", told)
    rig.done.write("half", {"rows": halves, "best": best_tried(found)})
    print("\n".join(report(told, halves, best_tried(found))), flush=True)
    return True


class Rig:
    """The card and the clock."""

    def __init__(self, options: argparse.Namespace, done: cells.Cells) -> None:
        self.options, self.done = options, done
        loads = [int(word) for word in options.concurrency.split(",")]
        self.common, self.environment = platform(options.platform, max(AT_ONCE, *loads), options.tokens)
        self.common |= {"model-path": options.target, "tp-size": options.tp}
        if cells.installed("prometheus-client"):  # then the servers time the steps of a tree
            self.common["enable-metrics"] = True
        self.first = loads[0]
        self._until = time.monotonic() + 60 * options.minutes
        self._began, self._longest = time.monotonic(), 0.0

    @property
    def prompts(self) -> Path:
        """The workload, as a file that the load client's machinery reads."""
        path = self.done.folder / "code.jsonl"
        texts = cells.prompts(self.options.prompts)
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        return path

    def folder(self, name: str, arms: Callable[[], Sequence[str]], repeats: int) -> Folder:
        """A run's folder; made when it is not there. arms: a function, since they may be known only then.

        Raises SystemExit for one that began under other conditions: two halves of two machines are no run.
        """
        about = self.about(name, arms(), repeats)
        path = self.done.folder / name
        if not (path / "run.json").exists():
            return Folder.create(about, self.done.folder)
        folder = Folder(path)
        if changed := [*changes(folder.run, about)]:
            raise SystemExit(
                f"{path} began under other conditions:\n  "
                + "\n  ".join(changed)
                + "\nPut that back as it was, or give another --name."
            )
        return folder

    def about(self, name: str, arms: Sequence[str], repeats: int) -> dict[str, Any]:
        """run.json of a run that begins now."""
        options = self.options
        design, _ = self.design(arms, repeats)
        design = replace(design, cells=[fewer(cell) for cell in design.cells], timeout_s=REQUEST_S)
        count, _, chosen = (options.experts or "").partition(":")
        how = {
            "traced": CONCURRENCY.sub("", design.cells[0].key, count=1),
            "workload": "code",
            "typed": "code",
            "topk": plan.TOPK,
            "experts": [int(count), int(chosen)] if count else None,
        }
        return {
            "schema": "ddtool.bench.run/1",
            "run": name,
            "profile": options.name,
            "host": "lent",
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "plan": design.to_json(),
            "workloads": [str(self.prompts)],
            "fingerprint": {
                **cells.fingerprint(options.commit),
                "target": options.target.name,
                "draft": options.draft.name,
                "flags": {name: value for name, value in self.common.items() if name != "model-path"},
            },
            "taints": ["rehearsal on a CPU"] if options.platform == "cpu" else [],
            "warnings": [],
            "objective": None,
            "how": {"tune": how} if name == "fit" else {"verifies": "fit"},
        }

    def design(self, arms: Sequence[str], repeats: int) -> tuple[Design, dict[str, Workload]]:
        options = self.options
        return asked.design(
            None,
            arms,
            [str(self.prompts)],
            concurrency=options.concurrency,
            rate=None,
            tokens=options.tokens,
            repeats=repeats,
            visits=1,
            temperature=options.temperature,
            prompts=options.prompts,
            ignore_eos=True,
        )

    def measure(self, folder: Folder, together: int) -> bool:
        """Every pass that has no end, so many servers at a time. False when time is up."""
        design = Design.from_json(folder.run["plan"])
        left = [one for one in passes.alternating(design) if one.ident not in folder.done()]
        waiting = list(dict.fromkeys(one.arm for one in left))
        waiting.sort(key=list(design.arms).index)
        while waiting:
            group, waiting = waiting[:together], waiting[together:]
            if not self.may_start():
                return False
            with ExitStack() as stack:
                servers = self.start(
                    {arm: Arm.parse(arm, self.options.draft).flags for arm in group}, {}, stack
                )
                self.passes(folder, design, [one for one in left if one.arm in group], servers)
            self.done.save()
        return True

    def trace(self, folder: Folder) -> bool:
        """One pass of a server that keeps no drafted token and writes what the drafter says."""
        design = Design.from_json(folder.run["plan"])
        visit = plan.traced_visit(design, design.cells[0].workload)
        (one,) = visit.passes
        if one.ident in folder.done():
            return True
        if not self.may_start():
            return False
        path = folder.path / reading.TRACE_FILE
        path.unlink(missing_ok=True)
        flags = Arm.parse(f"tree:{self.options.block - 1}", self.options.draft).flags
        with ExitStack() as stack:
            servers = self.start(
                {plan.TRACE: flags}, {plan.SWITCHES: f"verify-trace:{path.resolve()},every-token"}, stack
            )
            self.passes(folder, replace(design, warmup=visit.warm_up), [one], servers)
        return True

    def count_experts(self, folder: Folder) -> bool:
        """Experts that the largest tree's first nodes chose, by SGLang's own recorder."""
        path = folder.path / reading.EXPERTS_FILE
        if not self.options.experts or path.exists() or self.options.platform == "cpu":
            return True  # on a CPU SGLang's recorder asks for a stream that there is none of
        if not self.may_start():
            return False
        widest = max(plan.widths(self.options.widths, self.options.block))
        flags = {**Arm.parse(f"tree:{widest - 1}", self.options.draft).flags, **experts.FLAGS}
        dumps = self.done.folder / "dumps"
        with ExitStack() as stack:
            servers = self.start({COUNTED: flags}, {experts.FOLDER: str(dumps.resolve())}, stack)
            server = servers[COUNTED]
            server.post(experts.START, {})
            server.generate(cells.prompts(2)[:1], min(64, self.options.tokens), 0.0)
            server.post(experts.STOP, {})
            server.post(experts.DUMP, {})
        forwards = [one for dump in sorted(dumps.glob("*.pt")) for one in experts.read_dump(dump, widest)]
        counted = experts.distinct(forwards, [1, *plan.widths(self.options.widths, self.options.block)])
        path.write_text(json.dumps(counted))
        for dump in dumps.glob("*.pt"):
            dump.unlink()
        print(f"experts by width, over {len(forwards)} forwards: {counted}", flush=True)
        return True

    def may_start(self) -> bool:
        """Whether a group of servers like the longest so far would end in time; the first may always."""
        now = time.monotonic()
        self._longest, self._began = max(self._longest, now - self._began), now
        return now + self._longest < self._until

    def start(
        self, flags: dict[str, Flags], environment: dict[str, str], stack: ExitStack
    ) -> dict[str, Server]:
        everything = {arm: {**self.common, **own} for arm, own in flags.items()}
        variables = {**self.environment, **environment}
        return start_all(everything, self.options.port, self.done.arm_log, variables, stack)

    def passes(
        self, folder: Folder, design: Design, wanted: Sequence[Pass], servers: dict[str, Server]
    ) -> None:
        """Memory and power are those of the cards, with all the servers that live there."""
        _, workloads = self.design(list(design.arms), design.repeats)
        specs = passes.specs(wanted, design, workloads, folder.attempts())
        with (
            Writer(folder.samples_path) as write,
            Sampler(lambda: set().union(*(server.pids for server in servers.values()))) as gpu,
        ):
            for one, spec in zip(wanted, specs, strict=True):
                at = {"address": "127.0.0.1", "port": servers[one.arm].port, "api_key": None}
                about = {"server": {"argv": servers[one.arm].argv}}
                end = run_pass({**spec, **at, **about}, write, threading.Event(), gpu)
                print(f"{one.ident}  {end['seconds']:.2f} s", flush=True)


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """`fingerprint.card: A → B` for whatever a run's two halves must have in common."""
    old, new = ({part: about[part] for part in SAME} for about in (before, json.loads(json.dumps(now))))
    for one in differences(old, new):
        if one["what"] not in MAY_CHANGE:
            yield arrow(one)


def fewer(cell: Cell) -> Cell:
    """One request at a time is slow: eight of them say enough."""
    return replace(cell, prompts=min(cell.prompts, max(passes.LEAST_PROMPTS, cell.concurrency or 0)))


def half(found: Found) -> list[dict[str, Any]]:
    """What every second width, both ends among them, says of the others: predicted and measured tok/s by load."""
    widths = sorted({width for points in found.predictor.costs.values() for width in points})
    known = {widths[0], *widths[:-2:2], widths[-1]}
    kept = [
        one
        for one in found.timings
        if one.shape is not None and (one.shape == CHAIN or one.shape.budget + 1 in known)
    ]
    predictor = Predictor(kept, found.predictor.acceptance, found.experts)
    return [
        {
            "concurrency": load.concurrency,
            "arm": found.name(shape),
            "fitted": shape.is_chain or shape.budget + 1 in known,
            "predicted": round(predictor.rate(shape, load), 2),
            "measured": round(median(values), 2),
        }
        for load in found.main
        for shape, values in sorted(found.rates(found.timings, load).items())
    ]


def best_tried(found: Found) -> list[dict[str, Any]]:
    """For each load what is recommended against the best of all arms that were run in the same stage."""
    rows = []
    for load in found.main:
        chosen = choice(found, load)
        rates = {shape: median(values) for shape, values in found.rates(found.verified, load).items()}
        best = max(rates, key=lambda shape: rates[shape])
        rows.append(
            {
                "concurrency": load.concurrency,
                "recommended": found.name(chosen.shape),
                "best": found.name(best),
                "below": round(1 - rates[chosen.shape] / rates[best], 4),
                "why": chosen.why,
            }
        )
    return rows


def report(told: dict[str, Any], halves: list[dict[str, Any]], best: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{told['fit']['model']}, off by {told['fit']['rel_error']} at widths left out"
    for row in halves:
        numbers = f"predicted {row['predicted']:9.1f}  measured {row['measured']:9.1f}"
        kind = "fitted" if row["fitted"] else "JUDGED"
        off = row["predicted"] / row["measured"] - 1
        yield f"c{row['concurrency']:<3} {row['arm']:8} {kind}  {numbers}  {off:+.1%}"
    for row in best:
        below = f"{row['recommended']} is {row['below']:.1%} below {row['best']}, the best tried"
        yield f"c{row['concurrency']}: {row['why']}; {below}"
    for check in told["checks"]:
        yield f"{'ok' if check['ok'] else 'FAILED'}: {check['name']}: {check['detail']}"


if __name__ == "__main__":
    main()
