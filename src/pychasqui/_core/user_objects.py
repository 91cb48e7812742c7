"""How to look at an object of the user's: whatever it is asked may raise, or be of a class that overrides all."""

from __future__ import annotations

_qualname_of = type.__dict__["__qualname__"].__get__  # as the interpreter knows it; a metaclass may have another


def class_name(value: object) -> str:
    name: str = _qualname_of(type(value))
    return name


def text_of(value: object) -> str:
    """str(value) as a plain str, or words that say why there is none."""
    try:
        return plain(str(value))
    except BaseException:  # noqa: BLE001  a foreign __str__ may raise anything
        return f"(a {class_name(value)} whose text cannot be made)"


def plain(text: str) -> str:
    """The same letters, without a class of their own."""
    return str.__getitem__(text, slice(None))
