"""Power cuts on a real kernel with a real disk image: old or new, whole, and what was reported done is done.

Needs user-mode Linux (Debian: `apt-get install user-mode-linux`, or UML_PROGRAM=PROGRAM).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from support import power

pytestmark = [pytest.mark.host, pytest.mark.slow, pytest.mark.timeout(3600)]
ACTS = 150  # a little more than most transactions have


def test_power_cuts_at_random_acts(tmp_path: Path) -> None:
    if power.kernel() is None:
        pytest.skip("user-mode Linux is not installed")
    cuts, seed = int(os.environ.get("POWER_CUTS", "40")), int(os.environ.get("POWER_SEED", "1"))
    done = power.cut_often(power.Machine(tmp_path), cuts, seed, ACTS)
    said = {
        "cuts": len(done),
        "ends": dict(Counter(item["end"] for item in done)),
        "kinds": dict(Counter(item["kind"] for item in done)),
        "mounts": dict(Counter(item["mount"] for item in done)),
        "after_the_end": sum(item["act"] == "after the end" for item in done),
        "seed": seed,
    }
    print(json.dumps(said, indent=1))
    assert len(done) == cuts and {"finished", "undone"} == set(said["ends"])
