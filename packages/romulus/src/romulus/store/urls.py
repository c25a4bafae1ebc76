"""Store URLs as messages and listings show them: whatever may be a secret in them is left out, however they are misspelt."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
SECRET_OPTIONS: Final = ("password", "passfile", "sslpassword")
_OPTION: Final = re.compile(rf"\b({'|'.join(SECRET_OPTIONS)})=[^&]*", re.IGNORECASE)


def without_secrets(url: str) -> str:
    """Return *url* with what stands between its user and its last `@`, and the values of secret options, hidden."""
    scheme, colon, rest = _OPTION.sub(rf"\1={HIDDEN}", url).rpartition("://")
    credentials, at, where = rest.rpartition("@")
    user, has_password, _ = credentials.partition(":")
    return scheme + colon + user + (f":{HIDDEN}" if has_password else "") + at + where
