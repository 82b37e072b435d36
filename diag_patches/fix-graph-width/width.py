# --- ddtool fix @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_graph_width(emit):
    """Tokens a request in a graph: the block for a DFLASH draft worker, budget + 1 for DDTREE's verify."""

    told = set()

    def width_of(runner, otherwise):
        """`runner`: a ModelRunner; `otherwise`: the width that SGLang would capture."""
        emit.reached()
        wanted = (block_of(runner) if runner.is_draft_worker else tree_of(runner)) or otherwise
        if wanted != otherwise and (runner.is_draft_worker, otherwise) not in told:
            told.add((runner.is_draft_worker, otherwise))
            emit("changed", *emit.who(runner), was=otherwise, now=wanted)
        return wanted

    def is_tree(runner):
        return "DDTREE" in str(runner.server_args.speculative_algorithm).upper()

    def block_of(runner):
        if not (runner.spec_algorithm.is_dflash() or is_tree(runner)):
            return None
        from sglang.srt.speculative.dflash_utils import parse_dflash_draft_config

        given = getattr(runner.server_args, "speculative_dflash_block_size", None)
        return given or parse_dflash_draft_config(draft_hf_config=runner.model_config.hf_config).block_size

    def tree_of(runner):
        """The budget is a flag of the fork; without one, its verify width is what SGLang would take anyway."""
        budget = getattr(runner.server_args, "speculative_ddtree_budget", None)
        return budget + 1 if is_tree(runner) and budget else None

    def align(spec_info, backend, width):
        """What is captured with the graph has the graph's width: the verify input, and the backend that splits rows."""
        emit.reached()
        if spec_info is None or not hasattr(spec_info, "draft_token_num"):
            return
        spec_info.draft_token_num = width
        if isinstance(getattr(backend, "num_draft_tokens", None), int):
            backend.num_draft_tokens = width

    width_of.align = align
    return width_of


_ddtool_graph_width = _ddtool_graph_width(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
