"""Packages that can be imported, whose every name exists, and whose every call raises.

SGLang imports names from GPU-only packages at module level and, on the CPU path, calls none of them. A stand-in
that returned a dummy value would hide a wrong turn; this one names what was called.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType


class StandInCalled(NotImplementedError):
    """Something without a CPU build was called; the message names it."""


class Name:
    """The stand-in for one name: attributes exist, using it raises StandInCalled."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, attribute: str) -> Name:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        value = Name(f"{self._path}.{attribute}")
        setattr(self, attribute, value)  # the same object each time: SGLang uses some as dictionary keys
        return value

    def __call__(self, *args: object, **kwargs: object) -> None:
        raise StandInCalled(
            f"{self._path} was called, but {self._path.partition('.')[0]} is a CPU stand-in of ddtool's "
            "sandbox: this path needs a GPU"
        )

    def __or__(self, other: object) -> Name:  # the annotation `Name | None`
        return self

    __ror__ = __or__

    def __bool__(self) -> bool:  # `if sgl_kernel.flag:` must not choose a path silently
        self()
        raise AssertionError("unreachable")

    def __repr__(self) -> str:
        return f"<CPU stand-in {self._path}>"


class _Package(ModuleType):
    def __getattr__(self, attribute: str) -> Name:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        value = Name(f"{self.__name__}.{attribute}")
        setattr(self, attribute, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers every submodule of `root`, at any depth."""

    def __init__(self, root: str) -> None:
        self.root = root

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(self.root + "."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Package(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def become_stand_in(name: str) -> None:
    """Called in the `__init__.py` of package `name`: from here on it answers every name and submodule."""
    sys.modules[name].__class__ = _Package
    sys.meta_path.append(_Finder(name))
