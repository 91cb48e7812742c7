"""Every key of a queue lives in one slot of a cluster, and in no other queue's space."""

from __future__ import annotations

import inspect

from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from pychasqui._core.checks import check_queue_name
from pychasqui._redis.keys import Keys
from pychasqui.errors import InvalidArgument


def is_taken(name: str) -> bool:
    try:
        return check_queue_name(name) == name
    except InvalidArgument:
        return False


# Of the letters that could mean something in a key more often than chance would have it.
QUEUE_NAMES = (st.text(st.sampled_from("ab{}:*"), min_size=1, max_size=8) | st.text(min_size=1)).filter(is_taken)


def keys_of(queue: str) -> list[str]:
    keys = Keys(queue)
    found = [value for value in vars(keys).values() if isinstance(value, str) and value != keys.prefix]
    for name, method in inspect.getmembers(keys, inspect.ismethod):
        if not name.startswith("_"):
            found.append(method(*("x" for _ in inspect.signature(method).parameters)))
    return found


@given(QUEUE_NAMES)
def test_all_keys_of_a_queue_share_a_slot(queue: str) -> None:
    keys = keys_of(check_queue_name(queue))
    assert len(keys) >= 2
    assert {key_slot(key.encode()) for key in keys} == {key_slot(f"chasqui:{queue}".encode())}


@given(QUEUE_NAMES, QUEUE_NAMES)
def test_no_two_queues_share_a_key(one: str, other: str) -> None:
    if one != other:
        assert not set(keys_of(one)) & set(keys_of(other))
        assert not any(key.startswith(f"{Keys(other).prefix}:") for key in keys_of(one))


@given(QUEUE_NAMES)
def test_every_key_starts_with_the_queues_own_prefix(queue: str) -> None:
    """An access rule on the prefix is enough, and gives no access to another queue."""
    assert all(key.startswith(f"{{chasqui:{queue}}}:") for key in keys_of(queue))


def test_the_stream_is_where_the_official_package_looks_for_it() -> None:
    assert Keys("emails").stream == "{chasqui:emails}:stream"
