"""A prompt's token ids, as the server makes them: by its tokenizer, and of a chat by its chat template first."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping

PATH = "/tokenize"

Post = Callable[[str, Dict[str, Any]], Any]
"""(path, JSON body) → the server's JSON answer; raises when there is none."""


def ids_of(given: Mapping[str, Any], post: Post) -> List[int]:
    """`given`: has one of `input_ids`, `text` and `messages`. SGLang renders messages from 0.5.12 on."""
    if "input_ids" in given:
        return list(given["input_ids"])
    asked = {"messages": given["messages"]} if "messages" in given else {"prompt": given["text"]}
    return list(post(PATH, asked)["tokens"])
