"""The step of a benchmark: passes of load on the release that was just started, in a temporary transaction."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Type

from . import bench, releases, start_log, unit
from .bench_judge import Judge
from .errors import Unhealthy
from .gate import Gate
from .load_gpu import Sampler
from .load_tally import Tally
from .run import Run
from .service_steps import keep_evidence
from .steps import Before, Step

EVERY_S = 1.0  # between two reports of one pass
ENDING_S, POLL_S = 2.0, 0.1

Json = Dict[str, Any]


class Bench(Step):
    """args `run`, `about` (for run.json), `release`, `gate`, `passes`: each as `load.run_pass` takes it, but without
    address, port, api_key and server, which the release has; `prompts`: by their hash, what bodies lack of them.

    Nothing to undo: samples stay. One that is broken off leaves whole lines of a pass without an end.
    """

    def title(self, run: Run) -> str:
        count = len(self.args["passes"])
        return f"wait until it is ready, and measure: {count} pass{'' if count == 1 else 'es'}"

    def do(self, run: Run, before: Before) -> None:
        gate = releases.with_api_key(run.ctx, run.unit, self.args["release"], self.args["gate"])
        service = Gate(run.unit, gate, run.emit)
        try:
            with start_log.phases(service.invocation, run.emit):
                begun = time.monotonic()
                service.wait_healthy()
                run.emit("healthy", seconds=round(time.monotonic() - begun, 1))
            self._measure(run, service)
        except Unhealthy as error:
            keep_evidence(run, service.invocation, error.message)
            raise

    def _measure(self, run: Run, service: Gate) -> None:
        where = {key: service.spec[key] for key in ("address", "port", "api_key")}
        server = self._server(run, service.invocation)
        done = run.notes.setdefault("bench", {"run": self.args["run"], "passes": []})["passes"]
        with Sampler(lambda: {item.pid for item in unit.processes(run.unit)}) as gpu:
            for number, spec in enumerate(self.args["passes"]):
                bench.make_room(run.ctx, self.args["run"])
                spec = with_prompts(spec, self.args.get("prompts") or {})
                whole = {"fresh": number == 0, **spec, **where, "server": server}
                with bench.Samples(run.ctx, self.args["run"], self.args["about"]) as samples:
                    run_stoppable(whole, Progress(run, whole, samples, service), gpu, service)
                check_same(service)
                done.append(spec["pass"])

    def _server(self, run: Run, invocation: str) -> Json:
        """What a sample's reader may want to know of the server that it came from."""
        about = releases.meta(run.ctx, run.unit, self.args["release"])
        argv = json.dumps([about.get("argv"), about.get("config")], sort_keys=True)
        return {
            "unit": run.unit,
            "invocation": invocation,
            "release": self.args["release"],
            "argv_sha256": hashlib.sha256(argv.encode()).hexdigest(),
            **{key: about.get(key) for key in ("engine", "probe", "wheel", "digest")},
        }


def with_prompts(spec: Json, prompts: Dict[str, Json]) -> Json:
    """A plan names a prompt by its hash and holds it once, however many passes ask it."""
    full: Json = {
        name: [{**item, "body": {**prompts.get(item["prompt"], {}), **item["body"]}} for item in spec[name]]
        for name in ("requests", "warmup")
        if name in spec
    }
    return {**spec, **full}


class Progress:
    """Takes a pass's lines: into the file, and from time to time as `pass` events (load_tally) to whoever watches.

    At the end the service's log is asked whether it did what it should. Where not, the line has `eager` (it decoded
    without CUDA graphs) or `greedy` (it drew no tokens, whatever the temperature).
    """

    def __init__(self, run: Run, spec: Json, samples: bench.Samples, service: Gate) -> None:
        self._run, self._samples, self._service = run, samples, service
        self._tally = Tally(spec)
        self._told = time.monotonic()

    def write(self, line: Json) -> None:
        if line["kind"] == "end":
            seen = {"eager": self._service.eager(), "greedy": self._service.greedy()}
            line = {**line, **{name: True for name, is_so in seen.items() if is_so}}
        self._samples.write(line)
        said, now = self._tally.add(line), time.monotonic()
        if line["kind"] != "sample" or now - self._told >= EVERY_S:
            self._told = now
            self._run.emit("pass", **said)


def run_stoppable(spec: Json, progress: Progress, gpu: Sampler, service: Gate) -> None:
    """In a thread of its own: an event loop would swallow what a signal raises in this one."""
    from . import load  # asyncio takes its time to import, and other transactions do without it

    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(load.run_pass, spec, progress.write, stop, gpu)
        try:
            work.result()
        except load.NoServer as error:
            check_same(service, patience_s=ENDING_S)
            raise Unhealthy(f"{service.name} cannot be measured: {error}", hint="ddtool status") from error
        finally:
            stop.set()


def check_same(service: Gate, patience_s: float = 0.0) -> None:
    """Unhealthy when the service that a pass began with is not there any more.

    patience_s: systemd may learn a little later than a client that a service has ended
    """
    deadline = time.monotonic() + patience_s
    while True:
        state = unit.show(service.name)
        if state.get("ActiveState") != "active":
            raise Unhealthy(
                f"{service.name} ended during the benchmark: result {state.get('Result')}, "
                f"exit status {state.get('ExecMainStatus')}",
                hint="ddtool crash last",
            )
        if state.get("InvocationID") != service.invocation:
            raise Unhealthy(f"{service.name} restarted during the benchmark", hint="ddtool crash last")
        if time.monotonic() >= deadline:
            return
        time.sleep(POLL_S)


BENCH_STEPS: Dict[str, Type[Step]] = {"bench": Bench, "bench-judge": Judge}
