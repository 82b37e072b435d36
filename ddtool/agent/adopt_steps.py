"""The steps of taking a unit over and giving it back. As all steps, each can be undone from what it noted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Dict, List, Optional, Type

from . import adopt, disk, unit
from .errors import Drift, Unhealthy
from .files import FileChange
from .run import Run
from .steps import Before, Files, Step

WATCHED_S = 2.0  # a start that fails at once is noticed; what takes longer is the original's own business


class LinkedFiles(Files):
    """Files of a unit and its links, swapped as one. `_links`: what the unit has once the files are settled."""

    _links: Dict[str, str]  # `changes` says which, `undo` those of before

    def before(self, run: Run) -> Before:
        noted = super().before(run)
        links = adopt.originals(run.ctx, run.unit)["links"]
        return {**noted, "links": links, "made": adopt.missing_folders(self._links)}

    def undo(self, run: Run, before: Before) -> None:
        adopt.drop_own_link(run.ctx, run.unit)
        self._links = before["links"]
        super().undo(run, before)
        for folder in before.get("made", ()):  # an earlier ddtool did not note them
            disk.remove_empty(Path(folder))

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
        self._links = adopt.wishes(run.ctx, run.unit)
        kept = adopt.keeping(run.ctx, run.unit, self._found, self.args["about"])
        own = [
            FileChange(change.path, change.content, change.mode, owner=(0, 0))
            for change in super().changes(run)
        ]
        return [*kept, *own]

    def do(self, run: Run, before: Before) -> None:
        adopt.drop_own_link(run.ctx, run.unit)
        super().do(run, before)


class GiveBack(LinkedFiles):
    """args `title`, `files` (as Files: ddtool's own, which go). The originals stand in their place again."""

    def undo_title(self, run: Run) -> Optional[str]:
        return "put ddtool's unit back"

    def changes(self, run: Run) -> List[FileChange]:
        self._record = adopt.adopted(run.ctx, run.unit)
        self._links = self._record["links"]
        back = {change.path: change for change in adopt.restoring(run.ctx, self._record)}
        for own in super().changes(run):
            was = back.get(own.path)
            back[own.path] = (
                FileChange(was.path, was.content, was.mode, own.expect, was.owner) if was else own
            )
        return list(back.values())

    def before(self, run: Run) -> Before:
        """The originals' folder of drop-ins stays, though nothing may lie in it."""
        noted = super().before(run)
        own = {str(adopt.drop_in_folder(run.ctx, run.unit).resolve())} if self._record["folder"] else set()
        spent = [folder for folder in noted["spent"] if folder not in own]
        return {**noted, "spent": [*spent, *adopt.emptied_folders(noted["links"], self._record)]}

    def do(self, run: Run, before: Before) -> None:
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
