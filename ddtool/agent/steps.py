"""The steps that transactions are made of. Each can be undone after a kill from what it noted before it began.

`before` looks and returns JSON that is journalled; `do` changes the host; `undo` must be right whether `do` ran to its
end, stopped half-way or never began; `finish` runs after the commit. `undo` and `finish` may run twice.
"""

from __future__ import annotations

import base64
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Type

from . import adopt, diagnostics, disk, evidence, install, releases, unit
from .errors import Drift
from .files import FileChange, FileSet
from .run import Run

Before = Dict[str, Any]


class Step:
    def __init__(self, number: int, args: Dict[str, Any]) -> None:
        self.number = number
        self.args = args

    def title(self, run: Run) -> str:
        raise NotImplementedError

    def undo_title(self, run: Run) -> Optional[str]:
        """What the operator reads when it is undone; None for a step that changed nothing."""
        return None

    def before(self, run: Run) -> Before:
        return {}

    def do(self, run: Run, before: Before) -> None:
        raise NotImplementedError

    def undo(self, run: Run, before: Before) -> None:
        return

    def finish(self, run: Run, before: Before) -> None:
        return


class WriteRelease(Step):
    """args `id`, `files: [{path, content, mode}]`, `meta`, `secrets`: a folder that appears whole or not at all."""

    def title(self, run: Run) -> str:
        return f"write release {self.args['id']}"

    def undo_title(self, run: Run) -> Optional[str]:
        return f"remove release {self.args['id']}"

    def do(self, run: Run, before: Before) -> None:
        releases.write(run.ctx, run.unit, self.args)

    def undo(self, run: Run, before: Before) -> None:
        releases.discard(run.ctx, run.unit, self.args["id"])

    def finish(self, run: Run, before: Before) -> None:
        releases.prune(run.ctx, run.unit)
        install.prune(run.ctx)


class Files(Step):
    """args `title`, `files: [{path, content: base64 or null, mode, expect}]`: swapped as one.

    While the set is mixed, `txn.open` keeps systemd from starting any ddtool unit on it.
    """

    def __init__(self, number: int, args: Dict[str, Any]) -> None:
        super().__init__(number, args)
        self._changes: List[FileChange] = []

    def title(self, run: Run) -> str:
        return str(self.args["title"])

    def undo_title(self, run: Run) -> Optional[str]:
        return "put the former files back"

    def changes(self, run: Run) -> List[FileChange]:
        return [
            FileChange(
                path=item["path"],
                content=None if item["content"] is None else base64.b64decode(item["content"]),
                mode=item.get("mode", 0o644),
                expect=item.get("expect"),
            )
            for item in self.args["files"]
        ]

    def before(self, run: Run) -> Before:
        self._changes = self.changes(run)
        reload = any(run.ctx.units in Path(change.path).parents for change in self._changes)
        return {"reload": reload, "spent": self._spent()}

    def _spent(self) -> List[str]:
        """Folders of drop-ins that nothing may lie in afterwards. They go at the end: an undo needs them."""
        gone = [
            Path(item["path"]).resolve() for item in self.args.get("files", ()) if item["content"] is None
        ]
        return sorted({str(path.parent) for path in gone if path.parent.name.endswith(".service.d")})

    def do(self, run: Run, before: Before) -> None:
        files = FileSet.stage(run.folder, self._name(), self._changes)
        run.close_starts()
        files.swap()
        self._settled(run, before)

    def undo(self, run: Run, before: Before) -> None:
        files = FileSet.load(run.folder, self._name())
        if files is not None:
            run.close_starts()
            files.undo()
            if files.kept:
                run.note(kept=files.kept)
        self._settled(run, before)  # also when an earlier undo was killed between the two

    def _name(self) -> str:
        return f"step{self.number}"

    def _settled(self, run: Run, before: Before) -> None:
        """The set is whole again. Units are reread before systemd may start one."""
        if before["reload"]:
            unit.systemctl("daemon-reload")
        run.open_starts()
        if unit.has_systemd() and not run.mixed:
            for name in releases.units(run.ctx):
                unit.start_if_skipped(name)

    def finish(self, run: Run, before: Before) -> None:
        files = FileSet.load(run.folder, self._name())
        if files is not None:
            files.finish()
        # Also when an earlier finish was killed between the two; an earlier ddtool did not note the folders.
        for folder in before.get("spent", self._spent()):
            disk.remove_empty(Path(folder))


class Compose(Files):
    """args `request`: enable, disable, restore or adopt, for `diagnostics.plan`; `expect`: what the preview showed."""

    def title(self, run: Run) -> str:
        return str(self.args["title"])

    def changes(self, run: Run) -> List[FileChange]:
        plan = diagnostics.plan(run.ctx, self.args["request"])
        if plan.digest != self.args["expect"]:
            raise Drift(
                "the files changed after the plan was shown, so nothing was written",
                hint="run the command again to see the new plan",
            )
        run.note(diagnostics=plan.summary)
        return plan.changes


class Purge(Step):
    """After the commit: everything that ddtool keeps about this unit goes; with the last unit, everything it keeps."""

    def title(self, run: Run) -> str:
        return "remove what ddtool kept on this host"

    def do(self, run: Run, before: Before) -> None:
        return

    def finish(self, run: Run, before: Before) -> None:
        adopt.forget(run.ctx, run.unit)
        releases.purge(run.ctx, run.unit)
        install.prune(run.ctx)
        evidence.purge(run.ctx, run.unit)
        shutil.rmtree(run.ctx.run / run.unit, ignore_errors=True)
        disk.remove_empty(run.ctx.run)


STEPS: Dict[str, Type[Step]] = {
    "release": WriteRelease,
    "files": Files,
    "compose": Compose,
    "purge": Purge,
}
