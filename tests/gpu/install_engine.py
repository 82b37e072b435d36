"""Write the engine as a release carries it: `python3 tests/gpu/install_engine.py FOLDER`, FOLDER then on PYTHONPATH."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from ddtool.engine import engine_files, engine_id


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)  # an older engine's metadata would be a second entry point
    for name, content in engine_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    print(f"engine {engine_id()}")


if __name__ == "__main__":
    main()
