"""What the estimates need to know of a model, from the profile or from the checkpoint's own config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Dtype = Literal["bfloat16", "float16", "float32"]
BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, arbitrary_types_allowed=True)


class ModelShape(Section):
    """Sizes of one checkpoint. `heads` and `kv_heads` are of the whole model, before tensor parallelism."""

    attention: Literal["mla", "gqa"]
    layers: int = Field(gt=0)
    hidden: int = Field(gt=0)
    heads: int = Field(gt=0)
    kv_heads: int = Field(gt=0)
    head_dim: int = Field(gt=0)
    vocab: int = Field(gt=0)
    dtype: Dtype = "bfloat16"
    max_context: int | None = Field(default=None, gt=0)
    weights_gib: float | None = Field(default=None, gt=0)
    # MLA only: the cached latent, which is the value of absorbed attention, and the rotary part beside it.
    kv_lora_rank: int | None = Field(default=None, gt=0)
    rope_dim: int | None = Field(default=None, gt=0)
    # Drafter only: what makes it the drafter of one target.
    block_size: int | None = Field(default=None, gt=1)
    mask_token_id: int | None = Field(default=None, ge=0)
    target_layer_ids: list[int] | None = None

    @property
    def value_dim(self) -> int:
        """Last dimension of the cached values, which the triton backend's split buffers copy."""
        return self.kv_lora_rank or self.head_dim if self.attention == "mla" else self.head_dim

    def kv_bytes_per_token(self, tp: int, element: int) -> int:
        """Bytes one token takes in one rank's KV cache. MLA's latent is kept whole on every rank."""
        if self.attention == "mla":
            return ((self.kv_lora_rank or self.head_dim) + (self.rope_dim or 0)) * self.layers * element
        return 2 * max(1, self.kv_heads // tp) * self.head_dim * self.layers * element


def shape_from_config(config: Mapping[str, Any], weights_gib: float | None = None) -> ModelShape:
    """A checkpoint's config.json as a ModelShape. KeyError names a field that the file lacks.

    Multimodal checkpoints (Kimi K2.5 and later) keep the language model's sizes under `text_config`.
    """
    text: Mapping[str, Any] = config.get("text_config") or config
    flash: Mapping[str, Any] = config.get("dflash_config") or {}
    heads = text["num_attention_heads"]
    mla = text.get("kv_lora_rank") is not None
    dtype = text.get("dtype") or text.get("torch_dtype") or config.get("torch_dtype")
    return ModelShape(
        attention="mla" if mla else "gqa",
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text["v_head_dim"] if mla else text.get("head_dim") or text["hidden_size"] // heads,
        vocab=text["vocab_size"],
        dtype=dtype if dtype in BYTES else "bfloat16",
        max_context=text.get("max_position_embeddings"),
        weights_gib=weights_gib,
        kv_lora_rank=text.get("kv_lora_rank"),
        rope_dim=text.get("qk_rope_head_dim"),
        block_size=config.get("block_size") or flash.get("block_size"),
        mask_token_id=flash.get("mask_token_id"),
        target_layer_ids=flash.get("target_layer_ids"),
    )
