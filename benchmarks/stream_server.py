"""A server that streams like SGLang's /generate, as fast as asked, so that the client is what a benchmark measures.

    python benchmarks/stream_server.py --tok-s 2000 --accept 4 [--ttft-ms 20] [--port N]

Each request gets its tokens at `--tok-s`, `--accept` of them an event, whatever the others do. As in SGLang an event
holds all text and ids so far, one whose reader is behind is left out for the next, and the last one has everything.
Prints its port.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import cache
from typing import Any, cast

TICK_S = 0.001
BEHIND = 64 << 10  # bytes in a connection's buffer from which events are left out, uvicorn's own mark
HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: uvicorn\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
WORDS = ["def", "return", "self", "for", "in", "range", "if", "not", "None", "yield", "import", "class"]


@cache
def events(total: int, step: int) -> list[bytes]:
    """All chunks of an answer with `total` tokens, made once."""
    made = []
    for upto in [*range(step, total, step), total]:
        over = upto == total
        meta: dict[str, Any] = {
            "id": "0123456789abcdef0123456789abcdef",
            "finish_reason": {"type": "length", "length": total} if over else None,
            "prompt_tokens": 16,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": upto,
            "cached_tokens": 0,
        }
        if over:
            meta |= {"e2e_latency": 1.0, "spec_verify_ct": -(-total // step)}
        text = "".join(" " + WORDS[token % len(WORDS)] for token in range(upto))
        event = {"text": text, "output_ids": [100 + token for token in range(upto)], "meta_info": meta}
        data = b"data: " + json.dumps(event, separators=(",", ":")).encode() + b"\n\n"
        made.append(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    return made


class Streaming(asyncio.Protocol):
    """One connection. `open_now`: those with an answer on its way."""

    def __init__(self, open_now: set[Streaming], args: argparse.Namespace) -> None:
        self.open_now, self.args = open_now, args
        self.received = b""
        self.sent = 0  # events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open_now.discard(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, _, body = self.received.partition(b"\r\n\r\n")
        rows = dict(row.lower().split(b": ", 1) for row in head.split(b"\r\n")[1:] if b": " in row)
        if len(body) < int(rows.get(b"content-length", 0)) or b"\r\n\r\n" not in self.received:
            return
        self.received = b""
        if head.startswith(b"POST /generate"):
            total = json.loads(body)["sampling_params"]["max_new_tokens"]
            self.events, self.sent = events(total, self.args.accept), 0
            self.first = asyncio.get_running_loop().time() + self.args.ttft_ms / 1000
            self.transport.write(HEAD)
            self.open_now.add(self)
        else:
            status = b"200 OK" if head.startswith(b"POST /flush_cache") else b"404 Not Found"
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\n\r\n")

    def advance(self, now: float) -> None:
        """Send what is due: only the newest event, for it holds all before."""
        every = self.args.accept / self.args.tok_s
        due = min(len(self.events), int((now - self.first) / every) + 1) if now >= self.first else 0
        over = due == len(self.events)
        if due <= self.sent or (self.transport.get_write_buffer_size() > BEHIND and not over):
            return
        self.sent = due
        self.transport.write(self.events[due - 1] + (END if over else b""))
        if over:
            self.open_now.discard(self)


async def serve(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    open_now: set[Streaming] = set()
    server = await loop.create_server(lambda: Streaming(open_now, args), "127.0.0.1", args.port, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    while True:
        begun = loop.time()
        for stream in list(open_now):
            stream.advance(loop.time())
        await asyncio.sleep(max(0.0, begun + TICK_S - loop.time()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--tok-s", type=float, default=2000.0, help="of each stream")
    parser.add_argument("--accept", type=int, default=4, help="tokens an event")
    parser.add_argument("--ttft-ms", type=float, default=20.0)
    parser.add_argument("--port", type=int, default=0)
    asyncio.run(serve(parser.parse_args()))
