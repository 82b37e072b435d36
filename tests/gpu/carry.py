"""Pack what a GPU machine without a package registry needs, in folders small enough to travel one at a time.

    python3 tests/gpu/carry.py --pair DIR

Makes `.bundle-1`, `.bundle-2` … in the repository's root (git ignores them): SGLang's wheels, its kernels without the
backends that nobody loads here, and the pair of models. Each folder travels in a call of its own; `setup.sh` there
puts them together once all have arrived.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MIB = 1 << 20
TRAVELS = 63 * MIB  # of 64: what one call may take along, the working tree included
KERNEL = "sglang-kernel==0.4.2.post2"
GLIBCS = ("2_34", "2_28", "2_27", "2_26", "2_24", "2_17", "2_5")
PLATFORMS = [f"manylinux_{glibc}_x86_64" for glibc in GLIBCS] + [
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
    "any",
]
KERNEL_FOLDERS = ("sgl_kernel/", "sglang_kernel-")  # the package and its metadata; the rest are headers
UNUSED_KERNELS = ("flash_ops", "flashmla_ops", "sm100")  # over 1 GB; the triton backend loads none of them


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair", type=Path, required=True, help="folder with target/ and one or more drafters"
    )
    pair: Path = parser.parse_args().pair
    if not (pair / "target" / "config.json").is_file():
        sys.exit(f"{pair} has no target/config.json: give the folder that holds target/ and the drafters.")
    cache = ROOT / ".bundle-cache"
    cache.mkdir(exist_ok=True)
    download(cache)
    stream = pack([(path, f"wheels/{path.name}") for path in sorted(cache.iterdir())] + pair_files(pair))
    parts = split(stream, TRAVELS - working_tree_size())
    for old in ROOT.glob(".bundle-[0-9]*"):
        shutil.rmtree(old)
    for number, part in enumerate(parts, 1):
        folder = ROOT / f".bundle-{number}"
        folder.mkdir()
        (folder / f"part-{number}").write_bytes(part)
        (folder / "parts.json").write_text(json.dumps({"parts": len(parts)}))
        print(f"{folder.name}  {len(part) / MIB:.1f} MiB")


def download(cache: Path) -> None:
    """The wheels and `sgl_kernel.tar.xz`, unless `cache` has them."""
    wanted = [line for line in (HERE / "wheels.txt").read_text().splitlines() if not line.startswith("#")]
    present = {tuple(path.name.split("-")[:2]) for path in cache.glob("*.whl")}
    for requirement in wanted:
        name, version = requirement.split("==")
        if (name.replace("-", "_"), version) not in present:
            pip_download(requirement, cache)
    kernel = cache / "sgl_kernel.tar.xz"
    if not kernel.exists():
        with tempfile.TemporaryDirectory() as folder:
            pip_download(KERNEL, Path(folder))
            repack_kernel(next(Path(folder).glob("*.whl")), kernel)


def pip_download(requirement: str, into: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--implementation", "cp", "--dest", str(into)]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([*command, requirement], check=True)


def repack_kernel(wheel: Path, to: Path) -> None:
    """Written aside and renamed: half an archive must not look like a whole one."""
    aside = to.with_suffix(".partial")
    with zipfile.ZipFile(wheel) as source, tarfile.open(aside, "w:xz") as target:
        for item in source.infolist():
            if not item.filename.startswith(KERNEL_FOLDERS) or any(
                word in item.filename for word in UNUSED_KERNELS
            ):
                continue
            header = tarfile.TarInfo(item.filename)
            header.size = item.file_size
            target.addfile(header, io.BytesIO(source.read(item)))
    aside.rename(to)


def pair_files(pair: Path) -> list[tuple[Path, str]]:
    return [(path, f"pair/{path.relative_to(pair)}") for path in sorted(pair.glob("*/*")) if path.is_file()]


def pack(files: Iterable[tuple[Path, str]]) -> bytes:
    """A compressed tar: wheels are compressed already, but weights shrink by a quarter, which saves a call."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:xz", preset=3) as archive:
        for path, name in files:
            archive.add(path, name)
    return buffer.getvalue()


def split(stream: bytes, limit: int) -> list[bytes]:
    """As few parts as `limit` allows, all about equally large."""
    if limit < MIB:
        raise ValueError(
            "the working tree alone is too large to travel: what git does not ignore must shrink"
        )
    count = -(-len(stream) // limit)
    size = -(-len(stream) // count)
    return [stream[start : start + size] for start in range(0, len(stream), size)]


def working_tree_size() -> int:
    """Bytes of all that travels anyway: tracked files, and those that git does not ignore."""
    return sum((ROOT / name).stat().st_size for name in travelling() if (ROOT / name).is_file())


def travelling() -> Iterator[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return (name for name in listing.split("\0") if name)


if __name__ == "__main__":
    main()
