"""`ddtool generate`."""

from __future__ import annotations

from typing import Annotated

import typer

from ddtool.cli.options import HostOpt, JsonOpt, ProfileOpt


def register(app: typer.Typer) -> None:
    app.command()(generate)


def generate(
    prompt: Annotated[str, typer.Argument(help="The text to continue.")],
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", min=1, help="Tokens to generate, at most.")
    ] = 64,
    temperature: Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")] = 0.0,
    profile: ProfileOpt = None,
    host: HostOpt = None,
    json: JsonOpt = False,
) -> None:
    """One completion from the running service."""
    from ddtool.cli import options, output
    from ddtool.deploy.deployment import Deployment

    chosen, name = options.selected(profile, None, host)
    timeout = float(chosen.service.deadlines.request_s)
    with Deployment(chosen, name) as deployment:
        answer = deployment.agent.call(
            "generate",
            deadline_s=timeout + 5.0,
            unit_name=deployment.unit,
            prompt=prompt,
            max_new_tokens=max_tokens,
            temperature=temperature,
            timeout_s=timeout,
        )
        if json:
            output.emit("generate", {**answer, "host": name, "round_trips": deployment.round_trips})
            return
        output.stdout().print(output.safe(answer["text"]), soft_wrap=True)
        tokens = answer["meta_info"]["completion_tokens"]
        length = f", accept length {answer['accept_length']:.2f}" if answer["accept_length"] else ""
        output.words(
            f"{tokens} tokens in {answer['seconds']:.2f} s, {tokens / answer['seconds']:.1f} tok/s{length}",
            "dim",
        )
