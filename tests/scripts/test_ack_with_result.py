"""ack_with_result.lua alone: acked entries leave the stream, and their results are stored."""

from __future__ import annotations

import pytest
import redis

from pychasqui._core.limits import ACK_BATCH
from tests.scripts.group import GROUP, KEYS, Group, Hold, Stored, Wanted, index_key, official_unique_key, unique_key


@pytest.fixture(params=["one by one", "at once"])
def group(group: Group, request: pytest.FixtureRequest) -> Group:
    """Both ways of storing, where the server has both."""
    group.at_once = request.param == "at once"
    if group.at_once and not group.has_msetex:
        pytest.skip("this server has no MSETEX: results are set one by one")
    return group


def test_a_user_who_may_not_call_the_newest_commands_acks_and_stores(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.at_once = group.has_msetex
    newest = ("-xackdel", "-msetex") if group.at_once else ()
    with group.as_user("+@all", *newest, "~*", "&*") as narrow:
        assert narrow.ack_with_result(Stored(entry_id)) == 0
    assert (group.stream, group.holds, group.result("job")) == ([], {}, b"result")


def test_an_id_that_is_the_result_of_another_job_is_not_released(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("other"), "d")
    group.ack_with_result(Stored(entry_id, result=b"other"))
    assert group.uniqueness_key("other") == "d"


def test_an_entry_that_is_done_leaves_the_pending_list_and_the_stream_and_its_result_is_kept(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.ack_with_result(Stored(entry_id, "job", result=b"\x00\xff\r\n")) == 0
    assert (group.stream, group.holds, group.result("job")) == ([], {}, b"\x00\xff\r\n")


def test_a_result_ends_by_itself_to_the_millisecond(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.ack_with_result(Stored(entry_id), ttl_ms=1_234_567)
    assert 1_234_567 - 60_000 < group.client.pttl(KEYS.result("job")) <= 1_234_567


def test_a_later_result_of_the_same_id_takes_the_place_of_the_earlier(group: Group) -> None:
    first, second = group.deliver_to("a", 2)
    group.ack_with_result(Stored(first, result=b"first"), ttl_ms=5000)
    group.ack_with_result(Stored(second, result=b"second"), ttl_ms=60_000)
    assert group.result("job") == b"second"
    assert group.client.pttl(KEYS.result("job")) > 5000


def test_a_job_without_a_result_is_acked_and_nothing_is_kept(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    assert group.ack_with_result(Stored(entry_id, is_stored=0, result=b"")) == 0
    assert (group.stream, group.holds, group.keys) == ([], {}, {KEYS.stream})


def test_an_empty_result_is_one(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.ack_with_result(Stored(entry_id, result=b""))
    assert group.result("job") == b""


def test_each_job_of_a_batch_has_its_own_result(group: Group) -> None:
    first, second, third = group.deliver_to("a", 3)
    group.ack_with_result(
        Stored(first, "1", result=b"one"), Stored(second, "2", is_stored=0), Stored(third, "3", result=b"three")
    )
    assert [group.result(job_id) for job_id in ("1", "2", "3")] == [b"one", None, b"three"]
    assert (group.stream, group.holds) == ([], {})


def test_the_next_of_its_id_is_let_in(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    group.ack_with_result(Stored(entry_id, may_be_unique=1))
    assert group.uniqueness_key("job") is None
    assert group.add_with_options(Wanted("mail", b"second", "job", only="keep")) == "n"


def test_a_uniqueness_key_is_looked_at_only_where_there_may_be_one(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), entry_id)
    group.ack_with_result(Stored(entry_id, may_be_unique=0))
    assert group.uniqueness_key("job") == entry_id.decode()


def test_a_window_keeps_others_out_to_its_end(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep", window_ms=60_000))
    (entry_id,) = group.read("a", 1)
    group.ack_with_result(Stored(entry_id, may_be_unique=1))
    assert group.uniqueness_key("job") == "w" + entry_id.decode()


def test_a_uniqueness_key_of_another_entry_is_left_alone(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), "5-5")
    group.ack_with_result(Stored(entry_id, may_be_unique=1))
    assert group.uniqueness_key("job") == "5-5"


def test_a_key_that_says_delayed_goes_unless_a_job_is_delayed(group: Group) -> None:
    """An official promoter moved the job, and the index may have outlived that."""
    group.client.set(unique_key("job"), "d")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.ack_with_result(Stored(group.deliver_to("a")[0], may_be_unique=1))
    assert group.uniqueness_key("job") == "d"
    group.client.delete(KEYS.delayed)
    group.ack_with_result(Stored(group.deliver_to("a")[0], may_be_unique=1))
    assert group.uniqueness_key("job") is None


def test_the_uniqueness_key_of_official_producers_goes_unless_a_job_of_its_id_is_delayed(group: Group) -> None:
    group.client.set(official_unique_key("job"), "1")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.ack_with_result(Stored(group.deliver_to("a")[0], may_be_unique=1))
    assert group.client.exists(official_unique_key("job"))
    group.client.delete(KEYS.delayed)
    group.ack_with_result(Stored(group.deliver_to("a")[0], may_be_unique=1))
    assert not group.client.exists(official_unique_key("job"))


def test_the_uniqueness_key_of_official_producers_goes_with_the_known_entry(group: Group) -> None:
    for sign, left in (("", None), ("w", "w")):
        (entry_id,) = group.deliver_to("a")
        group.client.set(unique_key("job"), sign + entry_id.decode())
        group.client.set(official_unique_key("job"), "1")
        group.ack_with_result(Stored(entry_id, may_be_unique=1))
        assert group.uniqueness_key("job") == (left and left + entry_id.decode())
        assert not group.client.exists(official_unique_key("job"))


def test_the_uniqueness_keys_of_another_entry_both_stay(group: Group) -> None:
    group.client.set(unique_key("job"), "5-5")
    group.client.set(official_unique_key("job"), "1")
    group.ack_with_result(Stored(group.deliver_to("a")[0], may_be_unique=1))
    assert group.client.exists(unique_key("job"), official_unique_key("job")) == 2


def test_the_uniqueness_key_of_official_producers_stays_if_their_job_was_delayed_since(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.set(unique_key("job"), entry_id)
    group.client.set(official_unique_key("job"), "1")
    group.client.set(index_key("job"), b"member")
    group.client.zadd(KEYS.delayed, {b"member": 1})
    group.ack_with_result(Stored(entry_id, may_be_unique=1))
    assert group.uniqueness_key("job") is None
    assert group.client.exists(official_unique_key("job"))


def test_a_delayed_set_of_another_type_stops_no_job(group: Group) -> None:
    group.client.set(KEYS.delayed, "a string")
    group.client.set(unique_key("job"), "d")
    group.client.set(index_key("job"), b"member")
    group.ack_with_result(Stored(group.deliver_to("a")[0], may_be_unique=1))
    assert (group.stream, group.uniqueness_key("job")) == ([], None)


def test_each_job_of_a_batch_releases_its_own_uniqueness_key(group: Group) -> None:
    for job_id in ("1", "2", "3"):
        group.add_with_options(Wanted("mail", b"x", job_id, only="keep"))
    first, _, third = group.read("a", 3)
    group.ack_with_result(Stored(first, "1", may_be_unique=1), Stored(third, "3", may_be_unique=1))
    assert [group.uniqueness_key(job_id) is None for job_id in ("1", "2", "3")] == [True, False, True]


def test_the_same_call_again_stores_the_same(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"first", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    done = Stored(entry_id, may_be_unique=1)
    assert group.ack_with_result(done) == 0
    group.add_with_options(Wanted("mail", b"second", "job", only="keep"))
    marker = group.uniqueness_key("job")
    assert group.ack_with_result(done) == 0
    assert (group.uniqueness_key("job"), group.envelopes, group.result("job")) == (marker, [b"second"], b"result")


def test_neighbours_stay_where_they_are(group: Group) -> None:
    mine, running = group.deliver_to("a", 2)
    (waiting,) = group.add(1)
    group.ack_with_result(Stored(mine))
    assert (group.stream, group.holds) == ([running, waiting], {running: Hold("a", 1)})


def test_an_entry_that_another_worker_has_taken_over_is_done_all_the_same(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.steal(entry_id, "b")
    group.ack_with_result(Stored(entry_id))
    assert (group.stream, group.holds, group.result("job")) == ([], {}, b"result")


def test_entries_leave_the_stream_and_results_are_kept_without_the_group(group: Group) -> None:
    """The jobs are done; a rebuilt group must not deliver them again."""
    group.add_with_options(Wanted("mail", b"x", "job", only="keep"))
    (entry_id,) = group.read("a", 1)
    group.client.xgroup_destroy(KEYS.stream, GROUP)
    assert group.ack_with_result(Stored(entry_id, may_be_unique=1)) == 0
    assert (group.stream, group.uniqueness_key("job"), group.result("job")) == ([], None, b"result")


def test_the_result_is_the_only_key_created_without_the_stream(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.delete(KEYS.stream)
    assert group.ack_with_result(Stored(entry_id)) == 0
    assert group.keys == {KEYS.result("job")}


def test_jobs_are_done_and_results_are_kept_without_memory(group: Group) -> None:
    group.add_with_options(Wanted("mail", b"x", "1", only="keep"))
    entry_ids = [*group.read("a", 1), *group.deliver_to("a", 2)]
    with group.full_memory():
        refused = group.ack_with_result(
            Stored(entry_ids[0], "1", may_be_unique=1),
            Stored(entry_ids[1], "2"),
            Stored(entry_ids[2], "3", is_stored=0),
        )
    assert refused == 0
    assert (group.stream, group.holds) == ([], {})
    assert [group.result(job_id) for job_id in ("1", "2", "3")] == [b"result", b"result", None]
    assert group.uniqueness_key("1") is None


def test_a_user_without_permission_for_results_acks_jobs_and_counts_refusals(group: Group) -> None:
    first, second, third = group.deliver_to("a", 3)
    with group.as_user("+@all", f"~{KEYS.stream}", f"~{KEYS.delayed}") as narrow:
        refused = narrow.ack_with_result(Stored(first, "1"), Stored(second, "2"), Stored(third, "3", is_stored=0))
    assert refused == 2
    assert (group.stream, group.holds, group.keys) == ([], {}, {KEYS.stream})


def test_results_are_stored_one_by_one_where_the_server_refuses_many_at_once(group: Group) -> None:
    """As for a user without the permission for MSETEX."""
    first, second = group.deliver_to("a", 2)
    with group.as_user("+@all", "-msetex" if group.has_msetex else "-mset", "~*") as narrow:
        assert narrow.ack_with_result(Stored(first, "1"), Stored(second, "2")) == 0
    assert (group.result("1"), group.result("2"), group.stream, group.holds) == (b"result", b"result", [], {})


def test_a_key_of_another_type_is_replaced_by_the_result(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.client.rpush(KEYS.result("job"), "a list")
    assert group.ack_with_result(Stored(entry_id)) == 0
    assert (group.result("job"), group.stream) == (b"result", [])


def test_a_uniqueness_key_of_another_type_stops_no_job(group: Group) -> None:
    first, second = group.deliver_to("a", 2)
    group.client.rpush(unique_key("job"), "a list")
    assert group.ack_with_result(Stored(first, may_be_unique=1), Stored(second, "other")) == 0
    assert (group.stream, group.result("job"), group.result("other")) == ([], b"result", b"result")


def test_a_stream_of_another_type_is_an_error_and_nothing_is_kept(group: Group) -> None:
    group.client.delete(KEYS.stream)
    group.client.set(KEYS.stream, "a string")
    group.client.set(unique_key("job"), "1-1")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        group.ack_with_result(Stored(b"1-1", may_be_unique=1))
    assert (group.uniqueness_key("job"), group.result("job")) == ("1-1", None)


def test_10_000_entries_are_acked_in_batches(group: Group) -> None:
    jobs = [Stored(entry_id, f"job-{number}", 1) for number, entry_id in enumerate(group.deliver_to("a", 10_000))]
    group.client.mset({unique_key(job.job_id): job.entry_id for job in jobs})
    for start in range(0, len(jobs), ACK_BATCH):
        assert group.ack_with_result(*jobs[start : start + ACK_BATCH]) == 0
    assert (group.stream, group.holds) == ([], {})
    assert group.keys == {KEYS.stream, *(KEYS.result(job.job_id) for job in jobs)}


def test_one_command_acks_and_one_stores_where_the_server_has_them(group: Group) -> None:
    done = [Stored(entry_id, f"job {entry_id.decode()}") for entry_id in group.deliver_to("a", 3)]
    group.at_once = group.has_msetex
    group.client.config_resetstat()
    group.ack_with_result(*done)
    calls = {name.partition("_")[2]: stats["calls"] for name, stats in group.client.info("commandstats").items()}
    new, old = ("xackdel", "msetex"), ("set",)
    assert [calls.get(name, 0) for name in (*new, *old)] == ([1, 1, 0] if group.at_once else [0, 0, 3])
    # The first of each shows whether it is refused.
    assert [calls[name] for name in ("xack", "xdel")] == ([1, 1] if group.at_once else [2, 2])


def test_a_job_without_a_result_needs_no_command_that_stores(group: Group) -> None:
    (entry_id,) = group.deliver_to("a")
    group.at_once = group.has_msetex
    group.client.config_resetstat()
    group.ack_with_result(Stored(entry_id, is_stored=0))
    assert {"cmdstat_msetex", "cmdstat_set", "cmdstat_exists"}.isdisjoint(group.client.info("commandstats"))
