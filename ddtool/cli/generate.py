"""`ddtool generate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileOpt

if TYPE_CHECKING:
    from ddtool.deploy.rounds import DraftedRound


def register(app: typer.Typer) -> None:
    app.command()(generate)


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=1, help="Tokens to generate, at most.")
    ] = 64,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    tree: Annotated[
        bool, typer.Option("--tree", help="Draw a round: its tree, and the path that was accepted.")
    ] = False,
    number: Annotated[
        int | None,
        typer.Option(
            "--round",
            min=1,
            help="The round that --tree draws; default: where the tree gained most over the drafter's first choices.",
            show_default=False,
        ),
    ] = None,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """One completion from the running service."""
    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment
    from ddtool.deploy.rounds import drafted_rounds

    chosen, name = options.selected(profile, None, host)
    timeout = float(chosen.service.deadlines.request_s)
    traced = tree or number is not None
    with Deployment(chosen, name) as deployment:
        answer = deployment.agent.call(
            "generate.rounds" if traced else "generate",
            deadline_s=timeout + 5.0,
            unit_name=deployment.unit,
            prompt=prompt,
            max_new_tokens=max_tokens,
            temperature=temperature,
            timeout_s=timeout,
        )
        rounds = drafted_rounds(answer) if traced else []
        drawn = chosen_round(rounds, number, answer["meta_info"]) if traced else None
        if json:
            output.emit("generate", _data(answer, rounds, drawn, name, deployment.round_trips))
            return
    output.stdout().print(output.safe(answer["text"]), soft_wrap=True)
    if drawn is not None:
        _draw(drawn, rounds)
    _measured(answer)


def chosen_round(rounds: Sequence[DraftedRound], number: int | None, meta: dict[str, Any]) -> DraftedRound:
    from ddtool.deploy.rounds import most_telling
    from ddtool.errors import DdtoolError, UsageError

    if not rounds:
        if meta["completion_tokens"] == 1:
            raise UsageError(
                "the request ended with its first token, which needs no round",
                hint="-n 64, or another prompt",
            )
        raise DdtoolError(
            "the running service reported no round of this request",
            why="only ddtool's own engine (provider: plugin, algorithm: DDTREE) does, from this version of it on",
            hint="ddtool status says who answers; ddtool deploy ships this version's engine",
        )
    if number is None:
        return most_telling(rounds)
    if number > len(rounds):
        raise UsageError(
            f"there is no round {number}: this request took {len(rounds)}", hint="a smaller --round"
        )
    return rounds[number - 1]


def _data(
    answer: dict[str, Any],
    rounds: Sequence[DraftedRound],
    drawn: DraftedRound | None,
    host: str,
    round_trips: int,
) -> dict[str, Any]:
    """The object of --json; with --tree, every round's count of accepted tokens, and one round in full."""
    data = {name: value for name, value in answer.items() if name not in ("rounds", "texts")}
    if drawn is not None:
        data |= {"accepted": [len(one.path) for one in rounds], "tree": drawn.to_json()}
    return {**data, "host": host, "round_trips": round_trips}


def _draw(drawn: DraftedRound, rounds: Sequence[DraftedRound]) -> None:
    from ddtool.cli import output
    from ddtool.cli.rounds import drawing, summary

    console = output.stdout()
    console.print()
    console.print(summary(drawn, len(rounds)), soft_wrap=True)
    console.print(drawing(drawn, console.width))
    counts = " ".join(str(len(one.path)) for one in rounds)
    output.words(f"accepted by round: {counts}; --round N draws another", "dim")


def _measured(answer: dict[str, Any]) -> None:
    from ddtool.cli import output

    tokens, seconds = answer["meta_info"]["completion_tokens"], answer["seconds"]
    length = f", accept length {answer['accept_length']:.2f}" if answer["accept_length"] else ""
    output.words(f"{tokens} tokens in {seconds:.2f} s, {tokens / seconds:.1f} tok/s{length}", "dim")
