"""Bad input: a clear error of our own that names field, value and bound; nothing is sent and nothing is lost."""

from __future__ import annotations

import asyncio
import datetime
import math
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from time import monotonic
from typing import Any

import pytest
import redis.asyncio

from pychasqui import (
    AuthenticationFailed,
    BackoffSpec,
    ChasquiError,
    Closed,
    ConnectionLost,
    InvalidArgument,
    InvalidType,
    Job,
    MissedFiresPolicy,
    NotRedis,
    PayloadTooLarge,
    Queue,
    RepeatPattern,
    ServerTooOld,
    UnsupportedData,
    Worker,
)
from tests.support.fake_server import FakeServer, redis_that_says, redis_without_hello
from tests.support.proxy import Proxy
from tests.support.server import RedisServer
from tests.support.streams import Stream

NAN, INFINITY = math.nan, math.inf
SELF: list[Any] = []
SELF.append(SELF)


@pytest.fixture
async def queue(proxy: Proxy, queue_name: str, witness: redis.asyncio.Redis) -> AsyncIterator[Queue]:
    """A queue that may send nothing: bad input does not even open a connection."""
    async with Queue(queue_name, redis_url=proxy.url, max_payload_bytes=100_000) as queue:
        yield queue
    assert proxy.requests == []
    assert await Stream(witness, queue_name).keys() == []


@pytest.fixture(scope="module")
def locked() -> Iterator[RedisServer]:
    with RedisServer("--requirepass", "right", tcp=True) as server:
        yield server


async def handle(job: Job) -> None:
    pass


BAD_ADDS: tuple[tuple[dict[str, Any], type[ChasquiError], str], ...] = (
    ({"name": "x" * 257}, InvalidArgument, r"name 'xxx.*257 bytes.*256"),
    ({"name": "ü" * 129}, InvalidArgument, r"name .*258 bytes.*256"),
    ({"name": "\ud800"}, InvalidArgument, r"name .*surrogate"),
    ({"name": None}, InvalidType, r"name must be a str, not NoneType"),
    ({"name": b"send"}, InvalidType, r"name must be a str, not bytes"),
    ({"name": 7}, InvalidType, r"name must be a str, not int"),
    ({"name": ["send"]}, InvalidType, r"name must be a str, not list"),
    ({"job_id": ""}, InvalidArgument, r"job_id ''.*blank"),
    ({"job_id": "  \t"}, InvalidArgument, r"job_id .*blank"),
    ({"job_id": 17}, InvalidArgument, r"job_id .*not 17"),
    ({"job_id": b"id"}, InvalidArgument, r"job_id .*not b'id'"),
    ({"job_id": True}, InvalidArgument, r"job_id .*not True"),
    ({"job_id": "x" * 4097}, InvalidArgument, r"job_id 'xxx.*4096 bytes"),
    ({"job_id": "a\nb"}, InvalidArgument, r"job_id 'a\\nb'"),
    ({"job_id": "a\0b"}, InvalidArgument, r"job_id 'a\\x00b'"),
    ({"delay_ms": -1}, InvalidArgument, r"delay_ms is -1 ms, must be at least 0"),
    ({"delay_ms": -0.5}, InvalidArgument, r"delay_ms is -0\.5 ms, must be at least 0"),
    ({"delay_ms": NAN}, InvalidArgument, r"delay_ms is nan, must be a finite number"),
    ({"delay_ms": INFINITY}, InvalidArgument, r"delay_ms is inf, must be a finite number"),
    ({"delay_ms": True}, InvalidType, r"delay_ms must be milliseconds .*not bool True"),
    ({"delay_ms": "5"}, InvalidType, r"delay_ms must be milliseconds .*not str '5'"),
    ({"delay_ms": [5]}, InvalidType, r"delay_ms must be milliseconds .*not list \[5\]"),
    ({"delay_ms": datetime.timedelta(1)}, InvalidType, r"delay_ms must be .*a timedelta goes into delay"),
    ({"delay_ms": datetime.date(2030, 1, 1)}, InvalidType, r"delay_ms must be milliseconds .*not date"),
    ({"delay_ms": 31 * 86_400_000}, InvalidArgument, r"2678400000 ms is longer than max_delay_secs=2592000 allows"),
    ({"delay_ms": 10**400}, InvalidArgument, r"delay_ms is .* ms, must be at most 3153600000000"),
    ({"delay": 5}, InvalidType, r"delay must be a timedelta, not int 5"),
    ({"delay": datetime.timedelta(-1)}, InvalidArgument, r"delay is -8\.64e\+07 ms, must be at least 0"),
    ({"delay": datetime.timedelta.max}, InvalidArgument, r"delay is .* ms, must be at most 3153600000000"),
    ({"delay": datetime.timedelta(1), "delay_ms": 1}, InvalidArgument, r"delay and delay_ms contradict each other"),
    ({"job_id": "a", "unique_for": 0}, InvalidArgument, r"unique_for is 0 ms, must be at least 1"),
    ({"job_id": "a", "unique_for": -1}, InvalidArgument, r"unique_for is -1 ms, must be at least 1"),
    ({"job_id": "a", "unique_for": 0.9}, InvalidArgument, r"unique_for is 0\.9 ms, must be at least 1"),
    ({"job_id": "a", "unique_for": NAN}, InvalidArgument, r"unique_for is nan, must be a finite number"),
    (
        {"job_id": "a", "unique_for": True},
        InvalidType,
        r"unique_for must be milliseconds .*not bool True",
    ),
    ({"job_id": "a", "unique_for": "9"}, InvalidType, r"unique_for must be milliseconds or a timedelta, not str '9'"),
    (
        {"job_id": "a", "unique_for": 2**63},
        InvalidArgument,
        r"unique_for is .* ms, must be at most 3153600000000",
    ),
    ({"unique_for": 5}, InvalidArgument, r"unique_for and if_exists .*give a job_id"),
    ({"if_exists": "keep"}, InvalidArgument, r"unique_for and if_exists .*give a job_id"),
    ({"job_id": "a", "if_exists": "Keep"}, InvalidArgument, r"if_exists is 'Keep', must be one of keep, replace, post"),
    ({"job_id": "a", "if_exists": ""}, InvalidArgument, r"if_exists is '', must be one of keep"),
    ({"job_id": "a", "if_exists": True}, InvalidArgument, r"if_exists is True, must be one of keep"),
    ({"job_id": "a", "if_exists": ["keep"]}, InvalidArgument, r"if_exists is \['keep'\], must be one of keep"),
    ({"data": {1, 2}}, UnsupportedData, r"data is a set"),
    ({"data": object()}, UnsupportedData, r"data is a object"),
    ({"data": {"a": [0, {"b": Decimal("1.5")}]}}, UnsupportedData, r"data\['a'\]\[1\]\['b'\] is a Decimal"),
    (
        {"data": {"when": datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)}},
        UnsupportedData,
        r"data\['when'\] is a datetime",
    ),
    ({"data": [1, (2, handle)]}, UnsupportedData, r"data\[1\]\[1\] is a function"),
    ({"data": {"n": 2**64}}, UnsupportedData, r"data\['n'\] is an int "),
    ({"data": [-(2**63) - 1]}, UnsupportedData, r"data\[0\] is an int "),
    ({"data": {"s": "\ud800"}}, UnsupportedData, r"data\['s'\] is a str with a lone surrogate"),
    ({"data": {"outer": {frozenset(): 1}}}, UnsupportedData, r"data\['outer'\] has the key frozenset"),
    ({"data": SELF}, UnsupportedData, r"data\[0\] contains itself"),
    ({"data": b"x" * 100_000}, PayloadTooLarge, r"\d{6} bytes.*max_payload_bytes.*100000"),
    ({"data": ["x" * 50_000, "y" * 60_000]}, PayloadTooLarge, r"max_payload_bytes.*100000"),
    ({"attempts": -1}, InvalidArgument, r"attempts .*between 0 and 4294967295, not -1"),
    ({"attempts": 2**32}, InvalidArgument, r"attempts .*between 0 and 4294967295, not 4294967296"),
    ({"attempts": True}, InvalidType, r"attempts must be an int, not True"),
    ({"attempts": 2.0}, InvalidType, r"attempts must be an int, not 2\.0"),
    ({"attempts": NAN}, InvalidType, r"attempts must be an int, not nan"),
    ({"attempts": "3"}, InvalidType, r"attempts must be an int, not '3'"),
    ({"backoff": -1}, InvalidArgument, r"backoff .*between 0 and \d+, not -1"),
    ({"backoff": False}, InvalidType, r"backoff .*not False"),
    ({"backoff": NAN}, InvalidType, r"backoff .*not nan"),
    ({"backoff": "100"}, InvalidType, r"backoff .*not '100'"),
    ({"backoff": {"kind": "linear", "delay_ms": 1}}, InvalidArgument, r"backoff\.kind .*not 'linear'"),
    ({"backoff": {"kind": "fixed"}}, InvalidArgument, r"backoff\['delay_ms'\] is required"),
    ({"backoff": {"kind": "fixed", "delay_ms": 1, "delya": 2}}, InvalidArgument, r"backoff has no 'delya'"),
    ({"backoff": {"kind": "fixed", "delay_ms": True}}, InvalidType, r"backoff\.delay_ms .*not True"),
    ({"backoff": {"kind": "fixed", "delay_ms": -5}}, InvalidArgument, r"backoff\.delay_ms .*not -5"),
    ({"backoff": BackoffSpec("exponential", 1, None, NAN)}, InvalidArgument, r"backoff\.multiplier .*not nan"),
    ({"backoff": BackoffSpec("exponential", 1, None, -2.0)}, InvalidArgument, r"backoff\.multiplier .*not -2"),
    ({"backoff": BackoffSpec("exponential", 1, None, INFINITY)}, InvalidArgument, r"backoff\.multiplier .*not inf"),
)


class TestAdd:
    @pytest.mark.parametrize(("bad", "kind", "complaint"), BAD_ADDS)
    async def test_a_bad_argument_is_named(
        self, queue: Queue, bad: dict[str, Any], kind: type[ChasquiError], complaint: str
    ) -> None:
        with pytest.raises(kind, match=complaint) as refused:
            await _add(queue, {"name": "send", "data": 1} | bad)
        assert len(str(refused.value)) < 1000

    @pytest.mark.parametrize(("bad", "kind", "complaint"), BAD_ADDS)
    async def test_a_bad_job_of_a_bulk_is_named_and_no_job_is_sent(
        self, queue: Queue, bad: dict[str, Any], kind: type[ChasquiError], complaint: str
    ) -> None:
        good = {"name": "send", "data": 1, "attempts": None, "backoff": None, "job_id": None}
        with pytest.raises(kind, match=complaint) as refused:
            await queue.add_bulk([good] * 1500 + [good | bad] + [good] * 10)
        assert "job 1500 of the bulk" in str(refused.value)
        assert len(str(refused.value)) < 1000

    async def test_contradicting_or_unknown_arguments_are_refused(self, queue: Queue) -> None:
        for wrong in ({"dealy_ms": 5}, {"priority": 1}):
            with pytest.raises(TypeError, match=next(iter(wrong))):
                await queue.add("send", **wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("job", "complaint"),
        (
            ({"name": "send", "data": 1, "dealy_ms": 5}, r"job 1 of the bulk.*unknown option 'dealy_ms'"),
            ({"name": "send", "data": 1, 5: 5}, r"job 1 of the bulk.*unknown option 5"),
            ({"name": "send", "data": 1, "job_id": "a", "nmae": "b"}, r"job 1 of the bulk.*unknown option 'nmae'"),
            ({}, r"job 1 of the bulk.*name"),
            ({"data": 1}, r"job 1 of the bulk.*name"),
            ({"nmae": "send", "data": 1}, r"job 1 of the bulk.*(name|nmae)"),
            ({"data": 1, "attempts": 2, "job_id": "x"}, r"job 1 of the bulk.*name"),
            (("send", 1), r"job 1 of the bulk.*mapping.*\('send', 1\)"),
            (["send", 1], r"job 1 of the bulk.*mapping"),
            ("send", r"job 1 of the bulk.*mapping.*'send'"),
            ("ab", r"job 1 of the bulk.*mapping.*'ab'"),
            (b"ab", r"job 1 of the bulk.*mapping"),
            (None, r"job 1 of the bulk.*mapping.*None"),
            (7, r"job 1 of the bulk.*mapping.*7"),
            (object(), r"job 1 of the bulk.*mapping"),
            (Job("id", "send", 1), r"job 1 of the bulk.*mapping"),
            ([["name", "send"], ["data", 1]], r"job 1 of the bulk.*mapping"),
        ),
    )
    async def test_a_bulk_item_that_is_no_job_is_named(self, queue: Queue, job: Any, complaint: str) -> None:
        with pytest.raises(ChasquiError, match=complaint) as refused:
            await queue.add_bulk([{"name": "send", "data": 0}, job])
        assert isinstance(refused.value, (InvalidArgument, InvalidType))
        assert len(str(refused.value)) < 1000

    @pytest.mark.parametrize("jobs", (None, 7, "send", {"name": "send", "data": 1}))
    async def test_a_bulk_that_is_no_list_of_jobs_is_refused(self, queue: Queue, jobs: Any) -> None:
        with pytest.raises(TypeError):
            await queue.add_bulk(jobs)

    async def test_an_iterable_that_fails_halfway_adds_none(self, queue: Queue) -> None:
        def jobs() -> Any:
            for number in range(5000):
                yield {"name": "send", "data": number}
            raise LookupError("the source has run dry")

        with pytest.raises(LookupError, match="run dry"):
            await queue.add_bulk(jobs())

    async def test_a_bad_add_harms_none_beside_it(self, redis_url: str, queue_name: str, witness: Any) -> None:
        stream = Stream(witness, queue_name)
        async with Queue(queue_name, redis_url=redis_url) as queue:
            results = await asyncio.gather(
                *(queue.add("send", object() if number % 10 == 0 else number) for number in range(100)),
                return_exceptions=True,
            )
        assert sum(isinstance(result, UnsupportedData) for result in results) == 10
        assert [entry.data for entry in await stream.entries()] == [number for number in range(100) if number % 10]
        await stream.clear()

    async def test_data_whose_own_code_raises_in_a_bulk_is_not_shown(self, queue: Queue) -> None:
        class Hostile(dict[str, Any]):
            def items(self) -> Any:
                raise TypeError("own code")

        with pytest.raises(InvalidType, match="job 1 of the bulk: TypeError") as refused:
            await queue.add_bulk([{"name": "send"}, {"name": "send", "data": {"card": "4711", "rest": Hostile(a=1)}}])
        assert "4711" not in str(refused.value)
        with pytest.raises(InvalidType, match="job 0 of the bulk must be a mapping with a name") as refused:
            await queue.add_bulk([{"data": {"card": "4711"}}])
        assert "4711" not in str(refused.value)

    async def test_an_error_shows_no_more_than_a_glimpse_of_the_data(self, queue: Queue) -> None:
        with pytest.raises(ChasquiError) as refused:
            await queue.add_bulk([{"nmae": "send", "data": "secret" * 10_000}])
        assert len(str(refused.value)) < 1000


QUEUE_OPTIONS: tuple[tuple[dict[str, Any], type[ChasquiError], str], ...] = (
    ({"max_stream_len": 0}, InvalidArgument, r"max_stream_len is 0, must be at least 1"),
    ({"max_stream_len": -5}, InvalidArgument, r"max_stream_len is -5, must be at least 1"),
    ({"max_stream_len": True}, InvalidType, r"max_stream_len must be an int, not bool True"),
    ({"max_stream_len": 1e6}, InvalidType, r"max_stream_len must be an int, not float"),
    ({"max_stream_len": NAN}, InvalidType, r"max_stream_len must be an int, not float nan"),
    ({"max_payload_bytes": 0}, InvalidArgument, r"max_payload_bytes is 0, must be at least 1"),
    ({"max_payload_bytes": "1"}, InvalidType, r"max_payload_bytes must be an int, not str '1'"),
    ({"max_payload_bytes": None}, InvalidType, r"max_payload_bytes must be an int, not NoneType"),
    ({"timeout_s": 0}, InvalidArgument, r"timeout_s is 0, must be .*above 0"),
    ({"timeout_s": -1}, InvalidArgument, r"timeout_s is -1, must be .*above 0"),
    ({"timeout_s": NAN}, InvalidArgument, r"timeout_s is nan, must be .*above 0"),
    ({"timeout_s": INFINITY}, InvalidArgument, r"timeout_s is inf, must be .*above 0"),
    ({"timeout_s": True}, InvalidType, r"timeout_s must be a number of seconds, not bool True"),
    ({"timeout_s": None}, InvalidType, r"timeout_s must be a number of seconds, not NoneType None"),
)

ADDRESSES: tuple[tuple[dict[str, Any], type[ChasquiError], str], ...] = (
    ({"redis_url": "http://example.org"}, InvalidArgument, r"redis_url has an unknown scheme: use redis://"),
    ({"redis_url": "amqp://example.org"}, InvalidArgument, r"redis_url has an unknown scheme"),
    ({"redis_url": "redis+tls://example.org"}, InvalidArgument, r"redis_url has an unknown scheme"),
    ({"redis_url": 6379}, InvalidType, r"redis_url must be a str, not int"),
    ({"redis_url": "redis://example.org:port"}, InvalidArgument, r"redis_url"),
    ({"redis_url": "redis://example.org/one"}, InvalidArgument, r"redis_url .*database.* must be a number"),
    ({"redis_url": "redis://example.org?ttl=1"}, InvalidArgument, r"redis_url has an unknown option, number 1 behind"),
    ({"redis_url": "unix:///run/redis.sock", "tls": True}, InvalidArgument, r"tls=True contradicts redis_url"),
    ({"redis_url": "embedded://", "tls": True}, InvalidArgument, r"tls .*contradict redis_url"),
    ({"redis_url": "embedded://", "credential_provider": handle}, InvalidArgument, r"credential_provider contradict"),
)

NAMES: tuple[tuple[Any, type[ChasquiError]], ...] = (
    ("", InvalidArgument),
    (" ", InvalidArgument),
    ("{a}", InvalidArgument),
    ("a}", InvalidArgument),
    ("x" * 513, InvalidArgument),
    ("a\n", InvalidArgument),
    (None, InvalidType),
    (7, InvalidType),
    (b"emails", InvalidType),
)


EVERY = RepeatPattern.every(1000)
BAD_REPEATABLES: tuple[tuple[dict[str, Any], type[ChasquiError], str], ...] = (
    ({"name": "x" * 257}, InvalidArgument, r"name 'xxx.*257 bytes.*256"),
    ({"name": 7}, InvalidType, r"name must be a str, not int"),
    ({"name": "\ud800"}, InvalidArgument, r"name .*surrogate"),
    ({"data": {1}}, UnsupportedData, r"data is a set"),
    ({"data": b"x" * 2**20}, PayloadTooLarge, r"data makes jobs of 1048581 bytes, 1047552 are allowed"),
    ({"repeat": None}, InvalidType, r"repeat must be an object of its class or a dict, not NoneType"),
    ({"repeat": 60_000}, InvalidType, r"repeat must be an object of its class or a dict, not int 60000"),
    ({"repeat": "@daily"}, InvalidType, r"repeat must be an object of its class or a dict, not str '@daily'"),
    ({"repeat": {}}, InvalidArgument, r"repeat\['kind'\] is required"),
    ({"repeat": {"kind": "yearly"}}, InvalidArgument, r"kind of a repeat pattern must be .*not 'yearly'"),
    ({"repeat": {"kind": "every"}}, InvalidType, r"interval_ms must be an int, not NoneType"),
    ({"repeat": {"kind": "every", "interval_ms": 0}}, InvalidArgument, r"interval_ms is 0, must be from 1"),
    ({"repeat": {"kind": "every", "interval_ms": 1, "tz": "Z"}}, InvalidArgument, r"tz is 'Z', but 'every' has none"),
    ({"repeat": {"kind": "every", "ms": 1}}, InvalidArgument, r"repeat has no 'ms'"),
    ({"repeat": {"kind": "cron", "expression": "* *"}}, InvalidArgument, r"\* \*"),
    ({"repeat": {"kind": "cron", "expression": "@daily", "tz": "Mars/Base"}}, InvalidArgument, r"Mars/Base"),
    ({"limit": 0}, InvalidArgument, r"limit is 0, must be from 1 to"),
    ({"limit": "1"}, InvalidType, r"limit must be an int, not str '1'"),
    ({"limit": True}, InvalidType, r"limit must be an int, not bool True"),
    ({"limit": 2**64}, InvalidArgument, r"limit is 18446744073709551616, must be from 1 to"),
    ({"start_after_ms": -1}, InvalidArgument, r"start_after_ms is -1, must be from 0 to"),
    ({"start_after_ms": 1.5}, InvalidType, r"start_after_ms must be an int, not float 1\.5"),
    ({"start_after_ms": datetime.datetime.now(datetime.UTC)}, InvalidType, r"start_after_ms must be an int, not dat"),
    ({"end_before_ms": -1}, InvalidArgument, r"end_before_ms is -1, must be from 0 to"),
    ({"end_before_ms": "5"}, InvalidType, r"end_before_ms must be an int, not str '5'"),
    ({"key": ""}, InvalidArgument, r"key '' must not be blank"),
    ({"key": "  "}, InvalidArgument, r"key '  ' must not be blank"),
    ({"key": 5}, InvalidType, r"key must be a str, not int 5"),
    ({"key": "a\nb"}, InvalidArgument, r"key 'a\\nb' must be printable"),
    ({"key": "x" * 1025}, InvalidArgument, r"key 'xxx.*at most 1024 bytes"),
    ({"key": "\ud800"}, InvalidArgument, r"key '\\ud800' holds half of a surrogate pair"),
    ({"attempts": -1}, InvalidArgument, r"attempts .*not -1"),
    ({"attempts": True}, InvalidType, r"attempts must be an int, not True"),
    ({"backoff": -1}, InvalidArgument, r"backoff .*not -1"),
    ({"backoff": "1"}, InvalidType, r"backoff .*not '1'"),
    ({"missed_fires": 5}, InvalidType, r"missed_fires must be an object of its class or a dict, not int 5"),
    ({"missed_fires": {"kind": "some"}}, InvalidArgument, r"kind of a missed-fires policy must be .*not 'some'"),
    ({"missed_fires": {"kind": "fire-all"}}, InvalidType, r"max_catchup must be an int, not NoneType"),
    ({"missed_fires": {"kind": "fire-all", "max_catchup": 0}}, InvalidArgument, r"max_catchup is 0, must be from 1"),
    ({"missed_fires": {"kind": "skip", "max_catchup": 1}}, InvalidArgument, r"max_catchup is 1, but 'skip' has none"),
    ({"job_id": "one"}, InvalidArgument, r"job_id contradicts repeat.*`key` names the repeatable"),
)


class TestTime:
    @pytest.mark.parametrize(("bad", "kind", "complaint"), BAD_REPEATABLES)
    async def test_a_bad_repeatable_is_named(
        self, queue: Queue, bad: dict[str, Any], kind: type[ChasquiError], complaint: str
    ) -> None:
        with pytest.raises(kind, match=complaint):
            await _upsert(queue, {"name": "tick", "repeat": EVERY} | bad)

    @pytest.mark.parametrize(
        ("option", "value"),
        (
            ("delay_ms", 5),
            ("delay", datetime.timedelta(1)),
            ("job_id", "one"),
            ("unique_for", 5),
            ("if_exists", "keep"),
            ("wait_replicas", 1),
        ),
    )
    async def test_an_option_that_contradicts_a_repeatable_is_named(
        self, queue: Queue, option: str, value: Any
    ) -> None:
        with pytest.raises(InvalidArgument, match=f"{option} contradicts repeat"):
            await queue.add("tick", repeat=EVERY, **{option: value})

    async def test_an_option_that_needs_a_repeatable_says_so(self, queue: Queue) -> None:
        with pytest.raises(InvalidArgument, match="missed_fires says what a repeatable does: give repeat"):
            await queue.add("tick", missed_fires=MissedFiresPolicy.skip())
        with pytest.raises(InvalidArgument, match="job 0 of the bulk: unknown option 'repeat'"):
            await queue.add_bulk([{"name": "tick", "repeat": EVERY}])

    @pytest.mark.parametrize("bad", (None, 7, b"id", True, "\ud800"))
    async def test_an_id_that_is_none_is_named(self, queue: Queue, bad: Any) -> None:
        for ask in (queue.cancel_delayed, queue.run_now):
            with pytest.raises(InvalidArgument, match="job_id"):
                await ask(bad)
        with pytest.raises(InvalidArgument, match="job_id"):
            await queue.reschedule(bad, 5)
        with pytest.raises(InvalidArgument, match="job_id"):
            await queue.cancel_delayed_bulk(["good", bad])

    @pytest.mark.parametrize("bad", ("order-17", None, 7))
    async def test_a_single_id_in_the_place_of_several_is_refused(self, queue: Queue, bad: Any) -> None:
        with pytest.raises(InvalidType, match=rf"job_ids must be several ids, not {type(bad).__name__}"):
            await queue.cancel_delayed_bulk(bad)

    @pytest.mark.parametrize(
        ("bad", "kind", "complaint"),
        (
            (-1, InvalidArgument, "delay is -1 ms, must be at least 0"),
            (NAN, InvalidArgument, "delay is nan, must be a finite number"),
            (True, InvalidType, "delay must be milliseconds or a timedelta, not bool True"),
            (None, InvalidType, "delay must be milliseconds or a timedelta, not NoneType"),
            ("5", InvalidType, "delay must be milliseconds or a timedelta, not str '5'"),
            (datetime.timedelta(31), InvalidArgument, "2678400000 ms is longer than max_delay_secs=2592000 allows"),
            (10**400, InvalidArgument, "must be at most 3153600000000"),
        ),
    )
    async def test_a_bad_new_delay_is_named(
        self, queue: Queue, bad: Any, kind: type[ChasquiError], complaint: str
    ) -> None:
        with pytest.raises(kind, match=complaint):
            await queue.reschedule("one", bad)

    @pytest.mark.parametrize("bad", (None, 7, "", " ", b"key", "\ud800"))
    async def test_a_key_that_is_none_is_named(self, queue: Queue, bad: Any) -> None:
        repeatables = queue.repeatables
        asks = (repeatables.get, repeatables.pause, repeatables.resume, repeatables.remove, repeatables.next_fires)
        for ask in (*asks, queue.remove_repeatable_by_key, queue.fire_now):
            with pytest.raises(ChasquiError, match="key"):
                await ask(bad)

    @pytest.mark.parametrize("bad", (None, -1, "3", True, 2.0))
    async def test_a_count_that_is_none_is_named(self, queue: Queue, bad: Any) -> None:
        with pytest.raises(ChasquiError, match="limit"):
            await queue.get_repeatable_jobs(bad)
        with pytest.raises(ChasquiError, match=r"n must be an int|n is -1"):
            await queue.repeatables.next_fires("key", bad)


class TestQueue:
    @pytest.mark.parametrize(("bad", "kind", "complaint"), QUEUE_OPTIONS + ADDRESSES)
    def test_a_bad_option_is_named(self, bad: dict[str, Any], kind: type[ChasquiError], complaint: str) -> None:
        with pytest.raises(kind, match=complaint):
            Queue("emails", **bad)

    @pytest.mark.parametrize(("name", "kind"), NAMES)
    def test_a_bad_name_is_refused(self, name: Any, kind: type[ChasquiError]) -> None:
        with pytest.raises(kind, match="queue name"):
            Queue(name)

    def test_an_unknown_option_is_refused(self) -> None:
        with pytest.raises(TypeError, match="max_len"):
            Queue("emails", max_len=5)  # type: ignore[call-arg]


WORKER_OPTIONS: tuple[tuple[dict[str, Any], type[ChasquiError], str], ...] = (
    ({"concurrency": 0}, InvalidArgument, r"concurrency is 0, must be"),
    ({"concurrency": -1}, InvalidArgument, r"concurrency is -1, must be"),
    ({"concurrency": True}, InvalidType, r"concurrency must be an int, not bool True"),
    ({"concurrency": 2.5}, InvalidType, r"concurrency must be an int, not float 2\.5"),
    ({"concurrency": NAN}, InvalidType, r"concurrency must be an int, not float nan"),
    ({"concurrency": "4"}, InvalidType, r"concurrency must be an int, not str '4'"),
    ({"concurrency": None}, InvalidType, r"concurrency must be an int, not NoneType"),
    ({"read_block_ms": 0}, InvalidArgument, r"read_block_ms is 0, must be at least 1"),
    ({"read_block_ms": -1}, InvalidArgument, r"read_block_ms is -1, must be at least 1"),
    ({"read_block_ms": 0.5}, InvalidType, r"read_block_ms must be an int, not float"),
    ({"read_count": 0}, InvalidArgument, r"read_count is 0, must be at least 1"),
    ({"read_count": True}, InvalidType, r"read_count must be an int, not bool"),
    ({"max_payload_bytes": -1}, InvalidArgument, r"max_payload_bytes is -1, must be at least 1"),
    ({"max_attempts": -1}, InvalidArgument, r"max_attempts is -1, must be from 0 to 4294967295"),
    ({"max_attempts": 2**32}, InvalidArgument, r"max_attempts is 4294967296, must be from 0 to 4294967295"),
    ({"max_attempts": False}, InvalidType, r"max_attempts must be an int, not bool False"),
    ({"claim_min_idle_ms": 0}, InvalidArgument, r"claim_min_idle_ms is 0, must be at least 300"),
    ({"lease_ms": 1}, InvalidArgument, r"lease_ms is 1, must be from 300"),
    ({"delayed_enabled": 1}, InvalidType, r"delayed_enabled must be True or False, not int 1"),
    ({"run_scheduler": None}, InvalidType, r"run_scheduler must be True or False, not NoneType"),
    ({"strict": "yes"}, InvalidType, r"strict must be True or False, not str 'yes'"),
    ({"scheduler_tick_ms": 9}, InvalidArgument, r"scheduler_tick_ms is 9, must be from 10 to 86400000"),
    ({"scheduler_tick_ms": 10**30}, InvalidArgument, r"scheduler_tick_ms is 10+, must be from 10 to 86400000"),
    ({"scheduler_tick_ms": 1.5}, InvalidType, r"scheduler_tick_ms must be an int, not float"),
    ({"dlq_max_stream_len": -1}, InvalidArgument, r"dlq_max_stream_len is -1, must be at least 0"),
    ({"shutdown_deadline_s": -1}, InvalidArgument, r"shutdown_deadline_s is -1, must be"),
    ({"shutdown_deadline_s": NAN}, InvalidArgument, r"shutdown_deadline_s is nan, must be"),
    ({"shutdown_deadline_s": True}, InvalidType, r"shutdown_deadline_s must be a number of seconds, not bool"),
)


async def test_a_password_beside_a_provider_of_passwords_is_a_contradiction() -> None:
    async def provide(address: str | None) -> tuple[str | None, str | None]:
        return None, "another"

    with pytest.raises(InvalidArgument, match="credential_provider contradicts"):
        Queue("emails", redis_url="redis://:one@example.org", credential_provider=provide)


class TestWorker:
    @pytest.mark.parametrize(("bad", "kind", "complaint"), WORKER_OPTIONS + ADDRESSES)
    def test_a_bad_option_is_named(self, bad: dict[str, Any], kind: type[ChasquiError], complaint: str) -> None:
        with pytest.raises(kind, match=complaint):
            Worker("emails", handle, **bad)

    @pytest.mark.parametrize(("name", "kind"), NAMES)
    def test_a_bad_name_is_refused(self, name: Any, kind: type[ChasquiError]) -> None:
        with pytest.raises(kind, match="queue name"):
            Worker(name, handle)

    @pytest.mark.parametrize("handler", (None, 7, "handle", b"handle", ["handle"], OrderedDict()))
    def test_a_handler_that_cannot_be_called_is_refused(self, handler: Any) -> None:
        with pytest.raises(InvalidType, match=rf"handler is a {type(handler).__name__}, must be a function"):
            Worker("emails", handler)

    @pytest.mark.parametrize("option", ("group", "consumer_id"))
    @pytest.mark.parametrize("value", (7, b"mine", ["mine"], True, "", " ", "a\nb"))
    def test_a_group_or_consumer_that_is_no_good_name_is_refused(self, option: str, value: Any) -> None:
        with pytest.raises(ChasquiError, match=option):
            Worker("emails", handle, **{option: value})

    def test_a_name_that_has_a_meaning_of_its_own_is_refused(self) -> None:
        """Entries that are handed back are pending under it until a worker takes them."""
        with pytest.raises(InvalidArgument, match=r"consumer_id 'released'.*take another"):
            Worker("emails", handle, consumer_id="released")
        assert Worker("emails", handle, consumer_id="released-1", group="released").consumer_id == "released-1"

    async def test_a_closed_worker_refuses_to_run(self, redis_url: str, queue_name: str) -> None:
        worker = Worker(queue_name, handle, redis_url=redis_url)
        await worker.close()
        assert worker.is_closed
        with pytest.raises(Closed, match=queue_name):
            await worker.run()
        with pytest.raises(Closed, match=queue_name):
            await worker.__aenter__()


class TestServers:
    """Errors found at connect reach both an add and a worker, at once and as our own errors."""

    async def assert_refused(
        self, url: str, kind: type[ChasquiError], complaint: str, *, within_s: float = 4.0, **options: Any
    ) -> None:
        start = monotonic()
        async with Queue("emails", redis_url=url, **options) as queue:
            with pytest.raises(kind, match=complaint):
                await queue.add("send")
            with pytest.raises(kind, match=complaint):
                await queue.add_bulk({"name": "send", "data": number} for number in range(2500))
        assert monotonic() - start < within_s

    async def assert_worker_refused(self, url: str, kind: type[ChasquiError], complaint: str) -> None:
        start = monotonic()
        worker = Worker("emails", handle, redis_url=url)
        with pytest.raises(kind, match=complaint):
            await worker.run()
        assert worker.is_closed
        assert not worker.is_running
        with pytest.raises(kind, match=complaint):
            async with Worker("emails", handle, redis_url=url):
                pass
        assert monotonic() - start < 4

    async def test_a_wrong_password(self, locked: RedisServer) -> None:
        url = f"redis://:wrong@127.0.0.1:{locked.port}"
        await self.assert_refused(url, AuthenticationFailed, r"redis://127.* refused the credentials: WRONGPASS")
        await self.assert_worker_refused(url, AuthenticationFailed, r"refused the credentials")

    async def test_a_password_that_is_missing(self, locked: RedisServer) -> None:
        await self.assert_refused(locked.tcp_url, AuthenticationFailed, r"wants a password: .*NOAUTH")
        await self.assert_worker_refused(locked.tcp_url, AuthenticationFailed, r"wants a password")

    async def test_a_password_for_a_server_without_one(self, server: RedisServer, redis_url: str) -> None:
        url = f"redis://:superfluous@127.0.0.1:{server.port}"
        await self.assert_refused(url, AuthenticationFailed, r"refused the credentials: ERR .*without any password")
        await self.assert_worker_refused(url, AuthenticationFailed, r"refused the credentials")

    async def test_a_server_that_is_too_old(self) -> None:
        for answer in (redis_without_hello("5.0.14"), redis_that_says("6.0.20")):
            async with FakeServer(answer) as fake:
                await self.assert_refused(fake.url, ServerTooOld, r"(5\.0\.14|6\.0\.20) is too old.*6\.2")
                await self.assert_worker_refused(fake.url, ServerTooOld, r"too old")
                assert not any(command[0] in (b"EVAL", b"EVALSHA") for command in fake.commands)

    async def test_a_server_that_is_not_redis(self) -> None:
        async with FakeServer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as fake:
            await self.assert_refused(fake.url, NotRedis, r"does not speak the Redis protocol")
            await self.assert_worker_refused(fake.url, NotRedis, r"does not speak the Redis protocol")

    async def test_a_server_that_accepts_and_never_answers(self) -> None:
        async with FakeServer() as fake:
            await self.assert_refused(fake.url, ConnectionLost, r"cannot reach redis://127.* in time", timeout_s=0.3)

    async def test_plain_text_where_tls_is_spoken(self, server: RedisServer, redis_url: str) -> None:
        """S7: rediss:// to a port without TLS never falls back."""
        url = f"rediss://127.0.0.1:{server.port}"
        await self.assert_refused(url, ConnectionLost, r"cannot reach rediss://", timeout_s=0.5)


async def _add(queue: Queue, arguments: dict[str, Any]) -> None:
    await queue.add(**arguments)


async def _upsert(queue: Queue, arguments: dict[str, Any]) -> None:
    await queue.upsert_repeatable_job(**arguments)
