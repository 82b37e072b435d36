"""Without torch the other files of this folder are not collected; that must not pass in silence."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.engine


def test_torch_is_there() -> None:
    if find_spec("torch") is None:
        reason = "tests/engine/core need a Python with torch"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
