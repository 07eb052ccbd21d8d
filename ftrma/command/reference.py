"""Pages about the names that programs use, made from their docstrings.

``ftrma help ftrma.graph`` prints such a page, and the site has all of them. They are made when they
are needed, and not kept.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES = ("ftrma", "ftrma.graph", "ftrma.graph.data", "ftrma.aic", "ftrma.apgas",
           "ftrma.apgas.glb", "ftrma.framework")
SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields")
REMARKS = ("MPI", "Fault", "Source")


def page(name: str) -> str:
    """Return the page, in Markdown, about a module or one of its names.

    Args:
        name: a name such as ``ftrma.graph`` or ``ftrma.graph.Engine``.

    Raises:
        LookupError: there is no such name.
    """
    module = next((m for m in sorted(MODULES, key=len, reverse=True)
                   if name == m or name.startswith(f"{m}.")), None)
    if module is None:
        raise LookupError(name)
    where = found(module)
    if name == module:
        lines = [f"# {module}", "", *prose(inspect.getdoc(where) or "")]
        for word in public(where):
            heading = f"{module.removeprefix('ftrma.')}.{word}"
            lines += ["", *entry(heading, getattr(where, word), 2)]
        return "\n".join(lines)
    thing: Any = where
    first, *rest = name.removeprefix(f"{module}.").split(".")
    if first not in public(where):
        raise LookupError(name)
    for word in (first, *rest):
        thing = inspect.getattr_static(thing, word, None) if rest and thing is not where else (
            getattr(where, word))
        if thing is None or word.startswith("_"):
            raise LookupError(name)
    return "\n".join(entry(name, thing, 1))


def names() -> list[str]:
    """List all modules and their names, in which the nearest to a wrong name is looked for."""
    return [*MODULES, *(f"{module}.{word}" for module in MODULES for word in public(found(module)))]


def found(module: str) -> Any:
    """Return a module, or what a front module offers by its name, such as ``ftrma.apgas.glb``."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        front, _, word = module.rpartition(".")
        return getattr(import_module(front), word)


def public(module: ModuleType) -> list[str]:
    """List the names of a module that have an entry of their own on its page, as it orders them."""
    here = [word for word, thing in vars(module).items() if not word.startswith("_")
            and getattr(thing, "__module__", "") == module.__name__]
    words = getattr(module, "__all__", here)
    # The library's module MPI is described elsewhere, and glb has a page of its own.
    return [word for word in words if word not in ("MPI", "glb")]


def entry(name: str, thing: Any, level: int) -> Iterator[str]:
    """Yield the lines about one name, and about the members of a class."""
    mark = "#" * level
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, property):
        yield from (f"{mark} {name}", "", *prose(inspect.getdoc(thing) or ""))
        return
    if not (inspect.isclass(thing) or callable(thing)):
        documented = type(thing).__module__.startswith("ftrma.")
        if not documented:
            yield from (f"{mark} {name}", "", f"`{thing!r}`")
            return
        yield from (f"{mark} {name}", "", *prose(inspect.getdoc(type(thing)) or ""))
        yield from members(name, type(thing), level)
        return
    yield from (f"{mark} {name}", "", f"    {name.rpartition('.')[2]}{signature(thing)}", "")
    yield from prose(inspect.getdoc(thing) or "")
    if inspect.isclass(thing):
        yield from members(name, thing, level)


def members(name: str, cls: type, level: int) -> Iterator[str]:
    """Yield the lines about the public methods and properties of a class, including its bases'."""
    seen: set[str] = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("ftrma"):
            continue
        for word, thing in vars(base).items():
            inner = getattr(thing, "__func__", thing)
            if word.startswith("_") or word in seen or not (
                    isinstance(thing, property) or inspect.isfunction(inner)):
                continue
            seen.add(word)
            if inspect.getdoc(thing):
                yield from ("", *entry(f"{name.rpartition('.')[2]}.{word}", thing, level + 1))


def signature(thing: Any) -> str:
    """Return the arguments of a function or a class, as its source has them."""
    try:
        told = inspect.signature(thing)
    except (TypeError, ValueError):
        return "(...)"
    arguments = list(told.parameters.values())
    if arguments and arguments[0].name in ("self", "cls"):
        told = told.replace(parameters=arguments[1:])
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(told))  # annotations are strings


def prose(doc: str) -> Iterator[str]:
    """Yield the lines of a docstring as Markdown, with lists of arguments, and remarks."""
    section, remark = "", False
    for line in re.sub(r"``([^`]+)``", r"`\1`", doc).splitlines():
        heading = re.match(r"(\w+):\s*(.*)$", line)
        remark = bool(line) and (remark or bool(heading and heading[1] in REMARKS))
        if heading and heading[1] in SECTIONS:
            section = heading[1]
            yield from (f"**{section}**", "")
        elif heading and heading[1] in REMARKS:
            section = ""
            yield from ("", f"**{heading[1]}:** {heading[2]}")
        elif section and (item := re.match(r"    (\S.*)$", line)):
            words = re.match(r"([\w*, .]+): (.*)$", item[1])
            yield f"* `{words[1]}`: {words[2]}" if words else f"* {item[1]}"
        elif section and line.strip():
            yield f"  {line.strip()}"
        elif remark and line.startswith("    "):
            yield line.strip()
        else:
            section = section if not line.strip() else ""
            yield line.removesuffix(":") if line.endswith("::") else line
