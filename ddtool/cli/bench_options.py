"""Options of `bench`, `bench compare` and `tune`, each with one spelling and one bound.

The bounds are there so that a slip of the finger is told before it fills the memory.
"""

from __future__ import annotations

from typing import Annotated

import typer

MOST = 10_000  # requests of a pass, repeats, visits
MOST_TOKENS = 1 << 20
HOTTEST = 100.0
REQUESTS = "Requests of a pass, at least one for each slot; default: two, at least 8."


def temperature(value: float | None) -> float | None:
    """Raises BadParameter outside of its range. Typer's own says of nan that it is too large."""
    if value is not None and not 0 <= value <= HOTTEST:
        raise typer.BadParameter(f"{value:g} is no number from 0 to {HOTTEST:g}")
    return value


ArmsOpt = Annotated[
    str | None,
    typer.Option(
        "--arms",
        help="plain, chain, tree:BUDGET[:TOPK], with commas between; default: plain, chain and the profile's tree.",
        show_default=False,
    ),
]
WorkloadsOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        metavar="NAME",
        help="code, chat, reasoning, a FILE.jsonl, synthetic:IN:OUT; may be repeated. Default: code.",
        show_default=False,
    ),
]
TracedWorkloadOpt = Annotated[
    str, typer.Option("--workload", metavar="NAME", help="code, chat, reasoning or a FILE.jsonl.")
]
ConcurrencyOpt = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        metavar="N,…",
        help="So many requests at a time; default: 1, and the objective's.",
        show_default=False,
    ),
]
TunedConcurrencyOpt = Annotated[
    str | None,
    typer.Option(
        "--concurrency",
        metavar="N,…",
        help="So many requests at a time; what is recommended is for the first. Default: 1, and the objective's.",
        show_default=False,
    ),
]
RateOpt = Annotated[
    str | None,
    typer.Option("--rate", metavar="R,…", help="Requests a second, arriving by chance.", show_default=False),
]
ContextOpt = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="TOKENS,…",
        help="Measure the cost of a round behind prompts of so many random tokens, too.",
        show_default=False,
    ),
]
WidthsOpt = Annotated[
    str | None,
    typer.Option(
        "--widths",
        metavar="N,…",
        help="Tokens of a verify, a tree's budget and the root; each is a server start. Default: from the block to "
        "65, eight for a block of 8.",
        show_default=False,
    ),
]
TokensOpt = Annotated[
    int, typer.Option("--tokens", min=2, max=MOST_TOKENS, help="Tokens of an answer, at most.")
]
TracedTokensOpt = Annotated[
    int, typer.Option("--tokens", min=32, max=MOST_TOKENS, help="Tokens of an answer, at most.")
]
PromptsOpt = Annotated[
    int | None, typer.Option("--prompts", min=1, max=MOST, help=REQUESTS, show_default=False)
]
TracedPromptsOpt = Annotated[
    int | None, typer.Option("--prompts", min=2, max=MOST, help=REQUESTS, show_default=False)
]
RepeatsOpt = Annotated[
    int, typer.Option("--repeats", min=1, max=MOST, help="Passes over each load, of every server start.")
]
VisitsOpt = Annotated[
    int,
    typer.Option("--visits", min=1, max=MOST, help="Server starts of each arm, alternating: A B C, C B A."),
]
TemperatureOpt = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        metavar="T",
        callback=temperature,
        help="Default: the profile's, else 0.",
        show_default=False,
    ),
]
SeedOpt = Annotated[
    int, typer.Option("--seed", help="Of synthetic prompts and of arrivals; the same for all arms.")
]
IgnoreEosOpt = Annotated[
    bool,
    typer.Option(
        "--ignore-eos",
        help="Every answer has all its tokens; what follows a text's end repeats itself, which flatters drafts.",
    ),
]
WarmCacheOpt = Annotated[
    bool, typer.Option("--warm-cache", help="Leave the prefix cache as the pass before left it; a taint.")
]
SloOpt = Annotated[
    str | None,
    typer.Option(
        "--slo",
        metavar="ttft=500ms,tpot=20ms",
        help="Bounds (ttft, tpot, e2e) that a request must keep to count as goodput.",
        show_default=False,
    ),
]
LosslessOpt = Annotated[
    bool,
    typer.Option("--lossless", help="Compare the answers with plain decoding's, too; exit 8 on a loss."),
]
ReportOpt = Annotated[
    str | None,
    typer.Option(
        "--report", metavar="FILE", help="Write the report with its plots, one HTML page.", show_default=False
    ),
]
OutOpt = Annotated[
    str | None,
    typer.Option(
        "--out", metavar="FILE", help="Write the answer as a profile, with its evidence.", show_default=False
    ),
]
UrlOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        metavar="ARM=URL",
        help="Measure servers that run already, from this machine; once for each arm. Nothing restarts.",
        show_default=False,
    ),
]
ResumeOpt = Annotated[
    str | None,
    typer.Option(
        "--resume",
        metavar="RUN",
        help="Go on with a run that broke off: only what it has not measured.",
        show_default=False,
    ),
]
FromOpt = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="RUN",
        help="Answer from what a tuning run measured; no host is asked.",
        show_default=False,
    ),
]
AttachOpt = Annotated[
    bool, typer.Option("--attach", help="Watch the benchmark that runs on the host, or its last one.")
]
