"""What a profile may say. Structure only; whether a profile can work is `validate`'s question.

Every section forbids unknown keys and converts nothing: `port: "30000"` is an error, not a port. Every key is
explained in docs/profiles.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from ddtool.profile.flag_owners import FOREIGN_FLAGS, OWNED_FLAGS, WIDTH_FLAGS
from ddtool.profile.secrets import SecretText, lookup, names_a_secret
from ddtool.profile.shapes import ModelShape, Section, shape_from_config
from ddtool.profile.values import AbsolutePath, EnvName, EnvValue, FlagName, FlagValue, Plain, Text

LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Deadlines(Section):
    """Seconds. They are the gate's: systemd bounds nothing for a program that starts and is never ready."""

    start_s: int = Field(default=600, gt=0)  # from start to answering requests
    stop_s: int = Field(default=60, gt=0)  # from SIGTERM to SIGKILL
    request_s: int = Field(default=120, gt=0)  # one completion


class Service(Section):
    unit: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=128)]
    port: int = Field(gt=0, lt=65536)
    bind: Plain = "127.0.0.1"
    api_key: Text | None = None
    deadlines: Deadlines = Deadlines()

    @field_validator("unit")
    @classmethod
    def _bare_name(cls, unit: str) -> str:
        if unit.endswith((".service", ".scope", ".slice")):
            raise ValueError("the unit's name without its suffix")
        return unit

    @field_validator("api_key")
    @classmethod
    def _by_reference(cls, key: str | SecretText | None) -> str | SecretText | None:
        if isinstance(key, str):
            raise ValueError("secrets are written as ${env:NAME}, never in the profile itself")
        return key


class Engine(Section):
    """With `managed`, `venv` is the name of the environment in force, and `python` is what makes environments."""

    venv: AbsolutePath
    python: AbsolutePath | None = None  # default: VENV/bin/python; managed: /usr/bin/python3
    provider: Literal["plugin", "builtin"]
    install: Literal["existing", "managed"] = "existing"
    wheelhouse: Plain | None = None
    index: Plain | None = None
    requirements: Plain | None = None
    release: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+]*$")]

    @property
    def interpreter(self) -> str:
        """What runs SGLang."""
        own = self.python if self.install == "existing" else None
        return own or f"{self.venv}/bin/python"

    @property
    def maker(self) -> str:
        """What makes the environment, with `managed`."""
        return self.python or "/usr/bin/python3"

    @field_validator("index")
    @classmethod
    def _index_without_login(cls, index: str | None) -> str | None:
        if index is not None and index != "default" and not index.startswith(("https://", "http://")):
            raise ValueError("a URL, or `default`: the index that the host's own pip is configured with")
        if index is not None and "@" in index.partition("://")[2].partition("/")[0]:
            raise ValueError("put the login into the host's pip.conf or .netrc, and write `default`")
        return index

    @model_validator(mode="after")
    def _managed_has_one_source(self) -> Engine:
        if self.install == "managed" and (self.wheelhouse is None) == (self.index is None):
            raise ValueError("install: managed needs a wheelhouse or an index, and not both")
        if self.install == "managed" and self.index and not self.requirements:
            raise ValueError(
                "an index needs requirements: a file with a version and a sha256 of each package"
            )
        return self


class Model(Section):
    path: Plain
    served_name: Plain | None = None
    shape: ModelShape | None = None

    @property
    def name(self) -> str:
        return self.served_name or self.path.rstrip("/").rsplit("/", 1)[-1]


class Drafter(Section):
    path: Plain
    shape: ModelShape | None = None


class Card(Section):
    """The GPU that estimates assume until the host's facts say better."""

    name: Plain
    memory_gib: float = Field(gt=0)
    sms: int = Field(gt=0)


class Parallel(Section):
    tp: int = Field(default=1, gt=0)
    card: Card | None = None


class Speculative(Section):
    """`block_size` includes the known token: the drafter guesses one less. `budget` leaves out the root."""

    algorithm: Literal["NONE", "DFLASH", "DDTREE"] = "NONE"
    block_size: int | None = Field(default=None, gt=1)
    budget: int | None = Field(default=None, gt=0)
    topk: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _complete(self) -> Speculative:
        if self.algorithm != "NONE" and self.block_size is None:
            raise ValueError(f"{self.algorithm} needs block_size (the drafter's config.json has it)")
        if self.algorithm == "DDTREE" and (self.budget is None or self.topk is None):
            raise ValueError("DDTREE needs budget and topk")
        if self.algorithm == "DFLASH" and (self.budget is not None or self.topk is not None):
            raise ValueError("DFLASH verifies a chain and has no budget or topk: set both to null")
        return self


class Graphs(Section):
    enabled: bool = True
    max_bs: int | None = Field(default=None, gt=0)
    bs: list[Annotated[int, Field(gt=0)]] | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _one_way(self) -> Graphs:
        if self.max_bs is not None and self.bs is not None:
            raise ValueError("give max_bs or bs: SGLang takes the maximum of bs")
        return self


class Health(Section):
    """The gate after a start: real completions, one after another and side by side."""

    prompts: list[Annotated[str, Field(min_length=1)]] = Field(
        default=["Write a Python function that merges two sorted lists."], min_length=1
    )
    max_tokens: int = Field(default=64, gt=0)
    serial: int = Field(default=3, gt=0)
    concurrent: int = Field(default=4, ge=0)
    accept_length_floor: float | None = Field(default=None, ge=1)
    deadline_s: int = Field(default=300, gt=0)


class Objective(Section):
    tok_s: float = Field(gt=0)
    concurrency: int = Field(gt=0)


def _wrong(message: str, *loc: str) -> PydanticCustomError:
    """A complaint about the key at `loc`, below the value that a validator sees."""
    return PydanticCustomError("profile", "{message}", {"message": message, "loc": loc})


class Profile(Section):
    """One service in full, apart from its host. Made by `ddtool.profile.load`; immutable."""

    name: str
    source: str  # the file it was read from
    description: Plain | None = None
    service: Service
    engine: Engine
    model: Model
    drafter: Drafter | None = None
    parallel: Parallel = Parallel()
    speculative: Speculative = Speculative()
    graphs: Graphs = Graphs()
    attention_backend: Plain
    server_args: dict[FlagName, FlagValue] = Field(default_factory=dict)
    env: dict[EnvName, EnvValue] = Field(default_factory=dict)
    health: Health = Health()
    objective: Objective | None = None

    @field_validator("server_args", "env")
    @classmethod
    def _no_literal_secret(cls, values: dict[str, Any]) -> dict[str, Any]:
        for key, value in values.items():
            if names_a_secret(key) and not isinstance(value, SecretText):
                raise _wrong("this looks like a secret: write it as ${env:NAME}", key)
        return values

    @model_validator(mode="after")
    def _drafter_for_speculation(self) -> Profile:
        if self.speculative.algorithm != "NONE" and self.drafter is None:
            raise _wrong(f"{self.speculative.algorithm} needs a drafter section", "speculative", "algorithm")
        return self

    @model_validator(mode="after")
    def _each_flag_once(self) -> Profile:
        owned = OWNED_FLAGS if self.fork_flags else {**OWNED_FLAGS, **WIDTH_FLAGS}
        for flag in self.server_args:
            if flag in owned:
                raise _wrong(f"set {owned[flag]} instead", "server_args", flag)
            if flag in FOREIGN_FLAGS:
                raise _wrong(FOREIGN_FLAGS[flag], "server_args", flag)
        return self

    @property
    def fork_flags(self) -> bool:
        """Whether the widths are the business of a fork's own flags, which stand in server_args."""
        return self.engine.provider == "builtin" and self.speculative.algorithm == "DDTREE"

    def flag(self, name: str, default: Any = None) -> Any:
        """The value of an SGLang flag in `server_args`, in its spelling with dashes."""
        return self.server_args.get(name, default)

    @property
    def context_length(self) -> int | None:
        """Longest context of a request, in tokens; None when neither profile nor model says."""
        given = self.flag("context-length")
        if isinstance(given, int):
            return given
        return self.model.shape.max_context if self.model.shape else None

    @property
    def secret_texts(self) -> list[SecretText]:
        values = [self.service.api_key, *self.server_args.values(), *self.env.values()]
        return [value for value in values if isinstance(value, SecretText)]

    def with_model_config(
        self,
        target: Mapping[str, Any],
        draft: Mapping[str, Any] | None = None,
        *,
        target_gib: float | None = None,
        draft_gib: float | None = None,
    ) -> Profile:
        """This profile with shapes from the checkpoints' config.json, and their measured sizes in GiB.

        Without a measured size the profile's own is kept. KeyError names a field that a config.json lacks.
        """
        model = self.model.model_copy(update={"shape": _shape(target, self.model.shape, target_gib)})
        drafter = self.drafter
        if drafter is not None and draft is not None:
            drafter = drafter.model_copy(update={"shape": _shape(draft, drafter.shape, draft_gib)})
        return self.model_copy(update={"model": model, "drafter": drafter})

    def with_environment(self, path: str) -> Profile:
        """This profile with the environment that its pinned packages go into, in place of its name."""
        return self.model_copy(update={"engine": self.engine.model_copy(update={"venv": path})})

    def with_card(self, card: Card) -> Profile:
        """This profile with the host's own card instead of the assumed one."""
        return self.model_copy(update={"parallel": self.parallel.model_copy(update={"card": card})})


def _shape(config: Mapping[str, Any], known: ModelShape | None, gib: float | None) -> ModelShape:
    return shape_from_config(config, gib or (known.weights_gib if known else None))


def resolve_secrets(profile: Profile, environ: Mapping[str, str]) -> dict[str, str]:
    """Every `${env:NAME}` of the profile with its value: called to apply a deploy, never to plan or show one.

    Raises ProfileError naming a variable that is missing or too short to be redacted.
    """
    names = sorted({name for text in profile.secret_texts for name in text.names})
    return lookup(names, environ)
