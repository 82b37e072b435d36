"""A server that streams as SGLang's /generate does, on a thread, and misbehaves as each request asks.

    with SseServer() as server:
        load.run_pass({"address": server.address, "port": server.port, …})

A request's `behaviour` (beside `sampling_params`) is one of BEHAVIOURS; `pieces` is how its bytes are cut for the
socket. Every answer is `tokens` tokens long, `step` of them an event, `pause` seconds apart.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

WORDS = ["the", "tree", "of", "drafts", "is", "verified", "in", "one", "step"]
HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST = b"0\r\n\r\n"


def events(body: dict[str, Any]) -> Iterator[bytes]:
    """The events of an answer, as SGLang 0.5.12.post1 writes them."""
    params = body.get("sampling_params") or {}
    total, step = params.get("max_new_tokens", 8), body.get("step", 3)
    incremental = body.get("incremental", False)
    before = 0
    for upto in [*range(step, total, step), total]:
        tokens = list(range(before if incremental else 0, upto))
        meta = {
            "id": "r1",
            "finish_reason": {"type": "length", "length": total} if upto == total else None,
            "prompt_tokens": 5,
            "weight_version": "default",
            "num_retractions": 0,
            "reasoning_tokens": 0,
            "completion_tokens": upto,
            "cached_tokens": 2,
        }
        if upto == total:
            meta.update(
                e2e_latency=0.1, spec_verify_ct=-(-total // step), spec_correct_drafts_histogram=[0, 1, 2]
            )
        text = "".join(" " + WORDS[token % len(WORDS)] for token in tokens) + body.get("tail", "")
        answer = {"text": text, "output_ids": tokens, "meta_info": meta}
        yield b"data: " + json.dumps(answer, separators=(",", ":")).encode() + b"\n\n"
        before = upto


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


class SseServer:
    """`requests`: bodies that came, with `connection` (a number) and `authorization` added. `flush`: the status that
    /flush_cache answers. `metrics`: the texts of /metrics, one after the other. `chats`: what came to /tokenize, which
    answers with `tokenized`."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.flush = 200
        self.metrics: list[str] = []
        self.chats: list[dict[str, Any]] = []
        self.tokenized: dict[str, Any] = {"tokens": [7, 8]}
        self.paths: list[str] = []
        self._lock = threading.Lock()
        self.in_flight = self.most_in_flight = 0

    def __enter__(self) -> SseServer:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address, self.port = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def close(self) -> None:
        """Nobody listens any more; open connections go on."""
        if self._listening.fileno() >= 0:
            self._listening.shutdown(socket.SHUT_RDWR)
            self._listening.close()

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            number += 1
            threading.Thread(target=self._serve, args=(peer, number), daemon=True).start()

    def _serve(self, peer: socket.socket, number: int) -> None:
        with suppress(OSError), peer, peer.makefile("rb") as stream:  # a client may go at any point
            while line := stream.readline():
                _, path, _ = line.decode().split(" ")
                headers = {}
                while row := stream.readline().strip():
                    name, _, value = row.decode().partition(":")
                    headers[name.lower()] = value.strip()
                body = json.loads(stream.read(int(headers.get("content-length", 0))) or b"{}")
                self.paths.append(path)
                if not self._answer(peer, path, body, number, headers):
                    return

    def _answer(
        self, peer: socket.socket, path: str, body: dict[str, Any], number: int, headers: dict[str, str]
    ) -> bool:
        """False: the connection is over."""
        if path.startswith("/flush_cache"):
            return self._whole(
                peer, self.flush, "text/plain", b"Cache flushed.\n" if self.flush == 200 else b"busy\n"
            )
        if path == "/metrics":
            text = self.metrics.pop(0) if self.metrics else ""
            return self._whole(peer, 200 if text else 404, "text/plain", text.encode())
        if path == "/tokenize":
            self.chats.append(body)
            return self._whole(peer, 200, "application/json", json.dumps(self.tokenized).encode())
        with self._lock:
            self.requests.append(
                {**body, "connection": number, "authorization": headers.get("authorization")}
            )
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self._behave(peer, body)
        finally:
            with self._lock:
                self.in_flight -= 1

    def _behave(self, peer: socket.socket, body: dict[str, Any]) -> bool:
        kind = body.get("behaviour", "well")
        if kind == "error-400":
            answer = {"error": {"message": "the prompt is longer than the context", "type": "BadRequest"}}
            return self._whole(peer, 400, "application/json", json.dumps(answer).encode())
        if kind == "error-500":
            return self._whole(peer, 500, "text/plain", b"Internal Server Error")
        if kind == "no-stream":
            return self._whole(peer, 200, "application/json", b'{"text": "a"}')
        if kind == "silent":
            time.sleep(body.get("pause", 30))
            return False
        if kind == "not-http":
            peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
            return False
        if kind == "bad-chunk":
            peer.sendall(HEAD + b"zz\r\n")
            return False
        if kind == "drop-at-once":
            return False
        written = list(events(body))
        if kind == "drop":
            written = written[:1]
        elif kind == "error-event":
            written = [b'data: {"error":{"message":"the prompt is longer than the context"}}\n\n']
        elif kind == "not-json":
            written[-1] = b'data: {"text": "a, "meta_info":{"completion_tokens":8}}\n\n'
        elif kind == "abort":
            written[-1] = written[-1].replace(
                b'{"type":"length","length":8}',
                b'{"type":"abort","message":"out of memory","status_code":500}',
            )
        elif kind == "no-end":
            written = written[:-1]
        self._write(peer, HEAD, body)
        for event in written:
            time.sleep(body.get("pause", 0))
            self._write(peer, chunk(event), body)
        if kind == "drop":
            return False
        self._write(peer, chunk(b"data: [DONE]\n\n") + LAST, body)
        return True

    def _write(self, peer: socket.socket, data: bytes, body: dict[str, Any]) -> None:
        size = body.get("pieces") or len(data)
        for start in range(0, len(data), size):
            peer.sendall(data[start : start + size])
            if body.get("pieces"):
                time.sleep(0.0005)  # so that pieces are read one by one

    def _whole(self, peer: socket.socket, status: int, kind: str, data: bytes) -> bool:
        head = f"HTTP/1.1 {status} Some Words\r\ncontent-type: {kind}\r\ncontent-length: {len(data)}\r\n\r\n"
        peer.sendall(head.encode() + data)
        return True
