"""Signatures that mention pydantic are read by pydantic, and its errors show no values."""

from __future__ import annotations

import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import pytest

from pychasqui._tasks.pydantic_types import DataMismatchError
from pychasqui._tasks.signature import Signature, read_parameters
from pychasqui._wire.msgpack import decode_data, encode_data
from pychasqui.errors import InvalidArgument

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


def signature(function: Callable[..., Any]) -> Signature:
    return Signature(function.__name__, function, read_parameters(function.__name__, function, lambda default: False))


def trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    own = signature(function)
    return own.read(decode_data(encode_data(own.pack_arguments(args, kwargs))))


def order(basket: Basket, key: UUID, number: Annotated[int, pydantic.Field(gt=0)] = 1) -> None: ...


LINE = Line(SKU="a", price=Decimal("1.50"), at=datetime(2026, 1, 1, tzinfo=UTC), raw=b"\xff")


def test_models_inside_dataclasses_survive_the_trip() -> None:
    key = uuid4()
    assert trip(order, Basket([LINE]), key) == ((), {"basket": Basket([LINE]), "key": key})


def test_a_field_that_msgspec_would_pass_over_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="order: number: Input should be greater than 0"):
        signature(order).pack_arguments((Basket([]), uuid4(), -1), {})


def test_a_field_behind_a_new_type_or_an_alias_is_checked() -> None:
    def order(number: Any) -> None: ...

    positive: Any = Annotated[int, pydantic.Field(gt=0)]
    new_type = typing.__dict__["NewType"]("new_type", positive)  # mypy takes a class alone
    alias = pytest.importorskip("typing_extensions").TypeAliasType("alias", positive)
    for annotation, value in ((new_type, -1), (list.__class_getitem__(new_type), [-1]), (alias, -1)):
        order.__annotations__["number"] = annotation
        with pytest.raises(InvalidArgument, match="Input should be greater than 0"):
            signature(order).pack_arguments((value,), {})


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
        signature(log_in).pack_arguments((pydantic.SecretStr("secret"),), {})


def test_a_field_as_a_default_is_refused_with_what_to_write() -> None:
    def shrink(width: int = pydantic.Field(gt=0)) -> None: ...

    with pytest.raises(InvalidArgument, match=r"width is a FieldInfo: write width: Annotated\[..., Field"):
        signature(shrink)


def test_pydantic_is_not_imported_unless_it_is_there_already() -> None:
    program = (
        "import sys\nfrom pychasqui import App\napp = App('redis://nowhere')\n"
        "@app.task\ndef f(x: int, y: list[str] = []) -> int: ...\n"
        "f.bind(1)\nassert not [name for name in sys.modules if name.startswith('pydantic')]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
