"""Failures in words that the signatures were not written from."""

from __future__ import annotations

import io
from typing import Any

import pytest
from support.crashvariants import VARIANTS, log_of

from ddtool.crash.classify import classify


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: str(variant["id"]))
def test_variant(variant: dict[str, Any]) -> None:
    verdict = classify(io.BytesIO(log_of(variant).encode()))
    assert verdict.category == variant["category"], verdict
    if variant["cause"] is None:
        assert verdict.first_cause is None
    else:
        assert verdict.first_cause and variant["cause"] in verdict.first_cause.text
