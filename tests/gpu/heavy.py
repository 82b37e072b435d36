"""Make a small Qwen3 checkpoint heavy without changing what it says.

    python3 tests/gpu/heavy.py SOURCE TARGET --layers 72 --ffn 98304
    python3 tests/gpu/heavy.py SOURCE TARGET --layers 20 --ffn 1536 --experts 384

After the real layers come identity layers: everything in them is computed, and both projections back into the residual
stream are zero. Real layers get their FFN padded by rows that are read and then multiplied by zero. With experts it is
a Qwen3-MoE checkpoint, routed like K2.6's: the more tokens a forward has, the more experts it reads.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TOPK = 8
SCALE = 0.02
Weights = dict[str, Tensor]


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--layers", type=int, required=True, help="real and identity layers together")
    parser.add_argument("--ffn", type=int, required=True, help="inner size of an FFN, or of each expert")
    parser.add_argument("--experts", type=int, help="experts a layer; without: dense")
    return parser


def main() -> None:
    options = parser().parse_args()
    if (options.target / "config.json").exists():  # written last
        print(f"{options.target} is there already")
        return
    from safetensors.torch import load_file

    config = json.loads((options.source / "config.json").read_text())
    weights = load_file(options.source / "model.safetensors")
    torch.manual_seed(0)
    writer = Writer(options.target)
    writer.save("base", {name: value for name, value in weights.items() if ".layers." not in name})
    for index in range(options.layers):
        real = index < config["num_hidden_layers"]
        layer = layer_weights(weights, index if real else 0)
        ffn = {name: layer.pop(f"mlp.{name}.weight") for name in ("gate_proj", "up_proj", "down_proj")}
        if not real:
            layer["self_attn.o_proj.weight"] = torch.zeros_like(layer["self_attn.o_proj.weight"])
        widen = padded(ffn, options.ffn, real) if options.experts is None else routed(ffn, options, real)
        writer.save(
            f"layer{index:03d}",
            {f"model.layers.{index}.{name}": value for name, value in {**layer, **widen}.items()},
        )
    for path in options.source.glob("tokenizer*"):
        shutil.copy(path, options.target)
    writer.finish(heavy_config(config, options))
    print(f"{options.target}: {writer.size / 1e9:.1f} GB")


class Writer:
    """A checkpoint of one file a layer, so that no more than a layer is in memory."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self.size = folder, 0
        self._files: dict[str, str] = {}

    def save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        from safetensors.torch import save_file

        file = f"{name}.safetensors"
        save_file(
            {key: value.contiguous() for key, value in tensors.items()}, self._folder / file, {"format": "pt"}
        )
        self._files |= dict.fromkeys(tensors, file)
        self.size += sum(value.numel() * value.element_size() for value in tensors.values())

    def finish(self, config: Mapping[str, Any]) -> None:
        index = {"metadata": {"total_size": self.size}, "weight_map": self._files}
        (self._folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (self._folder / "config.json").write_text(json.dumps(config, indent=1))


def layer_weights(weights: Weights, index: int) -> Weights:
    """One layer's tensors, by their names within the layer."""
    prefix = f"model.layers.{index}."
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def noise(*shape: int, dtype: torch.dtype) -> Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"  # the same numbers are drawn 50 times faster
    return (torch.randn(shape, device=device) * SCALE).to(dtype).cpu()


def padded(ffn: Weights, size: int, real: bool) -> Weights:
    """[size, H] gate and up, [H, size] down: the real rows first, noise after them, and zeros to multiply it by."""
    rows, hidden = ffn["gate_proj"].shape
    dtype = ffn["gate_proj"].dtype
    kept = rows if real else 0
    gate, up = noise(size, hidden, dtype=dtype), noise(size, hidden, dtype=dtype)
    down = torch.zeros(hidden, size, dtype=dtype)
    gate[:kept], up[:kept], down[:, :kept] = (
        ffn["gate_proj"][:kept],
        ffn["up_proj"][:kept],
        ffn["down_proj"][:, :kept],
    )
    return {"mlp.gate_proj.weight": gate, "mlp.up_proj.weight": up, "mlp.down_proj.weight": down}


def routed(ffn: Weights, options: argparse.Namespace, real: bool) -> Weights:
    """A random router, and experts that are all the same FFN: weights of the chosen add up to one, whoever they are."""
    rows, hidden = ffn["gate_proj"].shape
    if rows > options.ffn:
        raise SystemExit(f"--ffn {options.ffn}: an expert holds the whole FFN of {rows}")
    layer = {"mlp.gate.weight": noise(options.experts, hidden, dtype=ffn["gate_proj"].dtype)}
    expert = padded(ffn, options.ffn, real)
    for number in range(options.experts):
        layer |= {
            name.replace("mlp.", f"mlp.experts.{number}."): value.clone() for name, value in expert.items()
        }
    return layer


def heavy_config(config: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    heavy = {**config, "num_hidden_layers": options.layers}
    if options.experts is None:
        return heavy | {"intermediate_size": options.ffn}
    return heavy | {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": options.experts,
        "num_experts_per_tok": TOPK,
        "moe_intermediate_size": options.ffn,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


if __name__ == "__main__":
    main()
