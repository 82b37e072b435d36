"""File sets: killed anywhere, on a full disk, in hard-linked environments, under cached bytecode."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtool.agent import disk
from ddtool.agent.errors import AgentError, Drift
from ddtool.agent.files import FileChange, FileSet, atomic_write

OLD = {"a.py": b"A = 'old'\n", "pkg/b.py": b"B = 'old'\n", "gone.py": b"G = 1\n"}
NEW = {
    "a.py": b"A = 'new'\n",
    "pkg/b.py": b"B = 'new, longer'\n",
    "gone.py": None,
    "deep/er/c.py": b"C = 1\n",
}

# Calls that touch the disk and that Python audits: all but fsync and write.
DISK_EVENTS = {"open", "os.listdir", "os.scandir"} | {
    f"os.{call}"
    for call in ("rename", "link", "remove", "utime", "mkdir", "rmdir", "chmod", "chown", "setxattr")
}


def lay_out(root: Path, files: dict[str, bytes] = OLD) -> None:
    (root / "state").mkdir()
    for name, content in files.items():
        path = root / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (1_000_000_000, 1_000_000_000))
        cache = path.parent / "__pycache__"
        cache.mkdir(exist_ok=True)
        (cache / f"{path.stem}.cpython-311.pyc").write_bytes(b"stale")


def content(root: Path) -> dict[str, bytes | None]:
    names = sorted(set(OLD) | set(NEW))
    return {
        name: (root / "tree" / name).read_bytes() if (root / "tree" / name).exists() else None
        for name in names
    }


BEFORE = {name: OLD.get(name) for name in sorted(set(OLD) | set(NEW))}
AFTER = {name: NEW.get(name) for name in sorted(set(OLD) | set(NEW))}


def changes(root: Path) -> list[FileChange]:
    return [FileChange(str(root / "tree" / name), data) for name, data in NEW.items()]


def leftovers(root: Path) -> list[str]:
    return [str(path) for path in root.rglob("*") if ".ddtool-" in path.name or ".files." in path.name]


def killed_at(die_at: int, work: Callable[[], object]) -> bool:
    """Run `work` in a child that gets SIGKILL at its nth disk access; False when it ended before that."""
    child = os.fork()
    if child == 0:
        left = die_at

        def count(event: str, _: object) -> None:
            nonlocal left
            if event in DISK_EVENTS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def run_steps(root: Path, steps: str) -> None:
    files = FileSet.load(root / "state", "t1") or FileSet.stage(root / "state", "t1", changes(root))
    for step in steps.split(","):
        if step != "stage":
            getattr(files, step)()


def test_swap_then_finish(tmp_path: Path) -> None:
    lay_out(tmp_path)
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    assert content(tmp_path) == BEFORE
    files.swap()
    files.swap()
    assert content(tmp_path) == AFTER
    files.finish()
    files.finish()
    assert content(tmp_path) == AFTER and not leftovers(tmp_path)


def test_undo_gives_everything_back(tmp_path: Path) -> None:
    lay_out(tmp_path)
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    files.swap()
    files.undo()
    files.undo()
    files.finish()
    assert content(tmp_path) == BEFORE and not leftovers(tmp_path)
    assert not (tmp_path / "tree/deep").exists()


@pytest.mark.parametrize("steps", ["stage,swap,finish", "stage,swap,undo", "stage,undo"])
def test_killed_at_every_step(tmp_path: Path, steps: str) -> None:
    """Each file is old or new after SIGKILL at any disk access, and the set can be undone or completed."""
    was_killed, n = True, 0
    while was_killed:
        n += 1
        for rescue in ("undo", "complete"):
            root = tmp_path / f"{n}-{rescue}"
            root.mkdir()
            lay_out(root)
            was_killed = killed_at(n, lambda root=root: run_steps(root, steps))
            for name, now in content(root).items():
                assert now in (BEFORE[name], AFTER[name]), (n, name)
            files = FileSet.load(root / "state", "t1")
            if files is not None:
                expected = rescued(root, files, rescue)
                assert content(root) == expected, (n, rescue)
            elif was_killed:
                assert content(root) in (BEFORE, AFTER), (n, rescue)
            else:
                assert content(root) == (BEFORE if "undo" in steps else AFTER)
            assert not [path for path in leftovers(root) if "ddtool-t1" in path], (n, rescue)
    assert n > 30


def rescued(root: Path, files: FileSet, rescue: str) -> dict[str, bytes | None]:
    """Undo or complete what a crash left, as far as its phase allows; the content that this must give."""
    if files.phase == "done" or (rescue == "complete" and files.phase == "json"):
        if files.phase == "json":
            files.swap()
        files.finish()
        return AFTER
    files.undo()
    return BEFORE


@settings(max_examples=25, deadline=None)
@given(first=st.integers(1, 90), second=st.integers(1, 60), rescue=st.sampled_from(["undo", "swap,finish"]))
def test_killed_twice(tmp_path_factory: pytest.TempPathFactory, first: int, second: int, rescue: str) -> None:
    """The rescue itself may be killed; the next one still ends at one whole set."""
    root = tmp_path_factory.mktemp("twice")
    lay_out(root)
    killed_at(first, lambda: run_steps(root, "stage,swap"))
    files = FileSet.load(root / "state", "t1")
    if files is not None and files.phase == "json":
        killed_at(second, lambda: run_steps(root, rescue))
    files = FileSet.load(root / "state", "t1")
    if files is not None:
        if files.phase == "done":
            files.finish()
        else:
            files.undo()
    assert content(root) in (BEFORE, AFTER)
    assert not [path for path in leftovers(root) if "ddtool-t1" in path]


def test_expectations_are_checked_before_anything_is_written(tmp_path: Path) -> None:
    lay_out(tmp_path)
    wrong = [
        FileChange(str(tmp_path / "tree/a.py"), b"x", expect=disk.sha256(b"something else")),
        FileChange(str(tmp_path / "tree/pkg/b.py"), b"x", expect="absent"),
        FileChange(str(tmp_path / "tree/gone.py"), b"x", expect=disk.sha256(OLD["gone.py"])),
    ]
    with pytest.raises(Drift, match=r"a\.py.*b\.py") as caught:
        FileSet.stage(tmp_path / "state", "t1", wrong)
    assert "gone.py" not in caught.value.message
    assert content(tmp_path) == BEFORE and not leftovers(tmp_path)


def test_an_edit_between_stage_and_swap_is_refused_and_survives(tmp_path: Path) -> None:
    lay_out(tmp_path)
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    for name in ("a.py", "gone.py"):
        (tmp_path / "tree" / name).write_bytes(b"# by hand\n")
    with pytest.raises(Drift):
        files.swap()
    files.undo()
    assert content(tmp_path) == {**BEFORE, "a.py": b"# by hand\n", "gone.py": b"# by hand\n"}
    assert not leftovers(tmp_path)


def test_an_edit_after_swap_is_kept_beside_the_file_by_undo(tmp_path: Path) -> None:
    lay_out(tmp_path)
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    files.swap()
    for name in ("a.py", "deep/er/c.py"):
        (tmp_path / "tree" / name).write_bytes(b"# by hand\n")
    files.undo()
    assert (tmp_path / "tree/a.py").read_bytes() == OLD["a.py"]
    assert {Path(kept).read_bytes() for kept in files.kept} == {b"# by hand\n"} and len(files.kept) == 2


def test_mtime_moves_forward_by_whole_seconds_and_bytecode_goes(tmp_path: Path) -> None:
    lay_out(tmp_path)
    target = tmp_path / "tree/a.py"
    future = 4_000_000_000
    os.utime(target, (future, future))
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    files.swap()
    swapped = target.stat().st_mtime
    assert swapped >= future + 1 and not list((tmp_path / "tree/__pycache__").iterdir())
    (tmp_path / "tree/__pycache__/a.cpython-311.pyc").write_bytes(b"stale")
    files.undo()
    assert target.stat().st_mtime >= swapped + 1 and not list((tmp_path / "tree/__pycache__").glob("a.*"))


def test_a_running_python_never_sees_old_code_again(tmp_path: Path) -> None:
    """Equal length, same second: only mtime and bytecode tell the versions apart."""
    lay_out(tmp_path, {"m.py": b"V = 'one'\n"})
    target = tmp_path / "tree/m.py"

    def value() -> str:
        command = [sys.executable, "-c", "import m; print(m.V)"]
        return subprocess.run(
            command, cwd=tmp_path / "tree", capture_output=True, text=True, check=True
        ).stdout.strip()

    assert value() == "one"
    files = FileSet.stage(tmp_path / "state", "t1", [FileChange(str(target), b"V = 'two'\n")])
    files.swap()
    assert value() == "two"
    files.undo()
    assert value() == "one"


def test_hard_linked_siblings_keep_their_bytes_and_times(tmp_path: Path) -> None:
    lay_out(tmp_path)
    sibling = tmp_path / "other-venv-a.py"
    os.link(tmp_path / "tree/a.py", sibling)
    before = sibling.stat()
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    files.swap()
    assert sibling.read_bytes() == OLD["a.py"]
    files.undo()
    after = sibling.stat()
    assert sibling.read_bytes() == OLD["a.py"]
    assert (before.st_ino, before.st_mtime_ns, before.st_mode) == (
        after.st_ino,
        after.st_mtime_ns,
        after.st_mode,
    )


def test_mode_owner_and_links_are_kept(tmp_path: Path) -> None:
    lay_out(tmp_path)
    target = tmp_path / "tree/a.py"
    target.chmod(0o640)
    owner = (1234, 2345) if os.getuid() == 0 else (os.getuid(), os.getgid())
    os.chown(target, *owner)
    link = tmp_path / "link.py"
    link.symlink_to(target)
    files = FileSet.stage(tmp_path / "state", "t1", [FileChange(str(link), b"new\n")])
    files.swap()
    for step in (None, files.undo):
        if step is not None:
            step()
        found = target.stat()
        assert link.is_symlink() and link.resolve() == target and not target.is_symlink()
        assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o640, *owner)
    assert target.read_bytes() == OLD["a.py"]


class FailingWrite:
    """os.write that fails at its nth call."""

    def __init__(self, nth: int, code: int) -> None:
        self.left, self.code, self.real = nth, code, os.write

    def __call__(self, fd: int, data: bytes) -> int:
        self.left -= 1
        if self.left == 0:
            raise OSError(self.code, os.strerror(self.code))
        return self.real(fd, data)


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_failed_write_changes_nothing(
    tmp_path: Path, nth: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(tmp_path)
    monkeypatch.setattr(os, "write", FailingWrite(nth, code))
    with pytest.raises(AgentError, match=str(tmp_path)) as caught:
        FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    assert caught.value.hint
    assert content(tmp_path) == BEFORE and not leftovers(tmp_path) and not (tmp_path / "tree/deep").exists()


def test_swap_and_undo_write_no_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a disk that fills up after stage cannot stop them."""
    lay_out(tmp_path)
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    monkeypatch.setattr(os, "write", FailingWrite(1, errno.ENOSPC))
    files.swap()
    files.undo()
    assert content(tmp_path) == BEFORE and not leftovers(tmp_path)


def test_a_folder_that_refuses_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(tmp_path)
    real = os.open

    def refuse(path: str, flags: int, *rest: int, **more: int) -> int:
        if flags & os.O_CREAT and "/pkg/" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(AgentError, match=r"cannot write .*pkg/b\.py") as caught:
        FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    assert caught.value.name == "PreflightError"
    monkeypatch.undo()
    assert content(tmp_path) == BEFORE and not leftovers(tmp_path)


def test_bytes_reach_the_disk_before_the_names_that_show_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power loss: file flushed before its rename, folder flushed before the next phase."""
    lay_out(tmp_path)
    calls: list[tuple[str, str]] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(fd: int) -> None:
        calls.append(("fsync", os.readlink(f"/proc/self/fd/{fd}")))
        real_fsync(fd)

    def replace(self: Path, target: Path) -> Path:
        calls.append(("rename", f"{self} -> {target}"))
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    files = FileSet.stage(tmp_path / "state", "t1", changes(tmp_path))
    files.swap()
    files.undo()

    durable: set[str] = set()
    pending_folders: set[str] = set()
    for kind, what in calls:
        if kind == "fsync":
            durable.add(what)
            pending_folders.discard(what)
            continue
        source, target = what.split(" -> ")
        folder = str(Path(target).parent)
        if ".files." in target and ".files." in source:
            assert not pending_folders, f"phase {target} entered before {pending_folders} were flushed"
        removal = source.endswith("gone.py")
        assert removal or source in durable or ".files." in source, f"{source} renamed before it was flushed"
        pending_folders.add(folder)
    assert not pending_folders
    assert [what.rsplit(".", 1)[1] for kind, what in calls if kind == "rename" and ".files." in what] == [
        "staging",
        "json",
        "undoing",
    ]


def test_atomic_write_replaces_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note.json"
    atomic_write(path, b"one")
    atomic_write(path, b"two")
    assert path.read_bytes() == b"two" and path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(os, "write", FailingWrite(1, errno.ENOSPC))
    with pytest.raises(AgentError, match=r"no space left to write .*note\.json"):
        atomic_write(path, b"three")
    assert path.read_bytes() == b"two" and [item.name for item in tmp_path.iterdir()] == ["note.json"]


def test_a_stop_in_mid_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd stops a transaction by SIGTERM, which is no OSError."""

    class Stopped(BaseException):
        pass

    def stop(self: Path, target: Path) -> Path:
        raise Stopped

    monkeypatch.setattr(Path, "replace", stop)
    with pytest.raises(Stopped):
        atomic_write(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_what_killed_writers_left_is_dropped_and_a_living_ones_is_not(tmp_path: Path) -> None:
    """After a boot another process has the id of the one that was killed."""
    started = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    mine = tmp_path / f".ddtool-{os.getpid()}.{started}-file"
    left = [".ddtool-999999999.5-file", f".ddtool-{os.getpid()}.1-file"]
    left += [".ddtool-999999999-file", f".ddtool-{os.getpid()}-file"]  # of an earlier ddtool
    for path in (mine, *(tmp_path / name for name in left), tmp_path / ".ddtool-step0-1.new"):
        path.touch()
    disk.drop_temps(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([mine.name, ".ddtool-step0-1.new"])


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path)
    target = str(tmp_path / "tree/a.py")
    with pytest.raises(ValueError, match="each once"):
        FileSet.stage(tmp_path / "state", "t1", [FileChange(target, b"x"), FileChange(target, b"y")])
    with pytest.raises(AgentError, match="not a regular file"):
        FileSet.stage(tmp_path / "state", "t1", [FileChange(str(tmp_path / "tree"), b"x")])
    files = FileSet.stage(tmp_path / "state", "t1", [FileChange(target, b"x")])
    with pytest.raises(AgentError, match="still open"):
        FileSet.stage(tmp_path / "state", "t1", [FileChange(target, b"y")])
    with pytest.raises(AgentError, match="not swapped"):
        files.finish()
    files.undo()
    with pytest.raises(AgentError, match="no longer be swapped"):
        files.swap()
