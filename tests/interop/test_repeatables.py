"""Repeatables of both kinds: the same bytes, the same windows, except where the official engine is wrong.

Its next window after any instant is the score of a repeatable that starts then. Where the two differ:

    back in time    asked about an instant in an hour that the clock shows twice, the second time, the official engine
                    answers with a time of the first: before the instant it was asked about
    hole            for all 24 hours, it fires only the first time in such an hour, and then not for more than an hour
    twice a day     if a single time of day exists on a day on which the clock jumps, but the hour before the jump is
                    asked about, it also fires as the clock jumps
    sub-second      it carries the milliseconds of the instant into the window; ours are whole seconds
    never           what has no more windows is an error there and None here

The dialects differ in what ACCEPTED_THERE and ACCEPTED_HERE list.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from pychasqui import DecodeError, InvalidArgument, MissedFiresPolicy, RepeatPattern, next_fire
from pychasqui._core.cron import parse_cron
from pychasqui._core.repeat_pattern import RepeatSpec
from pychasqui._core.zones import find_zone
from pychasqui._wire.repeatable import decode_spec, encode_spec
from tests.interop.odd_specs import OddSpecs
from tests.interop.official import PYTHON
from tests.support.server import PROJECT, RedisServer

pytestmark = pytest.mark.usefixtures("can_run_both", "redis_url")
PROGRAM = PROJECT / "tests" / "interop" / "official_repeatables.py"
cron = RepeatPattern.cron
THIS_YEAR = datetime.now(UTC).year
HOUR, DAY = 3600, 86_400

EXPRESSIONS = (
    *("* * * * *", "*/15 * * * *", "0 * * * *", "30 */1 * * *", "@hourly", "*/10 * * * * *"),
    *("30 2 * * *", "0 2 * * *", "0 3 * * *", "30 1 * * *", "0 0 * * *", "30 0 * * *", "45 23 * * *", "59 59 2 * * *"),
    *("15 2,3 * * *", "0,30 2 * * *", "*/20 1-3 * * *", "30 */2 * * *", "0 2/1 * * *", "*/30 30 2 * * *"),
    *("@daily", "@weekly", "@monthly", "30 2 * * SUN", "0 9 13 * FRI", "0 0 1-7 * +MON", "0 0 * * SUN#1"),
    *("0 0 L * *", "30 1 15W * *", "0 12 * * FRI#L", "30 2 28 3 *", f"0 30 2 * * * {THIS_YEAR + 2}"),
)
ZONES = (
    *("Europe/Berlin", "Europe/London", "Europe/Dublin", "Atlantic/Azores", "America/New_York", "America/Los_Angeles"),
    *("America/St_Johns", "America/Havana", "America/Santiago", "Australia/Lord_Howe", "Australia/Adelaide"),
    *("Pacific/Chatham", "Asia/Jerusalem", "Antarctica/Troll", "America/Nuuk"),
    *("UTC", "Asia/Kolkata", "America/Sao_Paulo", "+05:30", "-0330"),
)


class Case:
    """One question to both: what is the next window of this pattern after that instant?"""

    def __init__(self, expression: str, tz: str | None, after_ms: int) -> None:
        self.expression = expression
        self.tz = tz
        self.after_ms = after_ms

    def __repr__(self) -> str:
        return f"{self.expression!r} in {self.tz} after {self.after_ms}"

    @property
    def ours(self) -> int | None:
        return next_fire(cron(self.expression, self.tz), self.after_ms)


def ask_official(server: RedisServer, queue_name: str, cases: list[Case]) -> list[int | str]:
    """The score of each, or the error."""
    wanted = []
    for number, case in enumerate(cases):
        pattern = {"kind": "cron", "expression": case.expression} | ({} if case.tz is None else {"tz": case.tz})
        wanted.append(
            {"key": f"{number}", "job_name": "x", "pattern": pattern, "payload": "", "start_after_ms": case.after_ms}
        )
    errors = run_official(server, queue_name, wanted)
    with server.client() as client:
        scores = dict(client.zrange(f"{{chasqui:{queue_name}}}:repeat", 0, -1, withscores=True))
        client.flushall()
    return [error or int(scores[f"{number}".encode()]) for number, error in enumerate(errors)]


def run_official(server: RedisServer, queue_name: str, wanted: list[dict[str, Any]] | None) -> Any:
    command = [str(PYTHON), str(PROGRAM), server.tcp_url, queue_name]
    text = "" if wanted is None else json.dumps(wanted)
    return json.loads(subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout)


def changes(tz: str, years: int) -> list[int]:
    """The seconds at which the zone's clock is changed. The official engine does not look back, so from tomorrow on."""
    now = int(time.time()) + 2 * DAY
    found: list[int] = []
    while (
        change := find_zone(tz).find_first_offset_change(found[-1] if found else now, now + years * 365 * DAY)
    ) is not None:
        found.append(change)
    return found


def explain(case: Case, theirs: int | str) -> str:
    """Which of the known differences it is; "" if none."""
    ours, zone, pattern = case.ours, find_zone(case.tz), parse_cron(case.expression)
    if isinstance(theirs, str):
        return "never" if ours is None and "search limit exceeded" in theirs else ""
    if theirs <= case.after_ms:
        return "back in time" if zone.find_wall_time_before_set_back(case.after_ms // 1000) else ""
    if ours is None:
        return ""
    if pattern.has_all_hours:
        return "hole" if ours < theirs and zone.find_wall_time_before_set_back(ours // 1000) else ""
    jumps = zone.find_first_offset_change(theirs // 1000 - 1, theirs // 1000) is not None
    return "twice a day" if pattern.is_one_time_of_day and jumps and case.after_ms < theirs < ours else ""


def test_windows_are_the_same_across_years_of_clock_changes(server: RedisServer, queue_name: str) -> None:
    assert len(EXPRESSIONS) * len(ZONES) >= 500
    cases = []
    for tz in ZONES:
        moments = [int(time.time()) + 300 * DAY, int(time.time()) + 900 * DAY]
        for change in changes(tz, years=2):
            moments += [change - 26 * HOUR, change - 5400, change - 1, change, change + 600]
        cases += [Case(expression, tz, moment * 1000) for expression in EXPRESSIONS for moment in moments]
    explained: Counter[str] = Counter()
    for case, theirs in zip(cases, ask_official(server, queue_name, cases), strict=True):
        if case.ours != theirs:
            reason = explain(case, theirs)
            assert reason, f"{case}: {case.ours}, the official engine says {theirs}"
            explained[reason] += 1
    assert explained.keys() == {"back in time", "hole", "twice a day", "never"}
    assert explained.total() < len(cases) / 8, explained


def test_windows_are_whole_seconds(server: RedisServer, queue_name: str) -> None:
    after_ms = (int(time.time()) + 2 * DAY) * 1000 + 903
    cases = [Case(expression, "Europe/Berlin", after_ms) for expression in EXPRESSIONS]
    for case, theirs in zip(cases, ask_official(server, queue_name, cases), strict=True):
        assert case.ours is not None
        assert theirs in (case.ours, case.ours + 903), case


# Both take them, and fire at the same times.
DIALECT = (
    *("5/15 * * * *", "*/61 * * * *", "*/300 * * * *", "1-5,10-15/2 * * * *", "*/5,*/7 * * * *", "0-59/7 * * * *"),
    *("00 09 * * *", "  0   9 * * * ", "0\t9 * * *", "0\u00a09 * * *", "0 0 1,,2 * *", "0 0 1, * *"),
    *("0 0 1 * MON", "0 0 */2 * MON", "0 0 1-31 * MON", "0 0 5 * 0-6", "0 0 5 * */1", "0 0 13 * +*", "0 0 ?/2 * *"),
    *(
        "0 0 ? * MON",
        "0 0 ? * ?",
        "0 0 ? * +FRI",
        "0 0 1 * +MON",
        "0 0 1-7 * +MON,TUE",
        "0 0 L * +FRI",
        "0 0 15W * +FRI",
    ),
    *("0 0 L * *", "0 0 l * *", "0 0 L,15 * *", "0 0 L,L * *", "0 0 L 2 *", "0 0 L * MON", "0 0 31/5 * *"),
    *("0 0 15W * *", "0 0 15w * *", "0 0 015W * *", "0 0 1W * *", "0 0 31W * *", "0 0 30W 4 *", "0 0 29W 2 *"),
    *("0 0 15W,20W * *", "0 0 15W * MON", "0 0 6W 3 *", "0 0 1W * +MON", "0 0 29 2 *", "0 0 29 2 MON", "0 0 31 * *"),
    *("0 0 * * 7", "0 0 * * 0-7", "0 0 * * 6-7", "0 0 * * SAT-SUN", "0 0 * * SUN-SAT", "0 0 * * SUN-MON"),
    *("0 0 * * 1/2", "0 0 * * 0/2", "0 0 * * */2", "0 0 * * */7", "0 0 * * 6/1", "0 0 * * 1-7/3", "0 0 * * 1-5/2"),
    *("0 0 * * 5L", "0 0 * * FRIL", "0 0 * * 5l", "0 0 * * SUNL", "0 0 * * 0L", "0 0 * * 5L,1", "0 0 * * 1,1L"),
    *("0 0 * * 5#2", "0 0 * * FRI#L", "0 0 * * 5#l", "0 0 * * 5#05", "0 0 * * 7#1", "0 0 * * MON#1,FRI#L"),
    *("0 0 * * 1,3#2", "0 0 * * 1-3#2", "0 0 * * MON,MON#2", "0 0 * * +MON#1", "0 0 * * 3,1#L", "0 0 0 29 2 +SUN#5"),
    *("0 0 * JAN-MAR *", "0 0 * jAn-MaR/2 *", "0 0 * JAN,feb,12 *", "0 0 * */5 *", "0 0 * 2/5 *", "0 0 * * THU"),
    *("0 0 0 1 1 * 4999", "0 0 0 1 1 * 5000", "0 0 0 1 1 * */3", f"0 0 0 * * * {THIS_YEAR + 3}/2", "* * * * * * *"),
    *("@hourly", "@daily", "@DAILY", "@weekly", "@monthly", "@yearly", "@annually", " @hourly "),
)
# Neither takes them.
REFUSED = (
    *("", "* * * *", "* * * * * * * *", "@midnight", "@reboot", "@every 5m", "@", "@ hourly", "@yearly 1", "H H * * *"),
    *("60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 32 * *", "0 0 * 0 *", "0 0 * 13 *", "0 0 * * 8", "0 0 256 * *"),
    *("*/0 * * * *", "*/65536 * * * *", "1/ * * * *", "/2 * * * *", "1-2-3 * * * *", "1/2/3 * * * *", "1/-2 * * * *"),
    *(
        "30-10 * * * *",
        "0 0 * * 5-1",
        "0 0 * * 7-1",
        "0 0 * * FRI-MON",
        "0 0 * NOV-FEB *",
        "*-5 * * * *",
        "*/5-10 * * * *",
    ),
    *("*,5 * * * *", "0 0 ?,1 * *", "0 0 , * *", "0 0 * * ,", "? * * * *", "0 0 * ? *", "0 0 0 1 1 * ?", "0 L * * *"),
    *(
        "0 0 * * L",
        "0 0 * * *L",
        "0 0 * * *#2",
        "0 0 * * 5#0",
        "0 0 * * 5#6",
        "0 0 * * 5#",
        "0 0 * * #2",
        "0 0 * * L#1",
    ),
    *("0 0 * * 5#1-2", "0 0 * * 1#2/2", "0 0 * * 1-5L", "0 0 * * L5", "0 0 5#1 * *", "0 0 * 2#1 *", "0 0 * * 1W"),
    *(
        "0 0 W * *",
        "0 0 WL * *",
        "0 0 W1 * *",
        "0 0 0W * *",
        "0 0 32W * *",
        "0 0 1-15W * *",
        "0 0 L-2 * *",
        "0 0 L/2 * *",
    ),
    *("0 0 * January *", "0 0 * * Monday", "0 0 * * THUR", "0 0 * * ++MON", "0 0 * * MON+", "0 0 +1 * *", "0 0 * * +"),
    *("0.5 * * * *", "\u0663 * * * *", "0 0 0 1 1 * 0", "0 0 0 1 1 * 5001", "0 0 30 2 *", "0 0 31W 4 *", "0 0 LL * *"),
)
ACCEPTED_THERE = {
    "0 0 * JANFEB *": "names are replaced by digits as text: 12, December",
    "0 0 * MON *": "a weekday's name as a month: 1, January",
    "0 0 * * JAN": "a month's name as a weekday: 1, Monday",
    "FRI 0 * * *": "a name as a minute: 5",
    "0 0 1W2 * *": "what follows a W is ignored",
    "0 0 * * 1#1L": "what comes between # and L is ignored",
    "0 0 1 * L": "an L without a weekday is ignored",
    "0 0 1 * ,": "a day field without a value is ignored if the other has one",
}
ACCEPTED_HERE = {
    "0 0 LW * *": "the last weekday of the month cannot be said otherwise",
    "0 0 * * 7L": "7 is Sunday, also before an L",
}


def three_moments(expression: str, tz: str | None = None) -> list[Case]:
    now = int(time.time())
    return [Case(expression, tz, (now + days * DAY) * 1000) for days in (2, 47, 333)]


def test_the_dialect_is_the_same(server: RedisServer, queue_name: str) -> None:
    cases = [case for expression in DIALECT for case in three_moments(expression)]
    different = {
        f"{case}: {case.ours}, the official engine says {theirs}"
        for case, theirs in zip(cases, ask_official(server, queue_name, cases), strict=True)
        if case.ours != theirs
    }
    assert not different


def test_the_same_cron_expressions_are_refused(server: RedisServer, queue_name: str) -> None:
    expressions = (*REFUSED, *ACCEPTED_THERE, *ACCEPTED_HERE)
    answers = ask_official(server, queue_name, [Case(expression, None, 0) for expression in expressions])
    for expression, theirs in zip(expressions, answers, strict=True):
        assert isinstance(theirs, int) == (expression in ACCEPTED_THERE), (expression, theirs)
        if expression in ACCEPTED_HERE:
            cron(expression)
        else:
            with pytest.raises(InvalidArgument):
                cron(expression)


ZONE_NAMES = (
    *(None, "", "  ", "UTC", "utc", "Z", " Z ", "GMT", "+02:00", "-0530", "+2:00", "+23:59", "+02:60", "+0060", "Zulu"),
    *("Etc/GMT+2", " Europe/Berlin ", "US/Eastern", "EST", "EST5EDT", "CET", "Asia/Calcutta", "PRC"),
)
NO_ZONES = (
    *("z", "+2", "+02", "02:00", "+24:00", "+9999", "+02:00:00", "UTC+2", "+ 2:00", "\u221202:00", "europe/berlin"),
    *("local", "localtime", "posixrules", "posix/Europe/Berlin", "right/UTC", "Europe", "../UTC", "Factory"),
)


def test_the_names_of_zones_are_the_same(server: RedisServer, queue_name: str) -> None:
    cases = [case for tz in ZONE_NAMES for case in three_moments("30 12 * * *", tz)]
    for case, theirs in zip(cases, ask_official(server, queue_name, cases), strict=True):
        assert case.ours == theirs, case
    answers = ask_official(server, queue_name, [Case("@daily", tz, 0) for tz in NO_ZONES])
    for tz, answer in zip(NO_ZONES, answers, strict=True):
        assert isinstance(answer, str), (tz, answer)
        with pytest.raises(InvalidArgument):
            cron("@daily", tz)


def specs() -> list[RepeatSpec]:
    patterns = [RepeatPattern.every(1), RepeatPattern.every(70_000), RepeatPattern.every(2**40)]
    patterns += [cron("*/5 * * * *"), cron("0 9 * * *", "America/New_York"), cron("@daily", ""), cron(" @daily ", "Z")]
    options: list[dict[str, Any]] = [{}, {"limit": 5}, {"limit": 300, "start_after_ms": 5, "end_before_ms": 2**45}]
    policies = [MissedFiresPolicy.skip(), MissedFiresPolicy.fire_once(), MissedFiresPolicy.fire_all(70_000)]
    return [
        RepeatSpec(job_name=f"n\u00f6-{i}-{j}", pattern=pattern, payload=bytes(100 * j), **option, missed_fires=policy)
        for i, option in enumerate(options)
        for j, policy in enumerate(policies)
        for pattern in patterns
    ]


def test_the_stored_bytes_and_keys_are_the_same(server: RedisServer, queue_name: str) -> None:
    wanted = [
        {
            "job_name": spec.job_name,
            "pattern": spec.pattern.to_dict(),
            "payload": spec.payload.hex(),
            "limit": spec.limit,
            "start_after_ms": spec.start_after_ms,
            "end_before_ms": spec.end_before_ms,
            "missed_fires": spec.missed_fires.to_dict(),
        }
        for spec in specs()
    ]
    assert set(run_official(server, queue_name, wanted)) == {None}
    for spec in specs():
        stored = server.execute("HGET", f"{{chasqui:{queue_name}}}:repeat:spec:{spec.key}", "spec")
        assert stored == encode_spec(spec)
        assert decode_spec(stored) == spec
    server.execute("FLUSHALL")


def test_the_official_package_lists_what_is_stored_here(server: RedisServer, queue_name: str) -> None:
    for spec in specs():
        server.execute("ZADD", f"{{chasqui:{queue_name}}}:repeat", 1e12, spec.key)
        server.execute("HSET", f"{{chasqui:{queue_name}}}:repeat:spec:{spec.key}", "spec", encode_spec(spec))
    listed = {meta["key"]: meta for meta in run_official(server, queue_name, None)}
    assert len(listed) == len(specs())
    for spec in specs():
        meta = listed[spec.key]
        assert meta["job_name"] == spec.job_name
        assert {name: value for name, value in meta["pattern"].items() if value is not None} == spec.pattern.to_dict()
        assert (meta["limit"], meta["end_before_ms"]) == (spec.limit, spec.end_before_ms)
        assert (meta["missed_fires"] or {"kind": "skip"}) == spec.missed_fires.to_dict()
    server.execute("FLUSHALL")


def official_reading(listed: dict[str, Any]) -> tuple[Any, ...]:
    pattern, policy = listed["pattern"], listed["missed_fires"] or {"kind": "skip"}
    kind = policy["kind"].replace("_", "-")
    catchup = policy.get("max_catchup") or None
    return (
        listed["job_name"],
        (pattern["kind"], pattern.get("interval_ms"), pattern.get("expression"), pattern.get("tz")),
        (listed["limit"] or None, listed["start_after_ms"], listed["end_before_ms"]),
        ("skip", None) if kind == "fire-all" and catchup is None else (kind, catchup),  # to catch up on none
    )


def own_reading(raw: bytes) -> tuple[Any, ...] | None:
    try:
        spec = decode_spec(raw)
    except DecodeError:
        return None
    pattern, policy = spec.pattern, spec.missed_fires
    return (
        spec.job_name,
        (pattern.kind, pattern.interval_ms, pattern.expression, pattern.tz),
        (spec.limit, spec.start_after_ms, spec.end_before_ms),
        (policy.kind, policy.max_catchup),
    )


def test_odd_specs_are_read_alike(server: RedisServer, queue_name: str) -> None:
    """In shapes that no known producer writes, and damaged: what is refused there is refused here."""
    raws = dict(enumerate(OddSpecs(seed=7).make(2000)))
    prefix = f"{{chasqui:{queue_name}}}:repeat"
    with server.client() as client, client.pipeline(transaction=False) as pipeline:
        for number, raw in raws.items():
            pipeline.zadd(prefix, {f"spec-{number}": 10**13})
            pipeline.hset(f"{prefix}:spec:spec-{number}", "spec", raw)
        pipeline.execute()
    listed = {
        int(one["key"].removeprefix("spec-")): official_reading(one) for one in run_official(server, queue_name, None)
    }
    server.execute("DEL", prefix, *(f"{prefix}:spec:spec-{number}" for number in raws))
    assert len(listed) > 400
    differing = {raw.hex(): (listed.get(number), own_reading(raw)) for number, raw in raws.items()}
    assert {raw: both for raw, both in differing.items() if both[0] != both[1]} == {}
