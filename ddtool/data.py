"""Files shipped with ddtool that are not code: profiles, diagnostic patches, crash signatures."""

from __future__ import annotations

from pathlib import Path


def data_folder(name: str) -> Path:
    """Folder `name` ("profiles", "diag_patches", ...): inside the wheel, or beside the package in a checkout."""
    package = Path(__file__).parent
    packaged = package / "_data" / name
    return packaged if packaged.is_dir() else package.parent / name
