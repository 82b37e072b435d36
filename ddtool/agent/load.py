"""The load client: sends a pass's requests to a server's /generate and says when each token came.

It runs beside the server on the host, and on the operator's side for `bench --url`. One thread with one event loop: a
request costs a few callbacks and an event some microseconds, so that at 64 streams it is still the server that is
measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from typing import Any, Awaitable, Callable, Dict, List, NamedTuple, Optional, Sequence

from . import client, load_metrics, prompt_ids
from .load_events import Answer, Unreadable, said
from .load_gpu import Sampler
from .load_http import Connection, Exchange, NoServer, Server

__all__ = ["NoServer", "Stopped", "run_pass"]

STOP_POLL_S = 0.1
FLUSH_S = 10.0  # how long the server may take to become idle
RENDER_S = 60.0  # how long it may take to render one chat
DIGITS = 6  # of seconds
CHATS = "SGLang 0.5.12 or later with a chat template (--chat-template FILE.jinja)"

Json = Dict[str, Any]
Write = Callable[[Json], None]


class Stopped(Exception):
    """Asked to stop: the pass has no end, and what was in flight left nothing."""


class Request(NamedTuple):
    about: Json  # `index` and `prompt` of the sample
    data: bytes  # head and body, as they are sent


def run_pass(spec: Json, write: Write, stop: threading.Event, gpu: Optional[Sampler] = None) -> Json:
    """Run a pass: write its `begin`, a `sample` for each request when it ends, and its `end`, which is returned.

    `spec`: `{pass, attempt, address, port, api_key, requests: [{index, prompt, body}], concurrency | rate, seed,
    warmup: [requests], flush_cache, timeout_s, keep_text, server?, fresh?}`. `api_key`: a client.Key, a str (which goes
    to whoever listens there) or null. `fresh`: the server started for this pass. `gpu`: open, on the server's host.
    `body`: of /generate; or with `messages`, which the server's chat template renders before anything is measured.

    Raises Stopped or NoServer, and then the pass has no end. A request that fails is a sample with an `error`.
    """
    key = spec.get("api_key")
    spec = {**spec, "api_key": client.Key(key, None) if isinstance(key, str) else key}
    return asyncio.run(_stoppable(_Pass(spec, write, gpu), stop))


async def _stoppable(this: _Pass, stop: threading.Event) -> Json:
    work = asyncio.ensure_future(this.run())
    try:
        while not work.done():
            await asyncio.wait({work}, timeout=STOP_POLL_S)
            if stop.is_set() and not work.done():
                raise Stopped(f"{this.spec['pass']} was stopped")
        return work.result()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        this.server.close()


class _Pass:
    """One pass in its event loop. Times are of `time.perf_counter`."""

    def __init__(self, spec: Json, write: Write, gpu: Optional[Sampler]) -> None:
        self.spec = spec
        self.server = Server(spec["address"], spec["port"], spec["api_key"])
        self._write = write
        self._gpu = gpu
        self._name = {"pass": spec["pass"], "attempt": spec["attempt"]}
        self._began = self._ended = 0.0  # first request sent, last answer over

    async def run(self) -> Json:
        loop = asyncio.get_running_loop()
        self.spec = await loop.run_in_executor(None, _rendered, self.spec)
        await self._warm_up(self._prepared(self.spec.get("warmup") or []))
        cache = await loop.run_in_executor(None, _cache, self.spec)
        requests = self._prepared(self.spec["requests"])
        counted = await loop.run_in_executor(None, load_metrics.read, self.spec)
        if self._gpu:
            await loop.run_in_executor(None, self._gpu.begin)
        server = self.spec.get("server")
        self._write({"kind": "begin", **self._name, "unix": round(time.time(), 3), "server": server, **cache})
        await self._measure(requests)
        gpu = await loop.run_in_executor(None, self._gpu.seen) if self._gpu else None
        metrics = load_metrics.difference(
            counted, await loop.run_in_executor(None, load_metrics.read, self.spec)
        )
        seconds = round(self._ended - self._began, DIGITS)
        end = {"kind": "end", **self._name, "seconds": seconds, "gpu": gpu, "metrics": metrics}
        self._write(end)
        return end

    def _prepared(self, requests: Sequence[Json]) -> List[Request]:
        """Bodies are made before anything is measured."""
        return [
            Request(
                {"index": item["index"], "prompt": item["prompt"]},
                self.server.request(json.dumps({**item["body"], "stream": True}).encode()),
            )
            for item in requests
        ]

    async def _warm_up(self, requests: Sequence[Request]) -> None:
        """It leaves no samples; but when none of it succeeds there is nothing to measure."""
        errors = []

        async def warm(request: Request) -> None:
            errors.append((await self._sample(request))["error"])

        await _closed(requests, warm, self.spec.get("concurrency") or len(requests))
        if requests and all(errors):
            raise NoServer(f"no request of the warm-up succeeded: {errors[0]}")

    async def _measure(self, requests: Sequence[Request]) -> None:
        rate = self.spec.get("rate")
        if not rate:
            await self.server.open(min(self.spec["concurrency"], len(requests)))
        self._began = self._ended = time.perf_counter()
        if rate:
            await _open(requests, self._counted, rate, self.spec["seed"])
        else:
            await _closed(requests, self._counted, self.spec["concurrency"])

    async def _counted(self, request: Request) -> None:
        sample = await self._sample(request)
        self._write({"kind": "sample", **self._name, **sample})

    async def _sample(self, request: Request) -> Json:
        """One request to its end, whatever that is. Raises NoServer."""
        connection = await self.server.connection()
        answer = Answer(bool(self.spec.get("keep_text")))
        exchange = Exchange(answer.take)
        failed = await self._exchange(connection, exchange, answer, request.data)
        self.server.give_back(connection)
        ended = exchange.ended or time.perf_counter()
        self._ended = max(self._ended, ended)
        fields = _read(answer)
        error = failed or answer.error or _refusal(exchange, fields["finish"])
        if error is not None:
            fields["output"] = None  # what came of an answer is not the answer
        return {
            **request.about,
            "sent_s": round(exchange.sent - self._began, DIGITS),
            "chunks": answer.chunks,
            "e2e_s": round(ended - exchange.sent, DIGITS),
            **fields,
            "status": exchange.status,
            "error": error,
        }

    async def _exchange(
        self, connection: Connection, exchange: Exchange, answer: Answer, data: bytes
    ) -> Optional[str]:
        """Send, and wait for the end of the answer. Returns why there is none."""
        try:
            connection.send(exchange, data)
            answer.sent = exchange.sent
            await asyncio.wait_for(exchange.done, self.spec["timeout_s"])
        except asyncio.TimeoutError:
            return f"no whole answer within {self.spec['timeout_s']:g} s"
        except OSError as error:
            return str(error)
        finally:
            if not exchange.ended:  # timed out, or cancelled
                connection.abort()
        return None


def _read(answer: Answer) -> Json:
    try:
        return answer.fields()
    except Unreadable as error:
        answer.error = answer.error or str(error)
        return {**Answer(False).fields(), "completion_tokens": answer.tokens}


def _refusal(exchange: Exchange, finish: Optional[str]) -> Optional[str]:
    """Why a whole answer is none of the kind asked for."""
    if exchange.status != 200:
        return f"{exchange.status}: {said(bytes(exchange.body))}"
    if not exchange.streams:
        return f"the answer is no stream but {exchange.headers.get('content-type')}"
    return None if finish else "the stream ended without a finish reason"


def _rendered(spec: Json) -> Json:
    """The spec with token ids where bodies have `messages`: /generate takes none. Raises NoServer.

    (/v1/chat/completions does, but tells neither the tokens of a chunk nor the rounds of an answer.)
    """

    def post(path: str, body: Json) -> Json:
        try:
            answer = client.request(spec["address"], spec["port"], path, body, spec["api_key"], RENDER_S)
        except OSError as error:
            raise NoServer(f"it renders no chat: {error}") from error
        if answer.status != 200 or not isinstance(answer.body, dict) or "tokens" not in answer.body:
            words = said(json.dumps(answer.body).encode())
            raise NoServer(
                f"it renders no chat, which takes {CHATS}: {path} answers {answer.status}: {words}"
            )
        return answer.body

    known: Dict[str, List[int]] = {}  # by prompt: warm-up and requests may have the same ones

    def with_ids(item: Json) -> Json:
        if "messages" not in item["body"]:
            return item
        name = item["prompt"]
        if name not in known:
            known[name] = prompt_ids.ids_of(item["body"], post)
        body = {key: value for key, value in item["body"].items() if key != "messages"}
        return {**item, "body": {**body, "input_ids": known[name]}}

    lists = {name: [with_ids(item) for item in spec.get(name) or []] for name in ("warmup", "requests")}
    return {**spec, **lists}


def _cache(spec: Json) -> Json:
    """Begin's `warm`: flushed, cold (nothing was asked of this server yet) or warm; and why a flush failed."""
    if not spec.get("flush_cache"):
        return {"warm": "cold" if spec.get("fresh") and not spec.get("warmup") else "warm"}
    path = f"/flush_cache?timeout={FLUSH_S:.0f}"  # without, it refuses while a request is still in its books
    try:
        answer = client.request(spec["address"], spec["port"], path, {}, spec["api_key"], 2 * FLUSH_S)
    except OSError as error:
        return {"warm": "warm", "flush_error": str(error)}
    if answer.status != 200:
        return {"warm": "warm", "flush_error": f"{answer.status}: {str(answer.body)[:200].strip()}"}
    return {"warm": "flushed"}


# The two kinds of load

One = Callable[[Request], Awaitable[None]]


async def _closed(requests: Sequence[Request], one: One, width: int) -> None:
    """`width` at a time: whoever has an answer sends the next."""
    left = iter(requests)

    async def user() -> None:
        for request in left:
            await one(request)

    await _together([user() for _ in range(min(width, len(requests)))])


async def _open(requests: Sequence[Request], one: One, rate: float, seed: int) -> None:
    """Poisson arrivals, whether the server keeps up or not. The same seed, the same moments."""
    chance = random.Random(seed)  # noqa: S311  for moments, not for secrets
    loop = asyncio.get_running_loop()
    began, moment = loop.time(), 0.0
    arrivals = []

    async def at(moment: float, request: Request) -> None:
        await asyncio.sleep(max(0.0, began + moment - loop.time()))
        await one(request)

    for request in requests:
        arrivals.append(at(moment, request))
        moment += chance.expovariate(rate)
    await _together(arrivals)


async def _together(work: Sequence[Awaitable[None]]) -> None:
    """All of it; the first that raises ends the others."""
    tasks = [asyncio.ensure_future(item) for item in work]
    try:
        if tasks:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
