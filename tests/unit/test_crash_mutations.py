"""What happens to logs on their way into a chat window: cut off, interleaved, garbled, with lines missing."""

from __future__ import annotations

import io
import random

import pytest
from support.crashmut import CASES, run

from ddtool.crash.classify import classify


def check(count: int, seed: int) -> None:
    counts, lost = run(count, seed)
    assert counts["kept"] >= 0.95 * counts["intact"], (counts, lost)
    assert counts["seen too early"] < 0.01 * counts["before"], (counts, lost)


def test_three_hundred_mutations() -> None:
    check(300, 7)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_mutations() -> None:
    check(10_000, 11)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_exception(seed: int) -> None:
    rng = random.Random(seed)
    case = rng.choice(CASES)
    data = bytearray(case["log"].encode())
    for _ in range(rng.randint(1, 400)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    classify(io.BytesIO(bytes(data[rng.randrange(len(data)) :])))
    classify(io.BytesIO(rng.randbytes(4000)))
