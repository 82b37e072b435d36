"""The host probe: files that go into every release, beside the engine, on the service's PYTHONPATH."""

from __future__ import annotations

from pathlib import Path

DIST_INFO = "ddtool_probe-1.dist-info"


def probe_files() -> dict[str, bytes]:
    """Relative path → bytes: the plugin's module and the metadata by which SGLang finds its entry point."""
    plugin = Path(__file__).with_name("ddtool_probe.py").read_bytes()
    return {
        "ddtool_probe.py": plugin,
        f"{DIST_INFO}/METADATA": b"Metadata-Version: 2.1\nName: ddtool-probe\nVersion: 1\n",
        f"{DIST_INFO}/entry_points.txt": b"[sglang.srt.plugins]\nddtool_probe = ddtool_probe:load\n",
    }
