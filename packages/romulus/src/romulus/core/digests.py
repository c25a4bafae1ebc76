"""Digests over plaintext: what tells one command, input or event from another.

Each field is length-prefixed, so no two different lists of fields give the same bytes.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any

_COMMAND = b"romulus command"
_INPUT = b"romulus input"
_EVENT = b"romulus event"


def command_digest(key: bytes, kind: str, name: str, arguments: bytes) -> bytes:
    """Return 8 bytes over a command's kind, name and encoded arguments, keyed by the seed in force."""
    label = f"{len(kind)} {len(name)} {kind}{name}".encode("utf-8", "surrogatepass")
    return blake2b(label + arguments, digest_size=8, key=key, person=_COMMAND).digest()


def input_digest(seed: bytes, arguments: bytes) -> bytes:
    """Return 16 bytes over a run's encoded arguments, keyed by the generation's first seed.

    Arguments that are equal but for the order of object members, or 1 for 1.0, give the same digest: a client
    without the code cannot know the order in which the code declares its fields.
    """
    return blake2b(_canonical(arguments), digest_size=16, key=seed, person=_INPUT).digest()


def event_digest(name: str, correlation_id: str, payload: bytes) -> bytes:
    """Return 16 bytes over an event's name, correlation ID and encoded payload: the same event ID must bring the same."""
    digest = blake2b(digest_size=16, person=_EVENT)
    for part in (name.encode(), correlation_id.encode(), _canonical(payload)):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.digest()


def _canonical(data: bytes) -> bytes:
    try:
        value = _DECODER.decode(data.decode(json.detect_encoding(data), "surrogatepass"))
    except (ValueError, RecursionError):
        return data
    return _ENCODER.encode(value).encode()


def _number(text: str) -> Any:
    value = float(text)
    return int(value) if value.is_integer() else value


# Made once: to make a decoder takes longer than to read a small value.
_DECODER = json.JSONDecoder(parse_float=_number)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
