"""What makes a number untrustworthy, in a sentence each: it stands beside the number and changes no exit code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ddtool.profile import Profile

CACHED_SHARE = (
    0.02  # of the prompts' tokens of an arm in a cell: a shared first token or a BOS is no warm cache
)


def of_facts(facts: Mapping[str, Any]) -> list[str]:
    """Seen on the host before anything runs."""
    venv, about = facts["venv"], facts["diagnostics"]
    found = []
    live = [patch["name"] for patch in about.get("patches", []) if patch.get("kind") != "fix"]
    if live:
        found.append(f"live diagnostics: {', '.join(live)} (`ddtool restore` takes them off)")
    known = {item["file"] for item in about.get("files", []) if item["state"] != "foreign"}
    sglang = venv.get("sglang") or {}
    foreign = [name for name in sglang.get("modified", []) if name not in known]
    strayed = [*foreign, *sglang.get("missing", [])]
    if strayed:
        found.append(f"drift: files of SGLang that are not the wheel's: {listed(strayed)}")
    standins = [item["name"] for item in venv.get("standins", [])]
    if standins:
        found.append(f"CPU stand-ins for {', '.join(standins)}: kernels interpreted, speed means nothing")
    return found


def of_profile(profile: Profile) -> list[str]:
    return [] if profile.graphs.enabled else ["eager: the profile runs without CUDA graphs"]


def of_servers(servers: Mapping[str, tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Of servers that run already: by arm the URL, and the flags as the server says them."""
    found, seen = [], dict[str, str]()
    for arm, (url, flags) in servers.items():
        if flags.get("disable_cuda_graph"):
            found.append(f"eager: {arm} decodes without CUDA graphs (disable_cuda_graph)")
        named = arm in ("plain", "chain") or arm.startswith("tree:")
        algorithm = flags.get("speculative_algorithm")
        if named and "speculative_algorithm" in flags and (arm == "plain") is bool(algorithm):
            found.append(f"{arm} is not what its name says: {url} runs {algorithm or 'no speculation'}")
        if url in seen:
            found.append(f"{arm} and {seen[url]} are one server: {url}")
        seen.setdefault(url, arm)
    return found


def listed(names: Sequence[str], most: int = 3) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def of_samples(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """Seen while it ran: in the begin, sample and end lines of a run."""
    warm: set[str] = set()
    refused: set[str] = set()
    eager: set[str] = set()
    greedy: set[str] = set()
    others: set[str] = set()
    servers: dict[str, set[str]] = {}
    cached: dict[
        str, list[int]
    ] = {}  # by arm and cell: tokens of prompts, and those of them that were cached
    for line in lines:
        arm = str(line.get("pass", "")).partition("/")[0]
        if line.get("kind") == "begin":
            if line.get("warm") == "warm":
                warm.add(arm)
                refused.add(str(line.get("flush_error") or ""))
            servers.setdefault(arm, set()).add(identity(line.get("server") or {}))
        elif line.get("kind") == "sample":
            tokens = cached.setdefault(" in ".join(str(line.get("pass", "")).split("/")[:2]), [0, 0])
            tokens[0] += line.get("prompt_tokens") or 0
            tokens[1] += line.get("cached_tokens") or 0
        elif line.get("kind") == "end":
            others |= {str(one) for one in (line.get("gpu") or {}).get("others") or []}
            if line.get("eager"):
                eager.add(arm)
            if line.get("greedy"):
                greedy.add(arm)
    found = []
    if others:
        found.append(f"other processes used the GPU meanwhile: {', '.join(sorted(others)[:5])}")
    if warm:
        why = "; ".join(sorted(refused - {""}))
        words = f"it was not emptied before passes of {', '.join(sorted(warm))}"
        found.append(f"warm prefix cache: {words}" + (f" ({why})" if why else ""))
    else:
        shares = {where: of / total for where, (total, of) in cached.items() if of > CACHED_SHARE * total}
        if shares:
            named = [
                f"{share:.0%} in {where}" for where, share in sorted(shares.items(), key=lambda one: -one[1])
            ]
            found.append(f"warm prefix cache: prompts' tokens came out of it: {', '.join(named)}")
    if eager:
        found.append(f"eager: {', '.join(sorted(eager))} decoded without CUDA graphs")
    if greedy:
        words = (
            "drew no tokens at that temperature: SGLang lacks its sampling kernel here and verified greedily"
        )
        found.append(f"greedy: {', '.join(sorted(greedy))} {words}")
    changed = sorted(arm for arm, seen in servers.items() if len(seen) > 1)
    if changed:
        found.append(f"different servers: {', '.join(changed)} was not the same in all of its visits")
    return found


def identity(server: Mapping[str, Any]) -> str:
    """What must be equal in every visit of an arm."""
    return " ".join(str(server.get(name)) for name in ("digest", "wheel", "engine", "url", "version"))
