# --- ddtool fix @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_replay_guard(emit):
    """A batch whose width is not the graph's runs eagerly, instead of failing in the copy of its inputs."""
    told = set()

    def misfits(runner, batch):
        """Only where the graph verifies: every request then has as many tokens as the graph was captured for."""
        if not runner.capture_forward_mode.is_target_verify():
            return False
        emit.reached()
        width = runner.num_tokens_per_bs
        tokens = batch.input_ids.numel()
        if tokens == batch.batch_size * width:
            return False
        worker, rank = emit.who(runner.model_runner)
        if (worker, tokens / max(batch.batch_size, 1)) not in told:
            told.add((worker, tokens / max(batch.batch_size, 1)))
            emit("eager", worker, rank, captured=width, requests=batch.batch_size, tokens=tokens)
        return True

    return misfits


_ddtool_replay_guard = _ddtool_replay_guard(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
