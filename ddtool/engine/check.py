"""`python -m ddtool_engine.check`: whose class answers DDTREE in this Python, asked in a process of its own.

SGLang swallows what a plugin raises, and a fork's own DDTREE would win over ours without a word; so doctor asks here.
Prints one JSON object; exit status 0 only if it is this package's class.
"""

from __future__ import annotations

import json
import sys

from . import NAME, engine_id


def main() -> int:
    import sglang

    from .plugin import load

    answer = {"engine": engine_id(), "sglang": sglang.__version__, "provider": None, "error": None}
    try:
        load()
        from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

        answer["provider"] = type(SpeculativeAlgorithm.from_string(NAME)).__module__
    except Exception as error:  # noqa: BLE001  whatever a fork's module raises is the answer
        answer["error"] = f"{type(error).__name__}: {error}"
    print(json.dumps(answer))  # noqa: T201
    return 0 if str(answer["provider"]).startswith(__package__ or "") and answer["error"] is None else 1


if __name__ == "__main__":
    sys.exit(main())
