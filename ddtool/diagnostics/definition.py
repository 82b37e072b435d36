"""Patch definitions: `diag_patches/NAME/patch.yaml` and the code beside it, as the host's agent wants them.

A diagnostic states its hypothesis in three sentences, `hypothesis: {fired, not_fired, not_reached}`: what it means that
an event of it was seen, that none was seen although its code ran, and that its code did not run, with what to do then.
`diag run` prints one of them.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ddtool.agent.compose import patch_sha
from ddtool.data import data_folder
from ddtool.errors import UsageError

FILE = "patch.yaml"
SHARED, SHARED_CALL = "marker.py", "_ddtool_marker("


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class Edit(Strict):
    """`anchor`: one statement of the function, found by its syntax; `code` goes before or after it, or replaces it."""

    anchor: str
    place: Literal["before", "after", "replace"]
    code: str


class Target(Strict):
    """A function of a file. `append`: code for the end of the file; in patch.yaml the name of a file beside it."""

    file: str
    function: str
    releases: list[str] = Field(min_length=1)
    ast_sha256: dict[str, str]
    append: str | None = None
    edits: list[Edit] = Field(min_length=1)

    @field_validator("file")
    @classmethod
    def _relative(cls, value: str) -> str:
        if value.startswith("/") or ".." in value.split("/"):
            raise ValueError("must be relative to site-packages")
        return value

    @field_validator("ast_sha256")
    @classmethod
    def _hashes(cls, value: dict[str, str]) -> dict[str, str]:
        for release, sha in value.items():
            if len(sha) != 64 or set(sha) - set("0123456789abcdef"):
                raise ValueError(f"{release}: not a sha256")
        return value


class Hypothesis(Strict):
    """One sentence each, for a person."""

    fired: str = Field(min_length=1)
    not_fired: str = Field(min_length=1)
    not_reached: str = Field(min_length=1)


class Absent(Strict):
    """Why a release does not have what the patch edits, and the patch that answers the question there, if any."""

    why: str
    replaced_by: str | None = None


class Definition(Strict):
    """One patch. `expires`: days after which an enabled diagnostic is warned about; a fix has none.

    `events` says what each marker means. `loaded` comes at import, `reached` when the inserted code first does what it
    is for, `unproven` with either; `blind` and `unmeasured` when its own check fails; any other one is a finding.
    """

    schema_: Literal["ddtool.patch/1"] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{1,40}$")
    kind: Literal["diagnostic", "fix"]
    summary: str
    cost: str
    expires: int | None = None
    hypothesis: Hypothesis | None = None
    events: dict[str, str]
    targets: list[Target] = Field(min_length=1)
    absent: dict[str, Absent] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _diagnostics_state_a_hypothesis(self) -> Definition:
        if self.kind == "diagnostic" and self.hypothesis is None:
            raise ValueError(
                "hypothesis: {fired: …, not_fired: …, not_reached: …} is needed for kind diagnostic"
            )
        return self

    @property
    def releases(self) -> list[str]:
        """Every release that the patch was checked on."""
        return sorted({release for target in self.targets for release in target.releases})

    def to_json(self) -> dict[str, Any]:
        """For the agent: all code inside."""
        data: dict[str, Any] = self.model_dump(by_alias=True)
        return data

    @property
    def sha(self) -> str:
        """The patch's identity in ledger, markers and proofs of load."""
        return patch_sha(self.to_json())

    def code_sha(self, release: str) -> str:
        """Of what the patch does to that release. Its words may change without a new proof that it works."""
        targets = [target.model_dump() for target in self.targets if release in target.releases]
        kept = ("file", "function", "append", "edits")
        return patch_sha({"code": [{key: target[key] for key in kept} for target in targets]})


def names() -> list[str]:
    """All patches that ddtool ships."""
    return sorted(path.parent.name for path in data_folder("diag_patches").glob(f"*/{FILE}"))


def load(name: str) -> Definition:
    """A shipped patch by name. Raises UsageError with the nearest name."""
    known = names()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        raise UsageError(f"there is no diagnostic {name!r}", hint=f"{hint} (`ddtool diag list`)")
    return read(data_folder("diag_patches") / name)


def load_all() -> list[Definition]:
    return [load(name) for name in names()]


def shas(wanted: Iterable[str]) -> dict[str, str]:
    """name → identity, of those among `wanted` that ddtool ships."""
    return {name: load(name).sha for name in sorted({*wanted} & {*names()})}


def read(folder: Path) -> Definition:
    """The definition in a folder. Raises UsageError that names file and key."""
    path = folder / FILE
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        definition = Definition.model_validate(data)
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if definition.name != folder.name:
        raise UsageError(f"{path}: name is {definition.name!r}, but the folder is {folder.name!r}")
    for target in definition.targets:
        if target.append is not None:
            target.append = _code(folder / target.append)
    return definition


def _code(path: Path) -> str:
    """The code to append; with what all diagnostics share before it, when it calls that."""
    try:
        code = path.read_text(encoding="utf-8")
        if SHARED_CALL in code:
            shared = path.parent.parent / SHARED
            code = shared.read_text(encoding="utf-8") + "\n\n" + code
        return code
    except FileNotFoundError as error:
        raise UsageError(f"{error.filename} is missing") from None
