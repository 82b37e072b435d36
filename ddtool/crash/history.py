"""The crashes that a host keeps: fetch the evidence of one, judge it, and tell the host, which counts what is alike."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ddtool.crash import bundle as bundles
from ddtool.crash import evidence, hang
from ddtool.crash.bundle import Bundle
from ddtool.crash.model import Verdict
from ddtool.errors import DdtoolError, HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddtool.profile import Profile

# What a verdict reads of the evidence.
TELLING = (bundles.JOURNAL, bundles.INSTALLATION, bundles.PROCESSES, hang.STACKS)

Json = dict[str, Any]


class Agent(Protocol):
    """What is needed of transport.agent.Agent."""

    def call(self, op: str, *, deadline_s: float = ..., **args: Any) -> Any: ...

    def stream(self, op: str, **args: Any) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Seen:
    """How often crashes with this fingerprint were seen on the host; times are the host's clock."""

    count: int
    first_unix: float
    last_unix: float


@dataclass(frozen=True)
class Crash:
    manifest: Json
    verdict: Verdict
    seen: Seen | None

    def to_json(self) -> Json:
        """A `ddtool.crash.classify/1` without its `schema`, and which run it was."""
        return {
            **self.verdict.to_json(),
            "run": {key: self.manifest[key] for key in ("unit", "invocation", "unix", "release", "result")},
            "seen": vars(self.seen) if self.seen else None,
        }


def last(agent: Agent, unit: str, profile: Profile | None, invocation: str | None = None) -> Crash | None:
    """The last bad end of `unit` that the host has evidence of (or that of `invocation`), judged and counted.

    Ends that nobody has judged yet are judged on the way, so that the count holds them. None: no evidence.
    """
    listed = agent.call("crash.list", unit_name=unit)
    kept = [item for item in listed["kept"] if invocation in (None, item["invocation"])]
    if not kept:
        return None
    judged = {end["invocation"] for end in listed["history"]["ends"] if end["fingerprint"]}
    for item in reversed(kept[1:]):
        if item["invocation"] not in judged:
            judge(agent, unit, item, profile)
    return judge(agent, unit, kept[0], profile)


def judge(agent: Agent, unit: str, manifest: Json, profile: Profile | None, *, note: bool = True) -> Crash:
    """`note=False` leaves the host as it is: the crash is not counted then."""
    verdict = evidence.classify(fetch(agent, manifest["folder"], TELLING), profile)
    return Crash(manifest, verdict, _noted(agent, unit, manifest, verdict) if note else None)


def _noted(agent: Agent, unit: str, manifest: Json, verdict: Verdict) -> Seen | None:
    """A host that cannot write the note down (a full disk may be the crash) costs the count, not the verdict."""
    try:
        known = agent.call(
            "crash.note", unit_name=unit, invocation=manifest["invocation"], verdict=verdict.to_json()
        )
    except HostError:
        raise
    except DdtoolError:
        return None
    return seen_of(known) if known else None


def seen_of(known: Json) -> Seen:
    return Seen(known["count"], known["first_unix"], known["last_unix"])


def bundle(agent: Agent, unit: str, profile: Profile | None, *, now: bool, with_requests: bool) -> Bundle:
    """Everything about the last crash, with its verdict, and the profile if there is one; `now`: about what runs now.

    A service that runs and has no crash is taken as it runs. Raises Unhealthy when there is neither.
    """
    import json

    kept = [] if now else agent.call("crash.list", unit_name=unit)["kept"]
    manifest = kept[0] if kept else next(filter(None, agent.stream("crash.take", unit_name=unit)))
    taken = fetch(agent, manifest["folder"], with_requests=with_requests)
    verdict = {"schema": "ddtool.crash.classify/1", **evidence.classify(taken, profile).to_json()}
    files = {bundles.VERDICT: json.dumps(verdict, indent=1).encode()}
    if profile:
        files[bundles.PROFILE] = evidence.profile_text(profile).encode()
    return taken.with_files(files)


def fetch(
    agent: Agent, folder: str, names: Sequence[str] | None = None, *, with_requests: bool = False
) -> Bundle:
    """The evidence in a folder of the host, or those of its files that a pattern of `names` fits."""
    stream = agent.stream(
        "crash.read", folder=folder, names=list(names) if names else None, with_requests=with_requests
    )
    data = bytearray()
    for piece in filter(None, stream):
        data += base64.b64decode(piece)
        if len(data) > bundles.ALL_BYTES:
            raise HostError(f"the host sends evidence without end: {folder}")
    return bundles.unpack(bytes(data), f"the evidence {folder} from the host")
