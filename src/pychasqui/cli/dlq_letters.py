"""What the commands about dead letters share: the options that select letters, and how a letter is written."""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ..errors import DecodeError
from .moments import PAST_MOMENT
from .values import make_iso_and_ms_fields

if TYPE_CHECKING:
    from ..dlq import DeadJob

LETTER_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")
FILTERS = ("job_id", "name", "reason", "error_type", "since", "until")


class LetterIdType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic from click 8.2 on
    """The id of a dead letter, as `dlq list` shows it."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if LETTER_ID.fullmatch(value) is None:
            self.fail(
                f"{value[:100]!r} is not the id of a dead letter, such as 1700000000000-0, which `chasqui dlq list` "
                "shows; --job-id takes the id of a job",
                param,
                ctx,
            )
        return str(value)


LETTER = LetterIdType()


def add_filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the options that select letters, and calls it with those that are given as `letter_filter`."""

    @click.option("--reason", default=None, help="Only letters with this reason, such as retries_exhausted.")
    @click.option("--name", default=None, help="Only letters of jobs with this name.")
    @click.option("--error-type", default=None, help="Only letters of jobs that raised this type of error.")
    @click.option("--job-id", default=None, help="Only letters of the job with this id.")
    @click.option(
        "--since",
        type=PAST_MOMENT,
        default=None,
        help="Died then or later: 2026-01-31, or 2h (two hours ago).",
    )
    @click.option("--until", type=PAST_MOMENT, default=None, help="Died before this time.")
    @functools.wraps(command)
    def with_filter(**arguments: Any) -> Any:
        given = {name: arguments.pop(name) for name in FILTERS}
        letter_filter = {name: value for name, value in given.items() if value is not None}
        ids = arguments.pop("letter_ids", ())
        return command(letter_filter={**letter_filter, "ids": list(ids)} if ids else letter_filter, **arguments)

    return with_filter


def describe_filter_except_ids(letter_filter: dict[str, Any]) -> str:
    """The conditions but ids in words, such as " with name 'a' and reason 'b'"; empty if there are none."""
    shown = [
        f"{name.replace('_', ' ')} {value.isoformat('T', 'seconds') if isinstance(value, datetime) else repr(value)}"
        for name, value in letter_filter.items()
        if name != "ids"
    ]
    return f" with {' and '.join(shown)}" if shown else ""


def letter_to_fields(letter: DeadJob) -> dict[str, Any]:
    """A letter with its data, for a table or as JSON."""
    record = {
        "dlq_id": letter.dlq_id,
        "source_id": letter.source_id,
        "job_id": letter.job_id,
        "name": letter.name,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "detail": letter.detail,
        "error_type": letter.error_type,
        "error": letter.error,
        "traceback": letter.traceback,
        "worker": letter.worker,
        **make_iso_and_ms_fields(died_at=read_death_time_ms(letter)),
        "payload_bytes": len(letter.payload),
    }
    try:
        return {**record, "data": letter.data}
    except DecodeError as error:
        return {**record, "data": None, "data_error": str(error)}


def read_death_time_ms(letter: DeadJob) -> int:
    return int(letter.dlq_id.partition("-")[0])


def letter_to_export_fields(letter: DeadJob) -> dict[str, Any]:
    """A letter as `dlq export` writes it. `payload` and `raw` have every byte of it; all else is for people."""
    return {**letter_to_fields(letter), "payload": _encode_base64(letter.payload), "raw": _encode_raw_fields(letter)}


def _encode_raw_fields(letter: DeadJob) -> list[str | None]:
    """The fields of the letter, name and value in turn. None stands for the payload, which would be there twice."""
    return [None if word is letter.payload else _encode_base64(word) for word in letter.words]


def _encode_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def decode_raw_fields(raw: Any, payload: bytes) -> list[bytes]:
    """Reads what letter_to_export_fields() writes as `raw`; raises ValueError."""
    if not isinstance(raw, list) or len(raw) % 2 or not all(isinstance(word, (str, type(None))) for word in raw):
        raise ValueError("raw is no list of fields")
    return [payload if word is None else base64.b64decode(word, validate=True) for word in raw]


def summarize_letter(letter: DeadJob) -> str:
    """What went wrong, in one line: the error, else the detail, else the reason."""
    error = ": ".join(word for word in (letter.error_type, letter.error) if word)
    return error or letter.detail or letter.reason
