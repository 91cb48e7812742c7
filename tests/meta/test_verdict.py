"""The judge itself: it must see each broken promise, and accept each good reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.diary import Added, DeadLetter, Diary, Mishap, MishapKind, RunRecord
from tests.chaos.verdict import CLOSED, CUT_OFF, KILLED, KILLED_LATE, STOPPED, UNEXPLAINED, Figures, judge

LEASE_S = 1.5


def a_diary(*runs: RunRecord, dead: int = 0, **more: Any) -> Diary:
    added = {1: Added(1, "ok", 0.0, max_attempts=3)}
    return replace(
        Diary(added=added, runs=list(runs), dead=[DeadLetter(1, "x")] * dead, lease_s=LEASE_S, healed_at=5.0), **more
    )


def run(
    start: float, end: float | None = None, *, attempt: int = 0, worker: str = "a", ending: str = "ok"
) -> RunRecord:
    return RunRecord(1, attempt, worker, start, end, "none" if end is None else ending)  # type: ignore[arg-type]


def reruns(former: RunRecord, later: RunRecord, *mishaps: Mishap) -> dict[str, int]:
    return dict(judge(a_diary(former, later, mishaps=list(mishaps))).reruns)


class TestABrokenPromise:
    def test_a_job_that_never_ran_and_is_nowhere_is_lost(self) -> None:
        assert judge(a_diary()).lost == [1]

    def test_a_job_whose_only_run_failed_and_is_nowhere_is_lost(self) -> None:
        assert judge(a_diary(run(1, 2, ending="failed"))).lost == [1]

    def test_a_job_that_is_still_stored_is_stuck_even_if_it_ran(self) -> None:
        figures = judge(a_diary(run(1, 2), still_stored={1}))
        assert (figures.stuck, figures.lost) == ([1], [])

    def test_a_job_that_is_done_and_dead_is_in_two_places(self) -> None:
        assert judge(a_diary(run(1, 2), dead=1)).two_places == [1]

    def test_dead_twice_is_in_two_places(self) -> None:
        assert judge(a_diary(run(1, 2, ending="failed"), dead=2)).two_places == [1]

    def test_a_job_whose_add_was_refused_must_not_run(self) -> None:
        diary = a_diary(run(1, 2), added={1: Added(1, "failed", 0.0, 3)})
        assert judge(diary).ghosts == [1]

    def test_a_job_whose_add_is_in_doubt_may_or_may_not_be_there(self) -> None:
        added = {1: Added(1, "unknown", 0.0, 3)}
        assert judge(a_diary(added=added)).problems() == []
        assert judge(a_diary(run(1, 2), added=added)).problems() == []

    def test_a_job_with_more_runs_than_attempts_is_over_budget(self) -> None:
        failures = [run(number, number + 0.5, attempt=number, ending="failed") for number in range(4)]
        assert judge(a_diary(*failures, dead=1)).over_budget == [1]

    def test_an_attempt_number_that_comes_again_goes_backwards(self) -> None:
        killed = Mishap("killed", 1.5, 1.5, "a")
        assert judge(a_diary(run(1), run(2, 3, worker="b"), mishaps=[killed])).backwards == [1]

    def test_a_job_meant_to_succeed_must_not_die(self) -> None:
        assert judge(a_diary(run(1, 2, ending="failed"), dead=1)).wrong_end == [1]

    def test_a_job_meant_to_fail_must_not_be_done(self) -> None:
        diary = a_diary(run(1, 2), added={1: Added(1, "ok", 0.0, 3, is_to_die=True)})
        assert judge(diary).wrong_end == [1]

    def test_poison_must_be_in_the_dead_letters_once(self) -> None:
        diary = a_diary(run(1, 2), poisoned=2)
        diary.dead = [DeadLetter(None, "decode_failed")]
        assert judge(diary).poison_left == 1

    def test_an_overlap_of_two_runs_is_found(self) -> None:
        figures = judge(a_diary(run(1, 4), run(2, 3, attempt=1, worker="b")))
        assert figures.overlaps == [1]
        assert len(figures.unexplained) == 1

    def test_each_kind_makes_the_round_a_bad_one(self) -> None:
        assert len(judge(a_diary(run(1, 4), run(2, 3, attempt=1, worker="b"), dead=1)).problems()) == 4


class TestARunThatNeedsNoExcuse:
    def test_a_retry_needs_no_excuse(self) -> None:
        figures = judge(a_diary(run(1, 2, ending="failed"), run(3, 4, attempt=1)))
        assert (figures.problems(), figures.run_twice) == ([], 0)

    def test_a_job_handed_back_at_the_end_of_a_worker(self) -> None:
        figures = judge(a_diary(run(1, 2, ending="cancelled"), run(3, 4, worker="b")))
        assert (figures.problems(), figures.run_twice) == ([], 0)

    def test_a_job_that_was_handed_back_and_yet_counted_is_not_excused(self) -> None:
        assert reruns(run(1, 2, ending="cancelled"), run(3, 4, attempt=1, worker="b")) == {UNEXPLAINED: 1}


class TestAnExcuse:
    @pytest.mark.parametrize(
        ("former", "later_start", "mishap", "reason"),
        (
            (run(1), 3.0, ("killed", 2.0, 2.0), KILLED),
            (run(1, 1.9), 3.0, ("killed", 2.0, 2.0), KILLED_LATE),
            (run(1, 1.2), 3.0, ("killed", 2.0, 2.0), UNEXPLAINED),
            (run(1), 2.0, ("killed", 2.5, 2.5), UNEXPLAINED),
            (run(1, 6.0), 4.0, ("stopped", 2.0, 5.0), STOPPED),
            (run(1, 6.0), 2.5, ("stopped", 2.0, 5.0), UNEXPLAINED),
            (run(1, 6.0), 4.0, ("stopped", 2.0, 2.7), UNEXPLAINED),
            (run(1, 2.5), 4.0, ("cut off", 2.0, 5.0), CUT_OFF),
            (run(1, 2.5), 4.0, ("cut off", 2.0, 2.6), UNEXPLAINED),
            (run(1, 2.5), 4.0, ("server away", 2.0, 5.0), UNEXPLAINED),
            (run(1, 2.5), 4.0, ("group deleted", 2.0, 2.0), UNEXPLAINED),
        ),
    )
    def test_an_excuse_is_accepted_only_if_it_fits(
        self, former: RunRecord, later_start: float, mishap: tuple[MishapKind, float, float], reason: str
    ) -> None:
        later = run(later_start, 9.0, attempt=1, worker="b")
        assert reruns(former, later, Mishap(*mishap, "" if mishap[0] in ("server away", "group deleted") else "a")) == {
            reason: 1
        }

    def test_an_excuse_of_another_worker_does_not_count(self) -> None:
        assert reruns(run(1), run(3, 4, attempt=1, worker="b"), Mishap("killed", 2, 2, "c")) == {UNEXPLAINED: 1}

    def test_an_outage_and_the_end_of_the_worker_together_do(self) -> None:
        away, closed = Mishap("server away", 2, 9), Mishap("closed", 3, 8, "a")
        assert reruns(run(1, 2.5), run(12, 13, attempt=1, worker="b"), away, closed) == {CLOSED: 1}

    def test_a_run_that_ended_before_a_dead_line_was_noticed_may_be_acked_after_it(self) -> None:
        half_open, killed = Mishap("half open", 2, 2, "a"), Mishap("killed", 4, 4, "a")
        later = run(12, 13, attempt=1, worker="b")
        assert reruns(run(1, 2.5), later, half_open, killed) == {KILLED_LATE: 1}
        assert reruns(run(1, 2.5), later, half_open) == {UNEXPLAINED: 1}
        assert reruns(run(1, 1.2), later, Mishap("half open", 3, 3, "a"), killed) == {UNEXPLAINED: 1}
        assert reruns(run(1, 2.5), later, Mishap("half open", 2, 2, "b"), killed) == {UNEXPLAINED: 1}

    def test_a_job_that_ended_on_a_slow_line_may_be_acked_late(self) -> None:
        slow, later = Mishap("slow line", 1, 5), run(12, 13, attempt=1, worker="b")
        assert reruns(run(1, 2.5), later, slow, Mishap("killed", 4, 4, "a")) == {KILLED_LATE: 1}
        assert reruns(run(1, 2.5), later, slow, Mishap("killed", 4.6, 4.6, "a")) == {UNEXPLAINED: 1}
        assert reruns(run(1, 2.5), later, slow) == {UNEXPLAINED: 1}

    def test_a_job_that_ended_in_an_outage_may_be_acked_until_it_is_over(self) -> None:
        away, killed = Mishap("server away", 2, 9), Mishap("killed", 8, 8, "a")
        assert reruns(run(1, 2.5), run(12, 13, attempt=1, worker="b"), away, killed) == {KILLED_LATE: 1}


def test_the_longest_recovery_is_that_of_the_last_job_that_was_there_when_the_fault_ended() -> None:
    diary = a_diary(run(1), run(7.5, 8, attempt=1, worker="b"), mishaps=[Mishap("killed", 5, 5, "a")])
    assert judge(diary).recovery_s == 2.5


def test_a_quiet_round_has_no_problems() -> None:
    assert judge(a_diary(run(1, 2))) == Figures(jobs=1, done=1)
