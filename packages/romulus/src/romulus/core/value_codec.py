"""One annotation's values as bytes and back, verified to be the same at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic

from pydantic import ValidationError
from pydantic_core import to_json
from typing_extensions import TypeVar

from .annotations import result_annotation
from .errors import DefinitionError, SerializationError, Undecodable
from .redaction import HIDES, REDACTED
from .refusals import Site, changed, refused, secret, undecodable, unusable
from .sameness import difference
from .schema import Plan, SecretInAnnotation, plan, shown_serializer

T = TypeVar("T", default=Any)


class ValueCodec(Generic[T]):
    """Encodes values of *annotation*; *where* names them in errors. The annotation is looked at on first use."""

    __slots__ = ("_annotation", "_plan", "_shown", "_site")

    def __init__(self, annotation: Any, where: str) -> None:
        self._prepare(lambda: annotation, Site(where))

    @classmethod
    def returned_by(cls, fn: Callable[..., Any], where: str) -> ValueCodec[Any]:
        """Return the codec of what *fn* returns, its annotation resolved on first use."""
        codec: ValueCodec[Any] = cls.__new__(cls)
        codec._prepare(lambda: result_annotation(fn, where), Site(where))
        return codec

    @classmethod
    def of_arguments(cls, annotation: Callable[[], Any], where: str) -> ValueCodec[Any]:
        """Return the codec of a call's arguments by name: of the TypedDict that *annotation* returns on first use."""
        codec: ValueCodec[Any] = cls.__new__(cls)
        codec._prepare(annotation, Site(where, arguments=True))
        return codec

    def _prepare(self, annotation: Callable[[], Any], site: Site) -> None:
        self._annotation, self._site = annotation, site
        self._plan: Plan | None = None
        self._shown: Callable[..., bytes] | None = None

    def dump(self, value: T) -> tuple[bytes, T]:
        """Return *value* encoded, and as decoded again from that: the same, or this raises.

        Encoded, it says whether a part of it is marked as redacted; arguments do not, since they are compared by their bytes.

        Raises:
            SerializationError: it cannot be stored and restored unchanged; names where, path and type.
            DefinitionError: the annotation cannot be used.
        """
        plan = self._plan or self.plan()
        try:  # pydantic's own warnings cost more than all the rest, and what it would warn of does not come back the same
            data = plan.to_json(value, by_alias=False, round_trip=True, warnings=False)
            decoded = self._decode(plan, data)
        except Exception as error:
            raise refused(self._site, value, error) from error
        found = difference(value, decoded)
        if found is not None:
            raise changed(self._site, value, found)
        return (data + HIDES if plan.redacted and not self._site.arguments else data), decoded

    def marked(self, data: bytes) -> bytes:
        """Return encoded arguments as they are stored for listings: saying whether one of them is marked as redacted."""
        return data + HIDES if (self._plan or self.plan()).redacted else data

    def load(self, data: bytes) -> T:
        """Return the value that was encoded as *data*.

        Raises:
            Undecodable: the annotation does not take it; names the type.
        """
        try:
            value: T = self._decode(self._plan or self.plan(), data)
        except (DefinitionError, SerializationError) as error:  # of the annotation
            raise Undecodable(str(error)) from error
        except Exception as error:
            raise undecodable(self._site, self._annotation(), error) from error
        return value

    def accept(self, plain: Any) -> T:
        """Return the value that the JSON-like *plain* stands for.

        Raises:
            SerializationError: the annotation does not take it, or it is not JSON-like.
        """
        plan = self._plan or self.plan()
        try:
            value: T = self._decode(plan, to_json(plain, inf_nan_mode="constants"))
        except Exception as error:
            raise refused(self._site, plain, error) from error
        return value

    def redacted(self, data: bytes) -> Any:
        """Return the encoded value as JSON-able data for people: marked fields hidden, numbers exact. Never raises."""
        try:
            plan = self._plan or self.plan()
            return self._hidden(plan, data) if plan.redacted else shown(data)
        except Exception:  # noqa: BLE001  # a listing goes on, and shows nothing
            return REDACTED

    def prepare(self) -> None:
        """Work out how values are encoded, ahead of the first one. An annotation that cannot be used is told of where it is used."""
        with suppress(Exception):  # whatever a user's annotation raises
            self._plan = self._plan or self.plan()

    def plan(self) -> Plan:
        """Return how values are encoded, worked out on the first call."""
        try:
            self._plan = made = plan(self._annotation())
        except SecretInAnnotation:
            raise secret(self._site) from None
        except DefinitionError:
            raise
        except Exception as error:
            raise unusable(self._site, error) from error
        return made

    def _decode(self, plan: Plan, data: bytes) -> Any:
        try:
            return plan.from_json(data, strict=True, by_alias=True, by_name=True)
        except ValidationError:
            value = plan.from_json(data, by_alias=True, by_name=True)
            if plan.to_json(value, by_alias=False, round_trip=True, warnings=False) == data.removesuffix(HIDES):
                return value  # a type that strictness refuses, but exactly what these bytes stand for
            raise

    def _hidden(self, plan: Plan, data: bytes) -> Any:
        self._shown = self._shown or shown_serializer(self._annotation())
        return json.loads(self._shown(self._decode(plan, data), by_alias=False, round_trip=True, warnings=False))


def shown(data: bytes) -> Any:
    """Return encoded plain data as JSON-able data for people: exact numbers, NaN and infinities as text."""
    return json.loads(data, parse_constant=str)
