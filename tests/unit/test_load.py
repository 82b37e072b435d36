"""The load client against a server that streams as SGLang does, well and badly."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.sse_server import SseServer, chunk, events

from ddtool.agent import listener, load, load_events, load_http, load_metrics
from ddtool.agent.client import Key

Json = dict[str, Any]


@pytest.fixture
def server() -> Iterator[SseServer]:
    with SseServer() as running:
        yield running


def request(index: int = 0, **body: Any) -> Json:
    params = {"temperature": 0, "max_new_tokens": body.pop("tokens", 8)}
    return {
        "index": index,
        "prompt": f"{index:016x}",
        "body": {"text": "a b", "sampling_params": params, **body},
    }


def run(at: SseServer, requests: list[Json], **spec: Any) -> list[Json]:
    """A pass over these requests: its lines."""
    lines: list[Json] = []
    full = {"pass": "tree:32/code-c1/v0/r0", "attempt": 1, "address": at.address, "port": at.port}
    load_of = {} if "rate" in spec else {"concurrency": 1}
    full |= {"requests": requests, "timeout_s": 10, "keep_text": False, **load_of, **spec}
    end = load.run_pass(full, lines.append, threading.Event())
    assert end == lines[-1]
    return lines


def samples(lines: list[Json]) -> list[Json]:
    return [line for line in lines if line["kind"] == "sample"]


def one(server: SseServer, **body: Any) -> Json:
    """The sample of a single request, of two tries at it: what comes after a bad answer must go well."""
    first, after = samples(run(server, [request(0, **body), request(1)], timeout_s=body.get("patience", 10)))
    assert after["error"] is None and after["chunks"][-1][1] == 8
    return first


def test_a_pass_is_a_begin_its_samples_and_an_end(server: SseServer) -> None:
    lines = run(server, [request(index) for index in range(3)], server={"release": "0001"})
    assert [line["kind"] for line in lines] == ["begin", "sample", "sample", "sample", "end"]
    assert all((line["pass"], line["attempt"]) == ("tree:32/code-c1/v0/r0", 1) for line in lines)
    assert lines[0]["server"] == {"release": "0001"} and lines[0]["warm"] == "warm"
    sample = lines[1]
    assert [tokens for _, tokens in sample["chunks"]] == [3, 6, 8]
    times = [at for at, _ in sample["chunks"]]
    assert times == sorted(times) and times[0] > 0 and times[-1] <= sample["e2e_s"]
    assert sample["prompt"] == "0" * 16 and (sample["prompt_tokens"], sample["cached_tokens"]) == (5, 2)
    assert (sample["completion_tokens"], sample["verify_ct"], sample["finish"]) == (8, 3, "length")
    assert (sample["status"], sample["error"]) == (200, None)
    assert sample["drafts_histogram"] == [0, 1, 2] and "text" not in sample and "output_ids" not in sample
    assert lines[-1]["seconds"] >= lines[3]["sent_s"] + lines[3]["e2e_s"] - 1e-5
    assert (lines[-1]["gpu"], lines[-1]["metrics"]) == (None, None)
    json.dumps(lines)


def test_chats_are_rendered_by_the_server_each_once_and_before_anything_is_sent(server: SseServer) -> None:
    chats: list[list[Json]] = [[{"role": "user", "content": text}] for text in ("a", "b")]
    requests = [request(index, messages=chat) for index, chat in enumerate(chats)]
    for one_of in requests:
        del one_of["body"]["text"]
    lines = run(server, [*requests, request(2)], warmup=requests[1:])
    assert server.chats == [{"messages": chats[1]}, {"messages": chats[0]}]
    assert server.paths[:3] == ["/tokenize", "/tokenize", "/generate"] and "/tokenize" not in server.paths[3:]
    assert [asked.get("input_ids") for asked in server.requests] == [[7, 8], [7, 8], [7, 8], None]
    assert not any("messages" in asked for asked in server.requests)
    assert all(sample["error"] is None for sample in samples(lines))


def test_a_server_that_renders_no_chat_is_not_measured(server: SseServer) -> None:
    server.tokenized = {"message": "Field required: prompt"}
    lines: list[Json] = []
    spec: Json = {"pass": "a/b-c1/v0/r0", "attempt": 1, "address": server.address, "port": server.port}
    spec |= {"requests": [request(messages=[])], "concurrency": 1, "timeout_s": 10}
    with pytest.raises(load.NoServer, match="Field required: prompt"):
        load.run_pass(spec, lines.append, threading.Event())
    assert (lines, server.requests) == ([], [])


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("tokens", [2, 5, 8])
def test_text_is_kept_whole_however_it_is_streamed(server: SseServer, incremental: bool, tokens: int) -> None:
    (sample,) = samples(run(server, [request(tokens=tokens, incremental=incremental)], keep_text=True))
    assert sample["output_ids"] == list(range(tokens)) and sample["completion_tokens"] == tokens
    assert sample["text"] == " the tree of drafts is verified in one"[: len(sample["text"])]
    assert len(sample["text"].split()) == tokens


SAID = " the tree of drafts is verified in one"  # eight tokens of the server's


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("keep_text", [False, True])
@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("step", [1, 3, 5, 8, 9])
def test_a_text_has_one_digest_however_it_is_streamed(
    server: SseServer, incremental: bool, step: int, keep_text: bool
) -> None:
    """In events of everything so far, of what is new, or one alone; and not one of a part, or of parts said twice."""
    requests = [request(tokens=tokens, incremental=incremental, step=step) for tokens in (8, 7)]
    for index, item in enumerate(requests):
        item["index"] = index
    full, shorter = samples(run(server, requests, keep_text=keep_text))
    assert full["output"] == sha(SAID) and shorter["output"] == sha(SAID[:-4])
    assert ("text" in full) == keep_text


def test_a_chat_and_a_text_that_got_the_same_answer_have_the_same_digest(server: SseServer) -> None:
    chat = request(1, messages=[{"role": "user", "content": "a"}])
    del chat["body"]["text"]
    assert [sample["output"] for sample in samples(run(server, [request(0), chat]))] == [sha(SAID)] * 2


@pytest.mark.parametrize("pieces", [1, 7, 100])
def test_torn_segments_make_no_difference(server: SseServer, pieces: int) -> None:
    sample = one(server, pieces=pieces, tail=' "completion_tokens":99 \\"\n\ndata: é')
    assert [tokens for _, tokens in sample["chunks"]] == [3, 6, 8] and sample["error"] is None


def test_a_huge_event_is_one_event(server: SseServer) -> None:
    sample = one(server, tail="x" * 3_000_000)
    assert [tokens for _, tokens in sample["chunks"]] == [3, 6, 8] and sample["error"] is None


@pytest.mark.parametrize(
    ("behaviour", "status", "error", "tokens"),
    [
        ("error-400", 400, "400: the prompt is longer than the context", 0),
        ("error-500", 500, "500: Internal Server Error", 0),
        ("error-event", 200, "the prompt is longer than the context", 0),
        ("no-stream", 200, "the answer is no stream but application/json", 0),
        ("not-http", None, "the answer cannot be read: it begins with 'SSH-2.0", 0),
        ("bad-chunk", 200, "the answer cannot be read: ", 0),
        ("drop-at-once", None, "the connection was closed before an answer", 0),
        ("drop", 200, "the connection was closed within the answer", 3),
        ("not-json", 200, "an event is not JSON: ", 8),
        ("abort", 200, "the server aborted it: out of memory", 8),
        ("no-end", 200, "the stream ended without a finish reason", 6),
    ],
)
def test_what_goes_wrong_is_a_sample_with_an_error(
    server: SseServer, behaviour: str, status: int | None, error: str, tokens: int
) -> None:
    sample = one(server, behaviour=behaviour)
    assert sample["status"] == status and sample["error"].startswith(error), sample
    assert sample["completion_tokens"] == tokens and sample["e2e_s"] > 0
    assert sample["output"] is None


def test_a_request_without_an_end_is_given_up_in_time(server: SseServer) -> None:
    sample = one(server, behaviour="silent", patience=0.3)
    assert sample["error"] == "no whole answer within 0.3 s" and 0.3 <= sample["e2e_s"] < 5
    slow = one(server, pause=0.2, tokens=30, patience=0.5)
    assert slow["error"] and 0 < slow["completion_tokens"] < 30 and slow["chunks"]
    assert sample["output"] is None and slow["output"] is None


def test_concurrency_is_what_is_asked_for_on_as_many_connections(server: SseServer) -> None:
    lines = run(server, [request(index, pause=0.02) for index in range(20)], concurrency=5)
    assert sorted(sample["index"] for sample in samples(lines)) == list(range(20))
    assert server.most_in_flight == 5
    assert len({item["connection"] for item in server.requests}) == 5


def test_a_rate_sends_at_its_moments_whether_the_server_keeps_up_or_not(server: SseServer) -> None:
    moments = []
    for _ in range(2):
        lines = run(server, [request(index, pause=0.1) for index in range(12)], rate=100.0, seed=7)
        moments.append(
            [sample["sent_s"] for sample in sorted(samples(lines), key=lambda item: item["index"])]
        )
    assert server.most_in_flight > 6, "an open loop waits for no answer"
    chance, expected = random.Random(7), [0.0]
    for _ in range(11):
        expected.append(expected[-1] + chance.expovariate(100.0))
    for seen in moments:
        assert all(late >= planned - 0.002 for late, planned in zip(seen, expected, strict=True))


def test_the_warm_up_is_not_counted(server: SseServer) -> None:
    server.metrics = ["sglang:x_total 1\n", "sglang:x_total 3\n"]
    lines = run(server, [request()], warmup=[request(7), request(8)], flush_cache=True)
    assert [sample["index"] for sample in samples(lines)] == [0] and lines[0]["warm"] == "flushed"
    paths = [path.partition("?")[0] for path in server.paths]
    assert paths == ["/generate", "/generate", "/flush_cache", "/metrics", "/generate", "/metrics"]
    assert lines[-1]["metrics"] == {"sglang:x_total": 2.0}


def test_nothing_is_measured_when_the_warm_up_fails(server: SseServer) -> None:
    with pytest.raises(load.NoServer, match="no request of the warm-up succeeded: 500"):
        run(server, [request()], warmup=[request(behaviour="error-500")])


def test_a_cache_that_cannot_be_flushed_is_warm_and_says_why(server: SseServer) -> None:
    server.flush = 400
    begin = run(server, [request()], flush_cache=True)[0]
    assert (begin["warm"], begin["flush_error"]) == ("warm", "400: busy")
    assert run(server, [request()], fresh=True)[0]["warm"] == "cold"


def test_a_server_that_is_gone_ends_the_pass(server: SseServer) -> None:
    lines: list[Json] = []
    spec = {"pass": "p", "attempt": 1, "address": server.address, "port": server.port, "timeout_s": 5}
    spec |= {"requests": [request(index, behaviour="drop") for index in range(9)], "concurrency": 1}

    def write(line: Json) -> None:
        lines.append(line)
        if line["kind"] == "sample":
            server.close()

    with pytest.raises(load.NoServer):
        load.run_pass(spec, write, threading.Event())
    assert [line["kind"] for line in lines] == ["begin", "sample"]


def test_a_stop_leaves_nothing_of_what_was_in_flight(server: SseServer) -> None:
    stop, lines = threading.Event(), []
    spec = {"pass": "p", "attempt": 1, "address": server.address, "port": server.port, "timeout_s": 60}
    spec |= {"requests": [request(0), *(request(index, behaviour="silent") for index in range(1, 9))]}

    def write(line: Json) -> None:
        lines.append(line)
        if line["kind"] == "sample":
            stop.set()

    begun = time.monotonic()
    with pytest.raises(load.Stopped):
        load.run_pass({**spec, "concurrency": 4}, write, stop)
    assert time.monotonic() - begun < 20  # they are silent for 30 s
    assert [line["kind"] for line in lines] == ["begin", "sample"]


def test_a_line_that_cannot_be_written_ends_the_pass(server: SseServer) -> None:
    def write(line: Json) -> None:
        if line["kind"] == "sample":
            raise OSError("no space left")

    spec = {"pass": "p", "attempt": 1, "address": server.address, "port": server.port, "timeout_s": 60}
    spec |= {"requests": [request(index) for index in range(9)], "concurrency": 3}
    with pytest.raises(OSError, match="no space left"):
        load.run_pass(spec, write, threading.Event())


class TestKey:
    def test_it_is_sent_with_every_request(self, server: SseServer) -> None:
        run(server, [request(index) for index in range(3)], api_key="sentinel")
        assert {item["authorization"] for item in server.requests} == {"Bearer sentinel"}

    def test_a_stranger_who_listens_gets_nothing(
        self, server: SseServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listener, "owners", lambda address, port: {4711})
        monkeypatch.setattr(listener, "users", lambda unit: {0})
        with pytest.raises(
            load.NoServer, match="belongs to uid 4711, not to sglang-x: its API key was not sent"
        ):
            run(server, [request()], api_key=Key("sentinel", "sglang-x"))
        assert server.requests == [] and server.paths == []


def told(streamed: list[tuple[str | None, list[int] | None]]) -> Json:
    """What a sample has of an answer of these events, each with one token more."""
    answer = load_events.Answer(False)
    for tokens, (text, ids) in enumerate(streamed, 1):
        said = {key: value for key, value in {"text": text, "output_ids": ids}.items() if value is not None}
        answer.take(f"data: {json.dumps({**said, 'meta_info': {'completion_tokens': tokens}})}".encode(), 1.0)
    return answer.fields()


class TestEvents:
    def test_a_text_cannot_pass_for_the_count(self) -> None:
        answer = load_events.Answer(False)
        event = next(events({"tail": '"completion_tokens":99,"completion_tokens": 98'}))
        answer.take(event, 1.0)
        assert answer.tokens == 3

    def test_events_with_nothing_new_leave_no_chunk(self) -> None:
        answer = load_events.Answer(False)
        for event in [b": a comment", b"", *events({}), *events({})]:
            answer.take(event.strip(), 1.0)
        assert [tokens for _, tokens in answer.chunks] == [3, 6, 8] and answer.error is None

    @pytest.mark.parametrize(
        "streamed",
        [
            [("ha", [1]), ("hahaha", [1, 2])],
            [("ha", [1]), ("haha", [2])],  # what is new begins with what was said
            [("", [1]), ("ha", [1, 2]), ("hahaha", [1, 2, 3])],
            [("", [1]), ("", [2]), ("ha", [3]), ("haha", [4])],
            [("ha", [1]), ("hahaha", [1, 2, 3]), ("hahaha", [1, 2, 3])],  # ids are ahead of their count
            [("ha", None), ("hahaha", None)],
            [("hah", None), ("aha", None)],
            [(None, [1]), ("hahaha", [1, 2])],
            [("hahaha", [1, 2, 3])],
        ],
    )
    def test_whichever_way_a_text_comes_its_digest_is_that_of_all_of_it(
        self, streamed: list[tuple[str | None, list[int] | None]]
    ) -> None:
        assert told(streamed)["output"] == sha("hahaha")

    def test_where_there_is_no_text_there_is_no_digest(self) -> None:
        assert load_events.Answer(False).fields()["output"] is None
        assert told([(None, [1]), (None, [1, 2])])["output"] is None  # a server without a tokenizer

    def test_half_of_a_character_has_a_digest(self) -> None:
        assert len(load_events.digest("\ud83d")) == 16

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b'{"error":{"message":"no"}}', "no"),
            (b'{"error":"no"}', "no"),
            (b'{"object":"error","message":"no","code":400}', "no"),
            (b'{"detail":"Not Found"}', "Not Found"),
            (b"<html>", "<html>"),
            (b"[" * 100_000, "[" * 500),
            (b'{"error":{"message":7}}', '{"error":{"message":7}}'),
        ],
    )
    def test_the_message_of_each_kind_of_error(self, body: bytes, message: str) -> None:
        assert load_events.said(body) == message


class TestHttp:
    def test_heads(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX: a: b"
        assert load_http.parse_head(head) == (200, {"content-type": "text/event-stream", "x": "a: b"})
        for bad in (b"", b"HTTP/1.1", b"HTTP/2 200", b"HTTP/1.1 x y"):
            with pytest.raises(ValueError):
                load_http.parse_head(bad)

    def test_events_and_chunks_need_not_coincide(
        self, server: SseServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A proxy in between may cut a stream as it likes."""

        def reframed(data: bytes) -> bytes:
            return b"".join(chunk(data[start : start + 50]) for start in range(0, len(data), 50))

        monkeypatch.setattr("support.sse_server.chunk", reframed)
        sample = one(server)
        assert [tokens for _, tokens in sample["chunks"]] == [3, 6, 8] and sample["error"] is None


class TestMetrics:
    BEFORE = """# TYPE sglang:ddtree_accepted_total counter
sglang:ddtree_accepted_total{depth="1",model_name="m",tp_rank="0"} 10.0
sglang:ddtree_accepted_total{depth="2",model_name="m",tp_rank="0"} 4.0
sglang:ddtree_verify_total{model_name="m",tp_rank="0"} 20.0
sglang:num_running_reqs{model_name="m"} 3.0
sglang:e2e_seconds_bucket{le="1.0",model_name="m"} 3.0
sglang:e2e_seconds_sum{model_name="m"} 1.5
python_gc_objects_collected_total{generation="0"} 9.0
sglang:odd_total{path="a\\"b,c}"} NaN
"""
    AFTER = BEFORE.replace(" 10.0", " 16.0").replace(" 20.0", " 30.0").replace(" 1.5", " 2.25")

    def test_counters_differ_by_the_labels_that_tell_them_apart(self) -> None:
        grown = load_metrics.difference(load_metrics.parse(self.BEFORE), load_metrics.parse(self.AFTER))
        assert grown == {
            'sglang:ddtree_accepted_total{depth="1"}': 6.0,
            "sglang:ddtree_verify_total": 10.0,
            "sglang:e2e_seconds_sum": 0.75,
        }

    def test_without_an_export_there_is_no_difference(self) -> None:
        assert load_metrics.difference(None, {}) is None and load_metrics.parse("<html>") == {}
