"""The steps that make an environment, before any outage begins, and that say which one is in force."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Dict, List, Optional, Type

from . import disk, install, pip, wheels
from .run import Run
from .steps import Before, Step


class Install(Step):
    """args: `path`, `base`, `digest`, `python` (what makes it), `requirements` (`NAME==VERSION --hash=…` lines), and

    `wheels: [{file, sha256}]` with `installer`, pip's own among them; or `index`, a URL or `default`, without either.
    The environment is whole and marked as such at the end, or it is taken away.
    """

    def title(self, run: Run) -> str:
        return f"install {len(self.args['requirements'])} packages into {self.args['path']}"

    def undo_title(self, run: Run) -> Optional[str]:
        return f"take {self.args['path']} away"

    def before(self, run: Run) -> Before:
        done = install.incomplete(Path(self.args["path"]), self.args["digest"]) is None
        if not done:
            install.missing(run.ctx, self._shas())
        return {"done": done}

    def do(self, run: Run, before: Before) -> None:
        if not before["done"]:
            install.make(run.ctx, self.args, run.emit, run.folder)

    def undo(self, run: Run, before: Before) -> None:
        """The wheels stay: sending them is what took so long."""
        if not before["done"]:
            install.discard(run.ctx, self.args["path"])

    def finish(self, run: Run, before: Before) -> None:
        wheels.drop(run.ctx, self._shas())
        shutil.rmtree(run.folder / pip.NAMES, ignore_errors=True)

    def _shas(self) -> List[str]:
        return [wheel["sha256"] for wheel in self.args["wheels"]]


class Link(Step):
    """args `base`, `target`: the name by which people and the diagnostics know the environment in force."""

    def title(self, run: Run) -> str:
        return f"{self.args['base']} names {Path(self.args['target']).name}"

    def undo_title(self, run: Run) -> Optional[str]:
        return f"{self.args['base']} as it was"

    def before(self, run: Run) -> Before:
        base = self.args["base"]
        return {"was": os.readlink(base) if Path(base).is_symlink() else None}  # noqa: PTH115

    def do(self, run: Run, before: Before) -> None:
        if before["was"] != self.args["target"]:
            install.point(Path(self.args["base"]), self.args["target"])

    def undo(self, run: Run, before: Before) -> None:
        base = Path(self.args["base"])
        disk.remove(base.with_name(f".ddtool-link-{base.name}"))
        if before["was"] != self.args["target"] and base.is_symlink():
            install.point(base, before["was"])


INSTALL_STEPS: Dict[str, Type[Step]] = {"install": Install, "link": Link}
