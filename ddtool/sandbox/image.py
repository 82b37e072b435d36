"""What the demo and the engine tests find in their sandbox: real SGLang in a venv, and a tiny model.

Two overlay layers over the root file system, built once and cached:

    engine-data-KEY   /opt/sglang/models, /opt/sglang/cpu-standins, and the .pth file that puts these on sys.path
    engine-venv-KEY   /opt/sglang/venv with the unmodified sglang wheel; it knows nothing of the other layer
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ddtool.errors import DdtoolError, PreflightError
from ddtool.sandbox import kernel, preflight, rootfs, wheels
from ddtool.sandbox.records import cache_root, locked

VENV = "/opt/sglang/venv"
MODELS = "/opt/sglang/models"
STANDINS = "/opt/sglang/cpu-standins"

_HERE = Path(__file__).parent
_PINS = _HERE / "pins-cpu.txt"
_PTH = f"{VENV}/lib/python{wheels.PYTHON}/site-packages/ddtool-cpu-standins.pth"
_NEEDED_BYTES = 3_500_000_000  # the wheels and what they unpack to lie side by side for a while

# What a server imports. Doing it once here proves the environment, and leaves the bytecode in the layer: each
# fresh sandbox then starts SGLang 10 s sooner and keeps 120 MB less in memory, where its own writes live.
_IMPORTS = """
import sglang.launch_server, sglang.srt.entrypoints.http_server
import sglang.srt.managers.scheduler, sglang.srt.managers.detokenizer_manager
import sglang.srt.models.registry, sglang.srt.speculative.dflash_worker
"""

# $1 root file system, $2 the layer's /opt, $3 wheels, $4 stand-ins, $5 the imports. Bind mounts only, so that it
# also works where the cache itself lies on an overlay (in a container). All mounts are in a private namespace and
# go with this process.
_INSTALL = f"""
set -e
umask 022
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount --bind "$2" "$1/opt"
mount --bind -o ro "$3" "$1/mnt"
mount --bind -o ro "$4" "$1/media"
mount -t tmpfs tmpfs "$1/tmp"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
exec chroot "$1" env -i PATH=/usr/bin:/bin HOME=/tmp SGLANG_USE_CPU_ENGINE=1 TRITON_INTERPRET=1 sh -ec '
python3 -m venv {VENV}
{VENV}/bin/python -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir /mnt/*.whl
PYTHONPATH=/media {VENV}/bin/python -W ignore -c "$1"
' inside "$5"
"""


def engine_layers(progress: Callable[[str], None]) -> list[Path]:
    """Overlay layers for `sandbox.up(layers=…)`, the lowest first; built when the cache has none.

    The first time: one to two minutes, 0.6 GB of downloads, 2.4 GB of disk (3 GB while it builds). Raises
    PreflightError when this machine cannot build them or pip finds no CPU build of torch, DdtoolError when a step
    fails.
    """
    return [_data_layer(), _venv_layer(progress)]


def _data_layer() -> Path:
    sources = {f"{MODELS}/code-1m": _HERE / "model/code-1m", STANDINS: _HERE / "cpu"}
    with _cached("engine-data", _files_key(*sources.values())) as (target, layer):
        if layer:
            for inside, source in sources.items():
                shutil.copytree(source, _under(layer, inside), ignore=shutil.ignore_patterns("__pycache__"))
            pth = _under(layer, _PTH)
            pth.parent.mkdir(parents=True)
            pth.write_text(STANDINS + "\n")
    return target


def _venv_layer(progress: Callable[[str], None]) -> Path:
    root = rootfs.build(progress)
    # not the root file system's own key: how the guest is set up does not change what is installed here
    key = _text_key(rootfs.SUITE, *rootfs.PACKAGES, _PINS.read_text(), _INSTALL, _IMPORTS)
    with _cached("engine-venv", key) as (target, layer):
        if layer:
            preflight.need_tools("unshare")
            _need_space(layer)
            pins = wheels.read_pins(_PINS)
            with tempfile.TemporaryDirectory(prefix="wheels-", dir=layer.parent) as downloads:
                progress(f"downloading {len(pins)} packages of SGLang for CPU (0.6 GB; once)")
                wheels.download(pins, Path(downloads))
                progress("installing SGLang in the sandbox's environment (2.4 GB; once)")
                _install(root, layer, Path(downloads))
    return target


@contextmanager
def _cached(kind: str, key: str) -> Iterator[tuple[Path, Path | None]]:
    """(the cached folder, a folder to fill that becomes it on success, or None when it is there already).

    One builder at a time; a build that fails or is killed leaves nothing that looks finished.
    """
    cache = cache_root()
    target = cache / f"{kind}-{key}"
    with locked(cache / f"{kind}.lock"):
        if target.is_dir():
            yield target, None
            return
        for abandoned in cache.glob(f"build-{kind}-*"):  # by a builder that was killed: the lock is ours
            shutil.rmtree(abandoned)
        folder = Path(tempfile.mkdtemp(prefix=f"build-{kind}-", dir=cache))
        try:
            layer = folder / "layer"
            layer.mkdir(mode=0o755)
            yield target, layer
            layer.rename(target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _install(root: Path, layer: Path, downloads: Path) -> None:
    opt = layer / "opt"
    opt.mkdir(mode=0o755)
    command = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    command += ["sh", "-c", _INSTALL, "install"]
    command += [str(root), str(opt), str(downloads), str(_HERE / "cpu"), _IMPORTS]
    result = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        preexec_fn=kernel.die_with_parent,
    )
    if result.returncode:
        raise DdtoolError("SGLang could not be installed in the sandbox", why=result.stdout[-2000:])


def _need_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_BYTES:
        raise PreflightError(
            f"{free / 1e9:.1f} GB are free at {cache_root()}, SGLang needs {_NEEDED_BYTES / 1e9:.1f}",
            hint="make room, or name another folder with DDTOOL_CACHE",
        )


def _under(layer: Path, inside: str) -> Path:
    return layer / inside.lstrip("/")


def _files_key(*folders: Path) -> str:
    """Changes with the name or content of any file in `folders`."""
    parts = []
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                parts += [str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()]
    return _text_key(*parts)


def _text_key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
