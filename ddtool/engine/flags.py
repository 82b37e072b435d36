"""The three flags of DDTREE, and the one environment variable they travel in.

SGLang's arguments are a dataclass whose `from_cli_args` copies declared fields only, and whose validation runs before
anybody could set more. So the flags go into the variable first; validation reads it there, also for `Engine(**kw)`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

CHANNEL = "DDTOOL_DDTREE"


@dataclass(frozen=True)
class TreeFlags:
    """What the user asked for; None: the default, which depends on the drafter's block.

    budget: nodes besides the root. topk: candidates per position. chain_seed: always keep the drafter's first choices.
    """

    budget: int | None = None
    topk: int | None = None
    chain_seed: bool | None = None

    def to_channel(self) -> str:
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return ",".join(f"{name}={int(value)}" for name, value in pairs if value is not None)

    @classmethod
    def from_channel(cls, text: str) -> TreeFlags:
        """Raises ValueError, naming the variable, on anything but `budget=N,topk=N,chain_seed=0|1`."""
        values: dict[str, Any] = {}
        for pair in filter(None, text.split(",")):
            name, _, value = pair.partition("=")
            if name not in cls.__dataclass_fields__ or not value.isdigit():
                raise ValueError(f"{CHANNEL}={text!r}: expected budget=N,topk=N,chain_seed=0|1")
            values[name] = bool(int(value)) if name == "chain_seed" else int(value)
        return cls(**values)

    @classmethod
    def from_environment(cls) -> TreeFlags:
        return cls.from_channel(os.environ.get(CHANNEL, ""))


def add_flags(original: Callable[..., None], parser: argparse.ArgumentParser) -> None:
    """Around `ServerArgs.add_cli_args`. Plain `store` actions: SGLang's --config file takes no others."""
    original(parser)
    group = parser.add_argument_group("DDTREE (ddtool)")
    group.add_argument(
        "--speculative-ddtree-budget",
        type=int,
        default=None,
        help="Nodes of the draft tree besides its root; the target verifies budget + 1 tokens a round. "
        "Default: 4 times the drafter's block.",
    )
    group.add_argument(
        "--speculative-ddtree-topk",
        type=int,
        default=None,
        help="Candidates per drafted position. Default: 8.",
    )
    group.add_argument(
        "--speculative-ddtree-chain-seed",
        type=_boolean,
        nargs="?",
        const=True,
        default=None,
        help="Keep the drafter's first choices in every tree. Default: off.",
    )


def take_flags(original: Callable[..., Any], cls: type, args: argparse.Namespace) -> Any:
    """Around `ServerArgs.from_cli_args`: flags into the channel, over what the environment said."""
    given = {
        name: getattr(args, f"speculative_ddtree_{name}", None) for name in TreeFlags.__dataclass_fields__
    }
    flags = replace(
        TreeFlags.from_environment(), **{name: value for name, value in given.items() if value is not None}
    )
    text = flags.to_channel()
    if text:
        os.environ[CHANNEL] = text
    return original(cls, args)


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False}
    try:
        return values[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}") from None
