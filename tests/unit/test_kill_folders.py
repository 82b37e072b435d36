"""A folder that is made for one thing, or emptied by it: no kill between the two leaves it, and nobody else's goes.

Real steps run as transactions on a plain folder, killed at every one of their acts. After the next command there is
what was there before or what an undisturbed run leaves, folder for folder.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support import trap

from ddtool.agent import executor, install, safeguard, unit
from ddtool.agent.adopt import GATE_DROP_IN_FILE, originals
from ddtool.agent.errors import Unhealthy
from ddtool.agent.registry import Context
from ddtool.agent.run import PROGRESS
from ddtool.agent.steps import STEPS, Step

from .test_adopt import ABOUT, take

FAIL = {"step": "fail"}
KEPT = {"txn", "lock", "reserve", "audit.jsonl", "salt"}  # of every transaction, undone or not
Steps = list[dict[str, Any]]


class Fail(Step):
    """So that all before it is undone, by the process that did it or by the next one."""

    def title(self, run: object) -> str:
        return "fail"

    def do(self, run: object, before: object) -> None:
        raise Unhealthy("as ordered")


class Case(NamedTuple):
    """`prepare` fills the host's folders, and says which steps are to be killed there."""

    prepare: Callable[[Context], Steps]
    temporary: bool = False
    as_root: bool = False


def entry(path: Path, content: bytes | None) -> dict[str, Any]:
    return {"path": str(path), "content": content and base64.b64encode(content).decode()}


def handmade(ctx: Context) -> None:
    """A unit with a folder for drop-ins that is empty, and folders of wishes, one of them empty."""
    for name in ("x.service.d", "default.target.wants", "empty.target.wants"):
        (ctx.units / name).mkdir(0o755, parents=True)
    (ctx.units / "x.service").write_text("[Service]\nExecStart=/bin/x\n")
    for path in (ctx.units / "default.target.wants" / "x.service", ctx.units / "kimi.service"):
        path.symlink_to(ctx.units / "x.service")


def give_back(ctx: Context) -> Steps:
    """Taken over; meanwhile enabled and disabled in other ways than its owner had it."""
    handmade(ctx)
    (ctx.state / "services" / "x").mkdir(parents=True)
    take(ctx)
    gate = ctx.units / "x.service.d" / GATE_DROP_IN_FILE
    gate.write_text("[Service]\n")
    (ctx.units / "multi-user.target.wants").mkdir()
    for folder in ("multi-user.target.wants", "empty.target.wants"):
        (ctx.units / folder / "x.service").symlink_to(ctx.units / "x.service")
    (ctx.units / "default.target.wants" / "x.service").unlink()
    (ctx.units / "default.target.wants").rmdir()
    files = [entry(ctx.units / "x.service", None), entry(gate, None)]
    return [{"step": "give-back", "title": "give back", "files": files}, {"step": "purge"}]


def take_over(ctx: Context) -> Steps:
    handmade(ctx)
    (ctx.units / "x.service.d" / "own.conf").symlink_to("/somewhere/else.conf")
    files = [entry(ctx.units / "x.service", b"# managed by ddtool\n")]
    found = originals(ctx, "x")["digest"]
    return [{"step": "adopt", "title": "take", "files": files, "expect": found, "about": ABOUT}]


def remove(ctx: Context) -> Steps:
    ctx.units.mkdir()
    gate = ctx.units / "x.service.d" / GATE_DROP_IN_FILE
    gate.parent.mkdir()
    gate.write_text("[Service]\n")
    return [{"step": "files", "title": "remove", "files": [entry(gate, None)]}]


def first_release(ctx: Context) -> Steps:
    file = {"path": "engine/a.py", "content": "", "mode": 0o644}
    return [{"step": "release", "id": "0001-a", "salt": "s", "files": [file], "meta": {}, "secrets": {}}]


def environment(ctx: Context) -> Steps:
    base = ctx.state.parent / "opt" / "venvs" / "sglang"
    wanted = {
        "path": f"{base}-d1",
        "base": str(base),
        "digest": "d1",
        "python": "python3",
        "requirements": [],
    }
    return [
        {"step": "install", **wanted, "wheels": [], "installer": None, "index": "default"},
        {"step": "link", "base": str(base), "target": f"{base}-d1"},
    ]


def unused_environment(ctx: Context) -> Steps:
    args = environment(ctx)[0]
    install.make(ctx, args, lambda *_, **__: None, ctx.state)
    install.point(Path(args["base"]), args["path"])
    return [{"step": "purge"}]


def experiment(ctx: Context, *, there: bool = False) -> Steps:
    if there:
        safeguard.wish_folder(ctx).mkdir(parents=True)
    ctx.units.mkdir(exist_ok=True)
    return [{"step": "safeguard"}]


CASES = {
    "give back": Case(give_back),
    "give back, undone": Case(lambda ctx: [*give_back(ctx), FAIL]),
    "take over": Case(take_over, as_root=True),
    "take over, undone": Case(lambda ctx: [*take_over(ctx), FAIL], as_root=True),
    "remove": Case(remove),
    "remove, undone": Case(lambda ctx: [*remove(ctx), FAIL]),
    "first release, undone": Case(lambda ctx: [*first_release(ctx), FAIL]),
    "environment, undone": Case(lambda ctx: [*environment(ctx), FAIL]),
    "environment that nothing uses": Case(unused_environment),
    "experiment": Case(experiment, temporary=True),
    "experiment, the folder was there": Case(lambda ctx: experiment(ctx, there=True), temporary=True),
}


@pytest.fixture(autouse=True)
def plain_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STEPS, "fail", Fail)
    monkeypatch.setattr(unit, "has_systemd", lambda: False)
    monkeypatch.setattr(unit, "systemctl", lambda *_, **__: "")
    monkeypatch.setattr(os, "fsync", lambda fd: None)  # SIGKILL loses no page cache
    monkeypatch.setattr(os, "sync", lambda: None)
    monkeypatch.setattr("sys.argv", [__file__])  # in place of the agent's own zipapp, which a release keeps
    monkeypatch.setattr(install.pip, "install", install_nothing)


def install_nothing(args: dict[str, Any], *_: Any) -> None:
    python = Path(args["path"], "bin", "python")
    python.parent.mkdir(parents=True)
    python.touch()


def host(root: Path) -> Context:
    root.mkdir()
    ctx = Context(state=root / "state", run=root / "run", units=root / "units")
    ctx.state.mkdir(0o700)
    return ctx


def transaction(ctx: Context, ident: str, steps: Steps, temporary: bool = False) -> Callable[[], int]:
    folder = ctx.state / "txn" / ident
    folder.mkdir(0o700, parents=True)
    (folder / PROGRESS).touch()
    plan = {"id": ident, "kind": "change", "unit": "x", "who": "test", "why": None, "steps": steps}
    (folder / "plan.json").write_text(json.dumps({**plan, "temporary": temporary}))
    return lambda: executor.run(ctx, ident)


def killed(work: Callable[[], int], at: int, fired: Path) -> bool:
    """Run it in a child that dies at its `at`-th act; False when it was over before.

    Writes and flushes are no acts here: they change no folder (test_kill_points.py counts them).
    """
    child = os.fork()
    if child == 0:
        trap.FIRED = str(fired)
        sys.addaudithook(trap.Trap("txn", at).audit)
        try:
            work()
        finally:
            os._exit(0)  # whatever it was, only the first process goes on with the tests
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def tree(ctx: Context) -> dict[str, str]:
    """Everything that steps leave. A note is named by the hash of a path, which is another on each host here."""
    found = {}
    for top in (ctx.units, ctx.state, ctx.state.parent / "opt"):
        for path in [top, *top.rglob("*")]:
            inside = path.relative_to(ctx.state).parts if ctx.state in path.parents else ()
            if os.path.lexists(path) and not KEPT & set(inside[:1]):
                found[re.sub(r"[0-9a-f]{16}\b", "HASH", str(path.relative_to(ctx.state.parent)))] = what(path)
    return found


def what(path: Path) -> str:
    if path.is_symlink():
        return f"→ {Path(os.readlink(path)).name}"
    return "folder" if path.is_dir() else f"{path.stat().st_mode & 0o777:o}"


@pytest.mark.parametrize("name", CASES)
def test_killed_at_every_act(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    if case.as_root and os.geteuid() != 0:
        pytest.skip("ddtool's own units belong to root")
    undisturbed = host(tmp_path / "undisturbed")
    steps = case.prepare(undisturbed)
    old = tree(undisturbed)
    transaction(undisturbed, "0001", steps, case.temporary)()
    new = tree(undisturbed)
    assert new == old if FAIL in steps or case.temporary else new != old
    at, alive = 0, False
    while not alive:
        at += 1
        ctx = host(tmp_path / str(at))
        work = transaction(ctx, "0001", case.prepare(ctx), case.temporary)
        alive = not killed(work, at, tmp_path / "fired")
        assert transaction(ctx, "0002", [])() == 0
        now = tree(ctx)
        assert now in (old, new), (json.loads((tmp_path / "fired").read_text()), now.items() ^ old.items())
    assert at > 20


def test_given_back_every_folder_is_as_its_owner_had_it(tmp_path: Path) -> None:
    before, ctx = host(tmp_path / "before"), host(tmp_path / "after")
    handmade(before)
    assert transaction(ctx, "0001", give_back(ctx))() == 0
    theirs, now = (
        {path: at for path, at in tree(one).items() if path[:6] == "units/"} for one in (before, ctx)
    )
    assert now == theirs


def test_a_folder_that_was_made_for_one_environment_goes_with_the_last_in_it(tmp_path: Path) -> None:
    ctx = host(tmp_path / "host")
    first = environment(ctx)[0]
    second = {**first, "path": f"{first['base']}-d2", "digest": "d2"}
    for args in (first, second):
        install.make(ctx, args, lambda *_, **__: None, ctx.state)
    install.discard(ctx, first["path"])
    assert Path(second["path"]).is_dir()
    install.discard(ctx, second["path"])
    assert not (tmp_path / "host" / "opt").exists()
