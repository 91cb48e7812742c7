"""Signatures that mention pydantic are read by pydantic, and its errors show no values."""

from __future__ import annotations

import subprocess
import sys
import typing
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest

from pychasqui._tasks.definition import TaskDefinition
from pychasqui._tasks.pydantic_types import DataMismatchError
from pychasqui._tasks.signature import check_and_read_parameters
from pychasqui.errors import InvalidArgument
from tests.support.signatures import signature, trip

pydantic = pytest.importorskip("pydantic")


class Line(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    sku: str = pydantic.Field(alias="SKU")
    price: Decimal
    at: datetime
    raw: bytes = b""

    @pydantic.field_validator("price")  # type: ignore[untyped-decorator]
    @classmethod
    def positive(cls, price: Decimal) -> Decimal:
        if price < 0:
            raise ValueError(f"{price} is below 0")
        return price


@dataclass
class Basket:
    lines: list[Line]


def order(basket: Basket, key: UUID, number: Annotated[int, pydantic.Field(gt=0)] = 1) -> None: ...


LINE = Line(SKU="a", price=Decimal("1.50"), at=datetime(2026, 1, 1, tzinfo=UTC), raw=b"\xff")


def test_models_inside_dataclasses_survive_the_trip() -> None:
    key = uuid4()
    assert trip(order, Basket([LINE]), key) == ((), {"basket": Basket([LINE]), "key": key})


def test_a_field_that_msgspec_would_pass_over_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="order: number: Input should be greater than 0"):
        signature(order).check_arguments_and_make_data((Basket([]), uuid4(), -1), {})


def test_a_field_behind_a_new_type_or_an_alias_is_checked() -> None:
    def order(number: Any) -> None: ...

    positive: Any = Annotated[int, pydantic.Field(gt=0)]
    new_type = typing.__dict__["NewType"]("new_type", positive)  # mypy takes a class alone
    alias = pytest.importorskip("typing_extensions").TypeAliasType("alias", positive)
    for annotation, value in ((new_type, -1), (list.__class_getitem__(new_type), [-1]), (alias, -1)):
        order.__annotations__["number"] = annotation
        with pytest.raises(InvalidArgument, match="Input should be greater than 0"):
            signature(order).check_arguments_and_make_data((value,), {})


def test_a_tag_that_no_model_has_is_a_value_and_not_shown() -> None:
    class Cat(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        kind: Literal["cat"]

    class Dog(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        kind: Literal["dog"]

    def feed(pet: Any) -> None: ...

    feed.__annotations__["pet"] = Annotated[Cat | Dog, pydantic.Field(discriminator="kind")]
    with pytest.raises(DataMismatchError) as caught:
        signature(feed).read({"pet": {"kind": "secret"}})
    assert str(caught.value) == "$.pet: the tag is none of 'cat', 'dog'"


def test_a_positional_only_parameter_is_passed_by_position() -> None:
    def only(number: Annotated[int, pydantic.Field(gt=0)], factor: int = 2, /) -> None: ...

    assert trip(only, 3) == ((3, 2), {})


@pytest.mark.parametrize(
    ("basket", "text"),
    (
        ({"lines": [{"SKU": "secret", "price": "secret", "at": "2026-01-01T00:00:00Z"}]}, "$.basket.lines[0].price: "),
        ({"lines": [{"SKU": "secret", "price": "-77", "at": "2026-01-01T00:00:00Z"}]}, "a validator raised ValueError"),
        ({"lines": [{"price": "1", "at": "2026-01-01T00:00:00Z"}]}, "$.basket.lines[0].SKU: is missing"),
    ),
)
def test_data_that_does_not_fit_is_named_by_its_path_and_not_shown(basket: Any, text: str) -> None:
    with pytest.raises(DataMismatchError) as caught:
        signature(order).read({"basket": basket, "key": str(uuid4())})
    assert text in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "77" not in str(caught.value)


def test_a_key_of_a_dict_is_a_value_and_not_shown() -> None:
    def table(numbers: dict[str, Annotated[int, pydantic.Field(gt=0)]]) -> None: ...

    with pytest.raises(DataMismatchError) as caught:
        signature(table).read({"numbers": {"secret": -1}})
    assert str(caught.value) == "$.numbers[...]: Input should be greater than 0"


def test_data_that_is_no_map_is_refused() -> None:
    with pytest.raises(DataMismatchError, match="Expected a map of parameters, got `list`"):
        signature(order).read([1])


def test_a_secret_that_would_be_masked_is_refused() -> None:
    def log_in(password: pydantic.SecretStr) -> None: ...  # type: ignore[name-defined]

    log_in.__annotations__["password"] = pydantic.SecretStr
    with pytest.raises(InvalidArgument, match="log_in: password: is a SecretStr, which cannot travel"):
        signature(log_in).check_arguments_and_make_data((pydantic.SecretStr("secret"),), {})


def test_a_field_as_a_default_is_refused_with_what_to_write() -> None:
    def shrink(width: int = pydantic.Field(gt=0)) -> None: ...

    with pytest.raises(InvalidArgument, match=r"width is a FieldInfo: write width: Annotated\[..., Field"):
        signature(shrink)


def test_a_default_of_a_type_of_pydantic_is_a_default() -> None:
    home = pydantic.HttpUrl("https://example.org")

    def call(hook: pydantic.HttpUrl = home) -> None: ...  # type: ignore[name-defined]

    assert trip(call).kwargs == {}
    assert str(trip(call, pydantic.HttpUrl("https://example.com/a")).kwargs["hook"]) == "https://example.com/a"


class Written(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    name: str = pydantic.Field("you", serialization_alias="n")


class Read(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    name: str = pydantic.Field("you", validation_alias="n")


class Deep(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    name: str = pydantic.Field("you", validation_alias=pydantic.AliasPath("names", 0))


class Inner(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    written: list[Written]


@pydantic.dataclasses.dataclass
class Named:
    name: str = pydantic.Field("you", alias="n")


@pydantic.dataclasses.dataclass(config={"populate_by_name": True})
class NamedTwice:
    name: str = pydantic.Field("you", alias="n")


class Both(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    name: str = pydantic.Field("you", validation_alias=pydantic.AliasChoices("n", "name"))
    other: str = pydantic.Field("me", alias="o")
    hidden: str = pydantic.Field("us", exclude=True)


def test_a_field_whose_value_would_not_arrive_is_refused_with_the_remedy() -> None:
    for kind, text in (
        (Written, r"Written\.name is written as 'n' and read as 'name', .* lost: give it one alias= for both"),
        (Read, r"Read\.name is written as 'name' and read as 'n', .*: give it one alias="),
        (Deep, r"Deep\.name is written as 'name' and read as a part of another field"),
        (Inner, r"Written\.name is written as 'n'"),
        (Named, r"Named\.name is written as 'name' and read as 'n', .*: set populate_by_name=True in its config"),
    ):

        def save(value: Any) -> Any: ...

        save.__annotations__.update({"value": kind})
        with pytest.raises(InvalidArgument, match=f"task 'save': {text}"):
            signature(save)
        save.__annotations__.update({"value": Any, "return": kind})
        definition = TaskDefinition("save", save, check_and_read_parameters("save", save, lambda default: False))
        with pytest.raises(DataMismatchError, match=text):
            definition.convert_result_to_annotated_type({"n": "ada"})


class Renamed(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    name: str = pydantic.Field("you", serialization_alias="n")

    @pydantic.model_validator(mode="before")  # type: ignore[untyped-decorator]
    @classmethod
    def rename(cls, data: Any) -> Any:
        return {"name": data.get("n", data.get("name"))} if isinstance(data, dict) else data


def test_a_field_that_is_written_under_one_of_the_names_it_is_read_by_arrives() -> None:
    def save(both: Both, named: NamedTwice, renamed: Renamed) -> None: ...

    given = Both(n="ada", o="bo"), NamedTwice(n="cy"), Renamed(name="di")  # type: ignore[call-arg]
    assert list(trip(save, *given).kwargs.values()) == list(given)


def test_pydantic_is_not_imported_unless_it_is_there_already() -> None:
    program = (
        "import sys\nfrom pychasqui import App\napp = App('redis://nowhere')\n"
        "@app.task\ndef f(x: int, y: list[str] = []) -> int: ...\n"
        "f.bind(1)\nassert not [name for name in sys.modules if name.startswith('pydantic')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


class Computed(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    model_config = pydantic.ConfigDict(extra="forbid")
    amount: int

    @pydantic.computed_field  # type: ignore[prop-decorator,untyped-decorator]
    @property
    def double(self) -> int:
        return 2 * self.amount


class WithJson(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    raw: pydantic.Json[list[int]]  # type: ignore[name-defined]


class Strict(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    model_config = pydantic.ConfigDict(strict=True)
    key: UUID
    at: datetime
    price: Decimal
    tags: set[int]
    ratio: float = float("inf")


STRICT = Strict(key=uuid4(), at=datetime(2026, 1, 1, tzinfo=UTC), price=Decimal("1.50"), tags={1})


def take_computed(value: Computed) -> None: ...
def take_json(value: WithJson) -> None: ...
def take_strict(value: Strict) -> None: ...
def take_counts(value: dict[str, int], line: Line | None = None) -> None: ...


def test_models_with_computed_json_and_strict_fields_survive_the_trip() -> None:
    assert trip(take_computed, Computed(amount=2)).kwargs == {"value": Computed(amount=2)}
    assert trip(take_json, WithJson(raw="[1]")).kwargs == {"value": WithJson(raw="[1]")}
    assert trip(take_strict, STRICT).kwargs == {"value": STRICT}


def test_a_strict_model_refuses_what_json_would_refuse() -> None:
    data = {**STRICT.model_dump(mode="json"), "ratio": "1.5"}
    with pytest.raises(InvalidArgument, match=r"^take_strict: value\.ratio: Input should be a valid number$"):
        signature(take_strict).check_arguments_and_make_data((data,), {})


def test_a_number_is_no_key_where_text_is_asked_for() -> None:
    with pytest.raises(InvalidArgument, match="take_counts: value"):
        signature(take_counts).check_arguments_and_make_data(({5: 1},), {})


class StrictWithBytes(Strict):
    raw: bytes = b"\xff"


def take_strict_with_bytes(value: StrictWithBytes) -> None: ...


def test_a_strict_model_with_bytes_is_refused_with_the_remedy() -> None:
    with pytest.raises(InvalidArgument, match=r"value\.key: .*; beside bytes, .*Field\(strict=False\)$"):
        signature(take_strict_with_bytes).check_arguments_and_make_data((StrictWithBytes(**STRICT.model_dump()),), {})


class Picky(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    number: int

    @pydantic.field_validator("number")  # type: ignore[untyped-decorator]
    @classmethod
    def look_up(cls, number: int) -> int:
        if number == 7:
            raise KeyError("secret")
        if number == 8:
            raise ConnectionError("later")
        return number


def take_picky(other: int, value: Picky) -> None: ...


def test_a_validator_that_raises_anything_is_named_without_its_text() -> None:
    own, data = signature(take_picky), {"other": 1, "value": {"number": 7}}
    with pytest.raises(InvalidArgument, match=r"^take_picky: value: .* raised KeyError: raise ValueError") as sent:
        own.check_arguments_and_make_data((), data)
    with pytest.raises(DataMismatchError, match=r"^\$\.value: .* raised KeyError") as run:
        own.read(data)
    assert "secret" not in f"{sent.value} {run.value}"
    with pytest.raises(ConnectionError):
        own.read({"other": 1, "value": {"number": 8}})


def test_a_model_that_cannot_be_dumped_is_named_without_the_text_of_its_error() -> None:
    class Undumpable(Picky):
        def model_dump(self, **_: Any) -> Any:
            raise KeyError("secret")

    with pytest.raises(InvalidArgument, match=r"^take_picky: value: raised KeyError when encoded$"):
        signature(take_picky).check_arguments_and_make_data((1, Undumpable(number=1)), {})
