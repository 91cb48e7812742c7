"""Options are declared once, in a config; constructors show them all, with their types, defaults and meanings."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import pytest

from pychasqui import Job, Queue, Worker
from pychasqui._core.config import (
    Option,
    make_minimum_check,
    make_optional_check,
    make_range_check,
    take_config_fields_as_arguments,
)
from pychasqui._core.options import JobOptions
from pychasqui._producer.config import QueueConfig
from pychasqui._worker.config import WorkerConfig
from pychasqui.errors import ChasquiError, InvalidArgument, InvalidType
from tests.support.cases import in_one_test

CONFIGS = ((WorkerConfig, Worker), (QueueConfig, Queue))


async def handle(job: Job) -> None:
    pass


def meanings(config: type) -> dict[str, str]:
    """The text below each field of a config."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def as_docstring(config: type) -> str:
    """The lines to paste into the docstring of the constructor's class."""
    lines = []
    for name, text in meanings(config).items():
        lines += textwrap.wrap(
            text, 120, initial_indent=f"    {name:<21} ", subsequent_indent=" " * 26, break_long_words=False
        )
    return "\n".join(lines)


@pytest.mark.parametrize(("config", "public"), CONFIGS)
def test_every_option_has_a_meaning(config: Any, public: type) -> None:
    assert set(meanings(config)) == {field.name for field in fields(config)}


@pytest.mark.parametrize(("config", "public"), CONFIGS)
def test_the_docstring_of_the_class_says_what_each_option_means(config: Any, public: type) -> None:
    shown = textwrap.dedent(as_docstring(config))
    assert shown in (inspect.getdoc(public) or ""), f"paste this:\n{as_docstring(config)}"


def test_the_docstring_of_add_says_what_each_option_means() -> None:
    lines = []
    for name, text in meanings(JobOptions).items():
        lines += textwrap.wrap(text, 112, initial_indent=f"{name:<21} ", subsequent_indent=" " * 22)
    shown = "\n".join(lines)
    assert shown in (inspect.getdoc(Queue.add) or ""), f"paste this:\n{textwrap.indent(shown, ' ' * 8)}"


@pytest.mark.parametrize(("config", "public"), CONFIGS)
def test_the_constructor_shows_every_option_with_its_default(config: Any, public: Callable[..., Any]) -> None:
    shown = inspect.signature(public).parameters
    assert list(shown) == [field.name for field in fields(config)]
    for field in fields(config):
        expected = shown[field.name].empty if field.name in ("queue_name", "name", "handler") else field.default
        assert shown[field.name].default == expected


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Worker\(\) .* argument 'concurency'; did you mean 'concurrency'\?"):
        Worker("emails", handle, concurency=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Queue\(\) .* argument 'url'; did you mean 'redis_url'\?"):
        Queue("emails", url="redis://")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Queue\(\) got an unexpected keyword argument 'zzz'$"):
        Queue("emails", zzz=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"Queue\(\) missing a required argument: 'name'"):
        Queue()  # type: ignore[call-arg]


def test_an_option_that_is_given_by_position_is_refused_with_how_to_give_it() -> None:
    with pytest.raises(TypeError, match=r"only name can be given by position, options by name: redis_url=\.\.\."):
        Queue("emails", "redis://localhost")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"only queue_name and handler can be given by position, options by name"):
        Worker("emails", handle, 5)  # type: ignore[call-arg, arg-type]


def test_a_config_cannot_be_changed() -> None:
    config = WorkerConfig("emails", handle)
    with pytest.raises(FrozenInstanceError):
        config.concurrency = 5  # type: ignore[misc]


def test_a_config_shows_no_password() -> None:
    assert "hunter2" not in repr(WorkerConfig("emails", handle, redis_url="redis://:hunter2@localhost"))
    assert "hunter2" not in repr(QueueConfig("emails", redis_url="redis://:hunter2@localhost"))


def test_each_worker_without_a_consumer_id_gets_its_own() -> None:
    assert WorkerConfig("emails", handle).consumer_id != WorkerConfig("emails", handle).consumer_id


@pytest.mark.parametrize(
    ("options", "events", "results", "address"),
    (
        ({}, 100_000, 0, None),
        ({"events_enabled": False}, 0, 0, None),
        ({"events_max_stream_len": 5, "store_results": True, "result_ttl_ms": 7}, 5, 7, None),
        ({"store_results": True, "metrics_port": 0}, 100_000, 3_600_000, ("127.0.0.1", 0)),
    ),
)
def test_options_that_belong_together_are_read_together(
    options: dict[str, Any], events: int, results: int, address: tuple[str, int] | None
) -> None:
    config = WorkerConfig("emails", handle, **options)
    assert config.events_max_len_or_zero == events
    assert config.result_ttl_ms_or_zero == results
    assert config.metrics_address == address


@in_one_test(
    ("option", "value", "problem"),
    (
        ("concurrency", 0, "concurrency is 0, must be at least 1"),
        ("concurrency", None, "concurrency must be an int, not NoneType"),
        ("max_attempts", -1, "max_attempts is -1, must be from 0 to 4294967295"),
        ("read_count", 0, "read_count is 0, must be at least 1"),
        ("read_block_ms", 0, "read_block_ms is 0, must be at least 1"),
        ("claim_min_idle_ms", 299, "claim_min_idle_ms is 299, must be at least 300"),
        ("lease_ms", 299, "lease_ms is 299, must be from 300 to 3600000"),
        ("lease_ms", 3_600_001, "lease_ms is 3600001, must be from 300 to 3600000"),
        ("max_payload_bytes", 0, "max_payload_bytes is 0, must be at least 1"),
        ("prefetch_bytes", 0, "prefetch_bytes is 0, must be at least 1"),
        ("dlq_max_stream_len", -1, "dlq_max_stream_len is -1, must be at least 0"),
        ("events_max_stream_len", 0, "events_max_stream_len is 0, must be at least 1"),
        ("result_ttl_ms", 0, "result_ttl_ms is 0, must be from 1 to"),
        ("scheduler_tick_ms", 9, "scheduler_tick_ms is 9, must be from 10 to 86400000"),
        ("metrics_port", 65536, "metrics_port is 65536, must be from 0 to 65535"),
        ("metrics_host", 5, "metrics_host must be a str, not int"),
        ("strict", 1, "strict must be True or False, not int 1"),
        ("events_enabled", 0, "events_enabled must be True or False, not int 0"),
        ("store_results", None, "store_results must be True or False, not NoneType"),
        ("delayed_enabled", "no", "delayed_enabled must be True or False, not str"),
        ("run_scheduler", 1.0, "run_scheduler must be True or False, not float"),
        ("shutdown_deadline_s", 0, "shutdown_deadline_s is 0, must be a finite number above 0"),
        ("group", " ", "group ' ' must be printable and not blank"),
        ("consumer_id", "released", "consumer_id 'released' is the name under which"),
        ("tracing", "on", 'tracing must be "auto", "off" or'),
    ),
)
def test_an_option_of_a_worker_out_of_its_bounds_is_refused_by_name(option: str, value: Any, problem: str) -> None:
    with pytest.raises(ChasquiError) as refused:
        Worker("emails", handle, **{option: value})
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    (
        ("max_stream_len", 0, "max_stream_len is 0, must be at least 1"),
        ("max_delay_secs", -1, "max_delay_secs is -1, must be at least 0"),
        ("max_payload_bytes", 0, "max_payload_bytes is 0, must be at least 1"),
        ("max_payload_bytes", None, "max_payload_bytes must be an int, not NoneType"),
        ("timeout_s", 0, "timeout_s is 0, must be a finite number above 0"),
        ("tracing", "on", 'tracing must be "auto", "off" or'),
    ),
)
def test_an_option_of_a_queue_out_of_its_bounds_is_refused_by_name(option: str, value: Any, problem: str) -> None:
    with pytest.raises(ChasquiError) as refused:
        Queue("emails", **{option: value})
    assert problem in str(refused.value)


def test_a_new_option_is_one_field() -> None:
    @dataclass(frozen=True)
    class PoolConfig:
        name: str
        size: Option[int | None, int] = Option(4, make_range_check(1, 8), none_is_default=True)  # noqa: RUF009  a descriptor
        spare: Option[int | None, int | None] = Option(None, make_optional_check(make_minimum_check(0)))  # noqa: RUF009  a descriptor

    class Pool:
        @take_config_fields_as_arguments(PoolConfig)
        def __init__(self, config: PoolConfig) -> None:
            self.config = config

    assert (Pool("a").config.size, Pool("a", size=None).config.size, Pool("a", 8).config.size) == (4, 4, 8)
    assert Pool(name="a", spare=None).config.spare is None
    assert Pool("a") != Pool("a")
    assert Pool("a").config == Pool("a", size=4).config
    with pytest.raises(InvalidArgument, match="size is 9, must be from 1 to 8"):
        Pool("a", size=9)
    with pytest.raises(InvalidType, match="spare must be an int, not str"):
        Pool("a", spare="1")  # type: ignore[arg-type]
