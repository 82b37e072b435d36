"""Environments on the host: wheels that arrive in pieces, what counts as whole, what goes when nobody uses it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import mini
from support import wheels as built

from ddtool.agent import facts, install, install_steps, record, releases, wheels
from ddtool.agent.errors import AgentError, PreflightError, UsageError
from ddtool.agent.registry import Context
from ddtool.deploy import wheelhouse

CONTENT = bytes(range(256)) * 40
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    return Context(state=tmp_path / "state", run=tmp_path / "run", units=tmp_path / "units")


def put(ctx: Context, offset: int, piece: bytes, sha: str = SHA, size: int = len(CONTENT)) -> int:
    return wheels.put(ctx, sha, size, offset, base64.b64encode(piece).decode())


# Wheels


def test_pieces_are_put_together_and_can_be_asked_for(ctx: Context) -> None:
    assert wheels.held(ctx, [SHA]) == {}
    assert put(ctx, 0, CONTENT[:4000]) == 4000
    assert wheels.held(ctx, [SHA]) == {SHA: 4000}
    assert put(ctx, 4000, CONTENT[4000:]) == len(CONTENT)
    assert wheels.path(ctx, SHA).read_bytes() == CONTENT
    assert put(ctx, 0, CONTENT) == len(CONTENT)  # there already: nothing is written
    assert [path.name for path in wheels.folder(ctx).iterdir()] == [SHA]


@pytest.mark.parametrize("offset", [0, 3999, 4001, 9000])
def test_a_piece_that_does_not_go_on_changes_nothing(ctx: Context, offset: int) -> None:
    put(ctx, 0, CONTENT[:4000])
    assert put(ctx, offset, CONTENT[offset : offset + 100]) == 4000
    assert wheels.held(ctx, [SHA]) == {SHA: 4000}


def test_more_than_its_size_is_not_taken(ctx: Context) -> None:
    assert put(ctx, 0, CONTENT + b"more") == 0


def test_other_bytes_than_its_name_says_are_thrown_away(ctx: Context) -> None:
    put(ctx, 0, CONTENT[:4000])
    with pytest.raises(AgentError, match="damaged"):
        put(ctx, 4000, bytes(len(CONTENT) - 4000))
    assert wheels.held(ctx, [SHA]) == {}


@pytest.mark.parametrize("name", ["../lock", "", "a" * 63, "A" * 64, "0" * 64 + "\n"])
def test_a_name_that_is_no_hash_leads_nowhere(ctx: Context, name: str) -> None:
    with pytest.raises(UsageError):
        put(ctx, 0, b"x", sha=name, size=2)


def test_a_link_planted_in_its_place_is_not_followed(ctx: Context, tmp_path: Path) -> None:
    wheels.folder(ctx).mkdir(parents=True)
    (tmp_path / "victim").write_bytes(b"")
    (wheels.folder(ctx) / f"{SHA}.part").symlink_to(tmp_path / "victim")
    with pytest.raises(AgentError):
        put(ctx, 0, CONTENT[:10])
    assert (tmp_path / "victim").read_bytes() == b""


def test_what_was_installed_and_what_was_given_up_goes(ctx: Context) -> None:
    put(ctx, 0, CONTENT)
    other = hashlib.sha256(b"other").hexdigest()
    put(ctx, 0, b"ot", sha=other, size=5)
    wheels.drop(ctx, [SHA])
    assert wheels.held(ctx, [SHA, other]) == {other: 2}
    os.utime(wheels.folder(ctx) / f"{other}.part", (1, 1))
    wheels.drop(ctx, [])
    assert not wheels.folder(ctx).exists()


# Environments


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> wheelhouse.Wheelhouse:
    folder = tmp_path_factory.mktemp("house")
    installer = built.add_pip(folder)
    built.mini_service(folder)
    found = tuple(wheelhouse.read_wheel(path) for path in sorted(folder.glob("*.whl")))
    return wheelhouse.Wheelhouse(
        folder, wheelhouse.Target("3.11.2", "x86_64", "2.36"), ("sglang",), installer.name, found
    )


def step_args(base: Path, house: wheelhouse.Wheelhouse, digest: str = "d1") -> dict[str, Any]:
    return {
        "path": f"{base}-{digest}",
        "base": str(base),
        "digest": digest,
        "python": sys.executable,
        "requirements": house.pins,
        "wheels": [{"file": wheel.file, "sha256": wheel.sha256} for wheel in house.wheels],
        "installer": house.installer,
        "index": None,
    }


def sent(ctx: Context, house: wheelhouse.Wheelhouse) -> None:
    for wheel in house.wheels:
        put(ctx, 0, (house.folder / wheel.file).read_bytes(), sha=wheel.sha256, size=wheel.bytes)


def used_by(ctx: Context, unit: str, ident: str, venv: str) -> None:
    folder = releases.folder(ctx, unit, ident)
    folder.mkdir(parents=True)
    (folder / "release.json").write_text(json.dumps({"venv": venv}))


def test_an_environment_is_made_without_any_index_and_goes_with_its_last_release(
    ctx: Context, tmp_path: Path, house: wheelhouse.Wheelhouse
) -> None:
    base = tmp_path / "opt" / "venv"
    args = step_args(base, house)
    sent(ctx, house)
    events: list[str] = []
    install.make(ctx, args, lambda event, **about: events.append(event), tmp_path / "work")
    path = Path(args["path"])
    assert install.incomplete(path, "d1") is None and install.incomplete(path, "d2")
    assert facts.wheel_identity(record.find(str(path))) == f"{mini.VERSION} of the set d1"
    site = next(path.glob("lib/python3*/site-packages"))
    assert (site / "mini_words").is_dir() and not list(site.glob("pip*"))  # pip came along to install
    assert path.stat().st_mode & 0o777 == 0o755 and "installing" in events
    install.point(base, args["path"])
    used_by(ctx, "u", "0001-a", args["path"])
    install.prune(ctx)
    assert path.exists()
    (releases.folder(ctx, "u", "0001-a") / "release.json").unlink()
    install.prune(ctx)
    assert not base.parent.exists() and not (ctx.state / "environments").exists()


def test_an_environment_in_use_by_its_name_stays(
    ctx: Context, tmp_path: Path, house: wheelhouse.Wheelhouse
) -> None:
    """A profile that went back to `existing` may run from what the name points to."""
    args = step_args(tmp_path / "venv", house)
    Path(args["path"]).mkdir()
    install._register(ctx, args)
    install.point(tmp_path / "venv", args["path"])
    used_by(ctx, "u", "0001-a", args["base"])
    install.prune(ctx)
    assert Path(args["path"]).exists()


@pytest.mark.parametrize("what", ["wrong hash", "not in the set"])
def test_what_pip_refuses_is_said_and_never_counts(
    ctx: Context, tmp_path: Path, house: wheelhouse.Wheelhouse, what: str
) -> None:
    args = step_args(tmp_path / "venv", house)
    args["requirements"] = (
        [pin[:-4] + "0000" for pin in house.pins]
        if what == "wrong hash"
        else ["nothing==1 --hash=sha256:" + SHA]
    )
    sent(ctx, house)
    with pytest.raises(AgentError, match=r"hash|nothing"):
        install.make(ctx, args, lambda *_, **__: None, tmp_path / "work")
    assert install.incomplete(Path(args["path"]), "d1")
    install.discard(ctx, args["path"])
    assert not Path(args["path"]).exists()


def test_half_of_an_environment_is_made_anew_and_a_broken_one_is_seen(
    ctx: Context, tmp_path: Path, house: wheelhouse.Wheelhouse
) -> None:
    args = step_args(tmp_path / "venv", house)
    path = Path(args["path"])
    (path / "lib").mkdir(parents=True)
    (path / "lib" / "rubbish").touch()
    assert install.incomplete(path, "d1") == "begun and never finished"
    sent(ctx, house)
    install.make(ctx, args, lambda *_, **__: None, tmp_path / "work")
    assert not (path / "lib" / "rubbish").exists() and install.incomplete(path, "d1") is None
    (path / "bin" / "python").unlink()
    assert "its Python is gone" in str(install.incomplete(path, "d1"))


def test_only_what_is_registered_is_ever_removed(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    install.discard(ctx, str(tmp_path / "mine"))
    assert (tmp_path / "mine").exists()


def test_a_note_that_a_kill_cut_short_is_no_note(ctx: Context) -> None:
    (ctx.state / "environments").mkdir(parents=True)
    (ctx.state / "environments" / ".ddtool-1-abc.json").write_text('{"schema": "ddtool.env')
    install.prune(ctx)


def test_by_hand_takes_them_away_as_the_page_says(
    ctx: Context, tmp_path: Path, house: wheelhouse.Wheelhouse
) -> None:
    page = Path(__file__).parents[2] / "docs" / "by-hand.md"
    (block,) = [text for text in page.read_text().split("```") if "environments/" in text]
    args = step_args(tmp_path / "venv", house)
    (Path(args["path"]) / "bin").mkdir(parents=True)
    install._register(ctx, args)
    install.point(tmp_path / "venv", args["path"])
    (tmp_path / "venv-mine").mkdir()
    script = f"STATE={ctx.state}\n" + block.removeprefix("sh\n")
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], check=True)
    assert sorted(path.name for path in tmp_path.glob("venv*")) == ["venv-mine"]


class Watched:
    """As much of a Run as the steps touch."""

    def __init__(self, ctx: Context) -> None:
        self.ctx, self.folder = ctx, ctx.state / "txn"

    def emit(self, event: str, **about: Any) -> None:
        return


@pytest.mark.parametrize("was", [None, "venv-old"])
def test_the_name_goes_back_to_what_it_was(ctx: Context, tmp_path: Path, was: str | None) -> None:
    base = tmp_path / "venv"
    if was:
        base.symlink_to(was)
    step = install_steps.Link(0, {"base": str(base), "target": f"{base}-new"})
    run: Any = Watched(ctx)
    before = step.before(run)
    step.do(run, before)
    assert os.readlink(base) == f"{base}-new"
    (tmp_path / ".ddtool-link-venv").symlink_to("x")  # as a kill in the middle would leave
    for _ in range(2):
        step.undo(run, before)
        assert (os.readlink(base) if base.is_symlink() else None) == was
    assert not (tmp_path / ".ddtool-link-venv").is_symlink()


def test_somebodys_folder_is_not_replaced_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    with pytest.raises(PreflightError, match="not ddtool's"):
        install.point(tmp_path / "venv", "x")


def test_wheels_that_were_not_sent_stop_the_step_before_it_begins(
    ctx: Context, tmp_path: Path, house: wheelhouse.Wheelhouse
) -> None:
    run: Any = Watched(ctx)
    with pytest.raises(AgentError, match="have not been sent"):
        install_steps.Install(0, step_args(tmp_path / "venv", house)).before(run)


def test_a_python_that_does_not_run_names_those_that_might(ctx: Context) -> None:
    found = install.probe(ctx, "/no/python")
    assert found["error"] == "/no/python does not run" and isinstance(found["others"], list)
    assert install.probe(ctx, sys.executable)["version"] == "{}.{}.{}".format(*sys.version_info[:3])


def test_a_place_that_others_may_write_to_is_named(ctx: Context, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    base = str(tmp_path / "open" / "sub" / "venv")
    found = install.look(ctx, base, None, None, sys.executable, "u")
    assert (
        found["others_may_write"] == {"folder": str(tmp_path / "open"), "anyone": True}
        and found["incomplete"] is None
    )
