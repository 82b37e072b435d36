"""What an enum has, from its source: on the host of an installed SGLang, on the operator's machine of a wheel."""

from __future__ import annotations

import ast
from typing import List, Optional


def enum_names(source: bytes, name: str) -> Optional[List[str]]:
    """Names assigned in class `name`, read without running the source; None when there is no such class."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return [
                target.id
                for item in node.body
                if isinstance(item, ast.Assign)
                for target in item.targets
                if isinstance(target, ast.Name)
            ]
    return None
