"""Verifies signed callbacks by the Standard Webhooks scheme (https://www.standardwebhooks.com)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from romulus.core.errors import CallbackRefused, ConfigurationError


def verified(headers: Mapping[str, str], body: bytes, secret: str) -> Mapping[str, Any]:
    """Return the JSON object that *body* holds, once its signature and age are found good.

    Raises:
        CallbackRefused: they are not, or it is no JSON object.
        ConfigurationError: the extra `webhooks` is not installed, or *secret* is none.
    """
    try:
        scheme: Any = import_module("standardwebhooks.webhooks")
    except ImportError:
        raise ConfigurationError("verifying callbacks needs the package standardwebhooks: install romulus-engine[webhooks]") from None
    try:
        webhook = scheme.Webhook(secret)
    except Exception as error:
        raise ConfigurationError(f"the secret of the callback's source is no Standard Webhooks secret (whsec_…): {error}") from error
    try:
        payload = webhook.verify(body, {name.lower(): value for name, value in headers.items()})
    except Exception as error:
        raise CallbackRefused(f"the callback is not what its source signed: {error}") from error
    if not isinstance(payload, dict):
        raise CallbackRefused(f"the callback holds a {type(payload).__name__}, not a JSON object")
    return payload  # pyright: ignore[reportUnknownVariableType]
