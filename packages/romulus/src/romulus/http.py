"""Operations over httpx: which answers are definite, and the key header. Needs the extra `http`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from romulus.authoring.current import attempt_var
from romulus.core.errors import NotSent, Rejected

if TYPE_CHECKING:
    import httpx

    from romulus.authoring.operation import Operation

IN_PROGRESS = 409  # the first request with the key is still being worked
TOO_MANY = 429
TOO_EARLY = 425
REQUEST_TIMEOUT = 408
SECRET = ("auth", "cookie", "token", "secret", "key", "signature", "password", "credential", "session")  # in names of headers
KEY = "Idempotency-Key"


class NoAnswer(Exception):
    """The provider's answer leaves open whether it applied the request: the operation becomes unknown."""


def headers(op: Operation) -> dict[str, str]:
    """Return the header that carries the operation's ID as its idempotency key."""
    return {KEY: op.id}


def recorder(*, blocking: bool = False) -> dict[str, list[Callable[..., Any]]]:
    """Return event hooks for an `httpx.AsyncClient` (*blocking*: an `httpx.Client`) that keep each exchange as evidence of the operation.

    Method, URL without query and user, status and headers are kept, those that may hold a secret hidden and those that are links without
    their query; bodies are not. They stand in the operation's history: `httpx.AsyncClient(event_hooks=romulus.http.recorder())`.
    """
    if blocking:
        return {"request": [_keep_request], "response": [_keep_response]}
    return {"request": [_async(_keep_request)], "response": [_async(_keep_response)]}


def outcome(value: httpx.Response | Exception, /, *, not_applied: Iterable[int] = ()) -> httpx.Response:
    """Return a successful response; raise what any other answer, or the exception that came instead, means for an operation.

    | answer | means |
    |---|---|
    | 2xx | returned |
    | connection refused, DNS, connect timeout, pool timeout, a URL that httpx cannot send to | `NotSent` |
    | 429 | `NotSent`: the provider refused to look at it, so it is sent again later |
    | 408, 409, 425 | `NoAnswer`: a request with the same key may be in progress |
    | other 4xx | `Rejected` |
    | 3xx, 5xx | `NoAnswer`, unless the status is among *not_applied*: then `NotSent` |
    | read or write timeout, protocol error, connection lost | `NoAnswer` |
    | what `raise_for_status()` raised | what its answer means |

    For clients that follow no redirects, as httpx's do unless told to: behind one, a refused connection may come after the write.

    Raises:
        NotSent, Rejected, NoAnswer.
    """
    if isinstance(value, Exception):
        answered = _answer_in(value)
        if answered is None:
            raise _meaning(value) from value
        value = answered
    status = value.status_code
    if value.is_success:
        return value
    if status == TOO_MANY or status in not_applied:
        raise NotSent(_sentence(value))
    if value.is_client_error and status not in (REQUEST_TIMEOUT, IN_PROGRESS, TOO_EARLY):
        raise Rejected(_sentence(value))
    raise NoAnswer(_sentence(value))


def _async(keep: Callable[[Any], None]) -> Callable[[Any], Coroutine[Any, Any, None]]:
    async def hook(exchanged: Any) -> None:
        keep(exchanged)

    return hook


def _keep_request(request: httpx.Request) -> None:
    _keep({"sent": f"{request.method} {_shown(request.url)}", "headers": _headers(request.headers)})


def _keep_response(response: httpx.Response) -> None:
    _keep({"answered": response.status_code, "headers": _headers(response.headers)})


def _keep(exchange: dict[str, object]) -> None:
    attempt = attempt_var.get()
    if attempt is not None:
        attempt.keep(exchange)


def _headers(headers: httpx.Headers) -> dict[str, str]:
    return {name: _header(name, value) for name, value in headers.items()}


def _header(name: str, value: str) -> str:
    if name != KEY.lower() and any(part in name for part in SECRET):
        return "…"
    return value.split("?", 1)[0] + "?…" if "://" in value and "?" in value else value


def _shown(url: httpx.URL) -> httpx.URL:
    """Return *url* without what may be secret."""
    return url.copy_with(query=None, fragment=None, username="", password="")


def _answer_in(error: Exception) -> httpx.Response | None:
    import httpx

    return error.response if isinstance(error, httpx.HTTPStatusError) else None


def _meaning(error: Exception) -> Exception:
    import httpx

    never_left = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol, httpx.InvalidURL)
    text = f"{type(error).__name__}: {error}"
    return NotSent(text) if isinstance(error, never_left) else NoAnswer(text)


def _sentence(response: httpx.Response) -> str:
    return f"{response.request.method} {_shown(response.request.url)} answered {response.status_code}"
