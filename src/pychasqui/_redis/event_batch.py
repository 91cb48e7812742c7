"""Events that are written together: as the event writer gives them, and as the scripts take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from .._wire.event import CompletedEvent, Event, encode_events_for_scripts, make_write_completed_arguments
from ..errors import ConnectionLost, RedisTrouble, ReplyError
from . import scripts
from .error_actions import ErrorAction, action_for
from .keys import Keys
from .socket import Socket

OnWritten = Callable[[int, RedisTrouble | None], None]  # gets how many events, and why they are lost if they are


@dataclass(frozen=True, slots=True)
class EventBatch:
    """`others` are written first. `on_written` is called once for each kind that is there, or once for both if there is
    no connection."""

    max_len: int  # about how many events the stream keeps
    on_written: OnWritten
    others: list[Event] = field(default_factory=list)
    completed: list[CompletedEvent] = field(default_factory=list)
    has_results: bool = False  # the results of the completed jobs are stored, unless the server refuses them


# Events that belong to a call are asked for when the call is sent, not before: as long as an ack waits for its
# connection, the start of a job may still be written without it.
EventsOnSend = Callable[[], EventBatch]


def send_or_drop_events(socket: Socket, keys: Keys, batch: EventBatch, deadline: float) -> None:
    """Writes the events in this turn's write, or drops them if the server is slow to take what is written."""
    stream = keys.events
    if batch.others:
        words = (batch.max_len, *encode_events_for_scripts(*batch.others))
        _send_or_drop_event_script(
            socket, scripts.WRITE_EVENTS, stream, words, deadline, partial(batch.on_written, len(batch.others))
        )
    if batch.completed:
        result_prefix = keys.result("") if batch.has_results else ""
        words = (batch.max_len, *make_write_completed_arguments(batch.completed, result_prefix=result_prefix))
        _send_or_drop_event_script(
            socket, scripts.WRITE_COMPLETED, stream, words, deadline, partial(batch.on_written, len(batch.completed))
        )


def _send_or_drop_event_script(
    socket: Socket,
    script: scripts.Script,
    stream: str,
    words: tuple[Any, ...],
    deadline: float,
    on_written: Callable[[RedisTrouble | None], None],
) -> None:
    if socket.is_congested:
        on_written(ConnectionLost("the server is slow to take what is written"))
        return

    def report_written_or_lost(reply: Any) -> None:
        if isinstance(reply, ReplyError) and action_for(reply) is ErrorAction.NO_SCRIPT:
            script.mark_unloaded(socket)  # these events are lost, the next ones are not
        on_written(reply if isinstance(reply, RedisTrouble) else None)

    socket.send(script.pack_and_mark_loaded(socket, (stream,), words), deadline, report_written_or_lost)
