"""One SGLang server as a child process, spoken to over HTTP; and the arms, which differ in their flags alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_S = 420  # the first start on a machine compiles kernels for over a minute
REQUEST_S = 300
STOP_S = 20

# What the bundle can run, and what keeps arms comparable: no prefix cache, so that every repeat prefills alike
COMMON = {
    "attention-backend": "triton",
    "sampling-backend": "pytorch",
    "grammar-backend": "none",
    "disable-piecewise-cuda-graph": True,
    "disable-radix-cache": True,
    "page-size": 1,
    "random-seed": 1,
    "log-level": "info",
}
GPU = {
    "dtype": "bfloat16",
    "mem-fraction-static": 0.92,  # max-total-tokens bounds the pool; this lets a fifth server start beside it
}
AT_ONCE = 16  # requests that a server on a GPU has room and graphs for
ROOM = 24576  # tokens of cache, at least: what all of `docs/results` had for up to 16 requests
BESIDE = 512  # for a request beside its answer: its prompt, and the nodes of a tree that is being verified
# An arm on one card of several leaves their memory unequal, which SGLang takes for somebody else's work
GPU_ENVIRONMENT = {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "false"}
# A rehearsal without a GPU: interpreted kernels, seconds a token
CPU = {
    "device": "cpu",
    "dtype": "float32",
    "disable-cuda-graph": True,
    "disable-overlap-schedule": True,
    "max-running-requests": 4,
    "max-total-tokens": 4096,
}
CPU_ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "TRITON_INTERPRET": "1"}


@dataclass(frozen=True)
class Arm:
    """`plain`, `chain`, or `tree:BUDGET[:TOPK][:seed]`; with `@N` behind it on N cards, whatever the others have.

    flags: SGLang's, by name without dashes in front.
    """

    name: str
    flags: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str, draft: Path) -> Arm:
        """Raises ValueError for anything else."""
        what, _, cards = text.partition("@")
        if cards:
            return cls(text, {**cls.parse(what, draft).flags, "tp-size": int(cards)})
        kind, *shape = text.split(":")
        drafter = {"speculative-draft-model-path": draft, "speculative-draft-attention-backend": "triton"}
        if text == "plain":
            return cls(text)
        if text == "chain":
            return cls(text, {"speculative-algorithm": "DFLASH", **drafter})
        seed = shape[-1:] == ["seed"]
        numbers = shape[:-1] if seed else shape
        if kind != "tree" or not 1 <= len(numbers) <= 2:
            raise ValueError(f"arm {text!r}: expected plain, chain or tree:BUDGET[:TOPK][:seed]")
        budget, topk = int(numbers[0]), int(numbers[1]) if len(numbers) == 2 else 8
        tree = {"speculative-ddtree-budget": budget, "speculative-ddtree-topk": topk}
        if seed:
            tree["speculative-ddtree-chain-seed"] = "true"
        return cls(text, {"speculative-algorithm": "DDTREE", **drafter, **tree})


@dataclass(frozen=True)
class Completion:
    ids: list[int]
    meta: Mapping[str, Any]

    @property
    def rounds(self) -> int:
        """Forwards of the target after prefill, which itself says the first token."""
        return self.meta.get("spec_verify_ct") or len(self.ids) - 1

    @property
    def accept_length(self) -> float:
        """Tokens a round, as SGLang counts: prefill's token is among them. 1 for plain decoding."""
        rounds = self.meta.get("spec_verify_ct")
        return len(self.ids) / rounds if rounds else 1.0


class Server:
    """Started at once, ready after `wait`. Its output goes to the file `log`."""

    def __init__(
        self, flags: Mapping[str, Any], port: int, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port, self.log = port, log
        options = {**flags, "host": "127.0.0.1", "port": port}
        self.argv = [sys.executable, "-m", "sglang.launch_server", *arguments(options)]
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.argv,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # so that stop() reaches its children, and nobody else
            )

    def wait(self) -> None:
        """Until it answers; raises RuntimeError with the log's end when it ended or took too long."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended while it started:\n{self.tail()}")
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=30) as reply:
                    if reply.status == 200:
                        return
            except OSError:
                time.sleep(0.5)
        raise RuntimeError(f"the server is not ready after {START_S} s:\n{self.tail()}")

    def generate(self, prompts: Sequence[str], tokens: int, temperature: float) -> list[Completion]:
        """One completion a prompt, all at once, none shorter than `tokens`."""
        sampling = {"temperature": temperature, "max_new_tokens": tokens, "ignore_eos": True}
        bodies = [{"text": prompt, "sampling_params": sampling} for prompt in prompts]
        with ThreadPoolExecutor(len(bodies)) as pool:
            answers = list(pool.map(lambda body: self.post("/generate", body), bodies))
        return [Completion(answer["output_ids"], answer["meta_info"]) for answer in answers]

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Raises OSError when the server ends meanwhile or refuses."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
            text = reply.read()
        return json.loads(text) if text.startswith((b"{", b"[")) else text.decode()

    def stop(self) -> None:
        """Ends the whole process group; harmless when it has ended."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, number)
                self.process.wait(STOP_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue

    @property
    def pids(self) -> set[int]:
        """Its own and its children's."""
        every = {int(name) for name in os.listdir("/proc") if name.isdigit()}
        return {pid for pid in every if session(pid) == self.process.pid}

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    @property
    def _url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def start_all(
    flags: Mapping[str, Mapping[str, Any]],
    port: int,
    log: Callable[[str], Path],
    environment: Mapping[str, str],
    stack: ExitStack,
) -> dict[str, Server]:
    """By arm, ready; they stop with `stack`. All at once, since loading and compiling leave the card idle.

    flags: by arm. port: of the first; each has a hundred. log: by arm, where its output goes.
    """
    servers = {}
    for number, (arm, own) in enumerate(flags.items()):
        servers[arm] = Server(own, port + 100 * number, log(arm), environment)
        stack.callback(servers[arm].stop)
    for server in servers.values():
        server.wait()
    return servers


def session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:  # it ended meanwhile
        return None


def arguments(flags: Mapping[str, Any]) -> list[str]:
    """`{"page-size": 1, "disable-x": True}` → `--page-size 1 --disable-x`."""
    words: list[str] = []
    for name, value in flags.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return words


def platform(name: str, at_once: int = AT_ONCE, tokens: int = 256) -> tuple[dict[str, Any], dict[str, str]]:
    """Flags and environment for `--platform gpu` or `cpu`; on a GPU for so many requests of so many tokens at a time.

    The room is no larger than it has to be: seven servers of 20 GB for 32 requests, with twice the room, did not fit on
    a card of 140 GB.
    """
    if name == "cpu":
        return {**COMMON, **CPU}, CPU_ENVIRONMENT
    load = {
        "cuda-graph-max-bs": at_once,
        "max-running-requests": at_once,
        "max-total-tokens": max(ROOM, at_once * (tokens + BESIDE)),
    }
    return {**COMMON, **GPU, **load}, GPU_ENVIRONMENT
