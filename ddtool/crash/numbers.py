"""What the numbers in an error are: the widths of this profile's graphs, its context, the sizes of its two models."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddtool.profile import Profile

# Order of the pairs that SGLang 0.5.11 and 0.5.12 hand to `_grouped_foreach_copy_`; those behind `positions` are
# there only in some configurations, in this order.
GRAPH_FIELDS = ("input_ids", "req_pool_indices", "seq_lens", "out_cache_loc", "positions")
OPTIONAL_GRAPH_FIELDS = (
    "mamba_track_indices",
    "mamba_track_mask",
    "encoder_lens",
    "mrope_positions",
    "num_token_non_padded",
    "pp_proxy_tensors",
    "out_cache_loc_swa",
)

_ARGS = re.compile(r"server_args=ServerArgs\(|Namespace\(")
_ARG = re.compile(r"\b(context_length|speculative_num_draft_tokens|speculative_dflash_block_size)=(\d+)")
_EDGE = 64


@dataclass(frozen=True)
class Numbers:
    """Sizes known of a deployment; None where nobody said."""

    block: int | None = None
    budget: int | None = None
    draft_tokens: int | None = None  # what the server was told, whatever the algorithm makes of it
    context: int | None = None
    hidden: int | None = None
    draft_hidden: int | None = None
    vocab: int | None = None
    draft_vocab: int | None = None
    taps: int | None = None

    def over(self, weaker: Numbers) -> Numbers:
        """These, and where they know nothing those of `weaker`."""
        known = {item.name: getattr(self, item.name) for item in fields(self)}
        return replace(weaker, **{name: value for name, value in known.items() if value is not None})

    def meaning(self, value: int) -> str | None:
        """What `value` is here, None when it is nothing known. The more special meaning first."""
        width = self.budget + 1 if self.budget else None
        known: list[tuple[int | None, str]] = [
            (width, f"the tree's verify width (budget {self.budget} + 1)"),
            (self.block, "the block size, the width of a draft worker"),
            (self.draft_tokens, "speculative_num_draft_tokens"),
            (self.budget, "the budget without the root"),
            (
                self.hidden * self.taps if self.hidden and self.taps else None,
                f"hidden size × {self.taps} tapped layers",
            ),
            (self.vocab, "the target's vocabulary"),
            (self.draft_vocab, "the draft's vocabulary"),
            (self.hidden, "the target's hidden size"),
            (self.draft_hidden, "the draft's hidden size"),
            (self.context, "the context length"),
        ]
        for number, words in known:
            if number == value:
                return words
        return self._composed(value, width)

    def _composed(self, value: int, width: int | None) -> str | None:
        if self.context and 0 < abs(value - self.context) <= _EDGE:
            return f"the context length {'+' if value > self.context else '−'} {abs(value - self.context)}"
        if self.hidden and value > self.hidden and value % self.hidden == 0 and value // self.hidden <= 16:
            return f"hidden size × {value // self.hidden}"
        for size, words in ((width, "the tree's verify width"), (self.block, "the block size")):
            if size and value > size and value % size == 0 and value // size <= 512:
                return f"{value // size} requests of {words} {size}"
        return None

    def explained(self, values: Iterable[int]) -> str:
        """One sentence on those that mean something, "" when none does."""
        said = {value: words for value in values if (words := self.meaning(value))}
        return "; ".join(f"{value} is {words}" for value, words in said.items()) + "." if said else ""


def of_profile(profile: Profile) -> Numbers:
    target, draft = profile.model.shape, profile.drafter.shape if profile.drafter else None
    spec = profile.speculative
    context = profile.flag("context-length")
    return Numbers(
        block=spec.block_size,
        budget=spec.budget,
        context=int(context) if context else target.max_context if target else None,
        hidden=target.hidden if target else None,
        vocab=target.vocab if target else None,
        draft_hidden=draft.hidden if draft else None,
        draft_vocab=draft.vocab if draft else None,
        taps=len(draft.target_layer_ids) if draft and draft.target_layer_ids else None,
    )


def of_log(texts: Iterable[str]) -> Numbers:
    """What the server printed about its own arguments."""
    for text in texts:
        if _ARGS.search(text):
            said = {name: int(value) for name, value in _ARG.findall(text)}
            return Numbers(
                block=said.get("speculative_dflash_block_size"),
                draft_tokens=said.get("speculative_num_draft_tokens"),
                context=said.get("context_length"),
            )
    return Numbers()


def graph_field(index: int) -> str:
    """The field of entry `index` of the graph copy, as far as the index alone decides it (0.5.11, 0.5.12)."""
    if 0 <= index < len(GRAPH_FIELDS):
        return GRAPH_FIELDS[index]
    return (
        f"one of the optional fields ({', '.join(OPTIONAL_GRAPH_FIELDS)}), which depend on the configuration"
    )
