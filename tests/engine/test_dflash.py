"""Stock DFLASH with the demo's pair says exactly what plain decoding says."""

from __future__ import annotations

import pytest
from support.ddtree import CHAIN, PLAIN

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

PROMPTS = [
    "for name in os.listdir(",
    "import os\n\ndef walk(path):\n    for ",
    "class Reader:\n    def __init__(self",
]
TOKENS = 16


def test_greedy_text_is_that_of_plain_decoding(serve):
    # another attention implementation as well: it is 40 times faster than interpreted kernels, and shares no bug
    plain = serve("demo", **PLAIN)
    expected = plain.generate(PROMPTS, TOKENS)
    plain.stop()

    dflash = serve("demo", **CHAIN)
    found = dflash.generate(PROMPTS, TOKENS)

    assert [completion.ids for completion in found] == [completion.ids for completion in expected]
    assert all(len(completion.ids) == TOKENS for completion in found)
    assert "spec_verify_ct" not in expected[0].meta or not expected[0].meta["spec_verify_ct"]
    rounds = sum(completion.meta["spec_verify_ct"] for completion in found)
    assert len(PROMPTS) * TOKENS / rounds > 1.2, "the drafter's guesses are not accepted"

    log = dflash.log()
    assert "Initialized DFLASH draft runner" in log
    assert "StandInCalled" not in log
