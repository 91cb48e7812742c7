"""How the options of a constructor are declared: once, with default, bound and check, as the fields of a frozen config.

A config is a frozen dataclass whose fields are `Option`s. `take_config_fields_as_arguments(config_class)` gives a
constructor the config's fields as its parameters, so that type checkers and editors show every option with its type,
default and bounds. A new option is a new field; nothing else repeats it but the docstring of its constructor, which a
test compares.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from . import checks
from .suggestion import make_suggestion_if_any_is_close

Given = TypeVar("Given")
Kept = TypeVar("Kept")
P = ParamSpec("P")
Config = TypeVar("Config")
Self_ = TypeVar("Self_")

Check = Callable[[str, Any], Kept]


class Option(Generic[Given, Kept]):
    """A field of a config: `Given` is what a user may pass, `Kept` is what the check returns and the config holds."""

    def __init__(self, default: Given, check: Check[Kept], *, none_is_default: bool = False) -> None:
        self._default = default
        self._check = check
        self._none_is_default = none_is_default

    def __set_name__(self, config: type, name: str) -> None:
        self._name = name

    def __get__(self, config: object | None, kind: type) -> Kept:
        value: Any = self._default if config is None else vars(config)[self._name]  # dataclass asks for the default
        return value  # type: ignore[no-any-return]

    def __set__(self, config: object, given: Given) -> None:
        value = self._default if given is None and self._none_is_default else given
        vars(config)[self._name] = self._check(self._name, value)


def make_minimum_check(low: int) -> Check[int]:
    return lambda name, value: checks.check_int(name, value, low)


def make_range_check(low: int, high: int) -> Check[int]:
    return lambda name, value: checks.check_int(name, value, low, high)


def make_optional_check(check: Check[Kept]) -> Check[Kept | None]:
    """Returns the check of an option that may be None."""
    return lambda name, value: None if value is None else check(name, value)


def accept_any_value(name: str, value: Any) -> Any:
    """Accepts the value, which the class that uses it checks."""
    return value


def find_no_settings(given: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    return {}


def take_config_fields_as_arguments(
    config_class: Callable[P, Config],
    find_settings: Callable[[Mapping[str, Any], Iterable[str]], Mapping[str, Any]] = find_no_settings,
) -> Callable[[Callable[[Self_, Config], None]], Callable[Concatenate[Self_, P], None]]:
    """Makes `__init__(self, config)` a constructor whose parameters are the fields of the config.

    `find_settings(given, names)` returns what is set outside of the program for those of the names that are not given.
    """

    def decorate(init: Callable[[Self_, Config], None]) -> Callable[Concatenate[Self_, P], None]:
        fields = inspect.signature(config_class)
        own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)

        def __init__(self: Self_, /, *args: P.args, **kwargs: P.kwargs) -> None:  # noqa: N807  its name in errors
            try:
                given = fields.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{type(self).__name__}() {error}{_describe_remedy(fields, args, kwargs)}") from None
            more: Any = find_settings(given, fields.parameters)
            init(self, config_class(*args, **{**kwargs, **more} if more else kwargs))

        __init__.__qualname__ = init.__qualname__
        __init__.__doc__ = init.__doc__
        shown = fields.replace(parameters=[own, *fields.parameters.values()], return_annotation="None")
        setattr(__init__, "__signature__", shown)  # noqa: B010  mypy knows no such attribute of a function
        return __init__

    return decorate


def _describe_remedy(fields: inspect.Signature, args: tuple[object, ...], kwargs: Mapping[str, object]) -> str:
    """Says how to give what was given by position, or the option that a misspelt one was meant to be."""
    by_position = [one.name for one in fields.parameters.values() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    if len(args) > len(by_position):
        by_name = next(name for name in fields.parameters if name not in by_position)
        return f"; only {' and '.join(by_position)} can be given by position, options by name: {by_name}=..."
    unknown = next((name for name in kwargs if name not in fields.parameters), None)
    return "" if unknown is None else make_suggestion_if_any_is_close(unknown, fields.parameters)
