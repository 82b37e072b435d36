"""Bundles and profiles that somebody sent."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from ddtool.crash import bundle
from ddtool.errors import ProfileError, UsageError
from ddtool.profile import launch, load


def packed(contents: dict[str, bytes], **manifest: object) -> bytes:
    raw = io.BytesIO()
    about = {"schema": bundle.SCHEMA, "unit": "u", "invocation": "i", "unix": 0, "files": list(contents)}
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, data in {bundle.MANIFEST: json.dumps({**about, **manifest}).encode(), **contents}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return raw.getvalue()


def test_a_small_bundle_that_unpacks_to_very_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "ALL_BYTES", 1 << 20)
    bomb = packed({f"{number}.txt": bytes(200_000) for number in range(20)})
    assert len(bomb) < 50_000
    with pytest.raises(UsageError, match="holds more than"):
        bundle.unpack(bomb)


def test_names_in_a_bundle_lead_nowhere() -> None:
    nasty = {
        "../../etc/cron.d/x": b"1",
        "a/..": b"2",
        "/etc/passwd": b"3",
        "-rf": b"4",
        "b\n.txt": b"5",
        ".bashrc": b"6",
    }
    taken = bundle.unpack(packed({**nasty, "unit.txt": b"7"}))
    assert sorted(taken.files) == ["passwd", "unit.txt", "x"]
    assert bundle.name_of(bundle.unpack(packed({}, unit="../../home/x", invocation="/../\n"))).count("/") == 0


@pytest.mark.parametrize(
    "wrong", [{"unix": 1e300}, {"unix": "now"}, {"unix": None}, {"files": 7}, {"files": None}, {"schema": []}]
)
def test_a_manifest_of_wrong_things_is_refused_with_words(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        bundle.unpack(packed({}, **wrong))


def test_links_and_devices_in_a_bundle_are_passed_over() -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        data = json.dumps({"schema": bundle.SCHEMA}).encode()
        member = tarfile.TarInfo(bundle.MANIFEST)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            link = tarfile.TarInfo("unit.txt")
            link.type, link.linkname = kind, "/etc/shadow"
            tar.addfile(link)
    assert bundle.unpack(gzip.compress(raw.getvalue())).files == {}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(9)
        ),
        "a: &a [*a]\n",
        "a: " + "[" * 5000,
        "a: !!python/object/apply:os.system ['id']\n",
    ],
    ids=["a billion", "itself", "deep", "python"],
)
def test_a_profile_cannot_take_the_machine(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(ProfileError):
        load(str(path))


def test_a_list_cannot_bring_in_an_option(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("extends: demo\nserver_args: {lora-paths: [a, --trust-remote-code]}\n")
    with pytest.raises(ProfileError, match="starts with a dash"):
        launch.config_file(load(str(path)), {})
