"""Signatures of functions that are tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pychasqui._tasks.signature import Signature, check_and_read_parameters
from pychasqui._wire.msgpack import decode_data, encode_data


def signature(function: Callable[..., Any]) -> Signature:
    """The signature of a task without dependencies."""
    return Signature(
        function.__name__, function, check_and_read_parameters(function.__name__, function, lambda default: False)
    )


def trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Sends a call and reads it, through MessagePack."""
    own = signature(function)
    return own.read(decode_data(encode_data(own.check_arguments_and_make_data(args, kwargs))))
