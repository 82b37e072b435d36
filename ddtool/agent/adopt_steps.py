"""The steps of taking a unit over and giving it back. As all steps, each can be undone from what it noted."""

from __future__ import annotations

import time
from typing import Dict, List, Optional, Type

from . import adopt, unit
from .errors import Drift, Unhealthy
from .files import FileChange
from .run import Run
from .steps import Before, Files, Step

WATCHED_S = 2.0  # a start that fails at once is noticed; what takes longer is the original's own business


class LinkedFiles(Files):
    """Files of a unit and its links, swapped as one. `_links`: what the unit has once the files are settled."""

    _links: Dict[str, str]

    def before(self, run: Run) -> Before:
        return {**super().before(run), "links": adopt.originals(run.ctx, run.unit)["links"]}

    def undo(self, run: Run, before: Before) -> None:
        adopt.drop_own_link(run.ctx, run.unit)
        self._links = before["links"]
        super().undo(run, before)

    def _settled(self, run: Run, before: Before) -> None:
        adopt.put_links(run.ctx, run.unit, self._links)
        super()._settled(run, before)


class Adopt(LinkedFiles):
    """args `title`, `files` (as Files: ddtool's own), `expect` (digest of the originals), `about`.

    The originals are kept and ddtool's unit stands in their place. A running process goes on: systemd has read its
    start already, and the next one starts ddtool's.
    """

    def changes(self, run: Run) -> List[FileChange]:
        self._found = adopt.originals(run.ctx, run.unit)
        if self._found["digest"] != self.args["expect"]:
            raise Drift(
                f"the files of {run.unit} changed after the plan was shown, so nothing was written",
                hint="run the command again to see the new plan",
            )
        kept = adopt.keeping(run.ctx, run.unit, self._found, self.args["about"])
        own = [
            FileChange(change.path, change.content, change.mode, owner=(0, 0))
            for change in super().changes(run)
        ]
        return [*kept, *own]

    def do(self, run: Run, before: Before) -> None:
        adopt.drop_own_link(run.ctx, run.unit)
        self._links = adopt.wishes(run.ctx, run.unit)
        super().do(run, before)


class GiveBack(LinkedFiles):
    """args `title`, `files` (as Files: ddtool's own, which go). The originals stand in their place again."""

    def undo_title(self, run: Run) -> Optional[str]:
        return "put ddtool's unit back"

    def changes(self, run: Run) -> List[FileChange]:
        self._record = adopt.adopted(run.ctx, run.unit)
        back = {change.path: change for change in adopt.restoring(run.ctx, self._record)}
        for own in super().changes(run):
            was = back.get(own.path)
            back[own.path] = (
                FileChange(was.path, was.content, was.mode, own.expect, was.owner) if was else own
            )
        return list(back.values())

    def do(self, run: Run, before: Before) -> None:
        self._links = self._record["links"]
        super().do(run, before)
        adopt.restore_folder(run.ctx, self._record)


class StartOriginal(Step):
    """args `stop_s`: the unit as its owner made it, started because it ran when it was taken over."""

    def title(self, run: Run) -> str:
        return f"start {run.unit} as it was before ddtool"

    def undo_title(self, run: Run) -> Optional[str]:
        return f"stop {run.unit}"

    def do(self, run: Run, before: Before) -> None:
        unit.start(run.unit)
        deadline = time.monotonic() + WATCHED_S
        while time.monotonic() < deadline:
            state = unit.show(run.unit)
            if state.get("ActiveState") == "failed" or state.get("NRestarts") not in (None, "", "0"):
                raise Unhealthy(
                    f"the original {run.unit} does not start: {state.get('Result')}, "
                    f"exit status {state.get('ExecMainStatus')}",
                    hint=f"journalctl -u {run.unit} -n 50, on the host",
                )
            time.sleep(0.1)

    def undo(self, run: Run, before: Before) -> None:
        unit.take_down(run.unit, self.args["stop_s"])


ADOPT_STEPS: Dict[str, Type[Step]] = {"adopt": Adopt, "give-back": GiveBack, "start-original": StartOriginal}
