"""A small real service that deploys like SGLang: same unit, gate, agent and log lines, ready in under a second.

    install(sandbox)
    profile = mini.PROFILE        # ddtool deploy PROFILE --host sandbox:NAME

Switches in the profile's `env`: MINI_CRASH=start|after_ready|on_generate|after_replay (a traceback,
exit status 3), MINI_HANG=start (never ready)|on_generate, MINI_SLOW_START=SECONDS. A request's sampling parameter
`mini_slow` is how many seconds it stays in flight; a streamed answer is spread over them.
MINI_GREEDY=1 lets speculation say that it cannot draw tokens.
MINI_LOSSY=N lets speculation change the Nth token and all after it; asked for log-probabilities, the service is sure of
token 5, and of token 6 but for MINI_GAP.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from ddtool.sandbox import Sandbox, exec_inside

HERE = Path(__file__).parent
PROFILE = HERE / "profile.yaml"
VERSION = "0.5.12.post1"
VENV = "/opt/mini/venv"
MODEL = "/opt/mini/model"
DRAFTER = "/opt/mini/drafter"
SIZES = {
    "vocab_size": 4096,
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "torch_dtype": "float32",
}


def dist_files(version: str = VERSION, changed: Mapping[str, bytes] | None = None) -> dict[str, bytes]:
    """Relative path below site-packages → bytes, with metadata and a RECORD that holds every hash."""
    root = HERE / "dist"
    files = {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.py"))}
    files.update(changed or {})
    info = f"sglang-{version}.dist-info"
    files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n".encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: mini\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    files[f"{info}/INSTALLER"] = b"mini\n"
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(data)])
    rows.writerow([f"{info}/RECORD", "", ""])
    return {**files, f"{info}/RECORD": table.getvalue().encode()}


def model_files() -> dict[str, bytes]:
    """Absolute path → bytes: a target and a drafter made for it, as far as a preflight looks."""
    target = {"architectures": ["MiniForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 4, **SIZES}
    draft = {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "block_size": 8,
        "num_target_layers": 4,
        "dflash_config": {"target_layer_ids": [1, 2], "mask_token_id": 4095},
        **SIZES,
    }
    files = {}
    for folder, config in ((MODEL, target), (DRAFTER, draft)):
        files[f"{folder}/config.json"] = json.dumps(config).encode()
        files[f"{folder}/model.safetensors"] = (2).to_bytes(8, "little") + b"{}"
    return files


def upgrade(sandbox: Sandbox, version: str, changed: Mapping[str, bytes], venv: str = VENV) -> None:
    """What `pip install sglang==VERSION` does to the files of an installed one."""
    site = _run(sandbox, f"echo {venv}/lib/python3*/site-packages").strip()
    files = {f"{site}/{name}": data for name, data in dist_files(version, changed).items()}
    script = f"rm -r {site}/sglang-*.dist-info; base64 -d | tar -xf - -C /"
    _run(sandbox, script, base64.b64encode(_tar(files)).decode())


def install(sandbox: Sandbox, venv: str = VENV) -> None:
    """Make the venv in the sandbox with its own python3, the service in it, and the two model folders."""
    version = _run(
        sandbox,
        f"python3 -m venv --without-pip {venv} && "
        f"{venv}/bin/python -c 'import sys; print(\"python%d.%d\" % sys.version_info[:2])'",
    ).strip()
    site = f"{venv}/lib/{version}/site-packages"
    files = {f"{site}/{name}": data for name, data in dist_files().items()}
    _run(sandbox, "base64 -d | tar -xf - -C /", base64.b64encode(_tar(files)).decode())
    install_models(sandbox)


def install_models(sandbox: Sandbox) -> None:
    """The two model folders alone, for a host that gets its environment another way."""
    _run(sandbox, "base64 -d | tar -xf - -C /", base64.b64encode(_tar(model_files())).decode())


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, data in files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _run(sandbox: Sandbox, command: str, stdin: str | None = None) -> str:
    done = exec_inside(sandbox, ["sh", "-c", command], input=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout
