"""One page of metrics for several processes."""

from __future__ import annotations

import pytest

from pychasqui._http.merged_metrics import MergedMetrics
from pychasqui._http.text_format import MAX_NAMES, Histogram, Metric, render


def page(done: int, busy: int, lag_s: float, *names: str) -> str:
    completed = Metric("chasquimq_jobs_completed_total", "counter", 'Runs whose "handler" returned.', "name")
    for name in names or ("mail",):
        completed.increase(name, by=done)
    running = Metric("chasquimq_worker_busy", "gauge", "How many handlers run now.")
    running.set(busy)
    lag = Metric("chasquimq_worker_loop_lag_seconds", "gauge", "How late the event loop is.")
    lag.set(lag_s)
    durations = Histogram("chasquimq_handler_duration_seconds", "How long handlers ran.", (0.1, 1.0), "name")
    durations.get_or_make_buckets("mail").observe_all([0.05] * done)
    return render([completed, running, lag, durations], {"queue": "q"})


def line(text: str, beginning: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(beginning)]
    return found.rpartition(" ")[2]


def test_one_page_stays_as_it_is() -> None:
    assert MergedMetrics().render([page(3, 1, 0.25)]) == page(3, 1, 0.25)


def test_counters_gauges_and_histograms_are_added_up() -> None:
    text = MergedMetrics().render([page(3, 1, 0.25), page(4, 2, 0.5)])
    assert line(text, "chasquimq_jobs_completed_total{") == "7"
    assert line(text, "chasquimq_worker_busy{") == "3"
    assert line(text, 'chasquimq_handler_duration_seconds_bucket{queue="q",name="mail",le="0.1"}') == "7"
    assert line(text, "chasquimq_handler_duration_seconds_count{") == "7"


def test_the_largest_lag_counts() -> None:
    assert line(MergedMetrics().render([page(0, 0, 0.25), page(0, 0, 0.5)]), "chasquimq_worker_loop_lag") == "0.5"


def ready_page(is_ready: int) -> str:
    ready = Metric("chasquimq_worker_ready", "gauge", "1 if this worker can run jobs.")
    ready.set(is_ready)
    return render([ready], {"queue": "q"})


@pytest.mark.parametrize(("processes", "is_ready"), (((1, 1, 1), "1"), ((1, 0, 1), "0"), ((0, 0), "0")))
def test_processes_are_ready_if_each_of_them_is(processes: tuple[int, ...], is_ready: str) -> None:
    assert line(MergedMetrics().render(map(ready_page, processes)), "chasquimq_worker_ready{") == is_ready


def test_a_process_that_drains_need_not_be_ready_and_is_counted() -> None:
    text = MergedMetrics().render([ready_page(1), page(3, 1, 0)], [ready_page(0), page(4, 2, 0)])
    assert line(text, "chasquimq_worker_ready{") == "1"
    assert line(text, "chasquimq_jobs_completed_total{") == "7"


def test_each_metric_has_one_head() -> None:
    text = MergedMetrics().render([page(3, 1, 0.25), page(4, 2, 0.5)])
    heads = [each for each in text.splitlines() if each.startswith("# TYPE ")]
    assert len(heads) == len(set(heads)) == 4


def test_a_name_that_only_one_process_knows_is_kept() -> None:
    text = MergedMetrics().render([page(3, 1, 0.25, "mail"), page(4, 2, 0.5, "odd } name 5")])
    assert line(text, 'chasquimq_jobs_completed_total{queue="q",name="odd } name 5"}') == "4"
    assert line(text, 'chasquimq_jobs_completed_total{queue="q",name="mail"}') == "3"


def test_counts_of_a_process_that_has_ended_stay_and_its_gauges_go() -> None:
    merged = MergedMetrics()
    merged.add_counts_of_ended_process(page(3, 5, 0.25))
    merged.add_counts_of_ended_process(page(2, 5, 0.25))
    text = merged.render([page(4, 2, 0.5)])
    assert line(text, "chasquimq_jobs_completed_total{") == "9"
    assert line(text, "chasquimq_handler_duration_seconds_count{") == "9"
    assert line(text, "chasquimq_worker_busy{") == "2"
    assert line(merged.render([]), "chasquimq_jobs_completed_total{") == "5"


def test_a_line_without_a_number_is_skipped() -> None:
    text = page(3, 1, 0.25)
    cut = text[: text.index("chasquimq_handler_duration_seconds_bucket{") + 20]
    merged = MergedMetrics()
    merged.add_counts_of_ended_process(cut)
    assert line(merged.render([cut]), "chasquimq_jobs_completed_total{") == "6"


@pytest.mark.parametrize("character", ("\u2028", "\r", "\x85"))
def test_a_label_with_the_end_of_a_line_other_than_a_newline_is_kept(character: str) -> None:
    completed = Metric("chasquimq_jobs_completed_total", "counter", "Runs.")
    completed.increase(by=3)
    text = render([completed], {"queue": f"a{character}b"})
    assert MergedMetrics().render([text]) == text


def test_names_of_ended_processes_are_bounded_and_no_count_is_lost() -> None:
    merged, odd = MergedMetrics(), 'odd\\",name="x'
    for process in range(5):
        merged.add_counts_of_ended_process(page(1, 0, 0.0, odd, *(f"order-{process}-{n}" for n in range(MAX_NAMES))))
    lines = [each for each in merged.render([]).splitlines() if each.startswith("chasquimq_jobs_completed_total{")]
    assert len(lines) == MAX_NAMES + 1  # and one for all others
    assert sum(int(each.rpartition(" ")[2]) for each in lines) == 5 * (MAX_NAMES + 1)
    assert line("\n".join(lines), 'chasquimq_jobs_completed_total{queue="q",name="odd') == "5"
