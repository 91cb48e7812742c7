"""What other task queues call the options and methods of a task, and what to use here instead. No I/O.

Users who come from Celery, RQ, arq, Dramatiq, taskiq, Huey and others try their old names first.
"""

from __future__ import annotations

from collections.abc import Iterable

_CURRENT = "current_job() is the running job, its id and its attempt, anywhere inside the task"
_ATTEMPTS = "attempts=4 allows four runs in all, the first one included"
_BACKOFF = "backoff=timedelta(seconds=5), or backoff=BackoffSpec.exponential(1000)"
_RETRIED = "every exception is retried; give_up_on=(ValueError,) names those that are not"
_TIMEOUT = "timeout=timedelta(seconds=30), of a task that is an async def"
_EXPIRES = "expires_in=timedelta(hours=1)"
_DELAY = "with_options(delay=timedelta(minutes=1)) of a call"
_AT = "with_options(at=...) of a call, a datetime with a time zone"
_JOB_ID = "with_options(job_id=...) of a call, or unique_by=(...) of the task"
_UNIQUE = "unique_by=(...) names the parameters of which there is one job, unique_for= for how long"
_QUEUE = "queue='mail'"
_RESULT = "annotate the task: -> None keeps no result, any other annotation does"
_RESULT_TTL = "App(defaults={'result_ttl_ms': 600_000}), or of one queue in App(queues={...})"
_ACKED = "nothing needs to be set: a job is acked when it is done, and one whose worker dies runs again"
_SCHEDULE = "@app.cron('0 3 * * *') or @app.every(timedelta(minutes=5)) above @app.task"
_MESSAGEPACK = "nothing needs to be set: arguments travel as MessagePack, by their annotations"
_SURROUND = "@app.middleware is around each run, Depends(...) gives a task what it needs"
_NEXT = "the end of one task enqueues the next"
_LIMIT = "a queue of its own with its concurrency: queue='slow' and App(queues={'slow': {'concurrency': 2}})"
_PRIORITY = "there are no priorities: give it a queue of its own, queue='urgent', with its own workers"
_LETTERS = "nothing needs to be set: dead letters stay until they are replayed or removed"
_SYNC_OR_ASYNC = "nothing needs to be set: an async def runs in the event loop, a plain function in a thread"

OPTIONS: dict[str, str] = {
    **dict.fromkeys(("bind", "context", "ctx", "pass_context"), _CURRENT),
    **dict.fromkeys(("max_retries", "retries", "max_tries", "retry", "retry_on_error", "max_attempts"), _ATTEMPTS),
    **dict.fromkeys(("default_retry_delay", "retry_delay", "retry_jitter", "retry_kwargs", "interval"), _BACKOFF),
    **dict.fromkeys(("retry_backoff", "retry_backoff_max", "min_backoff", "max_backoff"), _BACKOFF),
    **dict.fromkeys(("autoretry_for", "dont_autoretry_for", "retry_when", "retry_for", "throws"), _RETRIED),
    **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout", "timeout_s"), _TIMEOUT),
    **dict.fromkeys(("expires", "max_age", "ttl", "_expires", "expire"), _EXPIRES),
    **dict.fromkeys(("countdown", "delay_ms", "_defer_by", "schedule_in", "enqueue_in"), _DELAY),
    **dict.fromkeys(("eta", "run_at", "schedule_at", "_defer_until", "enqueue_at"), _AT),
    **dict.fromkeys(("task_id", "_job_id", "id", "key"), _JOB_ID),
    **dict.fromkeys(("unique", "once", "queueing_lock", "lock", "lock_task"), _UNIQUE),
    **dict.fromkeys(("queue_name", "_queue_name", "routing_key", "exchange"), _QUEUE),
    **dict.fromkeys(("ignore_result", "store_results", "store_errors_even_if_ignored", "keep_result"), _RESULT),
    **dict.fromkeys(("result_ttl", "result_expires", "failure_ttl"), _RESULT_TTL),
    **dict.fromkeys(("acks_late", "acks_on_failure_or_timeout", "reject_on_worker_lost", "track_started"), _ACKED),
    **dict.fromkeys(("schedule", "cron", "crontab", "periodic", "run_every", "run_at_startup"), _SCHEDULE),
    **dict.fromkeys(("serializer", "compression", "pydantic", "typing"), _MESSAGEPACK),
    **dict.fromkeys(("base", "cls", "middleware", "on_success", "on_failure", "on_retry", "pre_run"), _SURROUND),
    **dict.fromkeys(("link", "link_error", "depends_on", "pipe_ignore"), _NEXT),
    **dict.fromkeys(("rate_limit", "concurrency", "max_concurrency", "concurrency_limit"), _LIMIT),
    **dict.fromkeys(("priority", "at_front"), _PRIORITY),
    **dict.fromkeys(("dead_letter", "max_dead_letters"), _LETTERS),
    **dict.fromkeys(("is_async", "thread", "sync"), _SYNC_OR_ASYNC),
    **dict.fromkeys(("actor_name", "task_name", "fn_name"), "name='send_mail'; without it a task has its function's"),
    "broker": "App('redis://localhost:6379') says where Redis is, for all its tasks",
    "labels": "with_options(...) of a call, and parameters for what the task has to know",
    "description": "the docstring of the function",
}

SENDING = frozenset(
    {"apply_async", "async_", "configure", "defer", "defer_async", "delay", "enqueue_async", "kiq", "push", "send"}
    | {"send_with_options", "submit"}
)
METHODS: dict[str, str] = {
    **dict.fromkeys(
        ("s", "si", "signature", "subtask", "message"), "bind(...) is a call as a value, for app.enqueue_all([...])"
    ),
    **dict.fromkeys(("apply", "call_local", "fn"), "call the task itself, which runs its function here"),
    **dict.fromkeys(("kicker", "options", "set", "using", "message_with_options"), "with_options(...)"),
    **dict.fromkeys(("schedule", "apply_later"), "with_options(delay=timedelta(minutes=1)), or with_options(at=...)"),
    **dict.fromkeys(("map", "starmap", "chunks"), "app.enqueue_all([task.bind(one) for one in ...])"),
    **dict.fromkeys(("retry", "request", "update_state"), f"raise RetryLater(10) asks for another run; {_CURRENT}"),
    "AsyncResult": "handle(job_id)",
}

_STATUS = "await app.queue(...).status(handle.id), or app.sync.queue(...).status(handle.id)"
METHODS_OF_HANDLES: dict[str, str] = {
    **dict.fromkeys(("get", "wait", "join", "get_result", "wait_result", "return_value"), "result(timeout=10)"),
    **dict.fromkeys(("latest_result", "exc_info", "collect"), "result(timeout=10), which raises JobFailed"),
    **dict.fromkeys(("ready", "is_ready", "successful", "failed", "status", "state", "info", "is_finished"), _STATUS),
    **dict.fromkeys(("get_status", "refresh", "is_failed", "meta", "get_meta"), _STATUS),
    **dict.fromkeys(("revoke", "abort", "delete"), "cancel()"),
    **dict.fromkeys(("task_id", "message_id", "job_id"), "id"),
}
METHODS_OF_APPS: dict[str, str] = {
    **dict.fromkeys(("actor", "shared_task", "register_task", "add_task", "add_function"), "@app.task"),
    **dict.fromkeys(
        ("send_task", "enqueue_job"), "await app.queue('mail').add('name', {...}), or app.sync.queue('mail')"
    ),
    **dict.fromkeys(("enqueue", "send", "kiq"), "await task.enqueue(...), or task.sync.enqueue(...)"),
    **dict.fromkeys(("enqueue_many", "enqueue_bulk"), "await app.enqueue_all([task.bind(...), ...])"),
    **dict.fromkeys(("autodiscover_tasks", "include", "imports"), "App(modules=['shop.tasks'])"),
    **dict.fromkeys(("conf", "config_from_object"), "the options of App, of @app.task and of @app.cron"),
    **dict.fromkeys(("add_periodic_task", "on_after_configure", "periodic_task", "scheduled_task"), _SCHEDULE),
    **dict.fromkeys(
        ("start", "run", "run_worker", "worker_main"), "chasqui worker module:app, or await app.worker().run()"
    ),
    **dict.fromkeys(("on_event", "on_startup", "on_shutdown", "startup", "shutdown"), "@app.lifespan"),
    **dict.fromkeys(("add_middleware", "with_middlewares"), "@app.middleware"),
    **dict.fromkeys(("AsyncResult", "result"), "task.handle(job_id), or task.sync.handle(job_id)"),
    "control": "await app.queue('mail').cancel(job_id), and chasqui workers",
    "lock_task": _UNIQUE,
}


def make_attribute_error(owner: object, name: str, instead: dict[str, str]) -> AttributeError:
    """The error of an attribute that is missing: it says what to use instead of what other task queues have."""
    kind = type(owner).__name__
    if name in instead:
        return AttributeError(f"{kind} has no {name}; instead: {instead[name]}")
    return AttributeError(f"{kind!r} object has no attribute {name!r}")


def describe_unknown_option(name: str, known: Iterable[str]) -> str:
    """What to use instead of this option; the options that there are if it is of nowhere."""
    remedy = OPTIONS.get(name)
    if remedy is not None:
        return f"there is no option {name!r} here; instead: {remedy}"
    from difflib import get_close_matches

    listed = list(known)
    guess = get_close_matches(name[:100], listed, n=1)
    hint = f"did you mean {guess[0]!r}? The" if guess else "the"
    return f"there is no option {name[:100]!r}; {hint} options are {', '.join(listed)}"
