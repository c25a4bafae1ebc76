"""What each answer over HTTP means for an operation."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import httpx
import pytest

import romulus.http
from romulus import NotSent, Operation, Rejected
from romulus.authoring.current import attempt_var
from romulus.http import NoAnswer, outcome

REQUEST = httpx.Request("POST", "https://ada:s3@crm.example/plans?token=secret#part")


def answered(status: int) -> httpx.Response:
    return httpx.Response(status, request=REQUEST)


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_success_is_returned(status: int) -> None:
    assert outcome(answered(status)).status_code == status


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_a_refusal_is_rejected(status: int) -> None:
    with pytest.raises(Rejected, match=f"POST https://crm.example/plans answered {status}"):
        outcome(answered(status))


@pytest.mark.parametrize("status", [301, 408, 409, 425, 500, 502, 503, 504])
def test_an_answer_that_leaves_it_open_is_no_answer(status: int) -> None:
    with pytest.raises(NoAnswer):
        outcome(answered(status))


def test_a_provider_that_wants_less_has_not_looked_at_it() -> None:
    with pytest.raises(NotSent, match="429"):
        outcome(answered(429))


def test_a_status_that_the_provider_promises_to_apply_nothing_with_is_not_sent() -> None:
    with pytest.raises(NotSent):
        outcome(answered(503), not_applied=[503])


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol])
def test_what_never_left_is_not_sent(error: type[Exception]) -> None:
    with pytest.raises(NotSent, match=error.__name__):
        outcome(error("no"))


OPEN = (
    httpx.ReadTimeout, httpx.WriteTimeout, httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError, httpx.LocalProtocolError,
    httpx.ProxyError,
    ValueError,
)  # fmt: skip


@pytest.mark.parametrize(("status", "meaning"), [(404, Rejected), (429, NotSent), (409, NoAnswer), (502, NoAnswer)])
def test_what_raise_for_status_raised_means_what_its_answer_does(status: int, meaning: type[Exception]) -> None:
    with pytest.raises(httpx.HTTPStatusError) as raised:
        answered(status).raise_for_status()
    with pytest.raises(meaning, match=f"answered {status}"):
        outcome(raised.value)


@pytest.mark.parametrize("error", OPEN)
def test_what_may_have_left_is_no_answer(error: type[Exception]) -> None:
    with pytest.raises(NoAnswer, match=error.__name__):
        outcome(error("no"))


def test_the_key_header_carries_the_operation_id() -> None:
    assert romulus.http.headers(Operation.for_testing("op-7")) == {"Idempotency-Key": "op-7"}


def test_importing_it_imports_no_httpx() -> None:
    code = "import sys, romulus.http; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    "name", ["Authorization", "Proxy-Authorization", "Set-Cookie", "Cookie", "X-Api-Key", "apikey", "X-Auth-Token", "X-Amz-Security-Token",
             "Stripe-Signature", "X-Client-Secret", "X-Password", "X-Credential", "X-Session-Id"],
)  # fmt: skip
def test_the_recorder_hides_headers_that_may_hold_a_secret(name: str) -> None:
    assert list(romulus.http._headers(httpx.Headers({name: "s3"})).values()) == ["…"]


def test_the_recorder_keeps_other_headers_and_the_key_and_links_without_their_query() -> None:
    given = {"Idempotency-Key": "op-7", "Accept": "all", "Location": "https://crm.example/plans/7?token=s3"}
    kept = {"idempotency-key": "op-7", "accept": "all", "location": "https://crm.example/plans/7?…"}
    assert romulus.http._headers(httpx.Headers(given)) == kept


async def test_what_is_kept_of_an_exchange_has_no_secret_of_the_url_and_no_body() -> None:
    kept: list[dict[str, object]] = []
    attempt = SimpleNamespace(keep=kept.append)
    token = attempt_var.set(attempt)  # type: ignore[arg-type]
    try:
        request = httpx.Request("POST", REQUEST.url, json={"card": "4111"}, headers={"Authorization": "Bearer s3"})
        for hook in romulus.http.recorder()["request"]:
            await hook(request)
        for hook in romulus.http.recorder(blocking=True)["response"]:
            hook(httpx.Response(200, json={"card": "4111"}, request=request))
    finally:
        attempt_var.reset(token)
    assert [exchange.get("sent") or exchange["answered"] for exchange in kept] == ["POST https://crm.example/plans", 200]
    assert not any(secret in str(kept) for secret in ("s3", "4111", "token", "part"))


async def test_the_recorder_keeps_nothing_outside_of_a_run() -> None:
    for hook in romulus.http.recorder()["request"]:
        await hook(REQUEST)
    for hook in romulus.http.recorder(blocking=True)["request"]:
        hook(REQUEST)
