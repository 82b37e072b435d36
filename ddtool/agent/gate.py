"""The health gate: a service is up when it generates, alone and under concurrency, at the accept length asked for.

A green `/health` is not enough: it can hide a wedged server, and in this generation of SGLang it runs a real
prefill, so it is polled slowly. Accept length is of the gate's own requests, `completion_tokens / spec_verify_ct`
from each one's meta_info, never the server's running average.
"""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, List, Optional

from . import client, start_log, unit
from .errors import Unhealthy

POLL_S = 0.25
HEALTH_POLL_S = 5.0
JOURNAL_LINES = 2000
# SGLang's chain, once, when it is first asked to draw and has no kernel for it
GREEDY = "falling back to greedy"
DECODE_LINE = re.compile(r"Decode batch.*cuda graph: (True|False)")

Emit = Callable[..., None]


def accept_length(meta: Dict[str, Any]) -> Optional[float]:
    """Tokens per verify step of one request; None without speculation."""
    steps = meta.get("spec_verify_ct")
    return meta.get("completion_tokens", 0) / steps if steps else None


def eager_only(log: str) -> bool:
    """SGLang's decode lines all say `cuda graph: False`. A run too short for such a line proves nothing."""
    used = DECODE_LINE.findall(log)
    return bool(used) and "True" not in used


class Gate:
    """`spec`: `{address, port, start_s, request_s, deadline_s, prompts, serial, concurrent, max_new_tokens,
    accept_length_floor, speculative, graphs, api_key}`. `emit` gets progress. Every failure is an Unhealthy that says
    what was seen."""

    def __init__(self, name: str, spec: Dict[str, Any], emit: Emit) -> None:
        self.name = name
        self.spec = spec
        self.emit = emit
        self.invocation = unit.show(name).get("InvocationID", "")

    def run(self) -> Dict[str, Any]:
        begun = time.monotonic()
        self.wait_healthy()
        ready_s = time.monotonic() - begun
        self.emit("healthy", seconds=round(ready_s, 1))
        answers = self._generate()
        lengths = [length for length in (accept_length(item["meta_info"]) for item in answers) if length]
        mean = sum(lengths) / len(lengths) if lengths else None
        self._check_accept_length(mean)
        self._check_graphs()
        self._check_not_restarted()
        return {
            "ready_s": round(ready_s, 1),
            "completions": len(answers),
            "accept_length": round(mean, 2) if mean else None,
            "sample": str(answers[0].get("text", ""))[:400] if answers else "",
        }

    def wait_healthy(self) -> None:
        """Wait for the port and then for `/health`, at most `start_s`; a unit that ends is reported at once."""
        address, port = self.spec["address"], self.spec["port"]
        deadline = time.monotonic() + self.spec["start_s"]
        while not client.listening(address, port):
            self._wait(POLL_S, deadline, f"nothing listens on {address}:{port}")
        while True:
            # Of a server that accepts and does not answer, too, no more is waited for than the deadline allows.
            patience = max(0.5, min(self.spec["request_s"], deadline - time.monotonic()))
            try:
                answer = client.request(
                    address, port, "/health", api_key=self.spec.get("api_key"), timeout=patience
                )
                if answer.status == 200:
                    return
                seen = f"/health answers {answer.status}"
            except OSError as error:
                seen = f"/health does not answer ({error})"
            self._wait(HEALTH_POLL_S, deadline, seen)

    def _wait(self, seconds: float, deadline: float, seen: str) -> None:
        self._check_alive()
        if time.monotonic() >= deadline:
            raise Unhealthy(f"{self.name} was not ready after {self.spec['start_s']:.0f} s: {seen}")
        time.sleep(seconds)

    def _check_alive(self) -> None:
        state = unit.show(self.name)
        if state.get("ActiveState") not in ("active", "activating"):
            raise Unhealthy(
                f"{self.name} ended during the gate: result {state.get('Result')}, "
                f"exit status {state.get('ExecMainStatus')}"
            )

    def _generate(self) -> List[Dict[str, Any]]:
        prompts = self.spec["prompts"]
        answers = []
        self.deadline = time.monotonic() + self.spec["deadline_s"]
        for number in range(self.spec["serial"]):
            answers.append(self._complete(prompts[number % len(prompts)]))
            self.emit("completion", number=number + 1, of=self.spec["serial"])
        width = self.spec["concurrent"]
        if width:
            with ThreadPoolExecutor(width) as pool:
                answers += pool.map(
                    self._complete, [prompts[number % len(prompts)] for number in range(width)]
                )
            self.emit("concurrent", number=width)
        return answers

    def _complete(self, prompt: str) -> Dict[str, Any]:
        patience = min(self.spec["request_s"], self.deadline - time.monotonic())
        if patience <= 0:
            raise Unhealthy(
                f"{self.name}: the gate's completions took longer than {self.spec['deadline_s']} s"
            )
        payload = {
            "text": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": self.spec["max_new_tokens"]},
        }
        try:
            answer = client.request(
                self.spec["address"],
                self.spec["port"],
                "/generate",
                payload,
                self.spec.get("api_key"),
                patience,
            )
        except OSError as error:
            self._check_alive()
            raise Unhealthy(
                f"{self.name} is healthy by /health, but a completion got no answer "
                f"within {patience:.0f} s: {error}",
            ) from error
        if answer.status != 200 or not isinstance(answer.body, dict):
            self._check_alive()
            raise Unhealthy(
                f"{self.name}: a completion was answered with {answer.status}: {str(answer.body)[:500]}"
            )
        if not answer.body.get("meta_info", {}).get("completion_tokens"):
            raise Unhealthy(f"{self.name}: a completion came back without a single token")
        return answer.body

    def _check_accept_length(self, mean: Optional[float]) -> None:
        floor = self.spec.get("accept_length_floor")
        if not self.spec.get("speculative") or floor is None:
            return
        if mean is None:
            raise Unhealthy(f"{self.name} should speculate, but no completion reports a verify step")
        if mean < floor:
            raise Unhealthy(
                f"{self.name}: accept length {mean:.2f} over the gate's own completions "
                f"is below the floor of {floor:.2f}",
                hint="is the drafter made for this target? `ddtool doctor` checks the pair",
            )

    def eager(self) -> bool:
        """Graphs are wanted, and it decodes without a single one, which no completion shows."""
        return bool(self.spec["graphs"]) and eager_only(start_log.text(self.invocation, JOURNAL_LINES))

    def greedy(self) -> bool:
        """It was asked to draw its tokens at a temperature above 0, and said that it does not."""
        return start_log.says(self.invocation, GREEDY)

    def _check_graphs(self) -> None:
        if self.eager():
            raise Unhealthy(
                f"{self.name} should decode with CUDA graphs, and its log says that it decodes without",
                hint="see why in its log: `ddtool logs --since invocation --grep 'cuda graph'`",
            )

    def _check_not_restarted(self) -> None:
        now = unit.show(self.name)
        if now.get("InvocationID") != self.invocation:
            raise Unhealthy(f"{self.name} restarted during the gate")
