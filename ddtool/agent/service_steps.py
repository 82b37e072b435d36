"""The steps that stop, start and judge the service itself."""

from __future__ import annotations

from typing import Dict, Optional, Type

from . import clean, client, evidence, inflight, releases, served, start_log, unit
from .errors import AgentError, Unhealthy
from .gate import Gate
from .run import Run
from .steps import Before, Step


class Drain(Step):
    """args `seconds`, `gate`: a wait until no request is in flight, at most so long. Nothing to undo: it only looks.

    `gate` says where to ask when neither the process nor a release tells.
    """

    def title(self, run: Run) -> str:
        return f"wait at most {self.args['seconds']:.0f} s for the requests in flight"

    def do(self, run: Run, before: Before) -> None:
        spec = served.where(run.ctx, run.unit, unit.state_of(run.unit)) or {
            **self.args["gate"],
            "api_key": None,
        }
        run.note(drained=inflight.drain(spec, self.args["seconds"], run.emit))


class Stop(Step):
    """args `stop_s`, `restore`: true, false, or "interrupted" (only when nothing failed). Undo then starts again what
    was running, and waits until it answers if it did: a service that was in a crash loop, or still loading, is put
    back as that."""

    def title(self, run: Run) -> str:
        return f"stop {run.unit}"

    def undo_title(self, run: Run) -> Optional[str]:
        return f"start {run.unit} as it was" if self._restores(run) else None

    def _restores(self, run: Run) -> bool:
        wanted = self.args["restore"]
        return run.interrupted if wanted == "interrupted" else bool(wanted)

    def before(self, run: Run) -> Before:
        gate = releases.current_gate(run.ctx, run.unit)
        answers = gate is not None and client.listening(gate["address"], gate["port"])
        return {"active": unit.is_active(unit.show(run.unit)), "answers": answers}

    def do(self, run: Run, before: Before) -> None:
        if before["active"]:
            unit.stop(run.unit, self.args["stop_s"])
            clean.wait_gpu_memory_free(run.emit)

    def undo(self, run: Run, before: Before) -> None:
        if not (before["active"] and self._restores(run)):
            return
        unit.start(run.unit)
        gate = releases.current_gate(run.ctx, run.unit)
        if gate and before.get("answers", True):  # a journal of an older ddtool does not say
            Gate(run.unit, gate, run.emit).wait_healthy()
        run.note(restored=releases.current_id(run.ctx, run.unit) or run.unit)


class Start(Step):
    """args `gate`, `stop_s`, `keep`: true when an interruption leaves it running."""

    def title(self, run: Run) -> str:
        return f"start {run.unit}"

    def undo_title(self, run: Run) -> Optional[str]:
        return None if self._keeps(run) else f"stop {run.unit}"

    def _keeps(self, run: Run) -> bool:
        return run.interrupted and bool(self.args.get("keep"))

    def before(self, run: Run) -> Before:
        gate = self.args["gate"]
        clean.check_port_free(gate["address"], gate["port"])
        evidence.drop_dead_proofs(run.ctx, run.unit)
        return {}

    def do(self, run: Run, before: Before) -> None:
        unit.start(run.unit)

    def undo(self, run: Run, before: Before) -> None:
        if self._keeps(run):
            return
        unit.take_down(run.unit, self.args["stop_s"])


class PassGate(Step):
    """args `release`, `gate`. A failure leaves evidence on the host before the service is taken down."""

    def title(self, run: Run) -> str:
        return "wait until it is healthy and generates"

    def do(self, run: Run, before: Before) -> None:
        spec = releases.with_api_key(run.ctx, run.unit, self.args["release"], self.args["gate"])
        gate = Gate(run.unit, spec, run.emit)
        with start_log.phases(gate.invocation, run.emit):
            try:
                run.note(gate=gate.run())
            except Unhealthy as error:
                keep_evidence(run, gate.invocation, error.message)
                raise


def keep_evidence(run: Run, invocation: str, why: str) -> None:
    """Evidence that finds no room must not hide why the service failed."""
    try:
        run.note(evidence=evidence.of_failure(run.ctx, run.unit, invocation, why, run.emit))
    except (OSError, AgentError) as error:
        run.note(evidence_lost=str(error))


class Enable(Step):
    """args `on`: started at boot, or not."""

    def title(self, run: Run) -> str:
        return f"{'enable' if self.args['on'] else 'disable'} {run.unit} at boot"

    def before(self, run: Run) -> Before:
        return {"enabled": unit.show(run.unit).get("UnitFileState") == "enabled"}

    def do(self, run: Run, before: Before) -> None:
        if before["enabled"] != self.args["on"]:
            unit.systemctl("enable" if self.args["on"] else "disable", "--quiet", unit.service(run.unit))

    def undo(self, run: Run, before: Before) -> None:
        if before["enabled"] != self.args["on"]:
            unit.systemctl(
                "enable" if before["enabled"] else "disable", "--quiet", unit.service(run.unit), check=False
            )


SERVICE_STEPS: Dict[str, Type[Step]] = {
    "drain": Drain,
    "stop": Stop,
    "start": Start,
    "gate": PassGate,
    "enable": Enable,
}
