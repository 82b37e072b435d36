"""Accept length with and without the chain seed, simulated: no server, no kernels, the engine's own trees.

    python3 benchmarks/chain_seed.py --pair DIR --draft draft [--temperature 1]

The target's text of every prompt is made first (greedy, or sampled); then rounds walk along it as a server would: from
each known token a draft, a tree, the longest path that is the text. In float32, with torch and tokenizers only.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from ddtool.engine.core.trees import TreeBuilder, Trees

TOPK = 8


class Layers:
    """A Qwen3 stack from a checkpoint in SGLang's layout; keys and values are the caller's."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        weights = load_file(folder / "model.safetensors")
        self.weights = {name.removeprefix(prefix): value.float() for name, value in weights.items()}
        self.heads, self.dim = self.config["num_attention_heads"], self.config["head_dim"]
        self.kv_heads, self.depth = self.config["num_key_value_heads"], self.config["num_hidden_layers"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"])
        return x * scale * self.weights[f"{name}.weight"]

    def rope(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [n, heads, dim]."""
        inverse = self.config["rope_theta"] ** (-torch.arange(0, self.dim, 2).double() / self.dim)
        angle = (positions[:, None].double() * inverse).float()
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def keys(self, x: Tensor, layer: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        name = f"layers.{layer}.self_attn"
        k = linear(x, self.weights[f"{name}.k_proj.weight"]).unflatten(-1, (self.kv_heads, self.dim))
        v = linear(x, self.weights[f"{name}.v_proj.weight"]).unflatten(-1, (self.kv_heads, self.dim))
        return self.rope(self.norm(k, f"{name}.k_norm"), positions), v

    def layer(
        self, x: Tensor, layer: int, positions: Tensor, before: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """before: keys and values of what is seen besides x; mask: [n, seen + n] or None for all."""
        name = f"layers.{layer}"
        h = self.norm(x, f"{name}.input_layernorm")
        q = linear(h, self.weights[f"{name}.self_attn.q_proj.weight"]).unflatten(-1, (self.heads, self.dim))
        q = self.rope(self.norm(q, f"{name}.self_attn.q_norm"), positions)
        k, v = self.keys(h, layer, positions)
        k, v = torch.cat([before[0], k]), torch.cat([before[1], v])
        repeat = self.heads // self.kv_heads
        out = scaled_dot_product_attention(
            q.transpose(0, 1),
            k.transpose(0, 1).repeat_interleave(repeat, 0),
            v.transpose(0, 1).repeat_interleave(repeat, 0),
            attn_mask=mask,
        )
        x = x + linear(out.transpose(0, 1).flatten(1), self.weights[f"{name}.self_attn.o_proj.weight"])
        h = self.norm(x, f"{name}.post_attention_layernorm")
        gate = silu(linear(h, self.weights[f"{name}.mlp.gate_proj.weight"]))
        up = linear(h, self.weights[f"{name}.mlp.up_proj.weight"])
        return x + linear(gate * up, self.weights[f"{name}.mlp.down_proj.weight"]), (k, v)


def text(
    target: Layers, taps: list[int], prompt: list[int], tokens: int, temperature: float, seed: int
) -> tuple[list[int], Tensor]:
    """Token ids, prompt included, and the tapped hidden states of all but the last."""
    generator = torch.Generator().manual_seed(seed)
    empty = torch.empty(0, target.kv_heads, target.dim)
    cache = [(empty, empty) for _ in range(target.depth)]
    ids, tapped, new = list(prompt), [], list(prompt)
    for _ in range(tokens):
        start = len(ids) - len(new)
        positions = torch.arange(start, len(ids))
        x = target.weights["embed_tokens.weight"][torch.tensor(new)]
        mask = positions[:, None] >= torch.arange(len(ids))
        states = []
        for layer in range(target.depth):
            x, cache[layer] = target.layer(x, layer, positions, cache[layer], mask)
            states.append(x)
        tapped.append(torch.cat([states[tap] for tap in taps], -1))
        logits = linear(target.norm(x[-1:], "norm"), target.weights["lm_head.weight"])[0]
        if temperature:
            token = int(torch.multinomial(torch.softmax(logits / temperature, -1), 1, generator=generator))
        else:
            token = int(logits.argmax())
        new = [token]
        ids.append(token)
    return ids, torch.cat(tapped)


def drafts(
    drafter: Layers, target: Layers, ids: list[int], tapped: Tensor, first: int
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids [positions, L, K] of a draft from every known token from `first` on."""
    block, mask_id = drafter.config["block_size"], drafter.config["dflash_config"]["mask_token_id"]
    context = drafter.norm(linear(tapped, drafter.weights["fc.weight"]), "hidden_norm")
    everywhere = torch.arange(len(tapped))
    cache = [drafter.keys(context, layer, everywhere) for layer in range(drafter.depth)]
    values, tokens = [], []
    for root in range(first, len(ids)):
        x = target.weights["embed_tokens.weight"][torch.tensor([ids[root]] + [mask_id] * (block - 1))]
        positions = torch.arange(root, root + block)
        for layer, (k, v) in enumerate(cache):
            x, _ = drafter.layer(x, layer, positions, (k[:root], v[:root]), None)
        logits = linear(drafter.norm(x[1:], "norm"), target.weights["lm_head.weight"])
        best = logits.log_softmax(-1).topk(TOPK)
        values.append(best.values)
        tokens.append(best.indices)
    return torch.stack(values), torch.stack(tokens)


def tree_accepts(trees: Trees, truth: list[int]) -> int:
    """Depth of the path that is `truth`, in one tree."""
    parents, tokens = trees.parents[0].tolist(), trees.tokens[0].tolist()
    children = {pair: row for row, pair in enumerate(zip(parents, tokens, strict=True))}
    row = depth = 0
    while depth < len(truth) and (row, truth[depth]) in children:
        row, depth = children[row, truth[depth]], depth + 1
    return depth


def chain_accepts(first_choices: list[int], truth: list[int]) -> int:
    pairs = zip(first_choices, truth, strict=False)
    return next((depth for depth, (one, other) in enumerate(pairs) if one != other), len(truth))


def rounds(ids: list[int], start: int, logprobs: Tensor, choices: Tensor, builder: TreeBuilder | None) -> int:
    """Rounds until the text is over, from its first token on. builder: None for the chain."""
    root, count, length = start, 0, logprobs.shape[1]
    while root < len(ids) - 1:
        at, truth = slice(root - start, root - start + 1), ids[root + 1 : root + 1 + length]
        if builder is None:
            taken = chain_accepts(choices[at][0, :, 0].tolist(), truth)
        else:
            taken = tree_accepts(builder(logprobs[at], choices[at], torch.tensor([ids[root]])), truth)
        root, count = root + taken + 1, count + 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", type=Path, required=True, help="folder with target/ and drafters")
    parser.add_argument("--draft", default="draft")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--budgets", type=int, nargs="+", default=[8, 16, 31, 32, 63])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--prompts", type=Path, default=Path(__file__).parents[1] / "tests/gpu/prompts.json")
    options = parser.parse_args()
    torch.set_grad_enabled(False)
    target = Layers(options.pair / "target", "model.")
    drafter = Layers(options.pair / options.draft, "model.")
    tokenizer = Tokenizer.from_file(str(options.pair / "target" / "tokenizer.json"))
    taps, length = drafter.config["dflash_config"]["target_layer_ids"], drafter.config["block_size"] - 1
    arms: dict[str, TreeBuilder | None] = {"chain": None}
    for budget in options.budgets:
        for seed in (False, True):
            name = f"{budget}{'+seed' if seed else ''}"
            arms[name] = TreeBuilder(length, TOPK, budget, seed)
    tokens, taken = 0, dict.fromkeys(arms, 0)
    for number, prompt in enumerate(json.loads(options.prompts.read_text())):
        start = tokenizer.encode(prompt).ids
        ids, tapped = text(target, taps, start, options.tokens, options.temperature, number)
        logprobs, choices = drafts(drafter, target, ids[:-1], tapped, len(start))
        tokens += options.tokens  # prefill's among them, as SGLang counts
        for name, builder in arms.items():
            taken[name] += rounds(ids, len(start), logprobs, choices, builder)
        print(number, {name: round(tokens / count, 3) for name, count in taken.items()}, flush=True)


if __name__ == "__main__":
    main()
