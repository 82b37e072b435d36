"""Real SGLang on the CPU: one server process in a sandbox, spoken to over HTTP."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ddtool.sandbox import Sandbox, exec_inside

START_S = 300  # 15 s on an idle machine with 2 cores
REQUEST_S = 240


@dataclass(frozen=True)
class Completion:
    text: str
    ids: list[int]
    meta: Mapping[str, Any]

    @property
    def accept_length(self) -> float:
        """Tokens per verify round of this request alone."""
        return self.meta["completion_tokens"] / self.meta["spec_verify_ct"]


class EngineServer:
    """A running server. `unit` is its transient unit inside `sandbox`, `port` where it listens there."""

    def __init__(self, sandbox: Sandbox, unit: str, port: int) -> None:
        self.sandbox, self.unit, self.port = sandbox, unit, port

    @property
    def url(self) -> str:
        return f"http://{self.sandbox.address}:{self.sandbox.published[self.port]}"

    @classmethod
    def start(
        cls,
        sandbox: Sandbox,
        unit: str,
        port: int,
        argv: Sequence[str],
        env: Mapping[str, str],
        config: str,
        patience: float = 1.0,
    ) -> EngineServer:
        """Start SGLang with the YAML `config` and wait until it is ready. Fails with the log's end.

        patience: times START_S, for starts that are known to be slow
        """
        server = cls(sandbox, unit, port)
        path = f"/run/{unit}.yaml"
        server._inside("sh", "-c", f"cat > {path}", input=config)
        settings = [f"--setenv={name}={value}" for name, value in env.items()]
        properties = ["--property=KillMode=mixed", "--property=LogRateLimitIntervalSec=1us"]
        properties += ["--property=LogRateLimitBurst=4000000000"]
        # --collect: SGLang ends every stop by killing itself, and a failed unit would keep its name
        command = ["systemd-run", "--collect", f"--unit={unit}", *properties, *settings, "--", *argv]
        server._inside(*command, "--config", path)
        server._wait(START_S * patience)
        return server

    def generate(
        self, prompts: Sequence[str | list[int]], max_tokens: int, **sampling: Any
    ) -> list[Completion]:
        """One completion a prompt (text, or token ids), greedy unless `sampling` says else; all requests at once."""
        parameters = {"temperature": 0, "max_new_tokens": max_tokens, **sampling}
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self._generate(prompt, parameters), prompts))

    def get(self, path: str) -> tuple[int, bytes]:
        """(status, body); status 0 when nothing answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
        except OSError:
            return 0, b""

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, Any]:
        """(status, answer); the answer is JSON where it can be, else text."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_S) as reply:
                status, text = reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, text

    def answer(self, path: str, body: Mapping[str, Any]) -> Any:
        """That of a request which must succeed."""
        status, answer = self.post(path, body)
        assert status == 200, answer
        return answer

    def log(self) -> str:
        return self._inside("journalctl", "--unit", self.unit, "--all", "--output=cat", "--no-pager")

    def stop(self) -> None:
        exec_inside(self.sandbox, ["systemctl", "stop", self.unit], timeout=90)

    def _generate(self, prompt: str | list[int], parameters: Mapping[str, Any]) -> Completion:
        field = "text" if isinstance(prompt, str) else "input_ids"
        status, answer = self.post("/generate", {field: prompt, "sampling_params": parameters})
        assert status == 200, answer
        return Completion(answer["text"], answer["output_ids"], answer["meta_info"])

    def _wait(self, start_s: float) -> None:
        deadline = time.monotonic() + start_s
        while time.monotonic() < deadline:
            # a real one-token completion, which is all the warm-up that interpreted kernels need
            if self.get("/health")[0] == 200:
                return
            if exec_inside(self.sandbox, ["systemctl", "is-active", "--quiet", self.unit]).returncode:
                raise AssertionError(f"{self.unit} ended while it started:\n{self.log()[-4000:]}")
            time.sleep(0.5)
        raise AssertionError(f"{self.unit} is not ready after {start_s} s:\n{self.log()[-4000:]}")

    def _inside(self, *argv: str, input: str | None = None) -> str:
        result = exec_inside(self.sandbox, argv, input=input)
        assert result.returncode == 0, result.stderr
        return result.stdout
