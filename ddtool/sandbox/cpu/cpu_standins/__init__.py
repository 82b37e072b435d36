"""Lets unmodified SGLang 0.5.12.post1 run on a CPU, in ddtool's sandbox only. STANDINS.json lists every part.

Two packages have no CPU build (`sgl_kernel`, `torchvision`): `raising` makes importable ones whose calls raise.
Two code paths assume a GPU: `plugin`, an SGLang general plugin, replaces them through SGLang's own hooks.
"""
