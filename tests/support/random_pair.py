"""Runs inside a sandbox, on the engine's Python: `random_pair.py DIR` writes DIR/target and DIR/draft.

A random Qwen3 and a random DFlash drafter that eight ranks can share out, with the demo's tokenizer: shapes, no skill.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCAB, HIDDEN, LAYERS, HEADS, HEAD_DIM, FFN, BLOCK, TAPS = 1024, 128, 3, 8, 32, 256, 8, [0, 1]
DEMO = Path("/opt/sglang/models/code-1m/target")
generator = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=generator) * 0.1


def layers(prefix, count):
    found = {}
    for index in range(count):
        name = f"{prefix}layers.{index}."
        for part in "qkv":
            found[f"{name}self_attn.{part}_proj.weight"] = normal(HEADS * HEAD_DIM, HIDDEN)
        found |= {
            f"{name}self_attn.o_proj.weight": normal(HIDDEN, HEADS * HEAD_DIM),
            f"{name}self_attn.q_norm.weight": torch.ones(HEAD_DIM),
            f"{name}self_attn.k_norm.weight": torch.ones(HEAD_DIM),
            f"{name}mlp.gate_proj.weight": normal(FFN, HIDDEN),
            f"{name}mlp.up_proj.weight": normal(FFN, HIDDEN),
            f"{name}mlp.down_proj.weight": normal(HIDDEN, FFN),
            f"{name}input_layernorm.weight": torch.ones(HIDDEN),
            f"{name}post_attention_layernorm.weight": torch.ones(HIDDEN),
        }
    return found


def write(folder, config, weights):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    for path in DEMO.glob("tokenizer*"):
        shutil.copy(path, folder)
    (folder / "config.json").write_text(json.dumps(config))


def main():
    root = Path(sys.argv[1])
    config = json.loads((DEMO / "config.json").read_text())
    config |= {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "head_dim": HEAD_DIM,
        "intermediate_size": FFN,
    }
    target = {name: normal(VOCAB, HIDDEN) for name in ("model.embed_tokens.weight", "lm_head.weight")}
    target |= {"model.norm.weight": torch.ones(HIDDEN), **layers("model.", LAYERS)}
    write(root / "target", config, target)
    draft = {"fc.weight": normal(HIDDEN, len(TAPS) * HIDDEN), **layers("", 1)}
    draft |= {"hidden_norm.weight": torch.ones(HIDDEN), "norm.weight": torch.ones(HIDDEN)}
    own = {"architectures": ["DFlashDraftModel"], "num_hidden_layers": 1, "block_size": BLOCK}
    own |= {
        "num_target_layers": LAYERS,
        "dflash_config": {"target_layer_ids": TAPS, "mask_token_id": VOCAB - 1},
    }
    write(root / "draft", config | own, draft)


main()
