"""What a server's INFO says about its settings becomes a sentence that says what to change, or nothing."""

from __future__ import annotations

import pytest

from pychasqui._redis.risks import Risks, read_risks

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
    assert "throws jobs away" in risks.eviction
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


def test_both_are_said_in_one_line() -> None:
    risks = read_risks("maxmemory_policy:allkeys-lru\naof_enabled:0\n")
    assert str(risks) == f"{risks.eviction}; {risks.persistence}"
    assert str(risks).isprintable()


@pytest.mark.parametrize("info", ("", "\r\n", "# Memory", "no colon", "a:b:c\r\n:", "maxmemory_policy_x:allkeys-lru"))
def test_what_a_server_does_not_tell_is_no_risk(info: str) -> None:
    assert not any(read_risks(info))
