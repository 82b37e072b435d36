"""These tests need torch and nothing of SGLang: run them with any Python that has torch, pytest and hypothesis."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    collect_ignore_glob = ["test_*_torch.py"]
