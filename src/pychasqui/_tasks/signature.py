"""The parameters of a task's function: binds the arguments of a call, checks them, and reads them from a job's data.

A signature is read when it is first used, so that forward references are known by then. Its data is a map of parameter
names to values, only of those that were given. One msgspec Struct of all parameters checks it when it is sent and when
it is run; pydantic does if an annotation mentions it. No I/O.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, NoReturn

import msgspec

from ..depends import Injected, is_depends_of_another_package
from ..errors import InvalidArgument, printable
from .data_error import UNRELATED_ERRORS, DataMismatch, describe_error_of_users_class, make_mismatch_of_msgspec_error
from .foreign_option_names import OPTIONS
from .pydantic_types import AnnotationSurvey, DataMismatchError, PydanticReader
from .send_options import SendOptions
from .unencodable_data import find_unencodable_value_if_any
from .unique_ids import to_sorted_wire_values
from .wire_values import (
    REMEDY_FOR_UNKNOWN_NAME,
    SCALARS,
    convert_to_type,
    explain_unsupported_type_if_any,
    make_struct_reader,
    to_wire_values,
)

_IMMUTABLE = SCALARS | {tuple, frozenset}


class Arguments(NamedTuple):
    """What a function is called with."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Parameters(NamedTuple):
    """The parameters of a function that a job's data has, without those that are injected."""

    all: tuple[inspect.Parameter, ...]
    injected: frozenset[str]
    are_positional: bool  # whether all values can be passed by position: what is injected comes behind them


def check_and_read_parameters(
    task_name: str, function: Callable[..., Any], is_injected: Callable[[Any], bool]
) -> Parameters:
    """Refuses *args and **kwargs, which have no names or types to check by."""
    try:
        found = inspect.signature(function).parameters.values()
    except ValueError:  # many functions of C have none
        raise InvalidArgument(
            f"task {task_name!r} does not show its parameters: call it in a function of your own, and make that a task"
        ) from None
    for one in found:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise InvalidArgument(
                f"task {task_name!r} takes {_get_star_prefix(one)}{one.name}, which cannot be checked: "
                "name each parameter, or take a list or a dict; a decorator needs functools.wraps"
            )
    if any(one.name == "self" for one in found):
        raise InvalidArgument(
            f"task {task_name!r} takes self, which a worker cannot give it: current_job() is the running job; "
            "a method cannot be a task"
        )
    injected = frozenset(one.name for one in found if is_injected(one.default))
    for one in found:
        if one.name in injected and one.kind is one.POSITIONAL_ONLY:
            raise InvalidArgument(f"task {task_name!r}: {one.name} is positional-only, and cannot be injected")
        if is_depends_of_another_package(one.default):
            raise InvalidArgument(
                f"task {task_name!r}: the default of {one.name} is a Depends of {type(one.default).__module__}: "
                "import Depends from pychasqui"
            )
        if any(
            base.__name__ == "FieldInfo" for base in type(one.default).__mro__
        ):  # of pydantic; of FastAPI, as Query()
            raise InvalidArgument(
                f"task {task_name!r}: the default of {one.name} is a {type(one.default).__name__}: "
                f"write {one.name}: Annotated[..., Field(...)] instead"
            )
    own = tuple(one for one in found if one.name not in injected)
    are_positional = own == tuple(found)[: len(own)] and all(one.kind is not one.KEYWORD_ONLY for one in own)
    return Parameters(own, injected, are_positional)


def check_argument_names(task_name: str, parameters: Parameters, given: Mapping[str, Any]) -> None:
    """Refuses names that no parameter has, and parameters without a value. It needs no annotations."""
    for name in given:
        if not any(one.name == name for one in parameters.all):
            _refuse_argument_name(task_name, parameters, name)
    for one in parameters.all:
        if one.default is one.empty and one.name not in given:
            raise InvalidArgument(f"{task_name}: {one.name}: is missing")


def _refuse_argument_name(task_name: str, parameters: Parameters, name: str) -> NoReturn:
    if name in parameters.injected:
        problem = "is injected by a worker, and cannot be sent"
    elif name in SendOptions.__annotations__:
        problem = f"there is no such parameter; an option of a call is given as with_options({name}=...).enqueue(...)"
    elif name in OPTIONS:
        problem = f"there is no such parameter, and no such option; instead: {OPTIONS[name]}"
    else:
        problem = (
            f"there is no such parameter; there are {', '.join(sorted(one.name for one in parameters.all)) or 'none'}"
        )
    raise InvalidArgument(f"{task_name}: {printable(str(name), 100)}: {problem}")


class Signature:
    """check_arguments_and_make_data() makes the data of a call, read() the arguments of a run."""

    def __init__(self, task_name: str, function: Callable[..., Any], parameters: Parameters) -> None:
        self._task_name = task_name
        self._parameters = parameters
        self._positional = tuple(one.name for one in parameters.all if one.kind is not one.KEYWORD_ONLY)
        self._positional_only = tuple(one.name for one in parameters.all if one.kind is one.POSITIONAL_ONLY)
        self.names = frozenset(one.name for one in parameters.all)
        hints = _read_type_hints(task_name, function)
        self.returns: Any = hints.get("return", Any)  # NoneType: nothing
        self.annotations = annotations = {one.name: hints.get(one.name, Any) for one in parameters.all}
        _refuse_annotated_dependency(task_name, annotations)
        survey = AnnotationSurvey(annotations)
        self.read: Callable[[Any], Arguments]
        # Makes a Struct of the data, or raises anything; None if some parameter can only be passed by name.
        self.convert_positional: Callable[[Any], Any] | None = None
        self._check: Callable[[Any], object] = self._read_by_pydantic
        # By parameter, if all take scalars: values of exactly these types always fit as they are.
        self.scalar_types: dict[str, type] = {}
        self._scalar_types_in_order: tuple[type, ...] | None = None
        if survey.one_way_field:
            raise InvalidArgument(f"task {task_name!r}: {survey.one_way_field}")
        if survey.mentions_pydantic:
            required = frozenset(one.name for one in parameters.all if one.default is one.empty)
            self._reader = self._call_and_name_task_in_errors(
                lambda: PydanticReader(annotations, required, survey.field_names)
            )
            self.read = self._read_by_pydantic
        else:
            self._struct = self._make_struct(annotations)
            self._convert = make_struct_reader(self._struct, annotations.values())
            self.read = self._read_in_order if parameters.are_positional else self._read_by_name
            self._check = self._convert
            if parameters.are_positional:
                self.convert_positional = self._convert
                if all(isinstance(one, type) and one in SCALARS for one in annotations.values()):
                    self.scalar_types = annotations
                    self._scalar_types_in_order = tuple(annotations.values())

    # Sending --------------------------------------------------------------------------------------------------------

    def check_arguments_and_make_data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Returns the data of a call; raises InvalidArgument that names task, parameter and path."""
        if kwargs or len(args) > len(self._positional):
            data = self._match_arguments_to_names(args, kwargs)
        else:  # hot: most calls
            data = dict(zip(self._positional, args))  # noqa: B905  strict= takes 0.1 us
            if tuple(map(type, args)) == self._scalar_types_in_order:  # hot: 0.15 us against 0.5 of the checks below
                return data
        for value in data.values():
            if type(value) not in SCALARS:
                data = self._convert_to_wire_values(data)
                break
        try:
            self._check(data)
        except UNRELATED_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  classes of the user may raise anything
            raise self._make_invalid_argument_error(error, data) from None
        return data

    def map_names_to_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call that check_arguments_and_make_data() accepts, by name and as they are given."""
        return {**dict(zip(self._positional, args, strict=False)), **kwargs}

    def _make_invalid_argument_error(self, error: Exception, data: Any) -> InvalidArgument:
        misfit = error.misfit if isinstance(error, DataMismatchError) else self._describe_read_error(error, data)
        return InvalidArgument(f"{self._task_name}: {misfit.describe_for_caller()}")

    def check_named_arguments_and_make_stable_data(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the data of values by name, also of positional-only parameters; refuses what cannot be encoded.

        Equal values are written alike in every process, so that a schedule whose data has a set is not a changed one.
        """
        check_argument_names(self._task_name, self._parameters, given)
        data = self._convert_to_wire_values(dict(given), to_sorted_wire_values)
        try:
            self._check(data)
        except UNRELATED_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  classes of the user may raise anything
            raise self._make_invalid_argument_error(error, data) from None
        self.refuse_if_unencodable(data)
        return data

    def _match_arguments_to_names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if len(args) > len(self._positional):
            raise InvalidArgument(
                f"{self._task_name}: takes {len(self._positional)} arguments by position, got {len(args)}"
            )
        data = dict(zip(self._positional, args, strict=False))
        for name in kwargs:
            if name in data or name not in self.names or name in self._positional_only:
                self._refuse_keyword_argument(name, name in data)
        if kwargs:
            data.update(kwargs)
        return data

    def _refuse_keyword_argument(self, name: str, is_given_by_position: bool) -> NoReturn:
        if name not in self.names:
            _refuse_argument_name(self._task_name, self._parameters, name)
        elif name in self._positional_only:
            problem = "is positional-only, and was given by name"
        else:
            problem = "was given by position and by name" if is_given_by_position else "cannot be given"
        raise InvalidArgument(f"{self._task_name}: {name[:100]}: {problem}")

    def _convert_to_wire_values(
        self, data: dict[str, Any], convert: Callable[[Any], Any] = to_wire_values
    ) -> dict[str, Any]:
        try:
            packed: dict[str, Any] = convert(data)
        except Exception:
            self.refuse_if_unencodable(data)
            raise
        return packed

    def refuse_if_unencodable(self, data: Mapping[str, Any]) -> None:
        """Raises InvalidArgument if a value cannot be encoded; names task, parameter and path."""
        misfit = find_unencodable_value_if_any(data)
        if misfit is not None:
            raise InvalidArgument(f"{self._task_name}: {misfit.describe_for_caller()}") from None

    # Running --------------------------------------------------------------------------------------------------------

    def _read_struct(self, data: Any) -> Any:
        try:
            return self._convert({} if data is None else data)
        except UNRELATED_ERRORS:
            raise
        except Exception as error:  # noqa: BLE001  classes of the user may raise anything
            raise DataMismatchError(self._describe_read_error(error, data)) from None

    def _describe_read_error(self, error: Exception, data: Any) -> DataMismatch:
        if isinstance(error, msgspec.ValidationError):
            return make_mismatch_of_msgspec_error(error)
        return describe_error_of_users_class(error, data, self._check_parameter)

    def _check_parameter(self, name: str, value: Any) -> None:
        convert_to_type(self.annotations.get(name, Any), value)

    def _read_in_order(self, data: Any) -> Arguments:
        return Arguments(_astuple(self._read_struct(data)), {})

    def _read_by_name(self, data: Any) -> Arguments:
        values = _astuple(self._read_struct(data))
        return self._split_positional_only(dict(zip(self._struct.__struct_fields__, values, strict=True)))

    def _read_by_pydantic(self, data: Any) -> Arguments:
        if not isinstance(data, dict | None):
            raise DataMismatchError(DataMismatch("$", f"Expected a map of parameters, got `{type(data).__name__}`"))
        return self._split_positional_only(self._reader.read({} if data is None else data))

    def _split_positional_only(self, values: dict[str, Any]) -> Arguments:
        first = (one for one in self._parameters.all if one.kind is one.POSITIONAL_ONLY)
        return Arguments(tuple(values.pop(one.name) if one.name in values else one.default for one in first), values)

    # Made once ------------------------------------------------------------------------------------------------------

    def _make_struct(self, annotations: Mapping[str, Any]) -> Any:
        fields: list[Any] = []
        for one in self._parameters.all:
            annotation = annotations[one.name]
            problem = explain_unsupported_type_if_any(annotation)
            if problem:
                raise InvalidArgument(f"task {self._task_name!r}: {one.name}: {problem}")
            fields.append(_make_struct_field(one, annotation))
        return msgspec.defstruct("Arguments", fields, kw_only=True)

    def _call_and_name_task_in_errors(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except InvalidArgument as error:
            raise InvalidArgument(f"task {self._task_name!r}: {error}") from None


_astuple = msgspec.structs.astuple


def _make_struct_field(parameter: inspect.Parameter, annotation: Any) -> tuple[Any, ...]:
    """Returns a field as defstruct() takes it: name and type, and a default if the parameter has one."""
    default = parameter.default
    if default is parameter.empty:
        return (parameter.name, annotation)
    is_immutable = type(default) in _IMMUTABLE
    return (parameter.name, annotation, default if is_immutable else msgspec.field(default_factory=lambda: default))


def _read_type_hints(task_name: str, function: Callable[..., Any]) -> dict[str, Any]:
    annotated: Any = function
    while isinstance(annotated, partial):
        annotated = annotated.func
    if not inspect.isroutine(annotated):  # an object with __call__
        annotated = type(annotated).__call__
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except Exception as error:  # noqa: BLE001  annotations are the user's code
        reason = f"{type(error).__name__}: {error}"[:300]
        remedy = f"; {REMEDY_FOR_UNKNOWN_NAME}" if isinstance(error, NameError) else ""
        raise InvalidArgument(f"task {task_name!r}: its annotations cannot be read: {reason}{remedy}") from None


def _refuse_annotated_dependency(task_name: str, annotations: Mapping[str, Any]) -> None:
    for name, annotation in annotations.items():
        for one in getattr(annotation, "__metadata__", ()):
            if isinstance(one, Injected) or is_depends_of_another_package(one):
                raise InvalidArgument(
                    f"task {task_name!r}: {name}: a dependency is a default value: write {name}: ... = Depends(...), "
                    "with Depends from pychasqui"
                )


def _get_star_prefix(parameter: inspect.Parameter) -> str:
    return "**" if parameter.kind is parameter.VAR_KEYWORD else "*"
