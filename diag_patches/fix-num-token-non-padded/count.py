# --- ddtool fix @DDTOOL_PATCH@: `ddtool diag disable @DDTOOL_PATCH@` or `ddtool restore` removes it ---
def _ddtool_non_padded(emit):
    """The field that ForwardBatch.init_new sets and a draft batch built by hand lacks; read with expert parallelism."""
    import torch

    told = []

    def count(worker, batch, *asked):
        """`asked`: what SGLang's own question, whether a graph reads the field, takes in this release."""
        from sglang.srt.model_executor.forward_batch_info import enable_num_token_non_padded

        emit.reached()
        tokens = batch.input_ids.numel()
        if batch.num_token_non_padded_cpu is None:
            batch.num_token_non_padded_cpu = tokens
        if batch.num_token_non_padded is not None or not enable_num_token_non_padded(*asked):
            return
        # Filled on the device: a copy from the host would wait for it in every round
        batch.num_token_non_padded = torch.full((), tokens, dtype=torch.int32, device=batch.input_ids.device)
        if not told:
            told.append(True)
            emit("added", *emit.who(worker.draft_model_runner), tokens=tokens)

    return count


_ddtool_non_padded = _ddtool_non_padded(
    _ddtool_marker("@DDTOOL_PATCH@", "@DDTOOL_SHA@", "@DDTOOL_FILE@")  # noqa: F821  ../marker.py comes first
)
