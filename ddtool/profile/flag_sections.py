"""SGLang's flags of a hand-made unit, sorted into a profile's sections. Pure."""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddtool.profile.flag_owners import FOREIGN_FLAGS
from ddtool.profile.flag_words import typed
from ddtool.profile.memory import GIB
from ddtool.profile.schema import Deadlines
from ddtool.profile.shell_text import UNRESOLVED

DFLASH = ("DFLASH", "DDTREE")
WIDTHS = ("speculative-num-draft-tokens", "speculative-dflash-block-size")
TREE = {
    "budget": ("speculative-ddtree-budget",),
    "topk": ("speculative-ddtree-topk", "speculative-eagle-topk"),
}
TP = ("tp-size", "tp", "tensor-parallel-size")
NUMBERS = {
    "port",
    *TP,
    *WIDTHS,
    "cuda-graph-bs",
    "cuda-graph-max-bs",
    *(name for names in TREE.values() for name in names),
}
LOADED_GIB_S = 0.25  # a slow disk: a deadline should only end what hangs
SWITCHED_OFF = {"nnodes": "1", "node-rank": "0"}


@dataclass
class Sections:
    """`flags`: flag → words. `read()` fills the rest; `carried`: (key, flag), `left`: (what, why)."""

    flags: dict[str, list[str]]
    found: Mapping[str, Any]
    engine: Mapping[str, Any]
    cwd: str | None
    service: dict[str, Any] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    carried: list[tuple[str, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def read(self) -> None:
        self.flags = {name: words for name, words in self.flags.items() if self.readable(name, words)}
        self.network()
        self.models()
        self.others["parallel"] = {"tp": self.number("parallel.tp", 1, *TP)}
        speculative = self.speculative()
        if speculative:
            self.others["speculative"] = speculative
        self.graphs()
        self.backend()
        self.rest()

    def take(self, key: str, *names: str) -> str | None:
        """The first word of a flag under any of its names, which then counts as carried to `key`."""
        value = None
        for name in names:
            words = self.flags.pop(name, None)
            if words:
                value = words[0]
                self.carried.append((key, f"--{name}"))
        return value

    def number(self, key: str, default: int, *names: str) -> int:
        given = self.take(key, *names)
        return int(given) if given else default

    def readable(self, name: str, words: list[str]) -> bool:
        """Whether a flag's value can be told; else it is left behind, with the reason."""
        if any(UNRESOLVED in word for word in words):
            self.left.append((f"--{name}", "a shell computes its value: set it under server_args"))
            return False
        if name in NUMBERS and not (words and all(re.fullmatch(r"[0-9]{1,9}", word) for word in words)):
            self.left.append((" ".join([f"--{name}", *words]), "not a number"))
            return False
        return True

    def network(self) -> None:
        self.service["port"] = self.number("service.port", 30000, "port")
        self.service["bind"] = self.take("service.bind", "host") or "127.0.0.1"
        key = self.take("service.api_key", "api-key")
        if key:
            self.service["api_key"] = key

    def models(self) -> None:
        given = self.take("model.path", "model-path", "model") or ""
        served = self.take("model.served_name", "served-model-name")
        self.others["model"] = {"path": self.on_disk(given), "served_name": served or given}
        if served is None:
            self.carried.append(("model.served_name", "SGLang's default: the path as it was given"))
        gib = self.about(given).get("bytes", 0) / GIB
        if gib / LOADED_GIB_S > Deadlines().start_s:
            self.service["deadlines"] = {"start_s": int(gib / LOADED_GIB_S)}
            self.remarks.append(
                f"service.deadlines.start_s is a guess from {gib:.0f} GiB of weights at {LOADED_GIB_S} GiB/s"
            )

    def about(self, path: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.engine["models"].get(path, {})
        return found

    def on_disk(self, path: str) -> str:
        """Absolute, as a deploy looks for it; a name from a model hub stays and is remarked on."""
        about = self.about(path)
        if path.startswith("/"):
            return path
        if about.get("exists"):
            return str(about["path"])
        self.remarks.append(
            f"{path or 'the model'} is no folder on the host: SGLang fetched it from a model hub. A deploy wants the "
            "folder, as in ~/.cache/huggingface/hub/models--ORG--NAME/snapshots/…"
        )
        return path

    def speculative(self) -> dict[str, Any] | None:
        words = self.flags.pop("speculative-algorithm", None)
        if not words or words[0].upper() == "NONE":
            self.drop_speculation("it does nothing without an algorithm")
            return None
        algorithm = words[0].upper()
        if algorithm not in DFLASH:
            self.without_speculation(words[0])
            return None
        self.carried.append(("speculative.algorithm", "--speculative-algorithm"))
        draft = self.take("drafter.path", "speculative-draft-model-path", "speculative-draft-model") or ""
        config = self.about(draft).get("config") or {}
        if draft:
            self.others["drafter"] = {"path": self.on_disk(draft)}
        if "speculative-draft-attention-backend" not in self.flags:
            self.remarks.append(
                "ddtool gives the drafter the target's attention backend, where the unit gives it none"
            )
        return {
            "algorithm": algorithm,
            **(self.chain(config) if algorithm == "DFLASH" else self.tree(config)),
        }

    def without_speculation(self, algorithm: str) -> None:
        """Another algorithm than a profile has: all of its flags go with it."""
        why = f"a profile knows NONE, DFLASH and DDTREE; without {algorithm} the service answers the same, slower"
        self.left.append((f"--speculative-algorithm {algorithm}", why))
        self.drop_speculation(f"it belongs to {algorithm}")

    def absolute(self, word: str) -> str:
        """ddtool's service runs in another folder, so a path that begins with a dot is written out."""
        return os.path.normpath(f"{self.cwd}/{word}") if self.cwd and word.startswith(("./", "../")) else word

    def drop_speculation(self, why: str) -> None:
        for name in [name for name in self.flags if name.startswith("speculative-")]:
            self.left.append((" ".join([f"--{name}", *self.flags.pop(name)]), why))

    def chain(self, config: Mapping[str, Any]) -> dict[str, Any]:
        given = self.take("speculative.block_size", *WIDTHS)
        block = given or config.get("block_size")
        if not given and block:
            self.carried.append(("speculative.block_size", "the drafter's config.json"))
        return {"block_size": int(block)} if block else {}

    def tree(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """A fork's own tree: its widths stay its flags, under server_args; these keys say what to expect."""
        result: dict[str, Any] = {}
        block = self.flags[WIDTHS[1]][0] if self.flags.get(WIDTHS[1]) else config.get("block_size")
        if block:
            result["block_size"] = int(block)
        for key, names in TREE.items():
            given = next((self.flags[name][0] for name in names if self.flags.get(name)), None)
            if given:
                result[key] = int(given)
        tokens = self.flags.get(WIDTHS[0])
        if "budget" not in result and tokens:
            result["budget"] = int(tokens[0]) - 1
        missing = {"block_size", "budget", "topk"} - result.keys()
        if missing:
            self.remarks.append(f"the unit does not say {', '.join(sorted(missing))} of its tree: set them")
        return result

    def graphs(self) -> None:
        graphs: dict[str, Any] = {}
        if self.flags.pop("disable-cuda-graph", None) is not None:
            graphs["enabled"] = False
            self.carried.append(("graphs.enabled", "--disable-cuda-graph"))
        sizes, largest = self.flags.pop("cuda-graph-bs", None), self.flags.pop("cuda-graph-max-bs", None)
        if sizes:
            graphs["bs"] = [int(size) for size in sizes]
            self.carried.append(("graphs.bs", "--cuda-graph-bs"))
        if largest and sizes:
            self.left.append(
                (f"--cuda-graph-max-bs {largest[0]}", "SGLang takes the largest of --cuda-graph-bs")
            )
        elif largest:
            graphs["max_bs"] = int(largest[0])
            self.carried.append(("graphs.max_bs", "--cuda-graph-max-bs"))
        if graphs:
            self.others["graphs"] = graphs

    def backend(self) -> None:
        """Required in a profile, where SGLang would choose: then the running server says what it chose."""
        given = self.take("attention_backend", "attention-backend")
        halves = {(self.flags.get(f"{half}-attention-backend") or [""])[0] for half in ("prefill", "decode")}
        if given is None and len(halves) == 1 and "" not in halves:
            given = halves.pop()
            for half in ("prefill", "decode"):
                self.take("attention_backend", f"{half}-attention-backend")
        chosen = self.found["server"].get("attention_backend")
        if given is None and chosen:
            given = str(chosen)
            self.carried.append(("attention_backend", "what the running server chose"))
        if given is None:
            self.remarks.append(
                "attention_backend: the unit leaves the choice to SGLang, and the server does not run to say what it "
                "chose; its log does, and a profile needs it"
            )
            return
        self.others["attention_backend"] = given

    def rest(self) -> None:
        draft = self.flags.get("speculative-draft-attention-backend")
        if draft and draft[0] == self.others.get("attention_backend"):
            self.take("attention_backend", "speculative-draft-attention-backend")
        for name, why in FOREIGN_FLAGS.items():
            words = self.flags.pop(name, None)
            if words is not None and words[:1] != [SWITCHED_OFF.get(name)]:
                self.left.append((" ".join([f"--{name}", *words]), why))
            elif words is not None:
                self.left.append((f"--{name} {words[0]}", "it is the default"))
        if self.flags:
            self.others["server_args"] = {
                name: typed(name, [self.absolute(word) for word in words])
                for name, words in sorted(self.flags.items())
            }
        self.carried += [(f"server_args.{name}", f"--{name}") for name in sorted(self.flags)]
