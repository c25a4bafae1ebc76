"""Values come back as they went in, and what would not is refused by path and type."""

from __future__ import annotations

import enum
import ipaddress
import json
import math
import re
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NotRequired, Optional, TypeVar
from zoneinfo import ZoneInfo

import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, PrivateAttr, computed_field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from typing_extensions import TypeAliasType, TypedDict

from romulus.core.errors import SerializationError, Undecodable
from romulus.core.values import ValueCodec

T = TypeVar("T")
BERLIN = ZoneInfo("Europe/Berlin")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Flags(enum.IntFlag):
    READ = 1
    WRITE = 2


class Outer:
    class Inner(enum.Enum):
        A = ("a", 1)
        B = 2


@dataclass
class Money:
    amount: Decimal
    currency: str = "EUR"


@dataclass(eq=False)
class Plain:
    n: int
    items: list[float]


@dataclass(frozen=True, slots=True)
class Blob:
    data: bytes
    inf: float = math.inf


@dataclass
class Computed:
    a: int
    total: int = field(init=False)
    seen: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.total = self.a * 2


@dataclass
class Tree:
    name: str
    children: list[Tree] = field(default_factory=list)


@dataclass
class Late:
    """A non-init field of its own class, set by nobody but the user."""

    name: str
    parent: Late | None = field(init=False, default=None)


@dataclass
class Special(Money):
    """Same fields as Money."""


@dataclass
class Holder:
    """Non-init fields without a default: of a recursive type, of an optional one, of its own class."""

    n: int
    tree: Tree = field(init=False)
    parent: Holder | None = field(init=False)

    def __post_init__(self) -> None:
        self.tree, self.parent = Tree("made"), None


@dataclass
class Holders:
    first: Holder
    second: Holder
    tree: Tree


@dataclass
class Unset:
    a: int
    b: int = field(init=False)


@pydantic_dataclass
class Checked:
    n: int
    data: bytes = b"\xff"


class Point(NamedTuple):
    x: int
    label: bytes


class Options(TypedDict):
    deep: bytes
    times: NotRequired[set[str]]


class Model(BaseModel):
    amount: Decimal
    colour: Colour = Colour.RED
    at: datetime | None = None


class Aliased(BaseModel):
    user_name: str = Field(alias="userName")
    age: int = Field(validation_alias="years", serialization_alias="AGE")


class Box(BaseModel, Generic[T]):
    content: T


class WithComputed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int

    @computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return self.a * 2


class WithPrivate(BaseModel):
    a: int
    _hidden: int = PrivateAttr(default=0)


class Excluding(BaseModel):
    a: int
    b: int = Field(default=0, exclude=True)


class BytesModel(BaseModel):
    data: bytes


class SettledModel(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="constants")
    data: bytes
    x: float


UserId = NewType("UserId", int)
Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | float | bool | None")

TREE = Tree("a", [Tree("b"), Tree("c", [Tree("d")])])


def _shown(part: object) -> str:
    """Return a name that every process gives it: sets in order, no addresses."""
    shown = f"{type(part).__name__}{sorted(map(ascii, part))}" if isinstance(part, set | frozenset) else ascii(part)
    return re.sub(" at 0x[0-9a-f]+", "", shown)[:40]


def codec(annotation: Any) -> ValueCodec[Any]:
    return ValueCodec(annotation, "step pay")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (None, None),
        (str, "x\x00y"),
        (str, "\\u0000 spelt out"),
        (str, "emoji \U0001f600 and \u2028"),
        (int, 2**63 + 1),
        (int, -(10**200)),
        (float, math.inf),
        (float, -0.0),
        (float, 1e-320),
        (float, 0.1),
        (bool, True),
        (bytes, b"\x00\xff"),
        (Decimal, Decimal("1.10")),
        (Decimal, Decimal("1E+30")),
        (Decimal, Decimal("-0.00")),
        (date, date(1, 1, 1)),
        (datetime, datetime(2024, 5, 1, 12, 0, 0, 1)),
        (datetime, datetime(2024, 5, 1, tzinfo=UTC)),
        (datetime, datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))),
        (time, time(1, 2, 3, 4)),
        (timedelta, timedelta(days=-3, microseconds=1)),
        (timedelta, timedelta(days=999_999, seconds=86_399, microseconds=999_999)),
        (uuid.UUID, uuid.UUID(int=7)),
        (Path, Path("/a/b")),
        (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1")),
        (Fraction, Fraction(1, 3)),
        (complex, 1 + 2j),
        (re.Pattern[str], re.compile("a+")),
        (AnyUrl, AnyUrl("https://example.org/x?y=1")),
        (Colour, Colour.BLUE),
        (Size, Size.LARGE),
        (Flags, Flags.READ | Flags.WRITE),
        (Outer.Inner, Outer.Inner.A),
        (Outer.Inner, Outer.Inner.B),
        (Literal["a", 1], 1),
        (UserId, 5),
        (tuple[int, str], (1, "a")),
        (tuple[bytes, ...], (b"\xff", b"")),
        (list[tuple[int, ...]], [(1,), ()]),
        (set[str], {"a", "b"}),
        (frozenset[bytes], frozenset({b"\x00", b"\xff"})),
        (set[tuple[int, str]], {(1, "a"), (2, "b")}),
        (dict[int, str], {1: "a", -2: "b"}),
        (dict[Colour, int], {Colour.RED: 1}),
        (dict[uuid.UUID, float], {uuid.UUID(int=1): math.inf}),
        (dict[str, Any], {"z": 1, "a": [True, None, 1.5, 10**30, {"n": "x"}]}),
        (defaultdict[str, list[int]], defaultdict(list, {"a": [1]})),
        (OrderedDict[str, int], OrderedDict(b=1, a=2)),
        (Counter[str], Counter("aab")),
        (deque[int], deque([1, 2])),
        (Optional[int], None),  # noqa: UP045
        (int | str, "1"),
        (int | str, 1),
        (int | float, 1.0),
        (float | int, 1),
        (bool | int, 1),
        (int | bool, True),
        (Money | str, "x"),
        (Json, {"a": [1, 2.0, None, {"b": "c"}]}),
        (Any, {"a": (1 << 70), "b": [math.inf]}),
        (object, [1, "a", None]),
        (list, [1, [2.5]]),
        (dict, {"a": 1}),
        (Point, Point(1, b"\xff")),
        (Options, {"deep": b"\xfe", "times": {"x"}}),
        (Money, Money(Decimal("1.10"))),
        (Blob, Blob(b"\xff")),
        (list[Blob], [Blob(b"\xff", -math.inf)]),
        (Computed, Computed(4)),
        (Tree, TREE),
        (Checked, Checked(1)),
        (Model, Model(amount=Decimal("2.50"), at=datetime(2024, 1, 1, tzinfo=UTC))),
        (Aliased, Aliased.model_validate({"userName": "a", "years": 3})),
        (Box[Money], Box[Money](content=Money(Decimal(1)))),
        (Box[set[bytes]] | None, None),
        (WithComputed, WithComputed(a=2)),
        (WithPrivate, WithPrivate(a=2)),
        (SettledModel, SettledModel(data=b"\xff", x=math.inf)),
        (Annotated[int, Field(gt=0)], 4),
    ],
    ids=_shown,
)
def test_a_value_comes_back_equal_and_of_the_same_type(annotation: Any, value: Any) -> None:
    data, decoded = codec(annotation).dump(value)

    assert decoded == value
    assert type(decoded) is type(value)
    assert codec(annotation).load(data) == value
    assert codec(annotation).dump(decoded)[0] == data


def test_nan_comes_back_as_nan_wherever_it_stands() -> None:
    for annotation, value in [(float, math.nan), (Any, [math.nan]), (Blob, Blob(b"", math.nan)), (set[float], {math.nan, 1.0})]:
        assert "nan" in repr(codec(annotation).dump(value)[1])


def test_a_typed_dict_comes_back_in_the_order_of_its_declaration() -> None:
    assert list(codec(Options).dump({"times": {"x"}, "deep": b""})[1]) == ["deep", "times"]


def test_an_int_given_for_a_float_becomes_that_float() -> None:
    for annotation, value in [(float, 3), (list[float], [3]), (Plain, Plain(1, [3]))]:
        assert "3.0" in repr(getattr(codec(annotation).dump(value)[1], "items", codec(annotation).dump(value)[1]))
    with pytest.raises(SerializationError, match=r"is int and would come back as float"):
        codec(float).dump(2**63 + 1)


def test_a_class_without_equality_is_compared_by_its_fields() -> None:
    _, decoded = codec(Plain).dump(Plain(1, [1.5]))

    assert (decoded.n, decoded.items) == (1, [1.5])


@pytest.mark.parametrize("fold", [0, 1])
def test_the_zone_of_an_aware_datetime_becomes_its_offset(fold: int) -> None:
    value = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold)  # happens twice

    _, decoded = codec(datetime).dump(value)

    assert decoded.utcoffset() == value.utcoffset() == timedelta(hours=2 - fold)
    assert decoded.timestamp() == value.timestamp()
    assert decoded.replace(tzinfo=None) == value.replace(tzinfo=None, fold=0)


def test_a_naive_datetime_of_the_second_pass_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"is datetime\.datetime with fold=1, which is kept only with a time zone"):
        codec(datetime).dump(datetime(2024, 10, 27, 2, 30, fold=1))


def test_fields_that_are_not_init_arguments_are_stored_and_restored() -> None:
    value = Computed(4)
    value.total, value.seen = 99, ["x"]

    _, decoded = codec(list[Computed]).dump([value])

    assert (decoded[0].a, decoded[0].total, decoded[0].seen) == (4, 99, ["x"])


def test_non_init_fields_may_be_of_any_type_again_and_again() -> None:
    holder = Holder(1)
    holder.tree, holder.parent = TREE, Holder(2)
    value = Holders(holder, Holder(3), TREE)

    assert codec(Holders).dump(value)[1] == value
    assert codec(tuple[Tree, Holder]).dump((TREE, holder))[1] == (TREE, holder)


def test_a_non_init_field_may_hold_its_own_class() -> None:
    child = Late("child")
    child.parent = Late("parent")

    assert codec(Late).dump(child)[1].parent.name == "parent"


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "1", r"the value itself is str: Input should be a valid integer"),
        (int, True, r"is bool and would come back as int"),
        (str, Colour.RED, r"test_values\.Colour and would come back as str"),
        (int, Size.SMALL, r"Size and would come back as int"),
        (list[Money], [Money(Decimal(1)), Special(Decimal(1))], r"\[1\] is .*Special and would come back as .*Money"),
        (dict[str, int], defaultdict(int, {"a": 1}), r"is collections\.defaultdict and would come back as dict"),
        (defaultdict[str, int], defaultdict(lambda: 5, {"a": 1}), r"\.default_factory"),
        (deque[int], deque([1], maxlen=3), r"\.maxlen"),
        (tuple[int, bytes], Point(1, b""), r"Point and would come back as tuple"),
        (Any, (1, 2), r"is tuple and would come back as list"),
        (Any, {"a": {"b": {1, 2}}}, r"\['a'\]\['b'\] is set and would come back as list"),
        (object, [Decimal("1.1")], r"\[0\] is decimal\.Decimal and would come back as str"),
        (Any, {1: "a"}, r"would"),
        (dict[str, Any], {"at": datetime(2024, 1, 1)}, r"\['at'\] is datetime\.datetime and would come back as str"),
        (Any, Money(Decimal(1)), r"Money and would come back as dict"),
        (str | datetime, datetime(2024, 1, 1), r"datetime\.datetime and would come back as str"),
        (Options, {"deep": b"", "extra": 1}, r"extra"),
        (Excluding, Excluding(a=1, b=2), r"\.b is int"),
        (str, "a\ud800", r"the value itself has a lone surrogate at character 1"),
        (dict[str, list[str]], {"k": ["ok", "\udfff"]}, r"\['k'\]\[1\] has a lone surrogate"),
        (dict[str, int], {"\ud800": 1}, r"surrogate"),
        (Any, [object()], r"\[0\] is object"),
        (Money, Money("x"), r"amount"),  # type: ignore[arg-type]
        (list[int], [1, "x"], r"\[1\]"),
        (BytesModel, BytesModel(data=b"\xff"), r"ser_json_bytes"),
        (list[BytesModel], [BytesModel(data=b"\xff")], r"ser_json_bytes"),
    ],
    ids=_shown,
)
def test_what_would_change_is_refused_by_path_and_type(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message) as refusal:
        codec(annotation).dump(value)
    assert str(refusal.value).startswith("step pay: ")


def test_an_int_too_long_to_be_read_back_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"step pay: the value itself"):
        codec(int).dump(10**5000)


def test_the_part_that_pydantic_does_not_know_is_named_and_no_other() -> None:
    with pytest.raises(SerializationError, match=r"step pay: \[1\]\[1\] is object, which cannot be stored"):
        codec(tuple[Fraction, list[Any]]).dump((Fraction(1, 3), [1, object()]))


def test_a_field_that_was_never_set_is_named() -> None:
    with pytest.raises(SerializationError, match=r"\[0\] is .*Unset without a value for its field b"):
        codec(list[Unset]).dump([Unset(1)])


def test_a_changed_private_attribute_is_refused() -> None:
    value = WithPrivate(a=1)
    value._hidden = 5

    with pytest.raises(SerializationError, match=r"_hidden"):
        codec(WithPrivate).dump(value)


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)

    with pytest.raises(SerializationError, match=r"holds itself"):
        codec(Any).dump(loop)


def test_the_path_to_a_deep_part_is_cut() -> None:
    value: Any = 1
    for _ in range(300):
        value = [value]

    with pytest.raises(SerializationError, match=r"step pay: [0\[\]]+….*is nested more than 200 deep") as refusal:
        codec(Any).dump(value)
    assert len(str(refusal.value)) < 400


def test_equal_sets_give_equal_bytes_whatever_the_hash_seed() -> None:
    names = {f"name {n}" for n in range(50)}

    assert codec(set[str]).dump(names)[0] == json.dumps(sorted(names), separators=(",", ":")).encode()
    assert codec(Any).redacted(codec(frozenset[tuple[int, str]]).dump(frozenset({(2, "a"), (1, "b")}))[0]) == [[1, "b"], [2, "a"]]


def test_stored_bytes_are_read_for_exactly_what_they_are() -> None:
    assert codec(int).load(b"1") == 1
    for annotation, stored in [(int, b'"1"'), (int, b"1.0"), (bool, b"1"), (str, b"1"), (int, b"null"), (int, b""), (int, b"\xff")]:
        with pytest.raises(Undecodable, match=annotation.__name__):
            codec(annotation).load(stored)


def test_bytes_of_a_type_that_changed_are_undecodable_and_the_error_names_it() -> None:
    with pytest.raises(Undecodable, match=r"step pay: .*test_values\.Money.*\.amount"):
        codec(Money).load(b'{"sum":"1.10"}')


def test_an_error_never_shows_the_value() -> None:
    for attempt in (lambda: codec(Money).load(b'{"amount":"hunter2"}'), lambda: codec(list[int]).dump(["hunter2"])):
        with pytest.raises((Undecodable, SerializationError)) as refusal:
            attempt()
        assert "hunter2" not in str(refusal.value)


@dataclass
class WithInitVar:
    n: int
    scale: InitVar[int] = 2
    scaled: int = field(init=False, default=0)

    def __post_init__(self, scale: int) -> None:
        self.scaled = self.n * scale


def test_init_only_arguments_are_not_stored_and_what_depends_on_them_is_refused_when_it_differs() -> None:
    assert codec(WithInitVar).dump(WithInitVar(3))[1].scaled == 6
    with pytest.raises(SerializationError, match=r"\.scaled"):
        codec(WithInitVar).dump(WithInitVar(3, scale=5))
