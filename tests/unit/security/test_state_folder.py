"""The state folder: what lies there is run as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddtool.agent.errors import PreflightError
from ddtool.agent.registry import Context, require_own
from ddtool.transport import bootstrap

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="plays root against another user")


@pytest.mark.parametrize("which", ["state", "run"])
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_is_refused(ctx: Context, which: str, mode: int) -> None:
    folder: Path = getattr(ctx, which)
    folder.chmod(mode)
    with pytest.raises(PreflightError, match=f"{folder}.*others than root"):
        require_own(ctx)
    folder.chmod(0o700)
    require_own(ctx)


def test_so_is_one_below_a_folder_of_somebody_else(ctx: Context, tmp_path: Path) -> None:
    """They would rename it, and put another one in its place. Behind a link, too."""
    real = tmp_path / "theirs"
    ctx.state.replace(real)
    ctx.state.symlink_to(real)
    require_own(ctx)
    tmp_path.chmod(0o777)
    with pytest.raises(PreflightError, match="others than root"):
        require_own(ctx)
    tmp_path.chmod(0o700)


@needs_root
def test_the_agent_is_not_run_from_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """The file itself may be root's and whole; its folder decides what the name means a moment later."""
    data = bootstrap.agent_zipapp()
    sha = bootstrap.digest(data)
    place = tmp_path / "agent" / f"{sha}.pyz"
    place.parent.mkdir()
    place.write_bytes(data)
    place.chmod(0o600)

    folders = ["--state", str(tmp_path), "--run", str(tmp_path / "run")]

    def have() -> bool:
        done = subprocess.run(
            [sys.executable, "-I", "-c", bootstrap.LOADER, "serve", *folders, sha],
            input=b"",
            capture_output=True,
        )
        return bool(json.loads(done.stdout.split(b"ddtool-agent/1 ")[1].split(b"\n")[0])["have"])

    assert have()
    for folder in (tmp_path, place.parent):
        folder.chmod(0o777)
        assert not have()
        folder.chmod(0o700)
        os.chown(folder, 65534, 65534)
        assert not have()
        os.chown(folder, 0, 0)
