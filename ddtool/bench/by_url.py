"""A run against servers that run already, with the load client on this machine: no agent, and nothing is restarted.

    servers = {"chain": Server("127.0.0.1", 32100), "tree:32": Server("127.0.0.1", 32200)}
    folder = by_url.prepare(servers, design, workloads, ["code"])
    by_url.measure(servers, folder, workloads)
    result = run.conclude(folder)

The servers live side by side, so arms alternate strictly, pass by pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ddtool.agent import client, load
from ddtool.agent.load_tally import Tally
from ddtool.bench import fingerprint, passes, run, taint
from ddtool.bench import judge as bench_judge
from ddtool.bench.lossless import Ask
from ddtool.bench.passes import PLAIN, Design
from ddtool.bench.store import Folder, Writer
from ddtool.bench.workloads import Workload
from ddtool.errors import ConnectionLost, UsageError
from ddtool.profile.schema import Objective

Json = dict[str, Any]
OnEvent = Callable[[Json], None]
LOOK_S = 20.0
JUDGE_S = 120.0
NO_PROFILE = "no profile"
# What decides a server's speed, and what chats become there, of all that /server_info tells, beside speculative_*.
# No secret is among them.
TELLING = (
    "model_path", "tp_size", "dp_size", "ep_size", "dtype", "quantization", "kv_cache_dtype",
    "attention_backend", "sampling_backend", "page_size", "disable_radix_cache", "disable_cuda_graph",
    "cuda_graph_max_bs", "cuda_graph_bs", "disable_overlap_schedule", "chunked_prefill_size", "enable_mixed_chunk",
    "mem_fraction_static", "max_running_requests", "max_total_tokens", "context_length", "device",
    "chat_template",
)  # fmt: skip


@dataclass(frozen=True)
class Server:
    address: str
    port: int
    api_key: str | None = None

    @property
    def url(self) -> str:
        name = f"[{self.address}]" if ":" in self.address else self.address
        return f"http://{name}:{self.port}"


def parse(pairs: Sequence[str], api_key: str | None = None) -> dict[str, Server]:
    """`ARM=http://HOST:PORT` words by arm. The arm is a name here: what runs there is the server's business."""
    found: dict[str, Server] = {}
    for pair in pairs:
        arm, _, url = pair.partition("=")
        parts = urlsplit(url)
        try:
            good = parts.scheme == "http" and parts.hostname and parts.port and parts.path in ("", "/")
        except ValueError:  # a port that is none
            good = False
        if not arm or not good or "/" in arm or parts.query or parts.username:
            raise UsageError(
                f"--url {pair}: not of the form ARM=http://HOST:PORT",
                hint="--url chain=http://127.0.0.1:30000",
            )
        if arm in found:
            raise UsageError(f"--url: {arm} twice", hint="each arm has one server")
        assert parts.hostname and parts.port
        found[arm] = Server(parts.hostname, parts.port, api_key)
    return found


def look(server: Server) -> Json:
    """What the server says of itself: `{version, flags}`. Raises ConnectionLost when it does not answer."""
    for path in ("/server_info", "/get_server_info"):
        try:
            answer = ask(server, path)
        except OSError as error:
            raise ConnectionLost(
                f"{server.url} does not answer: {error}", hint="is it up, and the address right?"
            ) from error
        if answer.status == 200 and isinstance(answer.body, dict):
            said = answer.body
            telling = {
                name: said[name]
                for name in sorted(said)
                if name in TELLING or name.startswith("speculative_")
            }
            return {"version": said.get("version"), "flags": telling}
    raise ConnectionLost(
        f"{server.url} does not say what it is: {path} answers {answer.status}"
        + (", but no JSON object" if answer.status == 200 else ""),
        hint="an API key comes from the profile's service.api_key"
        if answer.status in (401, 403)
        else "is it SGLang's own address, and no proxy's?",
    )


def ask(server: Server, path: str, body: Json | None = None, timeout_s: float = LOOK_S) -> client.Answer:
    """One request to a server, with its key. Raises OSError."""
    key = client.Key(server.api_key, None) if server.api_key else None
    return client.request(server.address, server.port, path, body, key, timeout_s)


def prepare(
    servers: Mapping[str, Server],
    design: Design,
    workloads: Mapping[str, Workload],
    typed: Sequence[str],
    *,
    profile: str | None = None,
    wanted: Objective | None = None,
    under: Path | None = None,
    warnings: Sequence[str] = (),
    how: Mapping[str, Any] | None = None,
) -> Folder:
    """The folder of a new run. `typed`: workloads as they were named; `under`: instead of the user's data folder."""
    seen = looked(servers)
    about = run.begin(
        design,
        profile=profile or NO_PROFILE,
        host=", ".join(f"{arm} at {server.url}" for arm, server in servers.items()),
        workloads=typed,
        fingerprint=fingerprint.of_servers(seen, design, workloads),
        taints=taint.of_servers({arm: (servers[arm].url, one["flags"]) for arm, one in seen.items()}),
        warnings=warnings,
        wanted=wanted,
        how={**(how or {}), "urls": {arm: server.url for arm, server in servers.items()}},
        dtype=next((one["flags"]["dtype"] for one in seen.values() if one["flags"].get("dtype")), None),
    )
    return Folder.create(about, under)


def looked(servers: Mapping[str, Server]) -> dict[str, Json]:
    return {arm: look(server) for arm, server in servers.items()}


def measure(
    servers: Mapping[str, Server],
    folder: Folder,
    workloads: Mapping[str, Workload],
    on_event: OnEvent = lambda event: None,
    stop: threading.Event | None = None,
) -> None:
    """Every pass of the run that has no end yet; what was measured stays, however it ends.

    Raises ConnectionLost when a server goes away, load.Stopped after `stop` was set.
    """
    design = Design.from_json(folder.run["plan"])
    about = looked(servers)
    with Writer(folder.samples_path) as write:  # from here on nobody else adds to what is done
        done = folder.done()
        left = [one for one in passes.alternating(design) if one.ident not in done]
        specs = passes.specs(left, design, workloads, folder.attempts())
        for one, spec in zip(left, specs, strict=True):
            if stop is not None and stop.is_set():
                raise load.Stopped(f"stopped before {one.ident}")
            server = servers[one.arm]
            at = {"address": server.address, "port": server.port, "api_key": server.api_key}
            full = {**spec, **at, "server": {"url": server.url, **about[one.arm]}}
            try:
                load.run_pass(full, telling(write, Tally(spec), on_event), stop or threading.Event())
            except load.NoServer as error:
                raise ConnectionLost(
                    f"{one.arm} at {server.url} cannot be measured: {error}",
                    hint=f"ddtool bench --resume {folder.path.name}",
                ) from error


def telling(write: Callable[[Json], None], tally: Tally, on_event: OnEvent) -> Callable[[Json], None]:
    """Writes a pass's lines, and says after each how far it is: `pass` events as the host's step has them."""

    def line(line: Json) -> None:
        write(line)
        on_event({"event": "pass", **tally.add(line)})

    return line


def judge(servers: Mapping[str, Server], workloads: Mapping[str, Workload]) -> Ask | None:
    """Near ties as the plain server sees them; None when no arm is plain."""
    plain = servers.get(PLAIN)
    if plain is None:
        return None
    prompts = {prompt.sha: prompt.given for workload in workloads.values() for prompt in workload.prompts}

    def post(path: str, body: Mapping[str, Any]) -> Any:
        try:
            answer = ask(plain, path, dict(body), JUDGE_S)
        except OSError as error:
            raise ConnectionLost(
                f"{plain.url} is gone: {error}", hint="is plain's server still up?"
            ) from error
        if answer.status != 200:
            raise ConnectionLost(f"{plain.url}: {path} answers {answer.status}: {str(answer.body)[:300]}")
        return answer.body

    return bench_judge.judge(post, prompts)
