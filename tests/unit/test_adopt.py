"""What belongs to a hand-made unit, and that it comes back exactly: bytes, mode, owner, links."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ddtool.agent import adopt
from ddtool.agent.files import FileChange, FileSet
from ddtool.agent.registry import Context

ABOUT = {"unix": 1.0, "active": True, "enabled": "enabled"}


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    ctx = Context(state=tmp_path / "state", run=tmp_path / "run", units=tmp_path / "units")
    for folder in (
        ctx.state / "services" / "x",
        ctx.units / "x.service.d",
        ctx.units / "default.target.wants",
    ):
        folder.mkdir(parents=True)
    (ctx.units / "x.service").write_bytes(b"[Service]\r\nExecStart=/bin/x\n\xff")
    (ctx.units / "x.service").chmod(0o640)
    (ctx.units / "x.service.d" / "b.conf").write_text("[Service]\n")
    (ctx.units / "x.service.d" / "b.conf").chmod(0o600)
    (ctx.units / "x.service.d" / "notes.txt").write_text("not read by systemd")
    (ctx.units / "default.target.wants" / "x.service").symlink_to(
        "/somewhere/x.service"
    )  # its target is gone
    (ctx.units / "kimi.service").symlink_to("x.service")
    (ctx.units / "other.service").symlink_to("/lib/y.service")
    return ctx


def tree(folder: Path) -> dict[str, Any]:
    return {
        str(path): (path.lstat().st_mode, os.readlink(path) if path.is_symlink() else path.read_bytes())
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def take(ctx: Context) -> None:
    """As the adopt step does, without systemd."""
    found = adopt.originals(ctx, "x")
    adopt.drop_own_link(ctx, "x")
    own = FileChange(
        str(ctx.units / "x.service"), b"# managed by ddtool\n", owner=(os.geteuid(), os.getegid())
    )
    files = FileSet.stage(ctx.state, "take", [*adopt.keeping(ctx, "x", found, ABOUT), own])
    files.swap()
    adopt.put_links(ctx, "x", adopt.wishes(ctx, "x"))
    files.finish()


def give(ctx: Context) -> None:
    """As the give-back step does, without systemd."""
    record = adopt.adopted(ctx, "x")
    changes = {change.path: change for change in adopt.restoring(ctx, record)}
    unit = str(ctx.units / "x.service")
    changes.setdefault(unit, FileChange(unit, None))
    files = FileSet.stage(ctx.state, "give", list(changes.values()))
    files.swap()
    adopt.put_links(ctx, "x", record["links"])
    files.finish()


def test_everything_of_the_unit_is_found_and_nothing_else(ctx: Context) -> None:
    found = adopt.originals(ctx, "x")
    assert [Path(item["path"]).name for item in found["files"]] == ["x.service", "b.conf"]
    assert [item["mode"] for item in found["files"]] == [0o640, 0o600]
    assert sorted(Path(path).name for path in found["links"]) == ["kimi.service", "x.service"]


def test_ddtools_own_drop_in_is_not_an_original(ctx: Context) -> None:
    before = adopt.originals(ctx, "x")
    (ctx.units / "x.service.d" / adopt.GATE_DROP_IN_FILE).write_text("[Service]\n")
    assert adopt.originals(ctx, "x") == before


@pytest.mark.parametrize("linked", [False, True])
def test_taken_and_given_back_it_is_as_it_was(ctx: Context, tmp_path: Path, linked: bool) -> None:
    elsewhere = tmp_path / "elsewhere.service"
    if linked:
        (ctx.units / "x.service").rename(elsewhere)
        (ctx.units / "x.service").symlink_to(elsewhere)
        (ctx.units / "x.service.d" / "c.conf").symlink_to(elsewhere)
    before, outside = tree(ctx.units), elsewhere.read_bytes() if linked else b""
    take(ctx)
    assert not (ctx.units / "x.service").is_symlink()
    assert (ctx.units / "x.service").read_bytes() == b"# managed by ddtool\n"
    assert (ctx.units / "x.service").stat().st_mode & 0o777 == 0o644
    assert not list((ctx.units / "x.service.d").glob("*.conf"))
    (ctx.units / "multi-user.target.wants").mkdir()
    (ctx.units / "multi-user.target.wants" / "x.service").symlink_to("/etc/x.service")  # enabled meanwhile
    give(ctx)
    assert tree(ctx.units) == before
    assert (elsewhere.read_bytes() if linked else b"") == outside


def test_the_digest_tells_another_mode_and_another_byte(ctx: Context) -> None:
    digests = {adopt.originals(ctx, "x")["digest"]}
    (ctx.units / "x.service").chmod(0o600)
    digests.add(adopt.originals(ctx, "x")["digest"])
    (ctx.units / "x.service.d" / "b.conf").write_text("[Service]\n#\n")
    digests.add(adopt.originals(ctx, "x")["digest"])
    assert len(digests) == 3


def test_a_file_in_the_place_of_a_link_is_left(ctx: Context) -> None:
    links = adopt.originals(ctx, "x")["links"]
    (ctx.units / "kimi.service").unlink()
    (ctx.units / "kimi.service").write_text("somebody's")
    adopt.put_links(ctx, "x", links)
    assert (ctx.units / "kimi.service").read_text() == "somebody's"


def test_kept_bytes_that_another_takeover_needs_stay(ctx: Context) -> None:
    take(ctx)
    shas = {item["sha256"] for item in adopt.adopted(ctx, "x")["files"]}
    other = ctx.state / "services" / "y"
    other.mkdir()
    (other / "service.json").write_text("{}")
    (other / "adopted.json").write_text(json.dumps({"files": adopt.adopted(ctx, "x")["files"][:1]}))
    adopt.forget(ctx, "x")
    left = {path.name for path in (ctx.state / "objects").iterdir()}
    assert len(shas) == 2 and left == {adopt.adopted(ctx, "x")["files"][0]["sha256"]}
