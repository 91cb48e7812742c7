"""Writes the reference of public names from their signatures and docstrings."""

from __future__ import annotations

import html
import importlib
import inspect
import re
import types
import typing
from collections.abc import Iterator
from typing import Any

WIDTH = 96
ROW = re.compile(r"(?P<name>\*{0,2}[\w. ]*\w) {2,}(?P<text>\S.*)")
OPTION = re.compile(r"Option\[(?P<given>.*), (?P<kept>[^,\[\]]*(?:\[[^\]]*\])?)\]")
ENGINE = re.compile(r"Broker|: _|\b(LoopQueues|JobRecorder|Enqueues)\b")  # what only the package makes
SPECIAL = ("__aenter__", "__aiter__")  # what a class says by itself, in words


def find(name: str) -> Any:
    """The object of a name: `Queue` is in pychasqui, `logs.JobFilter` in pychasqui.logs."""
    module, _, attribute = f"pychasqui.{name}".rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def reference(name: str, level: int = 2) -> str:
    """The section of a name: its signature, its docstring, its properties and methods."""
    return "\n\n".join(_section(name, find(name), level)) + "\n"


def _section(name: str, found: Any, level: int) -> Iterator[str]:
    short = name.rpartition(".")[2]
    yield f"{'#' * level} {short}"
    if isinstance(found, types.UnionType) or typing.get_origin(found) is not None:  # an alias has no docstring
        yield f"```python\n{short} = {_plain_type(str(found))}\n```"
        return
    module = f"pychasqui.{name}".rpartition(".")[0]
    is_error = inspect.isclass(found) and issubclass(found, BaseException)
    code = "" if is_error else signature(short, found)
    if code and not ENGINE.search(code):  # else no user makes one: a queue, an app or a task has it
        yield f"```python\n{code}\n```"
    if module != "pychasqui":
        yield f"`from {module} import {short}`"
    yield prose(inspect.getdoc(found) or "")
    if inspect.isclass(found) and not is_error:
        yield from _members(short, found, level + 1)


def _members(owner: str, kind: type, level: int) -> Iterator[str]:
    for name in _public_members(kind):
        member = inspect.getattr_static(kind, name)
        if isinstance(member, property):
            yield f"{'#' * level} {owner}.{name}\n\n{prose(inspect.getdoc(member) or 'A property.')}"
            continue
        function = getattr(kind, name)
        if callable(function):
            text = prose(inspect.getdoc(function) or "")
            code = signature(name, function, member)
            if "Broker" in code:  # for the engine's own use
                continue
            yield f"{'#' * level} {owner}.{name}\n\n```python\n{code}\n```\n\n{text}".rstrip()


def _public_members(kind: type) -> list[str]:
    """Public methods and properties that this package defines, in the order of the source; inherited ones last."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("pychasqui"):
            fields = getattr(base, "__struct_fields__", ()) or getattr(base, "__dataclass_fields__", ())
            own = [name for name in vars(base) if not name.startswith("_") and name not in fields]
            names.update(dict.fromkeys(name for name in own if _is_documented(vars(base)[name])))
    return list(names)


def _is_documented(member: Any) -> bool:
    return isinstance(member, (property, classmethod, staticmethod, types.FunctionType))


def signature(name: str, function: Any, member: Any = None) -> str:
    """The signature as a user writes it, one parameter a line if it is long."""
    found = inspect.signature(function)
    inside = [one for one in found.parameters.values() if one.name != "self" and not one.name.startswith("_")]
    words = [_parameter(one) for one in inside]
    first = next((place for place, one in enumerate(inside) if one.kind is one.KEYWORD_ONLY), None)
    if first is not None and not any(one.kind is one.VAR_POSITIONAL for one in inside):
        words.insert(first, "*")
    prefix = "async def " if inspect.iscoroutinefunction(function) else "def "
    if inspect.isclass(function):
        prefix, returned = "class ", ""
    else:
        answer = found.return_annotation
        returned = "" if answer is inspect.Signature.empty else f" -> {_type(answer)}"
    marks = {classmethod: "@classmethod\n", staticmethod: "@staticmethod\n"}
    line = f"{prefix}{name}({', '.join(words)}){returned}"
    if len(line) > WIDTH:
        line = f"{prefix}{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returned}"
    return marks.get(type(member), "") + line


def _parameter(one: inspect.Parameter) -> str:
    word = str(one).partition(":")[0].partition("=")[0].strip()  # with its stars
    if one.annotation is not one.empty:
        word += f": {_type(one.annotation)}"
    if one.default is not one.empty:
        default = repr(one.default)
        word += " = ..." if default.startswith("<") else f" = {default}"  # of an object that has no literal
    return word


def _type(annotation: Any) -> str:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _plain_type(str(text))


def _plain_type(text: str) -> str:
    """A type as a user passes it, without the words by which the package checks it."""
    text = re.sub(r"(typing\.)?Annotated\[(\w+), msgspec\.Meta\([^)]*\)\]", r"\2", text)
    text = re.sub(r"Optional\[(\w+)\]", r"\1 | None", text)
    if match := OPTION.fullmatch(text):
        text = match["given"]
    return re.sub(r"\b(?:collections\.abc|typing|datetime|pychasqui(?:\.\w+)*)\.", "", text)


def prose(docstring: str) -> str:
    """A docstring in Markdown. Lines of a name, two spaces and a meaning become a table."""
    parts = []
    for paragraph in docstring.split("\n\n"):
        rows = _rows(paragraph)
        if rows:
            parts.append("\n".join(["| name | meaning |", "| --- | --- |", *(f"| `{n}` | {t} |" for n, t in rows)]))
        elif paragraph.lstrip().startswith(("ChasquiError", "├")):
            parts.append(f"```text\n{paragraph}\n```")
        else:
            parts.append(escape(paragraph))
    return "\n\n".join(parts)


def _rows(paragraph: str) -> list[tuple[str, str]] | None:
    rows: list[tuple[str, str]] = []
    for line in paragraph.splitlines():
        match = ROW.fullmatch(line)
        if match:
            rows.append((match["name"], escape(match["text"]).replace("|", "\\|")))
        elif rows and line.startswith("      "):
            rows[-1] = rows[-1][0], f"{rows[-1][1]} {escape(line.strip())}"
        else:
            return None
    return rows


def escape(text: str) -> str:
    """The text with `<` and `*` escaped where Markdown would read them, which is outside of backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else html.escape(part, quote=False).replace("*", "\\*") for part in parts
    )
