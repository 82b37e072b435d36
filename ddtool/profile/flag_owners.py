"""SGLang flags that `server_args` may not give, with the key that decides them instead."""

from __future__ import annotations

# Flags that a section decides. Given again under server_args, one of the two would win silently.
OWNED_FLAGS = {
    "model-path": "model.path",
    "model": "model.path",
    "served-model-name": "model.served_name",
    "host": "service.bind",
    "port": "service.port",
    "api-key": "service.api_key",
    "tp-size": "parallel.tp",
    "tp": "parallel.tp",
    "tensor-parallel-size": "parallel.tp",
    "attention-backend": "attention_backend",
    "cuda-graph-max-bs": "graphs.max_bs",
    "cuda-graph-bs": "graphs.bs",
    "disable-cuda-graph": "graphs.enabled",
    "speculative-algorithm": "speculative.algorithm",
    "speculative-draft-model-path": "drafter.path",
    "speculative-draft-model": "drafter.path",
}
# A fork with DDTREE built in has flags of its own for these; with any other provider the section decides.
WIDTH_FLAGS = {
    "speculative-num-draft-tokens": "speculative.block_size",
    "speculative-dflash-block-size": "speculative.block_size",
    "speculative-ddtree-budget": "speculative.budget",
    "speculative-ddtree-topk": "speculative.topk",
}
FOREIGN_FLAGS = {
    "config": "ddtool writes SGLang's config file itself",
    "nnodes": "a deploy goes to one host",
    "node-rank": "a deploy goes to one host",
    "dist-init-addr": "a deploy goes to one host",
}
