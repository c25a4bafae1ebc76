"""Where a PostgreSQL store is: the URL, taken apart once, and never shown with its password."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from romulus.core.errors import ConfigurationError
from romulus.store.urls import SECRET_OPTIONS, without_secrets

FORM: Final = "write postgresql://user:password@host:5432/database, or host:5432,other:5432 for a primary and its standbys"
ESCAPE: Final = "in a password write '/' as %2F, '?' as %3F, '@' as %40"
POOLERS: Final = ("none", "session", "transaction")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to connect, and through what."""

    dsns: tuple[str, ...]  # for the driver, password included: of each host that the URL names, in its order
    shown: str  # for messages, listings and `Store.url`
    pooler: str | None = None  # one of POOLERS where the URL says it, else found out at connect


def place_of(url: str) -> Place:
    """Return the place that *url* names.

    Raises:
        ConfigurationError: it is not a PostgreSQL URL.
    """
    if any(character.isspace() or character == "\0" for character in url):
        raise ConfigurationError(f"the store URL holds a space or a control character: {FORM}")
    if "#" in url:
        raise ConfigurationError(f"the store URL has a '#': escape it as %23 in a password ({FORM})")
    try:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        for host in hosts.split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError:
        raise ConfigurationError(f"{without_secrets(url)!r} cannot be read; {ESCAPE} ({FORM})") from None
    if "@" in parts.path + parts.query:
        raise ConfigurationError(f"{without_secrets(url)!r} has an '@' behind its host; {ESCAPE} ({FORM})")
    options = parse_qsl(parts.query, keep_blank_values=True)
    pooler = next((value for name, value in options if name == "pooler"), None)
    if pooler is not None and pooler not in POOLERS:
        raise ConfigurationError(f"the store URL says pooler={pooler!r}: it is one of {', '.join(POOLERS)}")
    kept = [(name, value) for name, value in options if name != "pooler"]
    if "," in hosts and not any(name == "target_session_attrs" for name, _ in kept):
        kept.append(("target_session_attrs", "read-write"))  # of a primary and its standbys, the primary, whichever that is now
    shown = f"postgresql://{_without_password(parts.netloc)}{parts.path}{_without_secret(options)}"
    dsns = [urlunsplit(("postgresql", user + at + host, parts.path, urlencode(kept), "")) for host in hosts.split(",")]
    return Place(tuple(dsns), shown, pooler)


def _without_password(netloc: str) -> str:
    user, at, host = netloc.rpartition("@")
    return quote(unquote(user.partition(":")[0])) + at + host


def _without_secret(options: list[tuple[str, str]]) -> str:
    shown = urlencode([(name, value) for name, value in options if name.lower() not in SECRET_OPTIONS])
    return f"?{shown}" if shown else ""
