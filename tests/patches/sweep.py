"""Execute patches in the real SGLang of their releases and record what was proven: the source of docs/patches.md.

python tests/patches/sweep.py                                      # everything; writes tests/patches/proven.json
python tests/patches/sweep.py --release R --patch NAME --patch …   # only these, with what each case showed
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support import patch_probe, sglang_wheels
from support.patch_probe import Answer

from ddtool.diagnostics import definition

RESULTS = Path(__file__).with_name("proven.json")
RELEASES = sorted({release for patch in definition.load_all() for release in patch.releases})


def answers_of(release: str, names: list[str], folder: Path) -> dict[str, Answer]:
    patches = patch_probe.probed([definition.load(name) for name in names], release)
    if not patches:
        return {}
    venv = sglang_wheels.unpack(release, folder / "venv")
    return patch_probe.run(
        venv, release, patch_probe.jobs_of(venv, release, patches), sglang_wheels.engine_path(), folder
    )


def show(answer: Answer) -> None:
    for case, expected in answer.expected.items():
        outcome, wheel = answer.patched[case], answer.wheel[case]
        print(f"  {case}: {'as expected' if outcome.events == expected else 'NOT AS EXPECTED'} {expected}")
        print("    reached" if outcome.reached else "    not reached")
        print(f"    wheel    {wheel.error or wheel.result}\n    patched  {outcome.error or outcome.result}")
        for marker in outcome.markers:
            print(
                "    marker  ",
                json.dumps({key: marker[key] for key in marker if key not in ("sha", "pid", "patch")}),
            )


def proof(answer: Answer, code: str) -> dict[str, Any]:
    """What proven.json keeps; `code` says which code of the patch was executed."""
    return {
        "code": code,
        "when": datetime.date.today().isoformat(),
        "how": f"CPU, Python {platform.python_version()}, real SGLang imported",
        "fired": {case: outcome.events for case, outcome in answer.patched.items() if outcome.events},
        "silent": [case for case, outcome in answer.patched.items() if not outcome.events],
        "unreached": [case for case, outcome in answer.patched.items() if not outcome.reached],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--release", action="append", choices=RELEASES)
    parser.add_argument("--patch", action="append")
    options = parser.parse_args()
    names = options.patch or definition.names()
    found: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wrong = 0
    for release in options.release or RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            answers = answers_of(release, names, Path(folder))
        for name, answer in answers.items():
            patch = definition.load(name)
            reasons = patch_probe.shortcomings(answer, patch.kind == "diagnostic")
            print(f"{name} on {release}: {', '.join(reasons) or 'proven'}", flush=True)
            wrong += bool(reasons)
            if not reasons:
                found.setdefault(name, {})[release] = proof(answer, patch.code_sha(release))
            if reasons or options.release or options.patch:
                show(answer)
        RESULTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
