"""ddtool with the mini service's diagnostic in place of the shipped ones: `python minidiag.py diag run mini-copy …`."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "mini" / "diag_patches"
NAME = "mini-copy"
COMMAND = [sys.executable, __file__]

if __name__ == "__main__":
    from ddtool.cli import main
    from ddtool.diagnostics import definition

    definition.data_folder = lambda name: FOLDER
    main()
