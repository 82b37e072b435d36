"""The scripts here run as programs and import each other by name; so do the tests of what needs no GPU."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
