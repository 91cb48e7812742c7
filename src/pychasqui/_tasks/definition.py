"""TaskDefinition: a function that is a task, with its name and its options. No I/O."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from .._core.cached_property import cached_property
from .._core.checks import check_and_encode_job_name, check_queue_name
from ..errors import InvalidArgument, InvalidData, InvalidType
from .data_error import DataMismatch
from .pydantic_types import DataMismatchError
from .send_options import check_task_options, make_add_options
from .signature import Arguments, Parameters, Signature, check_and_read_parameters
from .unique_ids import format_value_for_id
from .wire_values import SCALARS, convert_to_type

LONGEST_PLAIN_ID = 200
DEFAULT_QUEUE = "default"
NOTHING = type(None)

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, eq=False)
class TaskDefinition:
    """What the app knows about a task."""

    name: str
    function: Callable[..., Any]
    parameters: Parameters
    aliases: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # checked; of with_options()
    unique_by: tuple[str, ...] = ()
    give_up_on: tuple[type[Exception], ...] = ()
    upgrades: list[Upgrade] = field(default_factory=list)

    @property
    def queue(self) -> str:
        queue: str = self.options.get("queue", DEFAULT_QUEUE)
        return queue

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @property
    def timeout(self) -> timedelta | None:
        """How long each of its runs may take; its workers know, so it does not travel."""
        return self.options.get("timeout")

    def check_can_time_out(self) -> None:
        if not self.is_async:
            raise InvalidArgument(
                f"task {self.name!r}: timeout contradicts a plain function: a thread cannot be stopped, and a retry "
                "would run beside it. Make it an async def"
            )

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)

    @property
    def source_position(self) -> str:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return "" if code is None else f"{code.co_filename}, line {code.co_firstlineno}"

    @cached_property
    def signature(self) -> Signature:
        return Signature(self.name, self.function, self.parameters)

    @property
    def may_have_result(self) -> bool:
        """Whether the function may return something: it is not annotated to return None."""
        return self.signature.returns is not NOTHING

    # Sending --------------------------------------------------------------------------------------------------------

    def make_job_id_from_unique_by(self, given: Mapping[str, Any]) -> str:
        """The job id of unique_by: charge(order_id=17); hashed if it is long. `given` has the arguments by name."""
        defaults = {one.name: one.default for one in self.parameters.all if one.default is not one.empty}
        annotations = self.signature.annotations
        shown = ", ".join(
            f"{name}={format_value_for_id(given[name] if name in given else defaults[name], annotations[name])}"
            for name in self.unique_by
        )
        job_id = f"{self.name}({shown})"
        if len(job_id) <= LONGEST_PLAIN_ID and job_id.isprintable():
            return job_id
        return f"{self.name}({hashlib.sha256(job_id.encode('utf-8', 'surrogatepass')).hexdigest()})"

    # Running --------------------------------------------------------------------------------------------------------

    def read_arguments_with_upgrade_if_needed(self, data: Any) -> Arguments:
        """The arguments of a run; data that does not fit goes through the upgrade first. Raises InvalidData."""
        try:
            return self.signature.read(data)
        except DataMismatchError as error:
            if not self.upgrades:
                raise InvalidData(f"task {self.name!r}: {error}") from None
            return self._upgrade_and_read_arguments(data, error)

    def _upgrade_and_read_arguments(self, data: Any, first_error: DataMismatchError) -> Arguments:
        before = f"task {self.name!r}: {first_error}"
        if data is not None and not isinstance(data, dict):
            raise InvalidData(before)  # nothing that an upgrade function could be called with
        try:
            upgraded = self.upgrades[0](dict(data or {}))
        except Exception as error:
            raise InvalidData(f"{before}; its upgrade raised {type(error).__name__}") from error
        try:
            return self.signature.read(upgraded)
        except DataMismatchError as error:
            raise InvalidData(f"{before}; after its upgrade: {error}") from None

    def convert_result_to_annotated_type(self, result: Any) -> Any:
        """The result as the type that the function is annotated to return, but for None, which says nothing about it.

        Raises msgspec.ValidationError, or DataMismatchError if the annotation mentions pydantic.
        """
        returns = self.signature.returns
        if returns is Any or returns is object or returns is NOTHING:
            return result
        if isinstance(returns, type) and returns in SCALARS and isinstance(result, returns):
            return result  # also a bool for an int
        return self._result_reader(result)

    @cached_property
    def _result_reader(self) -> Callable[[Any], Any]:
        from .pydantic_types import AnnotationSurvey, PydanticReader

        annotation = {"result": self.signature.returns}
        survey = AnnotationSurvey(annotation)
        if survey.one_way_field:
            raise DataMismatchError(DataMismatch("$", survey.one_way_field))
        if survey.mentions_pydantic:
            reader = PydanticReader(annotation, frozenset(annotation), survey.field_names)
            return lambda result: reader.read({"result": result})["result"]
        return lambda result: convert_to_type(self.signature.returns, result)


def define_task(
    function: Any,
    *,
    name: str | None,
    aliases: tuple[str, ...],
    unique_by: tuple[str, ...],
    give_up_on: tuple[type[Exception], ...],
    is_injected: Callable[[Any], bool],
    options: Mapping[str, Any],
) -> TaskDefinition:
    """Checks everything about a task that can be checked without its annotations."""
    own_name = _check_function_and_get_task_name(function, name)
    owner = f"task {own_name!r}"
    for one in (own_name, *_check_is_tuple_of_str(owner, "aliases", aliases)):
        if not check_and_encode_job_name(one).strip():
            raise InvalidArgument(f"{owner}: a name must not be blank")
    given = check_task_options(owner, options)
    parameters = check_and_read_parameters(own_name, function, is_injected)
    known = {one.name for one in parameters.all}
    if unknown := [one for one in _check_is_tuple_of_str(owner, "unique_by", unique_by) if one not in known]:
        raise InvalidArgument(f"{owner}: unique_by names {unknown[0]!r}, which is none of its parameters")
    if not unique_by and given.keys() & {"unique_for", "if_exists"}:
        raise InvalidArgument(
            f"{owner}: unique_for and if_exists say what a second job of one id does: give unique_by, too"
        )
    if not isinstance(give_up_on, tuple) or not all(
        isinstance(e, type) and issubclass(e, Exception) for e in give_up_on
    ):
        raise InvalidType(f"{owner}: give_up_on must be a tuple of exception classes")
    if "queue" in given:
        check_queue_name(given["queue"])
    definition = TaskDefinition(own_name, function, parameters, aliases, given, unique_by, give_up_on)
    if definition.timeout is not None:
        definition.check_can_time_out()
    return definition


def make_add_options_for_call(definition: TaskDefinition, options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Queue.add for a task's own options and those of a call, which win."""
    own = {name: value for name, value in definition.options.items() if name != "timeout"}
    merged = {**own, **options}
    if definition.unique_by:  # one that the call brings wins; else it is made of the data
        merged.setdefault("job_id", None)
    elif "job_id" not in merged and merged.keys() & {"unique_for", "if_exists"}:
        raise InvalidArgument(
            f"task {definition.name!r}: unique_for and if_exists say what a second job of one id does: "
            "give a job_id, too"
        )
    return make_add_options(merged)


def _check_function_and_get_task_name(function: Any, name: str | None) -> str:
    if isinstance(function, str):
        raise InvalidType("a task is a function, plain or async, not str; a name is given as @app.task(name=...)")
    if not callable(function) or inspect.isclass(function):
        raise InvalidType(f"a task is a function, plain or async, not {type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidType(f"{function.__qualname__} is a generator function: a task returns, and does not yield")
    own_name = name if name is not None else getattr(function, "__name__", None)
    if name is not None and not isinstance(name, str):
        raise InvalidType(f"the name of a task is a str, not {type(name).__name__}")
    if not isinstance(own_name, str):
        raise InvalidType("a task without a __name__ needs a name: @app.task(name=...)")
    if own_name == "<lambda>":
        raise InvalidArgument("a lambda has no name: @app.task(name=...) needs one")
    return own_name


def _check_is_tuple_of_str(owner: str, option: str, values: Any) -> tuple[str, ...]:
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        name = values[:100] if isinstance(values, str) else "..."
        raise InvalidType(f"{owner}: {option} must be a tuple of names: write ({name!r},)")
    return values
