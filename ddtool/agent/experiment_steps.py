"""The steps of an experiment. Its transaction is temporary: at its end, or wherever it breaks off, all is undone."""

from __future__ import annotations

from typing import Dict, Optional, Type

from . import clean, releases, safeguard, unit
from .experiment import Experiment
from .run import Run
from .steps import Before, Step


class Safeguard(Step):
    """The first to begin and the last to be undone: a host that goes down in between undoes the rest when it boots."""

    def title(self, run: Run) -> str:
        return "make sure that all of this is undone, even by the next boot"

    def before(self, run: Run) -> Before:
        return {"wish_folder": safeguard.wish_folder(run.ctx).is_dir()}

    def do(self, run: Run, before: Before) -> None:
        safeguard.arm(run.ctx, run.unit)

    def undo(self, run: Run, before: Before) -> None:
        # An earlier ddtool noted nothing, and took the folder for its own.
        safeguard.disarm(run.ctx, run.unit, keep_folder=before.get("wish_folder", False))


class RunExperiment(Step):
    """args `release`, `gate`, `stop_s`, `spec` (of `Experiment`). The outcome is in the journal as well: a kill while
    the host is being put back does not lose it."""

    def title(self, run: Run) -> str:
        return "wait until it is ready, provoke, and watch"

    def undo_title(self, run: Run) -> Optional[str]:
        return "end the experiment"

    def do(self, run: Run, before: Before) -> None:
        gate = releases.with_api_key(run.ctx, run.unit, self.args["release"], self.args["gate"])
        seen = Experiment(run.ctx, run.unit, self.args["spec"], gate, run.emit).run()
        run.record(experiment=seen)
        run.note(experiment=seen)
        run.emit("outcome", outcome=seen["outcome"])

    def undo(self, run: Run, before: Before) -> None:
        unit.take_down(run.unit, self.args["stop_s"])
        clean.wait_gpu_memory_free(run.emit)
        for line in run.records():
            if "experiment" in line:
                run.note(experiment=line["experiment"])


EXPERIMENT_STEPS: Dict[str, Type[Step]] = {"safeguard": Safeguard, "experiment": RunExperiment}
