"""The providers of tokens on the page about managed services, as far as they go without a cloud."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pychasqui import Queue
from tests.docs.blocks import blocks_of, pages
from tests.support.server import RedisServer

FILES = {block.title: block.code for block in blocks_of(pages()["how-to/managed-services.md"]) if block.title}
# Made by SigV4QueryAuth of botocore 1.44.0 for the same requests at the same time.
SIGNATURE = "d9d93c42395308eceefaf63c13e9eb09ba87692586d706d8612b68d0d78fee50"
SIGNATURE_SERVERLESS = "a806c07bdf007aa9d9499db7ddb41e959b433dc81a19835e5cc407acf678cf69"
SIGNED = (
    "orders/?Action=connect&User=orders-worker&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20261116"
    "%2Feu-central-1%2Felasticache%2Faws4_request&X-Amz-Date=20261116T093000Z&X-Amz-Expires=900"
    f"&X-Amz-SignedHeaders=host&X-Amz-Signature={SIGNATURE}"
)


def names_of(file: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(FILES[file], names)
    return names


def aws_tokens(*, session_token: str | None = None, **options: Any) -> Any:
    keys = ("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", session_token)
    usual = {"user": "orders-worker", "cache": "orders", "region": "eu-central-1"}
    now = datetime(2026, 11, 16, 9, 30, tzinfo=UTC)
    return names_of("aws_tokens.py")["AwsTokens"](lambda: keys, now=lambda: now, **usual, **options)


def google_tokens(token: str) -> Any:
    expiry = (datetime.now(UTC) + timedelta(hours=1)).replace(tzinfo=None)
    account = SimpleNamespace(refresh=lambda request: None, token=token, expiry=expiry)
    return names_of("google_tokens.py")["GoogleTokens"](account, None)


def azure_tokens(token: str) -> Any:
    expires_on = int(time.time()) + 3600
    identity = SimpleNamespace(get_token=lambda scope: SimpleNamespace(token=token, expires_on=expires_on))
    return names_of("azure_tokens.py")["AzureTokens"](identity, "0f8fad5b-d9cb-469f-a165-70867728950e")


def test_a_request_of_aws_is_signed_as_its_own_library_signs_it() -> None:
    assert aws_tokens().sign() == SIGNED
    assert aws_tokens(session_token="a/session+token=", serverless=True).sign().endswith(SIGNATURE_SERVERLESS)


@pytest.mark.parametrize(
    ("make", "lasts_s"),
    ((lambda: aws_tokens(), 12 * 3600), (lambda: google_tokens("ya29.x"), 3600), (lambda: azure_tokens("eyJ.x"), 3600)),
    ids=("aws", "google", "azure"),
)
async def test_a_queue_connects_with_the_token(make: Callable[[], Any], lasts_s: float) -> None:
    provider = make()
    user, token, left_s = provider.get_credentials()
    assert lasts_s - 60 < left_s <= lasts_s
    with RedisServer() as server:  # its user has the token as its password, as the user of the service has it
        server.execute("ACL", "SETUSER", user, "on", "resetpass", f">{token}", "~*", "&*", "+@all")
        async with Queue("orders", redis_url=server.url, credential_provider=provider) as queue:
            await queue.add("send")
            assert await queue.purge("waiting") == 1
