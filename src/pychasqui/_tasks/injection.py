"""Makes the dependencies of a job, in order, and ends them behind it. What can be decided at the start is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import AsyncGeneratorType, GeneratorType
from typing import Any, NamedTuple

from ..depends import Injected, is_depends_of_another_package, provider_of
from ..errors import InvalidArgument

Provider = Callable[..., Any]


class PlannedProvider(NamedTuple):
    """One value to be made for each job: the provider, and by parameter what it is called with."""

    provider: Provider
    needs: Mapping[str, Provider]


class SingleGeneratorPlan(NamedTuple):
    """The plan of most functions with a dependency: one generator, and perhaps values of the lifespan."""

    make: Callable[[], Any]
    is_async: bool
    name: str  # of the parameter
    constants: dict[str, Any]


class InjectionPlan:
    """The provisions of one function, in the order in which they need each other."""

    def __init__(self, label: str, function: Callable[..., Any], constants: Mapping[Provider, Any]) -> None:
        self._label = label
        self._constants = constants
        self._provisions: list[PlannedProvider] = []
        self._being_planned: list[Provider] = []
        self._wanted = self._find_providers_and_add_to_plan(function, is_task=True)
        # by parameter, for each job the same: values of the lifespan
        self.constants = {name: constants[one] for name, one in self._wanted.items() if one in constants}
        self.is_constant = not self._provisions
        self.single_generator = self._make_single_generator_plan_if_possible()

    def _find_providers_and_add_to_plan(
        self, function: Callable[..., Any], *, is_task: bool = False
    ) -> dict[str, Provider]:
        needs: dict[str, Provider] = {}
        for one in inspect.signature(function).parameters.values():
            if isinstance(one.default, Injected):
                needs[one.name] = provider_of(one.default)
                self._add_provider_to_plan_once(needs[one.name])
            elif is_depends_of_another_package(one.default):
                package = type(one.default).__module__
                raise InvalidArgument(
                    f"{self._label}: the default of {one.name} of {getattr(function, '__name__', function)} is a "
                    f"Depends of {package}: import Depends from pychasqui"
                )
            elif not is_task and one.default is one.empty:
                raise InvalidArgument(
                    f"{self._label}: {one.name} of {getattr(function, '__name__', function)} has no default: "
                    "the parameters of a dependency have to be dependencies"
                )
        return needs

    def _add_provider_to_plan_once(self, provider: Provider) -> None:
        try:
            hash(provider)
        except TypeError:
            raise InvalidArgument(
                f"{self._label}: the provider of class {type(provider).__name__} is not hashable: give the class a "
                "__hash__, or let Depends() have a function"
            ) from None
        if provider in self._constants or provider in [known.provider for known in self._provisions]:
            return
        if provider in self._being_planned:
            raise InvalidArgument(f"{self._label}: {getattr(provider, '__name__', provider)} depends on itself")
        self._being_planned.append(provider)
        needs = self._find_providers_and_add_to_plan(provider)
        self._being_planned.pop()
        self._provisions.append(PlannedProvider(provider, needs))

    def _make_single_generator_plan_if_possible(self) -> SingleGeneratorPlan | None:
        if len(self._provisions) != 1 or len(self._wanted) != len(self.constants) + 1:
            return None
        ((provider, needs),) = self._provisions
        is_async = inspect.isasyncgenfunction(provider)
        if not is_async and not inspect.isgeneratorfunction(provider):
            return None
        given = {name: self._constants[one] for name, one in needs.items()}
        (name,) = self._wanted.keys() - self.constants.keys()
        return SingleGeneratorPlan(partial(provider, **given) if given else provider, is_async, name, self.constants)

    async def open_dependencies(self, opened: list[Any]) -> dict[str, Any]:
        """Makes the values by parameter; `opened` gets what close_dependencies() has to end."""
        values: dict[Provider, Any] = dict(self._constants)
        for provider, needs in self._provisions:
            given = provider(**{name: values[needed] for name, needed in needs.items()})
            values[provider] = await _enter_or_await_dependency(given, opened)
        return {name: values[provider] for name, provider in self._wanted.items()}


async def _enter_or_await_dependency(dependency: Any, opened: list[Any]) -> Any:
    kind = type(dependency)
    if kind is AsyncGeneratorType or kind is GeneratorType:
        value = await enter_generator(dependency)
    elif hasattr(type(dependency), "__aenter__"):
        value = await dependency.__aenter__()
    elif hasattr(type(dependency), "__enter__"):
        value = dependency.__enter__()
    else:
        return await dependency if inspect.isawaitable(dependency) else dependency
    opened.append(dependency)
    return value


async def enter_generator(generator: Any) -> Any:
    """Returns what it yields first."""
    try:
        return await generator.__anext__() if type(generator) is AsyncGeneratorType else next(generator)
    except (StopAsyncIteration, StopIteration):
        raise make_yields_nothing_error(generator) from None


async def close_dependencies(opened: list[Any], error: BaseException | None) -> None:
    """Ends dependencies, the last first. Each sees the error of the job; none can hide it. Raises what they raise."""
    trouble: BaseException | None = None
    while opened:
        try:
            await _leave_dependency(opened.pop(), error)
        except BaseException as raised:  # noqa: BLE001  the others are ended all the same
            if raised is not error:
                trouble = raised
    if trouble is not None:
        raise trouble


async def _leave_dependency(dependency: Any, error: BaseException | None) -> None:
    try:
        kind = type(dependency)
        if kind is AsyncGeneratorType:
            await (dependency.__anext__() if error is None else dependency.athrow(error))
        elif kind is GeneratorType:
            next(dependency) if error is None else dependency.throw(error)
        else:
            details = (None, None, None) if error is None else (type(error), error, error.__traceback__)
            if hasattr(type(dependency), "__aexit__"):
                await dependency.__aexit__(*details)
            else:
                dependency.__exit__(*details)
            return
    except (StopIteration, StopAsyncIteration):
        return
    raise make_yields_twice_error(dependency)


def make_yields_twice_error(dependency: Any) -> RuntimeError:
    return RuntimeError(f"the dependency {dependency.__name__} yields more than once")


def make_yields_nothing_error(dependency: Any) -> RuntimeError:
    return RuntimeError(f"the dependency {dependency.__name__} has ended without a yield: it yields its value once")
