"""What a benchmark keeps on a host: lines appended and never touched again, fetched by bytes, bounded; the cards."""

from __future__ import annotations

import base64
import json
import os
import stat
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddtool.agent import bench, load_gpu
from ddtool.agent.errors import AgentError, UsageError
from ddtool.agent.ops import handler
from ddtool.agent.registry import Context

RUN = "20261130-014212-3fa9"


@pytest.fixture
def ctx(tmp_path: Path) -> Context:
    (tmp_path / "state").mkdir(0o700)
    return Context(state=tmp_path / "state", run=tmp_path / "run", units=tmp_path / "units")


def line(index: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "sample", "pass": "p", "index": index, "error": None, **fields}


def write(ctx: Context, *lines: dict[str, Any], run: str = RUN) -> Path:
    with bench.Samples(ctx, run, {"run": run}) as samples:
        for item in lines:
            samples.write(item)
    return samples.path


def fetch(ctx: Context, run: str = RUN, start: int = 0) -> bytes:
    data, size, at = b"", start + 1, start
    while at < size:
        piece = bench.fetch(ctx, run, at)
        assert piece["offset"] == at
        data += zlib.decompress(base64.b64decode(piece["data"]))
        at, size = piece["next"], piece["size"]
    return data


def test_lines_are_appended_for_root_alone(ctx: Context) -> None:
    path = write(ctx, {"kind": "begin"}, line(0))
    first = path.read_bytes()
    write(ctx, line(1), {"kind": "end"})
    assert path.read_bytes().startswith(first)
    assert [json.loads(item)["kind"] for item in path.read_bytes().splitlines()] == [
        "begin",
        "sample",
        "sample",
        "end",
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert json.loads((path.parent / "run.json").read_text()) == {"run": RUN}


def test_a_torn_line_is_ended_and_stays(ctx: Context) -> None:
    path = write(ctx, line(0))
    torn = path.read_bytes() + b'{"kind":"sample","ind'
    path.write_bytes(torn)
    write(ctx, line(1))
    assert path.read_bytes().startswith(torn + b"\n{")
    write(ctx)
    assert path.read_bytes().count(b"\n") == 3, "it is ended once"


def test_a_write_that_is_cut_short_is_not_taken_back(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    with bench.Samples(ctx, RUN, {}) as samples:
        samples.write(line(0))
        before = samples.path.read_bytes()
        monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:5]))
        with pytest.raises(AgentError, match="no space left to write"):
            samples.write(line(1))
    assert samples.path.read_bytes() == before + b'{"kin'


def test_a_pass_is_on_the_disk_from_its_begin_to_its_end(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    with bench.Samples(ctx, RUN, {}) as samples:
        monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
        for item in ({"kind": "begin"}, line(0), line(1), {"kind": "end"}):
            samples.write(item)
    assert synced == [17, samples.path.stat().st_size]


def test_a_link_in_its_place_is_not_followed(ctx: Context, tmp_path: Path) -> None:
    folder = bench.folder(ctx, RUN)
    folder.mkdir(parents=True)
    (folder / "samples.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AgentError):
        write(ctx, line(0))
    assert not (tmp_path / "elsewhere").exists()


def test_a_secret_in_an_error_stays_on_the_host(ctx: Context) -> None:
    release = ctx.state / "services" / "u" / "releases" / "0001"
    release.mkdir(parents=True)
    (release / "secrets.json").write_text('{"KEY": "sentinel-7f3a"}')
    write(ctx, line(0, error="401: sentinel-7f3a is not the key"))
    assert b"sentinel" not in fetch(ctx) and b"[secret] is not the key" in fetch(ctx)


def test_bytes_come_as_they_are_in_pieces_from_anywhere(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(ctx, *(line(index, text="é" * 50) for index in range(40)))
    monkeypatch.setattr(bench, "PIECE", 1000)
    whole = path.read_bytes()
    for start in (0, 1, 999, len(whole) - 1, len(whole)):
        assert fetch(ctx, start=start) == whole[start:]
    with pytest.raises(UsageError, match="there is no byte"):
        bench.fetch(ctx, RUN, len(whole) + 1)
    with pytest.raises(AgentError, match=r"there is no samples\.jsonl of 2026-x"):
        bench.fetch(ctx, "2026-x")
    for name in ("../txn", ".", "", "a/b"):
        with pytest.raises(UsageError):
            bench.fetch(ctx, name)


def test_requests_are_known_and_list_the_newest_first(ctx: Context) -> None:
    fetched, listed = handler("bench.fetch"), handler("bench.list")
    assert fetched is bench.fetch and listed is bench.listing and bench.listing(ctx) == []
    write(ctx, line(0), run="20261130-010000-aaaa")
    path = write(ctx, line(0), line(1), run="20261130-020000-bbbb")
    newest, oldest = bench.listing(ctx)
    assert (newest["run"], newest["bytes"]) == ("20261130-020000-bbbb", path.stat().st_size)
    assert newest["about"] == {"run": newest["run"]} and oldest["run"] == "20261130-010000-aaaa"
    assert abs(newest["unix"] - time.time()) < 60


class TestRoom:
    def test_the_newest_runs_are_kept(self, ctx: Context) -> None:
        names = [f"20261130-0100{number:02}-aaaa" for number in range(23)]
        for name in names:
            write(ctx, line(0), run=name)
        bench.make_room(ctx, names[0])
        assert [row["run"] for row in reversed(bench.listing(ctx))] == [names[0], *names[4:]]

    def test_the_oldest_go_when_all_are_too_large(
        self, ctx: Context, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in "abc":
            write(ctx, line(0, text="x" * 1000), run=name)
        monkeypatch.setattr(bench, "MOST_BYTES", 2500)
        bench.make_room(ctx, "c")
        assert [row["run"] for row in bench.listing(ctx)] == ["c", "b"]
        monkeypatch.setattr(bench, "MOST_BYTES", 900)
        with pytest.raises(AgentError, match="more are not kept"):
            bench.make_room(ctx, "c")
        assert [row["run"] for row in bench.listing(ctx)] == ["c"]


SMI = """#!/bin/sh
case "$*" in
*--loop-ms=*) shift
  while :; do printf 'GPU-a, 1000, 200.0\\nGPU-b, %s, 300.0\\nGPU-c, 9000, [N/A]\\n' $(cat MEMORY); sleep 0.02; done;;
*compute-apps*) cat APPS;;
esac
"""


class TestCards:
    @pytest.fixture
    def smi(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
        """An nvidia-smi that reports two cards and a silent one. Sets the second one's memory."""
        (tmp_path / "nvidia-smi").write_text(
            SMI.replace("MEMORY", f"{tmp_path}/memory").replace("APPS", f"{tmp_path}/apps")
        )
        (tmp_path / "nvidia-smi").chmod(0o755)
        (tmp_path / "memory").write_text("2000")
        (tmp_path / "apps").write_text(
            f"GPU-b, {os.getpid()}, python\nGPU-b, 77, /usr/bin/game\nGPU-a, 88, other\n"
        )
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

        def set_memory(mib: str) -> None:
            (tmp_path / "memory.new").write_text(mib)
            (tmp_path / "memory.new").replace(tmp_path / "memory")

        return set_memory

    def seen(self, gpu: load_gpu.Sampler, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + 10
        while True:
            found = gpu.seen()
            if found and wanted(found):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.02)

    def test_the_services_cards_at_their_most_and_who_else_is_there(self, smi: Callable[[str], None]) -> None:
        with load_gpu.Sampler(lambda: {os.getpid()}) as gpu:
            gpu.begin()
            first = self.seen(gpu, lambda found: True)
            assert first == {"memory_mib": 2000, "power_w": 300.0, "others": ["77 /usr/bin/game"]}
            smi("5000")
            self.seen(gpu, lambda found: found["memory_mib"] == 5000)
            smi("100")
            gpu.begin()
            self.seen(gpu, lambda found: found["memory_mib"] == 100)

    @pytest.mark.usefixtures("smi")
    def test_pids_that_the_driver_does_not_know(self) -> None:
        with load_gpu.Sampler(lambda: {4_000_000}) as gpu:
            gpu.begin()
            found = self.seen(gpu, lambda found: found["power_w"] == 500.0)
        assert found == {"memory_mib": 2000, "power_w": 500.0, "others": None}

    def test_a_machine_without_cards(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with load_gpu.Sampler(set) as gpu:
            gpu.begin()
            assert gpu.seen() is None
