"""Load on the mini service: samples byte for byte, none lost or doubled, whatever interrupts the pass."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from support import doctored, mini, service
from support.remote import output, until

from ddtool import profile
from ddtool.deploy import apply as transactions
from ddtool.deploy.deployment import Deployment
from ddtool.errors import ConnectionLost, DdtoolError
from ddtool.sandbox import Sandbox

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

KEY = "sentinel-7f3a"
REQUESTS = 12
TOKENS = 30  # 10 verify steps of the mini service
Event = dict[str, Any]


def requests(count: int, seconds: float) -> list[dict[str, Any]]:
    params = {"max_new_tokens": TOKENS, "mini_slow": seconds}
    return [
        {"index": index, "prompt": f"{index:016x}", "body": {"text": "a b c", "sampling_params": params}}
        for index in range(count)
    ]


def passes(attempt: int = 1, seconds: float = 0.3) -> list[dict[str, Any]]:
    """Two of them: one at a time, and four at once."""
    common = {"attempt": attempt, "flush_cache": True, "timeout_s": 30, "keep_text": False}
    return [
        {
            "pass": f"chain/code-c{width}/v0/r0",
            "requests": requests(REQUESTS, seconds / (12 / width)),
            "warmup": requests(1, 0),
            "concurrency": width,
            **common,
        }
        for width in (1, 4)
    ]


class Bench:
    """The host with the mini service behind a key, driven by an agent that can be told to die."""

    def __init__(self, host: Sandbox) -> None:
        self.host = host
        self.where = f"sandbox:{host.name}"
        self.loaded = profile.load(str(mini.PROFILE), ["service.api_key=${env:MINI_KEY}"])

    def connect(self) -> Deployment:
        return Deployment(self.loaded, self.where)

    def run(
        self, run: str, wanted: list[dict[str, Any]], on_event: Callable[[Event], None] = lambda event: None
    ) -> Event:
        """One transaction: the service stops, starts, is measured, and is put back. Returns its result."""
        with self.connect() as deployment:
            deployment.settle(on_event)
            release = deployment.agent.call("releases", unit_name=service.UNIT)[0]
            begins = {"gate": release["gate"], "stop_s": release["stop_s"]}
            about = {"schema": "ddtool.bench.run/1", "run": run}
            steps = [
                {"step": "safeguard"},
                {"step": "stop", "stop_s": release["stop_s"], "restore": True},
                {"step": "start", **begins},
                {
                    "step": "bench",
                    "run": run,
                    "about": about,
                    "release": release["id"],
                    "passes": wanted,
                    **begins,
                },
            ]
            document = {**transactions.transaction("bench", service.UNIT, steps), "temporary": True}
            return transactions.watch(deployment.agent.stream("txn.run", plan=document), on_event, "")

    def fetch(self, run: str) -> bytes:
        with self.connect() as deployment:
            data, size = b"", 1
            while len(data) < size:
                piece = deployment.agent.call("bench.fetch", run=run, offset=len(data))
                data, size = data + zlib.decompress(base64.b64decode(piece["data"])), piece["size"]
        on_disk = output(self.host, f"base64 -w0 /var/lib/ddtool/bench/{run}/samples.jsonl")
        assert data == base64.b64decode(on_disk)
        return data

    def at_rest(self) -> None:
        """No executor runs, and the service is up as before."""
        service.at_rest(self.host)
        until(lambda: service.active(self.host) == "active", timeout=30)


@pytest.fixture(scope="module")
def bench(host: Sandbox) -> Iterator[Bench]:
    mini.install(host)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MINI_KEY", KEY)
        patch.setattr("ddtool.transport.agent.agent_zipapp", doctored.agent)
        made = Bench(host)
        with made.connect() as deployment:
            deployment.apply(deployment.plan_deploy(), lambda event: None)
        yield made


def lines(data: bytes) -> list[dict[str, Any]]:
    """What a reader makes of it: a line that a kill tore is passed over."""
    found = []
    for line in data.split(b"\n"):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def check_whole(data: bytes, name: str, attempt: int) -> None:
    """That attempt has each sample once, between its begin and its end."""
    of_pass = [item for item in lines(data) if item["pass"] == name and item["attempt"] == attempt]
    assert [item["kind"] for item in of_pass] == ["begin", *["sample"] * REQUESTS, "end"]
    samples = of_pass[1:-1]
    assert Counter(item["index"] for item in samples) == Counter(range(REQUESTS))
    for item in samples:
        assert item["error"] is None and item["chunks"][-1][1] == item["completion_tokens"] == TOKENS
        assert len(item["chunks"]) == item["verify_ct"] == TOKENS // 3


def check_broken(data: bytes, name: str, attempt: int) -> int:
    """That attempt has no end, and no sample twice. How many it has."""
    of_pass = [item for item in lines(data) if item["pass"] == name and item["attempt"] == attempt]
    kinds = Counter(item["kind"] for item in of_pass)
    assert kinds["end"] == 0 and kinds["begin"] == 1
    assert all(count == 1 for count in Counter(item.get("index") for item in of_pass[1:]).values())
    return kinds["sample"]


def test_passes_are_kept_on_the_host_and_fetched_as_they_are(bench: Bench) -> None:
    events: list[Event] = []
    wanted = passes()
    result = bench.run("20261130-010000-0001", wanted, events.append)
    assert result["ok"] and result["bench"]["passes"] == [item["pass"] for item in wanted], result
    data = bench.fetch("20261130-010000-0001")
    for item in wanted:
        check_whole(data, item["pass"], 1)
    assert data.endswith(b"\n") and len(lines(data)) == data.count(b"\n")
    begin = lines(data)[0]
    assert begin["warm"] == "flushed" and len(begin["server"]["invocation"]) == 32
    assert output(bench.host, "stat -c %a /var/lib/ddtool/bench/*/samples.jsonl") == "600"
    told = [event for event in events if event["event"] == "pass"]
    assert {event["pass"] for event in told} == {item["pass"] for item in wanted}
    assert (told[-1]["done"], told[-1]["of"], told[-1]["errors"]) == (REQUESTS, REQUESTS, 0)
    bench.at_rest()
    with bench.connect() as deployment:
        (row,) = deployment.agent.call("bench.list")
    assert row["bytes"] == len(data) and row["about"]["run"] == row["run"] == "20261130-010000-0001"
    assert KEY.encode() not in data


@pytest.mark.parametrize("at", [5, pytest.param(18, marks=pytest.mark.slow)])
def test_an_executor_killed_within_a_sample_loses_and_doubles_none(bench: Bench, at: int) -> None:
    run = f"20261130-010000-01{at:02}"
    doctored.arm(bench.host, "txn", at, "_counted")
    with contextlib.suppress(DdtoolError):  # or the host has settled it by then, and says so
        assert bench.run(run, passes())["settled"] == "undone"
    hit = doctored.fired(bench.host)
    assert hit is not None and "half of a write" in hit["act"]
    bench.at_rest()  # the host itself put the service back
    torn = bench.fetch(run)
    assert not torn.endswith(b"\n")
    broken = passes()[(at - 1) // REQUESTS]["pass"]
    assert check_broken(torn, broken, 1) == (at - 1) % REQUESTS
    again = [item for item in passes(attempt=2) if (item["pass"], "end") not in ended(torn)]
    assert bench.run(run, again)["ok"]
    data = bench.fetch(run)
    assert data.startswith(torn + b"\n"), "nothing that was written is written again"
    for item in passes():
        check_whole(data, item["pass"], 2 if item in passes()[(at - 1) // REQUESTS :] else 1)
    bench.at_rest()


def ended(data: bytes) -> set[tuple[str, str]]:
    return {(item["pass"], item["kind"]) for item in lines(data) if item["kind"] == "end"}


def test_a_cut_link_costs_nothing(bench: Bench, faults: ModuleType) -> None:
    run = "20261130-010000-0003"

    def cut_in_the_first_pass(event: Event) -> None:
        if event["event"] == "pass" and event["done"]:
            faults.cut(bench.host)

    with pytest.raises(ConnectionLost):
        bench.run(run, passes(seconds=2), cut_in_the_first_pass)
    with bench.connect() as deployment:
        result = transactions.attach(deployment.agent, lambda event: None)
    assert result["ok"], result
    data = bench.fetch(run)
    for item in passes():
        check_whole(data, item["pass"], 1)
    assert len(lines(data)) == 2 * (REQUESTS + 2)
    bench.at_rest()


def test_a_stop_leaves_whole_lines(bench: Bench) -> None:
    run, stopping = "20261130-010000-0004", []

    def stop(ident: str) -> None:
        with bench.connect() as deployment:
            deployment.agent.call("txn.stop", txn=ident)

    def once_it_runs(event: Event) -> None:
        if event["event"] == "pass" and event["done"] and not stopping:
            ident = output(bench.host, "ls -t /var/lib/ddtool/txn | head -1")
            stopping.append(threading.Thread(target=stop, args=(ident,)))
            stopping[0].start()

    result = bench.run(run, passes(seconds=12), once_it_runs)
    stopping[0].join()
    assert not result["ok"] and "stopped" in result["error"]["message"] and result["rolled_back"]
    data = bench.fetch(run)
    assert data.endswith(b"\n") and len(lines(data)) == data.count(b"\n")
    assert 0 < check_broken(data, passes()[0]["pass"], 1) < REQUESTS
    bench.at_rest()


def test_a_service_that_dies_ends_the_pass_and_says_so(bench: Bench) -> None:
    run, killed = "20261130-010000-0005", []

    def kill(event: Event) -> None:
        if event["event"] == "pass" and event["done"] and not killed:
            killed.append(output(bench.host, f"systemctl kill -s KILL {service.UNIT}"))

    result = bench.run(run, passes(seconds=12), kill)
    assert not result["ok"] and result["error"]["class"] == "Unhealthy", result
    assert "during the benchmark" in result["error"]["message"] and result["evidence"]
    assert 0 < check_broken(bench.fetch(run), passes()[0]["pass"], 1) < REQUESTS
    bench.at_rest()
