"""A plugin that runs inside a DDTREE server under test: breaks one thing at a time, and writes a round's logits.

It is loaded beside the engine and switched at run time by files in /run/ddtree: `touch /run/ddtree/causal-mask`.
"""

import functools
import json
import os

FOLDER = "/run/ddtree"
MUTATIONS = ("causal-mask", "sequential-positions", "swapped-path", "wrong-slot-freed")
SAMPLED_ONLY = ("cooler", "drafters-choice", "one-number")  # greedy answers stay right
COOLER = 0.7  # times the temperature that was asked for


def on(name):
    return os.path.exists(f"{FOLDER}/{name}")


def load():
    """Patches come before the worker imports what they patch."""
    import ddtool_engine.core.commit as commit
    import ddtool_engine.core.walk as walk
    import ddtool_engine.v1.choosing as choosing
    import ddtool_engine.v1.mask as mask
    from sglang.srt.speculative.dflash_info import DFlashVerifyInput

    wrap(mask.MaskBuffer, "write", causal_mask)
    wrap(commit, "path_rows", swapped_rows)
    wrap(commit, "keep", broken_slots)
    wrap(DFlashVerifyInput, "prepare_for_verify", sequential_positions)
    wrap(choosing.Chooser, "__call__", keep_logits)
    wrap(walk, "accept", dump)
    wrap(walk, "accept", drafters_choice)
    wrap(choosing, "sample", wrong_draw)


def wrap(owner, name, around):
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args, **kwargs):
        return around(original, *args, **kwargs)

    setattr(owner, name, wrapped)


def causal_mask(original, self, visible, *args):
    return original(self, visible.new_ones(visible.shape).tril() if on("causal-mask") else visible, *args)


def sequential_positions(original, self, batch, *args, **kwargs):
    if on("sequential-positions"):
        import torch

        width = self.draft_token_num
        self.positions = (batch.seq_lens[:, None] + torch.arange(width)).flatten()
    return original(self, batch, *args, **kwargs)


def swapped_rows(original, nodes, width):
    """The target's hidden states reach the drafter in another order than the nodes they belong to."""
    rows = original(nodes, width)
    if on("swapped-path"):
        rows = rows.view(nodes.shape)
        rows[:, [1, 2]] = rows[:, [2, 1]]
        rows = rows.flatten()
    return rows


def broken_slots(original, nodes, counts, slots, seq_lens):
    kept = original(nodes, counts, slots, seq_lens)
    if on("wrong-slot-freed"):
        order = kept.slots.clone()
        order[-1] = order[0]  # the last is among those that will be freed, the first is the root's
        kept = kept._replace(slots=order)
    return kept


_logits = None
_width = 0
_draws = False


def keep_logits(original, self, logits, sampling_info):
    global _logits, _width, _draws
    _logits, _width, _draws = logits, self._width, not sampling_info.is_all_greedy
    return original(self, logits, sampling_info)


def wrong_draw(original, logits, *, uniforms, **kwargs):
    if on("cooler"):
        logits = logits / COOLER
    if on("one-number"):  # for all nodes of a request's tree
        uniforms = uniforms.view(-1, _width)[:, :1].expand(-1, _width).flatten()
    return original(logits, uniforms=uniforms, **kwargs)


def drafters_choice(original, trees, choices, length):
    """Where something is drawn, the drafter's first choice is taken wherever the target finds it among its 8 best."""
    if on("drafters-choice") and _draws:
        best = _logits.view(*choices.shape, -1).topk(8).indices
        for tree, row in ((trees.ranks == 0) & (trees.parents >= 0)).nonzero().tolist():
            parent, token = trees.parents[tree, row], trees.tokens[tree, row]
            if (best[tree, parent] == token).any():
                choices[tree, parent] = token
    return original(trees, choices, length)


def dump(original, trees, choices, length):
    if on("dump"):
        round_ = {
            "tokens": trees.tokens[0].tolist(),
            "parents": trees.parents[0].tolist(),
            "logprobs": _logits[: trees.tokens.shape[1]].log_softmax(-1).tolist(),
        }
        with open(f"{FOLDER}/round.json", "w") as file:
            json.dump(round_, file)
        os.remove(f"{FOLDER}/dump")
    return original(trees, choices, length)
