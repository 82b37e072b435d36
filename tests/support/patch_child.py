"""The child of `patch_probe`: imports a release on the CPU and runs the probes' cases. Knows nothing of ddtool.

argv: a JSON file {release, run, jobs: [{name, probe, files: {file of site-packages: path of its patched version}}]}.
Prints `RESULT ` and {name: {events, wheel: {case: outcome}, patched: {case: outcome}, at_import, proof} | {failed}}.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# Imported by later releases at module level, not by the code under test, and absent from the sandbox's image
ABSENT = ("xgrammar", "tvm_ffi")
UNIT = "sglang-probe"


class StandIn(ModuleType):
    """Any name is a class, so that it can be a base or an annotation; making one raises."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        where = f"{self.__name__}.{name}"

        def refuse(*_: object, **__: object) -> None:
            raise NotImplementedError(f"{where} is a stand-in")

        def schema(*_: object) -> object:
            from pydantic_core import core_schema

            return core_schema.any_schema()

        return type(name, (), {"__init__": refuse, "__get_pydantic_core_schema__": classmethod(schema)})


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last in line: an installed package wins."""

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        wanted = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


@contextlib.contextmanager
def modules_of(files: dict[str, str], patched: bool, said: io.StringIO) -> Iterator[dict[str, ModuleType]]:
    """The files' modules. Patched ones are loaded afresh and have their real names for the time of the case."""
    names = {file: file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in files}
    stock = {file: importlib.import_module(name) for file, name in names.items()}
    if not patched:
        yield stock
        return
    made = {}
    try:
        with contextlib.redirect_stderr(said):
            for file, name in names.items():
                spec = importlib.util.spec_from_file_location(name, files[file])
                assert spec is not None and spec.loader is not None
                made[file] = importlib.util.module_from_spec(spec)
                place(name, made[file])
                spec.loader.exec_module(made[file])
        yield made
    finally:
        for file, name in names.items():
            place(name, stock[file])


def place(name: str, module: ModuleType) -> None:
    sys.modules[name] = module
    package, _, last = name.rpartition(".")
    setattr(sys.modules[package], last, module)


def outcome(function: Any, files: dict[str, str], patched: bool, at_import: io.StringIO) -> dict[str, Any]:
    said, error, result = io.StringIO(), None, None
    with modules_of(files, patched, at_import) as modules, contextlib.redirect_stderr(said):
        try:
            result = function(modules)
        except Exception as raised:
            error = [type(raised).__name__, str(raised)]
    return {"error": error, "said": said.getvalue(), "result": result}


def run(job: dict[str, Any], run_folder: Path) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(f"probe_{job['name']}", job["probe"])
    assert spec is not None and spec.loader is not None
    probe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(probe)
    answer: dict[str, Any] = {"events": probe.EVENTS}
    at_import = io.StringIO()
    for version in ("wheel", "patched"):
        answer[version] = {
            case: outcome(function, job["files"], version == "patched", at_import)
            for case, function in probe.CASES.items()
        }
    (proof,) = (run_folder / UNIT).iterdir()
    return {**answer, "at_import": at_import.getvalue(), "proof": json.loads(proof.read_text())}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    sys.meta_path.append(StandIns())
    sys.path.insert(0, str(Path(request["jobs"][0]["probe"]).parent))
    os.environ.update(DDTOOL_UNIT=UNIT, DDTOOL_RUN=request["run"], PROBED_RELEASE=request["release"])
    answers = {}
    for job in request["jobs"]:
        try:
            answers[job["name"]] = run(job, Path(request["run"]))
        except Exception:
            answers[job["name"]] = {"failed": traceback.format_exc()[-3000:]}
    print("RESULT " + json.dumps(answers))


if __name__ == "__main__":
    main()
