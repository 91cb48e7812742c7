"""The text that Prometheus reads: its form, its labels, and that the numbers add up."""

from __future__ import annotations

import re
import time

import pytest

from pychasqui import PrometheusSink
from pychasqui._core.delivery import Delivery
from pychasqui._http.text_format import Buckets, Histogram, JobNameLabels, Metric, render
from pychasqui.metrics import (
    DlqRouted,
    JobOutcome,
    JobsAdded,
    LockOutcome,
    PromoterTick,
    ReaderBatch,
    RedisAnswered,
    RetryScheduled,
)

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\\n])*"(,[a-z_]+="(\\.|[^"\\\n])*")*\})? -?[0-9.e+-]+')


def job_done(name: str = "mail", seconds: float = 0.0005, waited_s: float = 0.0) -> Delivery:
    started_at = time.monotonic()
    entry_id = b"%d-0" % int((time.time() - waited_s) * 1000)
    return Delivery("id", name=name, entry_id=entry_id, started_at=started_at, ended_at=started_at + seconds)


class Text:
    """A rendered page."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = [line for line in text.splitlines() if not line.startswith("#")]

    def value(self, metric: str, **labels: str) -> float:
        """Of the one line that has these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        found = [
            line for line in self.lines if re.match(rf"{metric}[{{ ]", line) and all(part in line for part in wanted)
        ]
        assert len(found) == 1, found
        return float(found[0].rpartition(" ")[2])

    def has(self, metric: str) -> bool:
        return any(re.match(rf"{metric}[{{ ]", line) for line in self.lines)


def fill(sink: PrometheusSink) -> None:
    sink.jobs_done([job_done(), job_done("video", 2.0)])
    sink.job_outcome(JobOutcome("err", 1, 1_500_000, "mail"))
    sink.job_outcome(JobOutcome("panic", 1, 10, "mail"))
    sink.retry_scheduled(RetryScheduled(2, 1500, "mail"))
    sink.dlq_routed(DlqRouted("unrecoverable", 1, "mail"))
    sink.jobs_added(JobsAdded(5, "now", "mail"))
    sink.redis_answered(RedisAnswered("ack", 0.0003))
    sink.reader_batch(ReaderBatch(7, 2))
    sink.promoter_lock_outcome(LockOutcome("acquired"))
    sink.promoter_tick(PromoterTick(3, 4, 2500))


class TestForm:
    def test_every_line_is_of_prometheus_text_format_and_has_the_queue(self) -> None:
        sink = PrometheusSink("mails")
        fill(sink)
        text = Text(sink.render())
        assert text.text.endswith("\n")
        for line in text.lines:
            assert LINE.fullmatch(line), line
            assert '{queue="mails"' in line

    def test_every_metric_has_its_help_and_type_right_before_it(self) -> None:
        sink = PrometheusSink("mails")
        fill(sink)
        lines = sink.render().splitlines()
        types = [index for index, line in enumerate(lines) if line.startswith("# TYPE ")]
        assert len(types) >= 15
        for index in types:
            _, _, name, kind = lines[index].split(" ")
            assert lines[index - 1].startswith(f"# HELP {name} ")
            assert lines[index + 1].startswith(name)
            assert (kind == "counter") == name.endswith("_total")

    @pytest.mark.parametrize(
        ("value", "escaped"),
        (('say "hi"', r"say \"hi\""), ("a\\b", r"a\\b"), ("two\nlines", r"two\nlines"), ("ümlaut {}", "ümlaut {}")),
    )
    def test_labels_are_escaped(self, value: str, escaped: str) -> None:
        metric = Metric("m", "gauge", "about", "name")
        metric.set(1, value)
        assert render([metric], {}).splitlines()[2] == f'm{{name="{escaped}"}} 1'

    def test_a_help_of_several_lines_stays_on_one(self) -> None:
        assert render([Metric("m", "gauge", "one\ntwo \\")], {}).splitlines()[0] == r"# HELP m one\ntwo \\"

    def test_a_metric_without_a_value_is_left_out(self) -> None:
        assert render([Metric("m", "counter", "about", "name"), Histogram("h", "about", (1.0,), "name")], {}) == ""

    def test_numbers_are_as_short_as_they_can_be(self) -> None:
        metric = Metric("m", "gauge", "about", "of")
        for number in (0, 3.0, 0.25, 10**15):
            metric.set(number, str(number))
        printable = [line.rpartition(" ")[2] for line in render([metric], {}).splitlines()[2:]]
        assert printable == ["0", "3", "0.25", "1000000000000000"]


class TestHistogram:
    def test_buckets_add_up_and_hold_their_own_bound(self) -> None:
        histogram = Histogram("h", "about", (1.0, 2.5))
        for value in (0.5, 1.0, 1.25, 2.5, 2.75):
            histogram.get_or_make_buckets().observe(value)
        lines = render([histogram], {}).splitlines()[2:]
        assert lines[:3] == ['h_bucket{le="1"} 2', 'h_bucket{le="2.5"} 4', 'h_bucket{le="+Inf"} 5']
        assert lines[3:] == ["h_sum 8", "h_count 5"]

    @pytest.mark.parametrize("values", ([0.5], [0.5, 1.0], [0.5, 1.1], [3.0, 0.1, 2.0, 1.0]))
    def test_a_batch_counts_as_each_of_its_values(self, values: list[float]) -> None:
        one, batch = Buckets((1.0, 2.0)), Buckets((1.0, 2.0))
        for value in values:
            one.observe(value)
        batch.observe_all(values)
        assert (batch.counts, batch.sum) == (one.counts, one.sum)


class TestNames:
    def test_the_first_names_have_their_own_labels_and_the_rest_share_one(self) -> None:
        names = JobNameLabels(2)
        assert [names(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", "_other", "a", "_other"]

    def test_a_sink_has_at_most_200_names(self) -> None:
        sink = PrometheusSink("q")
        sink.jobs_done([job_done(f"name-{number}") for number in range(300)])
        for number in range(300):
            sink.dlq_routed(DlqRouted("malformed", 0, f"other-{number}"))
        text = Text(sink.render())
        completed = [line for line in text.lines if line.startswith("chasquimq_jobs_completed_total")]
        assert len(completed) == 201
        assert text.value("chasquimq_jobs_completed_total", name="_other") == 100
        assert text.value("chasquimq_dlq_routed_total", name="_other", reason="malformed") == 300


class TestSink:
    def test_the_wait_of_a_job_follows_a_clock_that_was_set_after_the_start(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink, later_s = PrometheusSink("q"), time.time() + 3600
        monkeypatch.setattr("pychasqui._http.prometheus_sink.time.time", lambda: later_s)
        sink.jobs_done([job_done(waited_s=5)])
        waited_s = Text(sink.render()).value("chasquimq_job_wait_seconds_sum", name="mail")
        assert waited_s == pytest.approx(5, abs=2)

    def test_jobs_that_are_done_count_by_name(self) -> None:
        sink = PrometheusSink("q")
        sink.jobs_done([job_done()] * 3)
        sink.jobs_done([job_done(), job_done("video", 2.0), job_done("video", 0.5)])
        text = Text(sink.render())
        assert text.value("chasquimq_jobs_completed_total", name="mail") == 4
        assert text.value("chasquimq_jobs_completed_total", name="video") == 2
        assert text.value("chasquimq_handler_duration_seconds_count", name="video") == 2
        assert text.value("chasquimq_handler_duration_seconds_sum", name="video") == pytest.approx(2.5)
        assert text.value("chasquimq_handler_duration_seconds_bucket", name="mail", le="0.001") == 4
        assert text.value("chasquimq_handler_duration_seconds_bucket", name="video", le="0.5") in (0, 1)
        assert text.value("chasquimq_handler_duration_seconds_bucket", name="video", le="2.5") == 2
        assert text.value("chasquimq_ack_flush_size_count") == 2
        assert text.value("chasquimq_ack_flush_size_sum") == 6

    def test_added_jobs_count_by_name_and_mode(self) -> None:
        sink = PrometheusSink("mails")
        for added in (JobsAdded(3, "now", "mail"), JobsAdded(2, "delayed", "mail"), JobsAdded(4, "now", "mail")):
            sink.jobs_added(added)
        text = Text(sink.render())
        assert text.value("chasquimq_jobs_enqueued_total", name="mail", mode="now") == 7
        assert text.value("chasquimq_jobs_enqueued_total", name="mail", mode="delayed") == 2

    def test_the_times_of_redis_are_labelled_by_command(self) -> None:
        sink = PrometheusSink("mails")
        for seconds in (0.0002, 0.0004, 0.2):
            sink.redis_answered(RedisAnswered("ack", seconds))
        text = Text(sink.render())
        assert text.value("chasquimq_redis_command_seconds_bucket", command="ack", le="0.00025") == 1
        assert text.value("chasquimq_redis_command_seconds_bucket", command="ack", le="0.0005") == 2
        assert text.value("chasquimq_redis_command_seconds_count", command="ack") == 3

    def test_failures_count_by_kind_and_have_a_duration(self) -> None:
        sink = PrometheusSink("q")
        fill(sink)
        text = Text(sink.render())
        assert text.value("chasquimq_jobs_failed_total", name="mail", kind="error") == 1
        assert text.value("chasquimq_jobs_failed_total", name="mail", kind="panic") == 1
        assert text.value("chasquimq_handler_duration_seconds_count", name="mail") == 3
        assert text.value("chasquimq_retries_scheduled_total", name="mail") == 1
        assert text.value("chasquimq_retry_backoff_seconds_sum", name="mail") == 1.5
        assert text.value("chasquimq_dlq_routed_total", name="mail", reason="unrecoverable") == 1
        assert text.value("chasquimq_consumer_batch_size_sum") == 7
        assert text.value("chasquimq_consumer_reclaimed_total") == 2

    def test_the_waiting_time_of_a_single_job_is_recorded(self) -> None:
        sink = PrometheusSink("q")
        sink.jobs_done([job_done(waited_s=90)])
        sink.jobs_done([job_done(waited_s=-90)])  # the server's clock is ahead
        text = Text(sink.render())
        assert text.value("chasquimq_job_wait_seconds_count", name="mail") == 2
        assert text.value("chasquimq_job_wait_seconds_sum", name="mail") == pytest.approx(90, abs=1)

    def test_the_waiting_time_of_one_job_in_256_is_recorded(self) -> None:
        sink = PrometheusSink("q")
        sink.jobs_done([job_done()] * 2560)
        assert Text(sink.render()).value("chasquimq_job_wait_seconds_count", name="mail") == 10

    def test_the_leader_alone_shows_how_much_is_delayed(self) -> None:
        sink = PrometheusSink("q")
        sink.promoter_lock_outcome(LockOutcome("held"))
        sink.promoter_tick(PromoterTick(2, 9, 0))
        text = Text(sink.render())
        assert text.value("chasquimq_promoter_promoted_total") == 2
        assert not text.has("chasquimq_delayed_zset_depth")
        sink.promoter_lock_outcome(LockOutcome("acquired"))
        sink.promoter_tick(PromoterTick(3, 4, 2500))
        text = Text(sink.render())
        assert text.value("chasquimq_promoter_promoted_total") == 5
        assert text.value("chasquimq_delayed_zset_depth") == 4
        assert text.value("chasquimq_promoter_oldest_pending_lag_ms") == 2500
        assert text.value("chasquimq_promoter_oldest_pending_lag_seconds") == 2.5
        sink.promoter_lock_outcome(LockOutcome("held"))
        assert not Text(sink.render()).has("chasquimq_delayed_zset_depth")

    def test_a_lease_that_another_process_holds_is_no_loss(self) -> None:
        sink = PrometheusSink("q")
        for outcome in ("held", "acquired", "held", "acquired"):
            sink.promoter_lock_outcome(LockOutcome(outcome))
        sink.promoter_lock_outcome(LockOutcome("acquired", "scheduler"))
        text = Text(sink.render())
        assert text.value("chasquimq_promoter_lock_acquired_total", role="promoter") == 2
        assert text.value("chasquimq_promoter_lock_lost_total", role="promoter") == 1
        assert text.value("chasquimq_promoter_lock_acquired_total", role="scheduler") == 1
