"""Flags from the command line and the `--config` file. Any flag is taken; those below have a default."""

import logging
from pathlib import Path

DEFAULTS = {
    "model_path": None,
    "tokenizer_path": None,
    "served_model_name": None,
    "host": "127.0.0.1",
    "port": 30000,
    "api_key": None,
    "admin_api_key": None,
    "tp_size": 2,
    "attention_backend": None,
    "disable_cuda_graph": False,
    "cuda_graph_max_bs": 4,
    "speculative_algorithm": None,
    "speculative_draft_model_path": None,
    "speculative_num_draft_tokens": None,
    "weight_version": "default",
    "log_level": "info",
}


class ServerArgs:
    def __init__(self, **flags):
        self.__dict__.update({**DEFAULTS, **flags})
        self.tokenizer_path = self.tokenizer_path or self.model_path
        self.served_model_name = self.served_model_name or self.model_path

    def __repr__(self):
        return "ServerArgs(" + ", ".join(f"{name}={value!r}" for name, value in vars(self).items()) + ")"


def scalar(text):
    """A YAML scalar as far as flags use it."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].replace("''", "'") if text[0] == "'" else text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    if text in ("", "null", "~"):
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def read_config(path):
    flags, name = {}, ""
    for line in Path(path).read_text().splitlines():
        if line.lstrip().startswith("- "):
            flags[name] = [*(flags[name] or []), scalar(line.lstrip()[2:])]
        elif line[:1].isalpha():
            name, _, text = line.partition(":")
            flags[name] = scalar(text)
    return flags


def prepare_server_args(argv):
    flags = {}
    words = iter(argv)
    for word in words:
        name, equals, text = word.lstrip("-").partition("=")
        if name == "config":
            flags = {**read_config(text if equals else next(words)), **flags}
        else:
            flags[name] = scalar(text if equals else next(words))
    args = ServerArgs(**{name.replace("-", "_"): value for name, value in flags.items()})
    configure_logger(args)
    return args


def configure_logger(args, prefix=""):
    logging.basicConfig(
        level=args.log_level.upper(),
        format=f"[%(asctime)s{prefix}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
