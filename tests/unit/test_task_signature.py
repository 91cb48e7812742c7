"""The arguments of a task are checked when they are sent and when they are run, and errors show no values."""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pychasqui import Depends
from pychasqui._tasks.pydantic_types import DataMismatchError
from pychasqui._tasks.signature import check_and_read_parameters
from pychasqui._tasks.unencodable_data import find_unencodable_value_if_any
from pychasqui.errors import InvalidArgument
from tests.support.cases import in_one_test
from tests.support.signatures import signature, trip


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(0)


class Point(NamedTuple):
    x: int
    y: int


class Address(TypedDict):
    street: str


class Order(msgspec.Struct):
    id: UUID
    items: list[Item]


@dataclass
class Card:
    number: str

    def __post_init__(self) -> None:
        raise ValueError(f"Invalid card {self.number}")


@attrs.define
class Parcel:
    weight: float
    sent: datetime | None = None
    labels: list[str] = attrs.field(factory=list)


class Handle:
    """A class that cannot travel."""


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def send_mail(to: str, subject: str = "hello") -> int:
    return 1


class TestSending:
    def test_data_is_a_map_of_the_parameters_that_were_given(self) -> None:
        own = signature(send_mail)
        assert own.check_arguments_and_make_data(("ada",), {}) == {"to": "ada"}
        assert (
            own.check_arguments_and_make_data(("ada", "hi"), {})
            == own.check_arguments_and_make_data((), {"subject": "hi", "to": "ada"})
            == {"to": "ada", "subject": "hi"}
        )

    @pytest.mark.parametrize(
        ("args", "kwargs", "text"),
        (
            ((1,), {}, "send_mail: to: Expected `str`, got `int`"),
            ((), {}, "send_mail: to: is missing"),
            (("a", "b", "c"), {}, "send_mail: takes 2 arguments by position, got 3"),
            (("a",), {"sbject": "b"}, "send_mail: sbject: there is no such parameter; there are subject, to"),
            (("a",), {"to": "b"}, "send_mail: to: was given by position and by name"),
            (("a",), {"subject": None}, "send_mail: subject: Expected `str`, got `null`"),
        ),
    )
    def test_a_wrong_call_is_refused_by_task_and_parameter(self, args: Any, kwargs: Any, text: str) -> None:
        with pytest.raises(InvalidArgument) as caught:
            signature(send_mail).check_arguments_and_make_data(args, kwargs)
        assert str(caught.value) == text

    @pytest.mark.parametrize("annotation", (str, int, float, bool, bytes, None))
    def test_a_scalar_passes_by_position_exactly_where_it_passes_by_name(self, annotation: Any) -> None:
        def take(value: Any) -> None: ...

        take.__annotations__["value"] = annotation
        own = signature(take)
        for value in ("a", 1, 2**70, 1.5, float("inf"), True, b"a", None):
            try:
                wanted: Any = own.check_arguments_and_make_data((), {"value": value})
            except InvalidArgument as error:
                with pytest.raises(InvalidArgument, match=f"^{re.escape(str(error))}$"):
                    own.check_arguments_and_make_data((value,), {})
            else:
                assert own.check_arguments_and_make_data((value,), {}) == wanted

    def test_an_option_among_the_arguments_is_refused_with_its_place(self) -> None:
        for name, place in (
            ("delay", r"an option of a call is given as with_options\(delay=...\)\.enqueue"),
            ("countdown", r"no such option; instead: with_options\(delay="),
        ):
            with pytest.raises(InvalidArgument, match=f"send_mail: {name}: there is no such parameter.*{place}"):
                signature(send_mail).check_arguments_and_make_data(("a",), {name: 5})

    def test_kinds_of_parameters_are_those_of_the_function(self) -> None:
        def kinds(first: int, /, second: int = 2, *, third: int, fourth: int = 4) -> None: ...

        assert trip(kinds, 1, third=3) == ((1,), {"second": 2, "third": 3, "fourth": 4})
        for args, kwargs in (((1, 2, 3), {}), ((1,), {}), ((), {"first": 1, "third": 3})):
            with pytest.raises(InvalidArgument):
                signature(kinds).check_arguments_and_make_data(args, kwargs)

    def test_a_default_stays_with_the_function(self) -> None:
        shared: list[int] = [1]

        def with_list(items: list[int] = shared) -> None: ...

        assert signature(with_list).check_arguments_and_make_data((), {}) == {}
        assert trip(with_list).args[0] is shared

    def test_a_default_need_not_fit_its_annotation(self) -> None:
        def sloppy(number: int = "none") -> None: ...  # type: ignore[assignment]

        assert trip(sloppy) == (("none",), {})

    @pytest.mark.parametrize("data", ("x", 2**70, object()))
    def test_a_value_that_cannot_travel_is_refused_by_its_parameter(self, data: Any) -> None:
        def anything(value: list[int]) -> None: ...

        with pytest.raises(InvalidArgument, match=r"^anything: value"):
            signature(anything).check_arguments_and_make_data(([data],) if not isinstance(data, int) else ("x",), {})

    @pytest.mark.parametrize(
        ("value", "text"),
        (
            (
                {"rows": [1, {"owner": Handle()}]},
                "save: value.rows[1].owner: is a Handle, which cannot travel in a job",
            ),
            ([Item("x"), Item(Handle())], "save: value[1].name: is a Handle, which cannot travel in a job"),  # type: ignore[arg-type]
            ({"ada@example.com": [1, 2**70]}, "save: value[...][1]: is an int beyond the 64 bits of MessagePack"),
            (["ok", "\ud800 secret"], "save: value[1]: is a str with a lone surrogate, which UTF-8 cannot hold"),
            ({"a": {Handle(): 1}}, "save: value.a: has a key that is a Handle, which cannot travel in a job"),
            (nested(600), "save: value: is nested deeper than 500 levels, or contains itself"),
            (2**64, "save: value: is an int beyond the 64 bits of MessagePack"),
        ),
        ids=range(7),
    )
    def test_a_value_that_cannot_travel_is_named_by_its_path_and_not_shown(self, value: Any, text: str) -> None:
        def save(value: object) -> None: ...

        with pytest.raises(InvalidArgument) as caught:
            signature(save).refuse_if_unencodable({"value": value})
        assert str(caught.value) == text

    def test_data_that_can_travel_has_no_path(self) -> None:
        assert find_unencodable_value_if_any({"value": [Item("x"), {"a": {1, 2}}, Path("/x"), Colour.RED]}) is None

    @pytest.mark.parametrize("kind", (str, int, float, bytes))
    def test_a_value_of_a_subclass_travels_as_what_it_is(self, kind: Any) -> None:
        def save(value: Any, items: list[Any]) -> None: ...

        value = kind(b"5" if kind is bytes else 5)
        own = type("Own", (kind,), {"__str__": lambda self: "other", "__pos__": lambda self: 0})(value)
        packed = signature(save).check_arguments_and_make_data((own, [own]), {})
        assert packed == {"value": value, "items": [value]}
        assert (type(packed["value"]), type(packed["items"][0])) == (kind, kind)

    def test_equal_sets_of_a_schedule_are_the_same_data(self) -> None:
        def tag(numbers: set[int]) -> None: ...

        one, other = {0, 8}, {8, 0}
        assert list(one) != list(other)
        own = signature(tag)
        assert own.check_named_arguments_and_make_stable_data(
            {"numbers": one}
        ) == own.check_named_arguments_and_make_stable_data({"numbers": other})

    def test_text_is_no_bytes(self) -> None:
        def raw(content: bytes) -> None: ...

        assert trip(raw, b"\xff") == ((b"\xff",), {})
        with pytest.raises(InvalidArgument, match="raw: content: Expected `bytes`, got `str`"):
            signature(raw).check_arguments_and_make_data(("aGk=",), {})


class TestRefusedSignatures:
    def test_parameters_without_names_are_refused(self) -> None:
        def many(*args: int) -> None: ...

        def named(**kwargs: int) -> None: ...

        for function, shown in ((many, r"\*args"), (named, r"\*\*kwargs")):
            with pytest.raises(InvalidArgument, match=f"task '{function.__name__}' takes {shown}"):
                signature(function)

    def test_a_parameter_self_is_refused_with_what_to_use(self) -> None:
        def charge(self, order: int) -> None: ...

        with pytest.raises(InvalidArgument, match=r"task 'charge' takes self, .*: current_job\(\) is the running job"):
            signature(charge)

    @pytest.mark.parametrize("annotation", (Handle, list[Handle], Callable[[], int], complex, type))
    def test_a_type_that_cannot_travel_is_refused_by_task_and_parameter(self, annotation: Any) -> None:
        def shrink(image: Any) -> None: ...

        shrink.__annotations__["image"] = annotation
        with pytest.raises(InvalidArgument, match=r"task 'shrink': image: .* cannot travel in a job"):
            signature(shrink)

    def test_a_dependency_in_an_annotation_is_refused_with_what_to_write(self) -> None:
        def charge(order: int, session: Any) -> None: ...

        charge.__annotations__["session"] = Annotated[dict[str, str], Depends(dict)]
        with pytest.raises(InvalidArgument, match=r"'charge': session: .* write session: \.\.\. = Depends\(\.\.\.\)"):
            signature(charge)

    def test_a_depends_of_another_package_is_refused_with_what_to_import(self) -> None:
        foreign = type("Depends", (), {"__module__": "fastapi.params"})()

        def charge(order: int, session: object = foreign) -> None: ...

        with pytest.raises(InvalidArgument, match=r"session is a Depends of fastapi\.params: import Depends from pych"):
            signature(charge)

        def annotated(order: int, session: Any) -> None: ...

        annotated.__annotations__["session"] = Annotated[object, foreign]
        with pytest.raises(InvalidArgument, match=r"session: .* default value: .* with Depends from pychasqui"):
            signature(annotated)

    def test_an_annotation_that_cannot_be_read_is_refused_by_its_task(self) -> None:
        def later(value: Any) -> None: ...

        later.__annotations__["value"] = "Missing"
        with pytest.raises(InvalidArgument, match=r"cannot be read: .*'Missing'.*import it there outside of"):
            signature(later)

    def test_a_field_whose_annotation_is_imported_for_type_checkers_alone_is_refused_with_the_remedy(self) -> None:
        @dataclass
        class Row:
            owner: Missing  # type: ignore[name-defined]  # noqa: F821

        def save(row: Row) -> None: ...

        save.__annotations__["row"] = Row
        with pytest.raises(InvalidArgument, match=r"task 'save': row: name 'Missing' is not defined; define it in"):
            signature(save)


class TestRunning:
    @in_one_test(
        ("data", "text"),
        (
            ({"items": [{"name": "a"}, {"name": "b", "price": "secret"}]}, "$.items[1].price: Invalid decimal string"),
            ({"items": [{}]}, "$.items[0].name: is missing"),
            ({}, "$.items: is missing"),
            ([1], "$: Expected `object`, got `array`"),
            ({"items": [], "colour": "secret"}, "$.colour: Invalid enum value"),
            ({"items": [], "kind": "secret"}, "$.kind: Invalid enum value"),
            ({"items": [], "table": {"secret": "secret"}}, "$.table[...]: Expected `int`, got `str`"),
        ),
    )
    def test_data_that_does_not_fit_is_named_by_its_path_and_not_shown(self, data: Any, text: str) -> None:
        def pay(
            items: list[Item],
            colour: Colour = Colour.RED,
            kind: Literal["a", "b"] = "a",
            table: dict[str, int] | None = None,
        ) -> None: ...

        with pytest.raises(DataMismatchError) as caught:
            signature(pay).read(data)
        assert str(caught.value) == text

    def test_the_text_of_a_class_that_refuses_its_values_is_not_shown(self) -> None:
        def move(position: Refusing) -> None: ...

        with pytest.raises(DataMismatchError) as caught:
            signature(move).read({"position": {"x": 77}})
        assert "77" not in str(caught.value)
        assert str(caught.value) == "$.position: ValueError in the class of the value"

    def test_a_text_that_begins_as_one_of_ours_is_not_shown(self) -> None:
        def pay(card: Card) -> None: ...

        with pytest.raises(DataMismatchError) as caught:
            signature(pay).read({"card": {"number": "4111"}})
        assert str(caught.value) == "$.card: ValueError in the class of the value"

    def test_no_data_is_a_call_without_arguments(self) -> None:
        def nothing(times: int = 3) -> None: ...

        assert signature(nothing).read(None) == ((3,), {})

    def test_a_timestamp_of_other_producers_is_a_datetime(self) -> None:
        def at(moment: datetime) -> None: ...

        stamp = datetime(2026, 1, 1, tzinfo=UTC)
        assert signature(at).read({"moment": stamp}) == ((stamp,), {})

    def test_a_parameter_without_an_annotation_takes_anything(self) -> None:
        def loose(value, other: object = None) -> None: ...

        assert trip(loose, {"a": [1]}, [Decimal(1)]) == (({"a": [1]}, ["1"]), {})


@dataclass
class Refusing:
    x: int

    def __post_init__(self) -> None:
        raise ValueError(f"{self.x} is refused")


ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(timezones=ZONES)
SPANS = st.timedeltas(timedelta(days=-1000), timedelta(days=1000))
INTS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ITEMS = st.builds(Item, TEXTS, st.decimals(allow_nan=False, allow_infinity=False))
TYPES: dict[Any, st.SearchStrategy[Any]] = {
    int: INTS,
    str: TEXTS,
    bytes: st.binary(),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    datetime: MOMENTS,
    date: st.dates(),
    time: st.times(),
    timedelta: SPANS,
    UUID: st.uuids(),
    Decimal: st.decimals(allow_nan=False, allow_infinity=False),
    Path: TEXTS.filter(bool).map(Path),
    ipaddress.IPv4Address: st.ip_addresses(v=4),
    Colour: st.sampled_from(Colour),
    Item: ITEMS,
    Parcel: st.builds(Parcel, st.floats(allow_nan=False), st.none() | MOMENTS, st.lists(TEXTS, max_size=2)),
    Order: st.builds(Order, st.uuids(), st.lists(ITEMS, max_size=2)),
    Point: st.builds(Point, INTS, INTS),
    Address: st.builds(Address, street=TEXTS),
    list[Colour]: st.lists(st.sampled_from(Colour)),
    set[int]: st.sets(INTS),
    tuple[int, str]: st.tuples(INTS, TEXTS),
    dict[str, list[date]]: st.dictionaries(TEXTS, st.lists(st.dates(), max_size=2), max_size=3),
    int | None: st.none() | INTS,
    Annotated[int, msgspec.Meta(gt=0)]: st.integers(1, 100),
}


@pytest.mark.parametrize("annotation", TYPES, ids=str)
def test_any_value_of_a_supported_type_survives_the_trip(annotation: Any) -> None:
    def taking(value: Any) -> None: ...

    taking.__annotations__["value"] = annotation

    @settings(max_examples=25)
    @given(TYPES[annotation])
    def travel(value: Any) -> None:
        assert trip(taking, value).args[0] == value

    travel()


@given(MOMENTS)
def test_the_offset_of_a_time_survives_the_trip(moment: datetime) -> None:
    def taking(at: datetime) -> None: ...

    assert trip(taking, moment).args[0].utcoffset() == moment.utcoffset()


class Picky(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number == 7:
            raise KeyError("secret")


def test_a_class_that_raises_anything_is_named_without_its_text() -> None:
    def take(other: int, value: Picky) -> None: ...
    def take_by_name(*, value: Picky) -> None: ...

    data = {"other": 1, "value": {"number": 7}}
    for own in (signature(take), signature(take_by_name)):
        with pytest.raises(DataMismatchError, match=r"^\$\.value: .* raised KeyError: raise ValueError") as run:
            own.read(data)
        assert "secret" not in str(run.value)
    picky = Picky(1)
    picky.number = 7
    with pytest.raises(InvalidArgument, match=r"^take: value: .* raised KeyError") as sent:
        signature(take).check_arguments_and_make_data((1, picky), {})
    assert "secret" not in str(sent.value)


def test_a_function_without_a_signature_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidArgument, match="task 'max' does not show its parameters: call it in a function of your"):
        check_and_read_parameters("max", max, lambda default: False)
