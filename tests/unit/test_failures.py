"""Each failure becomes an outcome, and one line in the log that an operator can trust."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest

from pychasqui._core.delivery import Delivery
from pychasqui._core.outcome import Buried, Rescheduled
from pychasqui._core.retry_options import BackoffSpec, RetryOverride, RetryPolicy
from pychasqui._core.run_timeouts import RunTimeouts
from pychasqui._wire.envelope import PUT_BACKS, decode_envelope, encode_extras, read_extra_or_none, read_put_back_count
from pychasqui._wire.member import split_delayed_member
from pychasqui._wire.msgpack import encode_data
from pychasqui._worker.failure_log import LINES_A_SECOND, MAX_KINDS, FailureLog
from pychasqui._worker.failures import MAX_UNKNOWN_KINDS, FailureHandler, make_next_run_member
from pychasqui._worker.job_stops import JobStops
from pychasqui.errors import RetryLater, Snooze, UnknownTask, UnrecoverableError

POLICY = RetryPolicy(initial_ms=100, max_ms=30_000, multiplier=2.0, jitter_ms=0)


class Outcomes:
    """Keeps what a FailureHandler hands on."""

    def __init__(self) -> None:
        self.retries: list[tuple[bytes, int, bytes]] = []
        self.letters: list[tuple[bytes, dict[bytes, bytes]]] = []
        self.deliveries: list[int] = []
        self.ids: list[tuple[str | None, bool]] = []
        self.dead: list[Buried] = []

    def reschedule(self, job: Rescheduled) -> None:
        self.ids.append((job.job_id, job.may_be_unique))
        self.retries.append((job.entry_id, job.delay_ms, job.member))
        self.deliveries.append(job.delivery)

    def bury(self, job: Buried) -> None:
        self.ids.append((job.job_id, job.may_be_unique))
        self.dead.append(job)
        self.letters.append((job.entry_id, dict(zip(job.letter[::2], job.letter[1::2], strict=True))))
        self.deliveries.append(job.delivery)


class FailuresBench:
    def __init__(self, max_attempts: int = 3, policy: RetryPolicy = POLICY) -> None:
        self.outcomes = Outcomes()
        self.timers: list[Callable[[], None]] = []
        self.failure_log = FailureLog(lambda _, function: self.timers.append(function))
        self.handler = FailureHandler(
            "w-1",
            max_attempts=max_attempts,
            policy=policy,
            failure_log=self.failure_log,
            stops=JobStops(RunTimeouts()),
            queue_reschedule=self.outcomes.reschedule,
            queue_bury=self.outcomes.bury,
        )


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> FailuresBench:
    caplog.set_level(logging.DEBUG, "chasqui.worker")
    return FailuresBench()


def job(
    attempt: int = 0,
    backoff: BackoffSpec | None = None,
    *,
    job_id: str = "job-1",
    name: str = "mail",
    deliveries: int = 0,
) -> Delivery:
    retry = None if backoff is None else RetryOverride(None, backoff)
    return Delivery(
        job_id,
        name=name,
        data=7,
        attempt=attempt,
        retry=retry,
        payload=encode_data(7),
        entry_id=b"5-1",
        earlier_deliveries=deliveries,
    )


class TestSnooze:
    def test_a_snooze_keeps_the_attempt_and_the_other_extras_and_counts_itself(self, bench: FailuresBench) -> None:
        snoozed = job(attempt=1)
        snoozed.extras = encode_extras(s=5)
        for _ in range(2):
            bench.handler.log_error_and_queue_outcome(snoozed, Snooze(0.5))
            envelope = decode_envelope(split_delayed_member(bench.outcomes.retries[-1][2])[1])
            assert envelope.attempt == 1
            snoozed.extras = envelope.extras
        assert (read_put_back_count(snoozed.extras), read_extra_or_none(snoozed.extras, "s")) == (2, 5)
        assert [delay for _, delay, _ in bench.outcomes.retries] == [500, 500]

    def test_jobs_of_unknown_names_are_counted_apart_and_from_the_start_once_their_task_has_run(
        self, bench: FailuresBench
    ) -> None:
        counts, one = list[tuple[int, int]](), job()
        for error in (Snooze(1), UnknownTask(1, ""), UnknownTask(1, ""), Snooze(1), UnknownTask(1, "")):
            bench.handler.log_error_and_queue_outcome(one, error)
            one.extras = decode_envelope(split_delayed_member(bench.outcomes.retries[-1][2])[1]).extras
            counts.append((read_put_back_count(one.extras), read_put_back_count(one.extras, PUT_BACKS)))
        assert counts == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]

    def test_the_dead_letter_of_a_job_that_was_put_back_too_often_begins_from_the_start(
        self, bench: FailuresBench
    ) -> None:
        snoozed = job()
        snoozed.extras = encode_extras(z=3)
        bench.handler.log_error_and_queue_outcome(snoozed, Snooze(1, limit=3, message="nobody knows it"))
        ((_, letter),) = bench.outcomes.letters
        assert bench.outcomes.dead[0].reason == "retries_exhausted"
        assert read_put_back_count(decode_envelope(letter[b"d"]).extras) == 0

    def test_extras_of_others_that_are_no_map_count_no_snoozes(self, bench: FailuresBench) -> None:
        assert [
            read_put_back_count(extras) for extras in (b"", b"\x01", encode_extras(z="2"), encode_extras(z=-1))
        ] == [0] * 4


class TestOutcomes:
    def test_a_failure_with_runs_left_is_rescheduled(self, bench: FailuresBench) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt=1), LookupError("x"))
        ((entry_id, delay_ms, member),) = bench.outcomes.retries
        assert (entry_id, delay_ms) == (b"5-1", 200)
        assert decode_envelope(split_delayed_member(member)[1]).attempt == 2

    def test_the_last_failure_is_buried(self, bench: FailuresBench) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt=2), LookupError("x"))
        ((entry_id, letter),) = bench.outcomes.letters
        assert entry_id == b"5-1"
        assert (letter[b"reason"], letter[b"attempts"], letter[b"error"]) == (b"retries_exhausted", b"3", b"x")
        assert letter[b"worker"] == b"w-1"

    def test_an_unrecoverable_error_buries_the_job_at_once(self, bench: FailuresBench) -> None:
        bench.handler.log_error_and_queue_outcome(job(), UnrecoverableError("no"))
        assert bench.outcomes.letters[0][1][b"reason"] == b"unrecoverable"
        assert bench.outcomes.letters[0][1][b"attempts"] == b"1"

    def test_a_handlers_own_delay_is_kept(self, bench: FailuresBench) -> None:
        bench.handler.log_error_and_queue_outcome(job(), RetryLater(1.5))
        assert bench.outcomes.retries[0][1] == 1500

    def test_a_job_without_attempts_left_is_buried_without_an_error(self, bench: FailuresBench) -> None:
        bench.handler.queue_bury_of_exhausted(job(attempt=3))
        letter = bench.outcomes.letters[0][1]
        assert (letter[b"reason"], letter[b"attempts"]) == (b"retries_exhausted", b"3")
        assert b"error" not in letter

    def test_an_entry_that_is_no_job_is_buried_with_its_bytes(self, bench: FailuresBench) -> None:
        bench.handler.queue_bury_of_rejected(b"5-1", 1, [b"d", b"\xc1"], "decode_failed", "not MessagePack")
        letter = bench.outcomes.letters[0][1]
        assert (letter[b"d"], letter[b"reason"], letter[b"detail"]) == (b"\xc1", b"decode_failed", b"not MessagePack")

    def test_each_outcome_names_its_delivery(self, bench: FailuresBench) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt=1, deliveries=1), LookupError())
        bench.handler.log_error_and_queue_outcome(job(attempt=2, deliveries=2), LookupError())
        bench.handler.queue_bury_of_exhausted(job(attempt=3, deliveries=3))
        bench.handler.queue_bury_of_rejected(b"5-1", 5, None, "malformed", "")
        assert bench.outcomes.deliveries == [2, 3, 4, 5]

    def test_each_outcome_says_whether_the_job_may_be_unique(self, bench: FailuresBench) -> None:
        for may_be_unique in (False, True):
            for attempt in (0, 2):
                failed = job(attempt=attempt)
                failed.may_be_unique = may_be_unique
                bench.handler.log_error_and_queue_outcome(failed, LookupError())
        bench.handler.queue_bury_of_rejected(b"5-1", 5, None, "malformed", "")
        assert bench.outcomes.ids == [*[("job-1", False)] * 2, *[("job-1", True)] * 2, (None, False)]

    def test_an_entry_that_could_not_become_a_job_keeps_its_name_for_metrics(self, bench: FailuresBench) -> None:
        bench.handler.queue_bury_of_rejected(
            b"5-1", 1, [b"d", b"\xc1", b"n", b"mail"], "decode_failed", "not MessagePack"
        )
        bench.handler.queue_bury_of_rejected(b"5-1", 1, None, "oversize_payload", "9 bytes")
        bench.handler.queue_bury_of_rejected(b"5-1", 1, [b"n"], "malformed", "")
        assert [dead.job_name for dead in bench.outcomes.dead] == ["mail", "", ""]

    def test_the_extras_of_a_job_stay_with_it(self, bench: FailuresBench) -> None:
        failed = job()
        failed.extras = encode_extras(s=7)
        bench.handler.log_error_and_queue_outcome(failed, LookupError())
        ((_, _, member),) = bench.outcomes.retries
        assert read_extra_or_none(decode_envelope(split_delayed_member(member)[1]).extras, "s") == 7

    def test_jitter_is_drawn_for_each_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(random, "randrange", random.Random(3).randrange)
        bench = FailuresBench(policy=RetryPolicy(initial_ms=100, jitter_ms=1000))
        for _ in range(20):
            bench.handler.log_error_and_queue_outcome(job(), LookupError())
        delays = {delay_ms for _, delay_ms, _ in bench.outcomes.retries}
        assert len(delays) > 10
        assert all(100 <= delay_ms < 1100 for delay_ms in delays)


class TestNextRun:
    def test_the_member_is_the_job_with_one_attempt_more(self) -> None:
        name, envelope = split_delayed_member(make_next_run_member(job(attempt=4)))
        again = decode_envelope(envelope)
        assert (name, again.id, again.payload, again.created_at_ms) == ("mail", "job-1", b"\x07", 0)
        assert again.attempt == 5

    def test_the_jobs_own_settings_travel_with_it(self) -> None:
        failed = job()
        failed.retry = RetryOverride(9, BackoffSpec("strange", 5, 6, 1.5, 7))
        assert decode_envelope(split_delayed_member(make_next_run_member(failed))[1]).retry == failed.retry

    def test_a_job_without_a_name_has_an_empty_one_in_its_member(self) -> None:
        assert make_next_run_member(job(name="")).startswith(b"\0\0\0\0")

    def test_deliveries_that_ended_badly_are_written_down(self) -> None:
        """The attempt of a job that was taken over counts them, so that the next envelope does too."""
        taken_over = Delivery(
            "job-1", name="", data=7, attempt=1 + 2, payload=b"\x07", entry_id=b"5-1", earlier_deliveries=2
        )
        assert decode_envelope(split_delayed_member(make_next_run_member(taken_over))[1]).attempt == 4


class TestUnknownKinds:
    def warnings(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        return [message for message in caplog.messages if "backoff kind" in message]

    def test_each_strange_kind_is_logged_once(self, bench: FailuresBench, caplog: pytest.LogCaptureFixture) -> None:
        for kind in ("linear", "linear", "fibonacci", "linear", "fibonacci"):
            bench.handler.log_error_and_queue_outcome(job(backoff=BackoffSpec(kind, 5)), LookupError())
        assert len(self.warnings(caplog)) == 2

    def test_known_kinds_are_not_logged(self, bench: FailuresBench, caplog: pytest.LogCaptureFixture) -> None:
        for backoff in (None, BackoffSpec("fixed", 5), BackoffSpec("exponential", 5)):
            bench.handler.log_error_and_queue_outcome(job(backoff=backoff), LookupError())
        assert self.warnings(caplog) == []

    def test_a_strange_kind_counts_as_exponential(self, bench: FailuresBench) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt=1, backoff=BackoffSpec("linear", 5)), LookupError())
        assert bench.outcomes.retries[0][1] == 10

    def test_a_kind_that_forges_a_line_is_escaped_and_cut(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        kind = "\r\n\x1b[31m\u202e" + "x" * 10_000
        bench.handler.log_error_and_queue_outcome(job(backoff=BackoffSpec(kind, 5)), LookupError())
        (line,) = self.warnings(caplog)
        assert line.isprintable()
        assert len(line) < 300

    def test_many_strange_kinds_cannot_fill_the_log(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(3):
            for number in range(150):
                bench.handler.log_error_and_queue_outcome(job(backoff=BackoffSpec(f"kind-{number}", 5)), LookupError())
        assert len(self.warnings(caplog)) == MAX_UNKNOWN_KINDS


def failure(text: str = "no such customer") -> LookupError:
    """An error as a handler raises it."""
    try:
        raise LookupError(text)
    except LookupError as error:
        return error


class TestLog:
    def test_a_first_failure_is_a_warning_with_the_line_that_failed_and_what_happens_next(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt=1), failure())
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        line, where, source = record.getMessage().split("\n")
        for part in ("'job-1'", "'mail'", "run 2", "200 ms", "LookupError: no such customer"):
            assert part in line
        assert where.startswith(f'  File "{__file__}", line ')
        assert (where.endswith("in failure"), source) == (True, "    raise LookupError(text)")

    def test_a_death_is_a_warning_with_its_reason(self, bench: FailuresBench, caplog: pytest.LogCaptureFixture) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt=2), LookupError("no such customer"))
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        for part in ("'job-1'", "'mail'", "3 runs", "retries_exhausted", "LookupError: no such customer"):
            assert part in record.getMessage()

    def test_repeats_of_one_failure_are_summed_up_once_a_period(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(10_000):
            bench.handler.log_error_and_queue_outcome(job(), failure())
        warnings = [record.getMessage() for record in caplog.records if record.levelno > logging.DEBUG]
        assert len(warnings) == 1
        caplog.clear()
        (look_back,) = bench.timers
        look_back()
        assert caplog.messages == ["'mail' has failed with LookupError: 9999 more times within 10 s"]

    def test_a_failure_that_came_once_more_is_counted_in_words(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(2):
            bench.handler.log_error_and_queue_outcome(job(), failure())
        bench.timers.pop()()
        assert caplog.messages[-1] == "'mail' has failed with LookupError: once more within 10 s"

    def test_a_repeated_failure_is_logged_with_its_line_after_a_while(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(2):
            bench.handler.log_error_and_queue_outcome(job(), failure())
            bench.timers.pop()()  # nothing more has come: it is forgotten
        assert [message.count("in failure") for message in caplog.messages] == [1, 1]
        assert bench.timers == []

    def test_other_names_and_other_errors_are_logged_separately(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        bench.handler.log_error_and_queue_outcome(job(), failure())
        bench.handler.log_error_and_queue_outcome(job(name="video"), failure())
        bench.handler.log_error_and_queue_outcome(job(), ValueError())
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * 3

    def test_names_that_are_made_up_on_the_way_cannot_fill_the_log(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number in range(3 * MAX_KINDS):
            bench.handler.log_error_and_queue_outcome(job(name=f"name-{number}"), failure())
        warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == MAX_KINDS + 1
        caplog.clear()
        bench.timers.pop()()
        assert caplog.messages == [f"failures of other kinds: {2 * MAX_KINDS - 1} more times within 10 s"]

    @pytest.mark.parametrize("attempt", (0, 2))
    def test_names_and_texts_cannot_forge_a_line(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture, attempt: int
    ) -> None:
        evil = "\r\n\x1b[31m\u202eERROR all is lost"
        bench.handler.log_error_and_queue_outcome(job(attempt, job_id=evil, name=evil), LookupError(evil))
        bench.handler.queue_bury_of_rejected(b"5-1", 1, None, "malformed", evil)
        assert all(message.isprintable() for message in caplog.messages)
        assert caplog.messages

    @pytest.mark.parametrize("attempt", (0, 2))
    def test_the_text_of_an_error_is_cut(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture, attempt: int
    ) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt), LookupError("x" * 1_000_000))
        assert len(caplog.messages[0]) < 400

    @pytest.mark.parametrize("attempt", (0, 2))
    def test_ids_and_names_are_cut_too(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture, attempt: int
    ) -> None:
        bench.handler.log_error_and_queue_outcome(job(attempt, job_id="x" * 100_000, name="y" * 100_000), LookupError())
        assert len(caplog.messages[0]) < 1000

    def test_an_error_that_describes_itself_cannot_forge_a_line_either(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Forger(Exception):
            def __str__(self) -> str:
                return "\r\n\x1b[31mERROR all is lost"

            __repr__ = __str__

        bench.handler.log_error_and_queue_outcome(job(), Forger())
        assert caplog.messages[0].isprintable()

    def test_a_burst_of_deaths_is_summed_up_after_a_second_though_no_other_follows(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "chasqui.worker")
        for _ in range(51):
            bench.handler.log_error_and_queue_outcome(job(attempt=2), LookupError())
            bench.handler.queue_bury_of_rejected(b"5-1", 1, None, "malformed", "no payload")
        assert len(caplog.messages) == 1 + LINES_A_SECOND
        bench.timers.pop()()
        assert caplog.messages[1 + LINES_A_SECOND :] == ["91 more jobs or entries have died in the same second"]
        bench.handler.log_error_and_queue_outcome(job(attempt=2), LookupError())
        assert len(caplog.messages) == 1 + LINES_A_SECOND + 2
        assert len(bench.outcomes.letters) == 103

    def test_a_burst_of_deaths_is_summed_up_once_when_the_worker_ends_within_the_second(
        self, bench: FailuresBench, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(LINES_A_SECOND + 2):
            bench.handler.queue_bury_of_rejected(b"5-1", 1, None, "malformed", "no payload")
        bench.failure_log.log_and_reset_counts()
        bench.timers.pop()()
        assert caplog.messages[LINES_A_SECOND:] == ["2 more jobs or entries have died in the same second"]
