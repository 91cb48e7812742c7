"""Risky settings in a server's INFO become a sentence that says what to change."""

from __future__ import annotations

import re

import pytest

from pychasqui._redis.server_checks import FIXED_IN, Risks, describe_vulnerability_if_known, read_risks
from tests.support.cases import in_one_test

SAFE = "# Memory\r\nused_memory:1000\r\nmaxmemory_policy:noeviction\r\n\r\n# Persistence\r\naof_enabled:1\r\n"


def test_a_safe_server_puts_nothing_at_risk() -> None:
    risks = read_risks(SAFE)
    assert risks == Risks("", "")
    assert not any(risks)
    assert str(risks) == ""


@pytest.mark.parametrize("policy", ("allkeys-lru", "allkeys-lfu", "allkeys-random"))
def test_a_server_that_evicts_any_key_throws_jobs_away(policy: str) -> None:
    risks = read_risks(SAFE.replace("noeviction", policy))
    assert policy in risks.eviction
    assert "deletes jobs" in risks.eviction
    assert "noeviction" in risks.eviction
    assert risks.persistence == ""


@pytest.mark.parametrize("policy", ("volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"))
def test_a_server_that_evicts_what_has_an_end_forgets_ids_and_adds(policy: str) -> None:
    risks = read_risks(SAFE.replace("noeviction", policy))
    assert policy in risks.eviction
    assert "forgets" in risks.eviction
    assert "noeviction" in risks.eviction


def test_a_server_without_a_log_of_its_writes_loses_what_came_since_its_last_snapshot() -> None:
    risks = read_risks(SAFE.replace("aof_enabled:1", "aof_enabled:0"))
    assert "appendonly is no" in risks.persistence
    assert risks.eviction == ""


def test_both_risks_are_in_one_line() -> None:
    risks = read_risks("maxmemory_policy:allkeys-lru\naof_enabled:0\n")
    assert str(risks) == f"{risks.eviction}; {risks.persistence}"
    assert str(risks).isprintable()


@pytest.mark.parametrize("info", ("", "\r\n", "# Memory", "no colon", "a:b:c\r\n:", "maxmemory_policy_x:allkeys-lru"))
def test_a_setting_that_is_not_in_info_is_no_risk(info: str) -> None:
    assert not any(read_risks(info))


@pytest.mark.parametrize(
    ("server", "version", "said"),
    (
        (
            "redis",
            (6, 2, 19),
            "redis 6.2.19 has the vulnerability CVE-2025-49844: upgrade, 6.2.20 fixes it.*CHASQUI_IGNORE_HOLES",
        ),
        ("redis", (7, 0, 15), "redis 7.0.15 has the vulnerability CVE-2025-49844.*no release of that series fixes it"),
        ("redis", (8, 0, 3), "8.0.4 fixes it"),
        ("redis", (8, 6, 2), "CVE-2026-23479.*8.6.3 fixes it"),
        ("valkey", (8, 1, 3), "valkey 8.1.3 has the vulnerability CVE-2025-49844.*8.1.4 fixes it"),
        ("valkey", (9, 1), "9.1.1 fixes it"),
    ),
)
def test_a_version_with_a_known_hole_is_named_with_the_one_that_mends_it(
    server: str, version: tuple[int, ...], said: str
) -> None:
    assert re.search(said, describe_vulnerability_if_known(server, version))


@in_one_test(
    ("server", "version"),
    (
        *((server, (major, minor, mended)) for (server, major, minor), (mended, _) in FIXED_IN.items() if mended),
        ("redis", (8, 4, 0)),
        ("redis", (9, 0, 0)),
        ("redis", (255, 255, 255)),
        ("valkey", (9, 0, 0)),
        ("dragonfly", (1, 0)),
        ("redis", ()),
    ),
)
def test_a_version_without_a_known_hole_is_not_talked_about(server: str, version: tuple[int, ...]) -> None:
    assert describe_vulnerability_if_known(server, version) == ""
