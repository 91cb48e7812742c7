"""Many small cases in one test, where each costs far less than a test of its own; a failure names its cases."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def in_one_test(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., None]], Any]:
    """Like pytest.mark.parametrize, for a plain function; all cases run, also behind one that fails."""
    fields = (names,) if isinstance(names, str) else names

    def decorate(check: Callable[..., None]) -> Any:
        @functools.wraps(check)
        def run(*of: Any, **fixtures: Any) -> None:
            failed = []
            for case in cases:
                values = dict(zip(fields, (case,) if isinstance(names, str) else case, strict=True))
                try:
                    check(*of, **fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  the others are checked all the same
                    shown = ", ".join(f"{name}={value!r}"[:300] for name, value in values.items())
                    failed.append(f"{shown}: {type(error).__name__}: {error}")
            assert not failed, f"{len(failed)} cases fail:\n" + "\n".join(failed)

        parameters = inspect.signature(check).parameters.values()
        run.__signature__ = inspect.Signature([one for one in parameters if one.name not in fields])  # type: ignore[attr-defined]
        return run

    return decorate
