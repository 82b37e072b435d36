"""Two ranks over gloo say what one rank says. Slow: four processes import SGLang on whatever cores there are."""

from __future__ import annotations

import pytest
from support.ddtree import CHAIN

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(900)]


def test_two_ranks_say_what_one_says(serve):
    prompts, tokens = ["for name in os.listdir("], 8
    one = serve("demo", **CHAIN)
    expected = one.generate(prompts, tokens)
    one.stop()
    two = serve("demo", **CHAIN, tp_size=2, env={"SGLANG_CPU_OMP_THREADS_BIND": "0|1"})
    assert two.generate(prompts, tokens)[0].ids == expected[0].ids
