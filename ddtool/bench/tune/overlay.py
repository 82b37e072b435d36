"""The answer as a profile: what to change, with its evidence as comments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ddtool.bench.tune.trees import Shape
from ddtool.profile import Profile, available
from ddtool.profile.loading import merge

Json = dict[str, Any]


def text(profile: Profile, shape: Shape, evidence: Sequence[str], beside: Path | None = None) -> str:
    """A profile that extends `profile` and runs `shape`. beside: the file that it will be written to.

    Where the profile itself extends another, its own keys are repeated: `extends` goes one level deep.
    """
    own = yaml.safe_load(Path(profile.source).read_text(encoding="utf-8")) or {}
    changes = changed(profile, shape)
    if "extends" in own:
        base = located(str(own.pop("extends")), Path(profile.source), beside)
        merge(own, changes)
        changes = own
    else:
        base = located_profile(profile, beside)
    body = yaml.safe_dump({"extends": base, **changes}, sort_keys=False, allow_unicode=True, width=120)
    return "".join(f"# {line}".rstrip() + "\n" for line in evidence) + body


def changed(profile: Profile, shape: Shape) -> Json:
    """Sections that differ from the profile's own."""
    spec, provider = profile.speculative, profile.engine.provider
    if shape.is_chain and provider == "plugin":  # the chain is stock SGLang's
        provider = "builtin"
    elif not shape.is_chain and spec.algorithm != "DDTREE":
        provider = "plugin"
    speculative = {
        "algorithm": "DFLASH" if shape.is_chain else "DDTREE",
        "block_size": spec.block_size,
        "budget": shape.budget or None,
        "topk": shape.topk or None,
    }
    engine = {} if provider == profile.engine.provider else {"engine": {"provider": provider}}
    return {**engine, "speculative": speculative}


def located_profile(profile: Profile, beside: Path | None) -> str:
    """By its name where a name finds it from anywhere, else by its path."""
    named = available().get(profile.name)
    if (
        named is not None
        and named.resolve() == Path(profile.source).resolve()
        and not _is_hidden(profile.name, beside)
    ):
        return profile.name
    return _path(Path(profile.source), beside)


def located(base: str, child: Path, beside: Path | None) -> str:
    """A base as the overlay has to write it: relative paths and siblings are the child's."""
    if "/" in base:
        return _path(child.parent / base, beside)
    for suffix in (".yaml", ".yml"):
        if (child.parent / f"{base}{suffix}").is_file() and (
            beside is None or beside.parent.resolve() != child.parent.resolve()
        ):
            return _path(child.parent / f"{base}{suffix}", beside)
    return base


def _is_hidden(name: str, beside: Path | None) -> bool:
    """Whether another profile of that name lies beside the overlay and would be taken first."""
    return beside is not None and any(
        (beside.parent / f"{name}{suffix}").is_file() for suffix in (".yaml", ".yml")
    )


def _path(path: Path, beside: Path | None) -> str:
    relative = os.path.relpath(path.resolve(), (beside.parent if beside else Path()).resolve())
    return relative if relative.startswith("..") else f"./{relative}"
