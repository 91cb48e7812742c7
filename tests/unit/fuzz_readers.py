"""Throw damaged fields at everything that reads what Redis holds. Nothing but pychasqui's own errors may come out.

    python tests/unit/fuzz_readers.py --count 1000000 [--seed 7]

fuzz_envelope.py does the same with the bytes of jobs. The unit tests run a few thousand of both.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pychasqui._redis.dialect import read_dialect
from pychasqui._redis.replies import Entry
from pychasqui._wire.dead_letter import read_dead_letter
from pychasqui._wire.entry import find_entry_id_in_uniqueness_key, read_name_of_rejected_or_empty
from pychasqui._wire.envelope import (
    decode_delivery,
    make_extras_of_first_run,
    read_expiry_ms_or_none,
    read_put_back_count,
    read_timeout_s_or_zero,
)
from pychasqui._wire.event import read_event, read_failure_text, read_job_end
from pychasqui._wire.job_log import read_log_line_or_none
from pychasqui._wire.lenient import MAX_TEXT_BYTES
from pychasqui._wire.repeatable import decode_spec, read_override_if_for_this_spec
from pychasqui._wire.retry_override import decode_retry
from pychasqui._wire.worker_record import read_worker_record_or_error
from pychasqui.errors import ChasquiError
from pychasqui.inspector import find_entry, make_delayed_view, make_entry_view
from pychasqui.results import decode_results
from tests.hostile import values

SLOWEST_S = 0.25  # far more than any reader takes, and far less than an unbounded length would take


def entries(seed: int, count: int) -> Iterator[tuple[Entry, bytes, float]]:
    """Entries of any fields, bytes of anything, and scores."""
    rng = random.Random(seed)
    for _ in range(count):
        fields: Any = values.field_pairs(rng)
        match rng.randrange(12):
            case 0:
                fields = None
            case 1:
                fields = fields[:-1]
            case 2:
                fields = fields * 100
        entry_id = rng.choice((b"1-1", b"1795000000000-0", values.LAST_ID.encode(), values.FAR_ID.encode()))
        yield [entry_id, fields], values.anything(rng), float(values.score(rng))


def _letter(entry: Entry) -> None:
    letter = read_dead_letter(entry)
    assert letter.died_at.year >= 1970
    assert len(repr(letter)) < 1_000_000
    assert letter.attempts is None or letter.attempts >= 0
    for read in (lambda: letter.data, letter.replayed):
        try:
            read()
        except ChasquiError:
            continue


def _event(entry: Entry) -> None:
    event = read_event(entry)
    assert isinstance(event.name, str)
    assert all(isinstance(value, (str, int)) for value in event.fields.values())
    assert read_job_end(event).attempts >= 0
    assert isinstance(read_failure_text(event), str)


def _line(entry: Entry) -> None:
    line = read_log_line_or_none(entry)
    assert line is None or len(line) <= MAX_TEXT_BYTES


def _rejected(entry: Entry) -> None:
    assert isinstance(read_name_of_rejected_or_empty(entry[1]), str)


def _delivery(raw: bytes) -> None:
    delivery = decode_delivery(raw)
    _extras(delivery.extras)


def _extras(raw: bytes) -> None:
    """Extras are what follows an envelope, whatever that is."""
    expiry_ms = read_expiry_ms_or_none(raw)
    assert expiry_ms is None or expiry_ms >= 0
    assert read_timeout_s_or_zero(raw) >= 0
    assert read_put_back_count(raw) >= 0
    make_extras_of_first_run(raw)


def _unique(raw: bytes) -> None:
    assert len(find_entry_id_in_uniqueness_key(raw) or b"") <= 41


def _worker(raw: bytes) -> None:
    worker = read_worker_record_or_error("w", raw)
    assert worker.error is None or worker.error.isprintable()
    assert len(worker.host) <= 256


def readers(entry: Entry, raw: bytes, score: float) -> dict[str, Callable[[], Any]]:
    return {
        "letter": lambda: _letter(entry),
        "event": lambda: _event(entry),
        "line": lambda: _line(entry),
        "rejected": lambda: _rejected(entry),
        "view": lambda: [make_entry_view(state, entry) for state in ("waiting", "active", "dead")],
        "search": lambda: find_entry([entry], "j"),
        "delayed": lambda: make_delayed_view(raw, score),
        "worker": lambda: _worker(raw),
        "result": lambda: decode_results([raw, None]),
        "spec": lambda: decode_spec(raw),
        "retry": lambda: decode_retry(raw),
        "override": lambda: read_override_if_for_this_spec(raw, raw),
        "delivery": lambda: _delivery(raw),
        "extras": lambda: _extras(raw),
        "unique": lambda: _unique(raw),
        "hello": lambda: read_dialect([b"server", raw, b"version", raw, b"proto", raw, b"id", raw]),
    }


def check(entry: Entry, raw: bytes, score: float) -> list[str]:
    """Runs each reader, and returns its kind of result by name."""
    outcomes = []
    for name, read in readers(entry, raw, score).items():
        began = time.thread_time()
        try:
            read()
            outcomes.append(f"{name} read")
        except ChasquiError:
            outcomes.append(f"{name} refused")
        assert time.thread_time() - began < SLOWEST_S, name
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    outcomes: Counter[str] = Counter()
    began = time.perf_counter()
    for case in entries(arguments.seed, arguments.count):
        try:
            outcomes.update(check(*case))
        except BaseException:
            print("failed on", repr(case)[:2000])
            raise
    print(f"{arguments.count} cases in {time.perf_counter() - began:.0f} s")
    for outcome, times in sorted(outcomes.items()):
        print(f"  {outcome:20} {times:>9}")


if __name__ == "__main__":
    main()
