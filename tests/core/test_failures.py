"""Any exception crosses as bytes; nothing it does breaks a worker or a listing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from romulus.core.errors import ActivationTimeout, Dropped, RunHeld, StepFailed, StepTimeout, ValueTooLarge
from romulus.core.failures import cut_failure, describe_failure, dump_failure, failure_traceback, load_failure
from romulus.core.values import Vault


class Declined(Exception):
    """Takes what it was raised with."""


class WithAttributes(Exception):
    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


class OtherSignature(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")


class KeywordOnly(Exception):
    def __init__(self, *, code: int) -> None:
        super().__init__(code)


class Outer:
    class Inner(LookupError):
        pass


class RaisingStr(Exception):
    def __str__(self) -> str:
        raise SystemExit


class NumberStr(Exception):
    def __str__(self) -> str:
        return 42  # type: ignore[return-value]  # noqa: PLE0307


class Hostile(Exception):
    """Lies about everything."""

    __cause__ = 5  # type: ignore[assignment]
    args = "no tuple"  # type: ignore[assignment]
    __notes__ = 7  # type: ignore[assignment]

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError

    def __reduce__(self) -> Any:
        raise RuntimeError


class Interrupting(BaseException):
    pass


class MyGroup(ExceptionGroup[Exception]):
    pass


made: list[str] = []


class NotAnException:
    def __init__(self, *args: Any) -> None:
        made.append("called")


def crossed(exc: BaseException) -> BaseException:
    return load_failure(dump_failure(exc))


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("a", 1, 2.5, None, True),
        ValueError(),
        KeyError("x"),
        Declined(("tuple", [1, {"a": b"\xff"}])),
        Outer.Inner("x"),
        FileNotFoundError(2, "No such file", "/tmp/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        TimeoutError("late"),
        asyncio.CancelledError("why"),
        asyncio.CancelledError(),
        Interrupting("x"),
        RunHeld("r-1", "why"),
        StepFailed("m", "some.Type"),
        StepTimeout("m"),
    ],
    ids=repr,
)
def test_an_exception_comes_back_as_its_own_class_with_its_arguments(exc: BaseException) -> None:
    back = crossed(exc)

    assert type(back) is type(exc)
    assert (str(back), back.args) == (str(exc), exc.args)
    assert {name: value for name, value in vars(back).items() if name != "romulus_traceback"} == vars(exc)


def test_attributes_come_back_as_far_as_they_are_plain() -> None:
    exc = WithAttributes("no", status=404)
    exc.response = object()  # type: ignore[attr-defined]

    back: Any = crossed(exc)

    assert (type(back), back.status, hasattr(back, "response")) == (WithAttributes, 404, False)


def test_arguments_that_are_not_plain_leave_the_class_and_the_message() -> None:
    back = crossed(Declined(object))

    assert type(back) is Declined
    assert str(back) == "<class 'object'>"


@pytest.mark.parametrize("exc", [OtherSignature(7, "x"), KeywordOnly(code=7)], ids=repr)
def test_a_class_that_does_not_take_its_arguments_is_stood_in_for(exc: Exception) -> None:
    back = crossed(exc)

    assert type(back) is StepFailed
    assert (str(back), back.type_name) == (str(exc), type(exc).__name__)


def test_a_class_that_cannot_be_imported_is_stood_in_for() -> None:
    class Local(Exception):
        pass

    back: Any = crossed(Local("x"))

    assert type(back) is StepFailed
    assert back.type_name.endswith("Local")
    assert str(back) == "x"


@pytest.mark.parametrize(
    "exc", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), StopIteration(1), StopAsyncIteration(), Dropped(), ActivationTimeout()]
)
def test_what_would_stop_the_process_or_a_coroutine_is_stood_in_for(exc: BaseException) -> None:
    back = crossed(exc)

    assert type(back) is StepFailed
    assert back.type_name == type(exc).__name__


SCRIPT = """
import sys
from romulus.core.failures import dump_failure, load_failure
class Declined(Exception): pass
if __name__ == "__main__":
    if len(sys.argv) > 1:
        back = load_failure(bytes.fromhex(sys.argv[1]))
        assert type(back) is Declined, repr(back)
    print(dump_failure(Declined("no")).hex())
"""


def test_an_exception_of_a_script_is_the_same_class_where_the_script_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "orders_script.py"
    script.write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    stored = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.strip()

    import orders_script  # type: ignore[import-not-found]

    assert type(load_failure(bytes.fromhex(stored))) is orders_script.Declined
    imported = dump_failure(orders_script.Declined("no")).hex()
    subprocess.run([sys.executable, script, imported], check=True, capture_output=True)


def test_nothing_but_exception_classes_is_ever_called() -> None:
    for name in (f"{__name__}:NotAnException", "os:system", "builtins:print", "no.such.module:X", "builtins:", ":", "romulus:x.y"):
        data = b'{"type":"%s","message":"m","args":[{"tuple":["true"]}]}' % name.encode()
        assert type(load_failure(data)) is StepFailed
    assert made == []


def test_notes_cause_and_traceback_come_along() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ValueError("outer") from inner
    except ValueError as caught:
        caught.add_note("a note")
        back: Any = crossed(caught)

    assert back.__notes__ == ["a note"]
    assert (type(back.__cause__), back.__cause__.args) == (KeyError, ("inner",))
    assert "ValueError: outer" in back.romulus_traceback
    assert "test_failures.py" in back.romulus_traceback


def test_one_raised_again_keeps_where_it_was_raised_first() -> None:
    def body_of_a_step() -> None:
        raise ValueError("outer")

    with pytest.raises(ValueError, match="outer") as first:
        body_of_a_step()
    with pytest.raises(ValueError, match="outer") as second:
        raise crossed(first.value)
    text = failure_traceback(dump_failure(second.value))

    assert text.index("in body_of_a_step") < text.index("and raised again:") < text.rindex("ValueError: outer")


def test_a_rebuilt_exception_crosses_again_unchanged() -> None:
    first = dump_failure(WithAttributes("x", 5))
    second = dump_failure(load_failure(first))

    assert (str(load_failure(second)), vars(load_failure(second))["status"]) == ("x", 5)
    assert len(second) <= len(first)


def test_groups_come_back_with_their_members() -> None:
    group = ExceptionGroup("g", [ValueError(1), OtherSignature(1, "x"), ExceptionGroup("inner", [KeyError("k")])])

    back: Any = crossed(group)

    assert type(back) is ExceptionGroup
    assert [type(one) for one in back.exceptions] == [ValueError, StepFailed, ExceptionGroup]
    assert type(crossed(MyGroup("g", [ValueError()]))) is MyGroup
    assert type(crossed(BaseExceptionGroup("g", [asyncio.CancelledError()]))) is BaseExceptionGroup


@pytest.mark.parametrize("cls", [RaisingStr, NumberStr, Hostile])
def test_exceptions_that_misbehave_are_stored_all_the_same(cls: type[Exception]) -> None:
    data = dump_failure(cls("x"))

    assert isinstance(load_failure(data), BaseException)
    assert cls.__name__ in describe_failure(data)


def test_cycles_of_causes_end() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first

    back = crossed(first)

    assert str(back.__cause__) == "2"
    assert back.__cause__ is not None
    assert back.__cause__.__cause__ is None


def test_everything_is_bounded_and_says_how_much_was_cut() -> None:
    huge = ValueError("x" * 1_000_000)
    for number in range(1_000):
        huge.add_note(f"{number} " + "n" * 100_000)
    deep: BaseException = huge
    for _ in range(500):
        deep, below = ValueError("d" * 100_000), deep
        deep.__cause__ = below
    wide = ExceptionGroup("w", [ValueError("m" * 100_000) for _ in range(1_000)])

    for exc in (huge, deep, wide):
        assert len(dump_failure(exc)) < 200_000
    assert "983,616 more characters" in str(crossed(huge))
    assert type(crossed(huge)) is ValueError
    assert "more exceptions" in str(crossed(wide).exceptions[-1])  # type: ignore[attr-defined]
    assert "950 more notes" in crossed(huge).__notes__[-1]


@pytest.mark.parametrize("text", ["\x00é" * 10_000, "\U0001f600" * 10_000, '"' * 10_000, "x"])
def test_a_failure_fits_the_limit_of_the_vault(text: str) -> None:
    vault = Vault(None, 600)
    plain = dump_failure(ValueError(text))

    data = vault.seal_failure(plain, "failure")

    assert len(data) <= 600
    assert type(load_failure(vault.open(data, "failure"))) is ValueError
    if len(plain) > 600:
        with pytest.raises(ValueTooLarge):
            vault.seal(plain, "failure")


@given(st.binary(max_size=2_000), st.integers(600, 1_000))
def test_any_bytes_can_be_cut(data: bytes, bytes_max: int) -> None:
    assert len(cut_failure(data, bytes_max)) <= bytes_max


def test_nul_and_surrogates_are_spelt_out() -> None:
    exc = ValueError("a\x00b\ud800c")
    exc.add_note("\udfff")

    data = dump_failure(exc)

    assert str(load_failure(data)) == "a\\x00b\\ud800c"
    assert load_failure(data).__notes__ == ["\\udfff"]
    data.decode()


def test_a_line_for_listings_is_one_printable_line() -> None:
    assert describe_failure(dump_failure(ValueError("a\n  b\x1b[31m"))) == "ValueError: a b\\u001b[31m"
    assert describe_failure(dump_failure(ValueError())) == "ValueError"
    assert describe_failure(dump_failure(StepFailed("m", "Their"))) == "Their: m"
    assert describe_failure(dump_failure(ExceptionGroup("g", [ValueError()]))) == "ExceptionGroup: g (1 exceptions)"
    assert len(describe_failure(dump_failure(ValueError("x" * 5_000)))) <= 300


def test_an_exception_of_a_library_without_a_constructor_is_stood_in_for() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("x")

    back: Any = crossed(caught.value)
    assert (type(back), back.type_name) == (StepFailed, "ValidationError")


@given(
    st.binary()
    | st.sampled_from([b"null", b"[]", b"{}", b'{"type":5}', b'{"type":"builtins:ValueError","args":7}', b'{"type":"a","members":[1]}'])
)
def test_any_bytes_give_an_exception_and_a_line(data: bytes) -> None:
    assert isinstance(load_failure(data), BaseException)
    assert isinstance(describe_failure(data), str)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_characters="\x00"))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(st.sampled_from(["bytes", "tuple", "dict", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(PLAIN, max_size=3))
def test_plain_arguments_come_back_exactly(args: list[Any]) -> None:
    back = crossed(Declined(*args))

    assert repr(back.args) == repr(tuple(args))


@given(st.lists(st.text(st.characters(categories=None))))
def test_texts_of_any_characters_are_stored(texts: list[str]) -> None:
    assert type(crossed(Declined(*texts))) in (Declined, StepFailed)
