"""What a plan says about an outage: how long, how sure, whom it hits; and a drain that waits for them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support import mini

from ddtool.agent import inflight, speed
from ddtool.cli.plans import describe_outage
from ddtool.deploy import operations
from ddtool.deploy.drain import drained
from ddtool.deploy.offline import assumed_facts
from ddtool.deploy.outage import Outage, away, in_flight
from ddtool.deploy.plan import Plan, plan_deploy, same_model
from ddtool.deploy.toggle import plan_toggle, toggle_request
from ddtool.profile import load

from .test_plan import deployed_facts, release_of

BUSY = {"running": 2, "waiting": 1}


@pytest.fixture
def facts() -> dict[str, Any]:
    """A host on which the mini profile runs with three requests in flight."""
    profile = load(str(mini.PROFILE))
    found = deployed_facts(profile, assumed_facts(profile))
    found["service"].update(requests=BUSY, load=None)
    return found


def steps(plan: Plan) -> list[str]:
    return [step["step"] for step in plan.steps]


def test_the_hosts_own_starts_tell(facts: dict[str, Any]) -> None:
    outage = away(facts)
    assert (outage.seconds, outage.requests) == (44.0, BUSY)
    assert "last 2 starts here" in outage.source
    assert "3 in flight now (2 running, 1 waiting)" in describe_outage(outage)


def test_starts_of_another_model_do_not_tell(facts: dict[str, Any]) -> None:
    facts["service"]["load"] = {"bytes": 100 << 30, "mib_s": 2048.0}
    outage = away(facts, same_model=False)
    assert outage.seconds == pytest.approx(50 + 60)
    assert outage.source.startswith(
        "an estimate: 100.0 GiB of weights at 2.0 GiB/s, as this host's disk reads"
    )


def test_a_disk_that_cannot_be_measured_is_an_assumption(facts: dict[str, Any]) -> None:
    facts["service"].update(starts=[], load={"bytes": 100 << 30, "mib_s": None})
    assert "at 1.0 GiB/s, assumed" in away(facts).source


def test_what_does_not_run_costs_nothing(facts: dict[str, Any]) -> None:
    facts["service"]["unit"]["processes"] = []
    assert away(facts) == Outage(0, "the service does not run now")


def test_unknown_is_not_zero() -> None:
    outage = Outage(1, "x", {"unknown": "/v1/loads answers 404", "hopeless": True})
    assert in_flight(outage.requests) is None
    assert "not known: /v1/loads answers 404" in describe_outage(outage)


def test_a_drain_comes_right_before_the_first_stop(facts: dict[str, Any]) -> None:
    plan = drained(operations.plan_restart("sglang-mini", facts), 30)
    assert steps(plan) == ["drain", "stop", "start", "gate"]
    detail = "at most 30 s, until no request is in flight (3 now); new ones still come in"
    assert plan.changes[0].detail == detail
    assert "3 in flight now (2 running, 1 waiting), waited for at most 30 s" in describe_outage(plan.outage)
    stop = drained(operations.plan_stop("sglang-mini", facts), 30)
    assert steps(stop) == ["drain", "stop"] and stop.steps[0]["gate"] is None
    changed = load(str(mini.PROFILE), ["server_args.context-length=512"])
    deploy = plan_deploy(changed, release_of(changed), facts, state="/s", salt="salt", now_unix=1.0)
    assert steps(drained(deploy, 5))[:3] == ["release", "drain", "stop"]


def test_what_stops_nothing_drains_nothing(facts: dict[str, Any]) -> None:
    request = toggle_request("/venv", enable=[])
    preview = {
        "nothing_to_do": False,
        "diffs": {},
        "summary": [],
        "notes": [],
        "unknown": [],
        "units": {},
        "digest": "x",
    }
    toggle = plan_toggle("diag enable", "sglang-mini", request, preview, facts, restart=False)
    assert steps(drained(toggle, 30)) == ["compose"]
    assert steps(drained(operations.plan_restart("sglang-mini", facts), 0)) == ["stop", "start", "gate"]
    facts["service"]["unit"]["processes"] = []
    assert "drain" not in steps(drained(operations.plan_restart("sglang-mini", facts), 30))


def test_same_model_is_target_and_drafter() -> None:
    config = {"model-path": "/m", "speculative-draft-model-path": "/d"}
    assert same_model({"config": config}, {"config": {**config, "context-length": 3}})
    assert not same_model({"config": config}, {"config": {**config, "speculative-draft-model-path": "/e"}})
    assert not same_model(None, {"config": config})


class Loads:
    """A service whose `/v1/loads` answers from a list, its last entry for ever; an int is a bare status."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answer = outer.answers[min(outer.asked, len(outer.answers) - 1)]
                outer.asked += 1
                data = b"" if isinstance(answer, int) else json.dumps(answer).encode()
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.spec = {"address": "127.0.0.1", "port": self.server.server_port, "api_key": None}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(inflight, "POLL_S", 0.01)
    made: list[Loads] = []

    def start(*answers: Any) -> Loads:
        made.append(Loads(list(answers)))
        return made[-1]

    yield start
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def of(*pairs: tuple[int, int]) -> dict[str, Any]:
    """SGLang's answer: running and waiting of each data-parallel rank."""
    return {
        "loads": [{"num_running_reqs": running, "num_waiting_reqs": waiting} for running, waiting in pairs]
    }


def test_requests_of_all_ranks_count(serve: Any) -> None:
    assert inflight.count(serve(of((2, 1), (3, 0))).spec) == {"running": 5, "waiting": 1}


@pytest.mark.parametrize(
    ("answer", "hopeless"), [(404, True), (401, True), (503, False), ({"detail": "x"}, True)]
)
def test_a_service_that_does_not_say_is_unknown(serve: Any, answer: Any, hopeless: bool) -> None:
    seen = inflight.count(serve(answer).spec)
    assert "/v1/loads answers" in seen["unknown"]
    assert seen["hopeless"] is hopeless


def test_where_nothing_listens_nothing_is_in_flight(serve: Any) -> None:
    service = serve(of((1, 0)))
    service.server.shutdown()
    service.server.server_close()
    assert inflight.count(service.spec) == {"running": 0, "waiting": 0}


def test_one_zero_between_two_requests_does_not_end_a_drain(serve: Any) -> None:
    service, events = serve(of((2, 1)), of((0, 0)), of((1, 0)), of((0, 0))), []
    result = inflight.drain(service.spec, 30, lambda event, **fields: events.append(fields["running"]))
    assert (result["most"], result["left"], result["unknown"]) == (3, 0, None)
    assert (service.asked, events) == (5, [2, 0, 1, 0])


def test_a_drain_ends_with_its_time(serve: Any) -> None:
    result = inflight.drain(serve(of((1, 0))).spec, 0.05, lambda event, **fields: None)
    assert result["left"] == 1


def test_a_drain_goes_on_through_an_answer_that_fails(serve: Any) -> None:
    result = inflight.drain(serve(503, of((0, 0))).spec, 30, lambda event, **fields: None)
    assert (result["left"], result["unknown"]) == (0, None)


def test_a_drain_does_not_wait_for_what_it_will_never_learn(serve: Any) -> None:
    service = serve(404)
    result = inflight.drain(service.spec, 600, lambda event, **fields: None)
    assert (result["left"], service.asked) == (None, 1)


def test_speed_of_weights(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(speed.PIECE * 2 + 5))
    (tmp_path / "b.safetensors").write_bytes(bytes(10))
    (tmp_path / "broken.safetensors").symlink_to(tmp_path / "nowhere")
    found = speed.of_weights([str(tmp_path), None, str(tmp_path / "missing")])
    assert found["bytes"] == speed.PIECE * 2 + 15
    assert found["mib_s"] is None or found["mib_s"] > 0  # None where the file system has no direct reads
    assert speed.of_weights([None]) == {"bytes": 0, "mib_s": None}
