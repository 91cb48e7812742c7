"""`chasqui bench`: five measures on a queue of its own, which is gone afterwards."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Finished
from tests.cli.terminals import TerminalRun, on_terminal, plain
from tests.support.server import RedisServer

QUICK = ("bench", "--seconds", "0.05")


def keys(server: RedisServer) -> list[bytes]:
    """Those that have no end of their own."""
    return [key for key in server.execute("KEYS", "*") if server.execute("PTTL", key) < 0]


def test_json_has_five_measures_and_the_queue_is_gone(chasqui: Finished, redis_url: str, server: RedisServer) -> None:
    ended = chasqui(*QUICK, "--payload", "10", "--concurrency", "5", "--json", CHASQUI_REDIS_URL=redis_url)
    assert ended.returncode == 0, ended.stderr
    answer = json.loads(ended.stdout)
    assert [one["measure"] for one in answer["measures"]] == [
        "add, one by one",
        "add, from 100 tasks",
        "add, in bulks of 1,000",
        "work, 5 at a time",
        "add until its handler runs",
    ]
    assert all(one["jobs"] > 0 and one["per_s"] > 0 for one in answer["measures"])
    times = [one for one in answer["measures"] if one["p50_ms"] is not None]
    assert [one["measure"][:9] for one in times] == ["add, one ", "add, from", "add until"]
    assert all(0 < one["p50_ms"] <= one["p99_ms"] for one in times)
    assert (answer["payload_bytes"], answer["concurrency"]) == (10, 5)
    assert keys(server) == []


def test_a_table_on_a_terminal_fits_80_columns(tmp_path: Path, redis_url: str) -> None:
    code, text = on_terminal(*QUICK, folder=tmp_path, CHASQUI_REDIS_URL=redis_url)
    assert code == 0
    assert "add until its handler runs" in text
    assert max(map(len, plain(text).splitlines())) <= 80


def test_ctrl_c_removes_the_queue(tmp_path: Path, redis_url: str, server: RedisServer) -> None:
    with TerminalRun("bench", "--seconds", "60", folder=tmp_path, CHASQUI_REDIS_URL=redis_url) as run:
        run.read_until("measuring on queue")
        run.interrupt()
        assert run.finish()[0] == 130
    assert keys(server) == []


def test_a_user_who_may_not_search_for_keys_leaves_an_empty_queue(
    chasqui: Finished, redis_url: str, server: RedisServer
) -> None:
    server.execute("ACL", "SETUSER", "narrow", "on", ">word", "+@all", "-scan", "~*", "&*")
    try:
        ended = chasqui(*QUICK, CHASQUI_REDIS_URL=f"redis://narrow:word@127.0.0.1:{server.port}")
    finally:
        server.execute("ACL", "DELUSER", "narrow")
    assert ended.returncode == 0, ended.stderr
    assert "is empty, but its keys cannot be removed: NOPERM" in ended.stderr
