"""The metric records of failed and dead jobs, derived once Redis has answered for them."""

from __future__ import annotations

from .._core.outcome import CANCELLED, Buried, FailedRun, Rescheduled
from ..metrics import DlqRouted, JobOutcome, JobsCancelled, Record, RetryScheduled


def make_outcome_records(outcome: Rescheduled | Buried, *, is_moved: bool) -> list[Record]:
    """Returns a record of the run, if there was one, and of where the job went, unless another worker has it."""
    run, name = outcome.run, outcome.job_name
    records: list[Record] = [] if run is None else [_make_run_record(run, name)]
    if is_moved and isinstance(outcome, Rescheduled):
        records.append(RetryScheduled(outcome.run.attempt + 1, outcome.delay_ms, name))
    elif is_moved and isinstance(outcome, Buried) and outcome.reason == CANCELLED:
        records.append(JobsCancelled(1, "stopped", name))
    elif is_moved and isinstance(outcome, Buried):
        records.append(DlqRouted(outcome.reason, outcome.runs, name))
    return records


def _make_run_record(run: FailedRun, name: str) -> JobOutcome:
    return JobOutcome(run.kind, run.attempt, run.duration_us, name)
