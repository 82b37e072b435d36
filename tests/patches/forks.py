"""Forks of a release as engineers make them by hand: a table of the wheel's fields would be wrong for each."""

from __future__ import annotations

from pathlib import Path

from support import patch_probe, venvs
from support.patch_probe import Job

from ddtool.agent.compose import compose
from ddtool.diagnostics import definition

RELEASE = "0.5.12.post1"
FILE = "sglang/srt/model_executor/cuda_graph_runner.py"
DSTS = """            self.input_ids[:raw_num_token],
            self.req_pool_indices[:raw_bs],
            self.seq_lens[:raw_bs],
            self.out_cache_loc[:raw_num_token],
            self.positions[:raw_num_token],
"""
SRCS = """            forward_batch.input_ids,
            forward_batch.req_pool_indices,
            forward_batch.seq_lens,
            forward_batch.out_cache_loc,
            forward_batch.positions,
"""
COPY = "        _grouped_foreach_copy_(dsts, srcs)\n"
DEPTHS = """        if not hasattr(self, "ddtree_depths"):
            self.ddtree_depths = torch.zeros_like(self.positions)
        dsts.insert(1, self.ddtree_depths[:raw_num_token])
        srcs.insert(1, forward_batch.ddtree_depths)
"""


def once(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, (text.count(old), old)
    return text.replace(old, new)


def renamed_argument(text: str) -> str:
    """The copying function's own arguments have other names: what graph-copy would insert does not fit."""
    head, _, rest = text.partition("def _grouped_foreach_copy_(")
    body, end, tail = rest.partition("\n\n\n")
    body = body.replace("dsts", "targets").replace("srcs", "sources")
    return head + "def _grouped_foreach_copy_(" + body + end + tail


def renamed_batch(text: str) -> str:
    """The caller calls its batch otherwise: a name can only come from the buffers."""
    head, _, rest = text.partition("    def populate_from_forward_batch(")
    body, end, tail = rest.partition(COPY)
    body = body.replace("forward_batch", "batch")
    tail = tail.replace("if forward_batch.seq_lens_cpu is not None:", "if batch.seq_lens_cpu is not None:", 1)
    tail = tail.replace("copy_(forward_batch.seq_lens_cpu)", "copy_(batch.seq_lens_cpu)", 1)
    tail = tail.replace(
        "            forward_batch=forward_batch,\n            raw_bs",
        "            batch=forward_batch,\n            raw_bs",
        1,
    )
    return head + "    def populate_from_forward_batch(" + body + end + tail


def reordered_fields(text: str) -> str:
    for block in (DSTS, SRCS):
        lines = block.splitlines(keepends=True)
        text = once(text, block, "".join([lines[-1], *lines[1:-1], lines[0]]))
    return text


def extra_field(text: str) -> str:
    """A field of the fork's own, between the others."""
    return once(text, COPY, DEPTHS + COPY)


EDITS = {
    "renamed-batch": renamed_batch,
    "reordered-fields": reordered_fields,
    "extra-field": extra_field,
}


def source(venv: Path) -> str:
    return (venvs.site(venv) / FILE).read_text()


def jobs(venv: Path) -> list[Job]:
    """graph-copy on each fork that it fits, to be executed."""
    patch = definition.load("graph-copy").to_json()
    probe = patch_probe.PROBES / "graph_copy_forks.py"
    made = []
    for name, edit in EDITS.items():
        (composed,) = compose(str(venv), [(FILE, edit(source(venv)).encode(), [patch])], RELEASE)
        assert composed.unknown == []
        made.append(Job(f"fork-{name}", probe, {FILE: composed.content}))
    return made
