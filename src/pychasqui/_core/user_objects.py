"""Reads the class name and the text of a user's object, whose methods may raise or return odd values."""

from __future__ import annotations

# The interpreter's own: a metaclass may override them.
_qualname_of = type.__dict__["__qualname__"].__get__
_module_of = type.__dict__["__module__"].__get__


def class_name_of(value: object) -> str:
    return to_plain_str(_qualname_of(type(value)))  # a class may have a name of a subclass of str


def class_path_of(value: object) -> str:
    """Returns the module and the name of its class, as an import statement has them."""
    module = _module_of(type(value))
    return f"{to_plain_str(module) if isinstance(module, str) else '?'}.{class_name_of(value)}"


def safe_str(value: object) -> str:
    """Returns str(value) as a plain str, or a text that says that it cannot be made."""
    try:
        return to_plain_str(str(value))
    except BaseException:  # noqa: BLE001  a foreign __str__ may raise anything
        return f"(a {class_name_of(value)} whose text cannot be made)"


def to_plain_str(text: str) -> str:
    """Returns the same text as a plain str, not of a subclass."""
    return text if type(text) is str else str.__getitem__(text, slice(None))
