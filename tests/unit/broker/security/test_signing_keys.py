"""Keys of tokens are fetched again, and the earlier ones stay while that fails."""

from pathlib import Path

import pytest

from quorate.broker.security import signing_keys
from quorate.broker.security.signing_keys import (
    RETRY_MIN_S,
    UNKNOWN_KEY_REFRESH_S,
    KeysUnavailable,
    SigningKeySource,
    fetched,
)
from tests.support.at_once import AtOnce
from tests.support.identity_provider import (
    EC_KEY,
    RSA_KEY,
    identity_provider,
    key_set,
    public,
)
from tests.support.virtual_time import pass_time

OLD, NEW = key_set(public(RSA_KEY, "old")), key_set(public(EC_KEY, "new"))


class Endpoint:
    """What is at the URL: bytes, or why there are none."""

    def __init__(self, content: bytes | OSError) -> None:
        self.content = content
        self.fetches = 0

    def __call__(self, _url: str) -> bytes:
        self.fetches += 1
        if isinstance(self.content, OSError):
            raise self.content
        return self.content


def source(endpoint: Endpoint, url: str = "https://issuer.example/keys") -> SigningKeySource:
    return SigningKeySource(url, 3_600.0, endpoint, AtOnce())


async def test_kip_768_keys_are_fetched_again_and_replaced() -> None:
    endpoint = Endpoint(OLD)
    keys = source(endpoint)
    await keys.start()
    assert keys.find("old")
    endpoint.content = NEW
    await pass_time(3_601)
    assert (keys.find("old"), bool(keys.find("new")), endpoint.fetches) == (None, True, 2)
    await keys.stop()


@pytest.mark.parametrize("trouble", [OSError("away"), b"<html>"])
async def test_kip_768_earlier_keys_stay_while_there_are_no_new_ones(
    trouble: bytes | OSError, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint = Endpoint(OLD)
    keys = source(endpoint)
    await keys.start()
    endpoint.content = trouble
    await pass_time(3_601)
    assert keys.find("old")
    assert "keys of tokens cannot be fetched, and 1 earlier keys stay in use" in caplog.text
    endpoint.content = NEW
    await pass_time(RETRY_MIN_S + 0.1)
    assert keys.find("new")
    await keys.stop()


async def test_kip_768_a_broker_starts_while_the_endpoint_is_away() -> None:
    endpoint = Endpoint(OSError("away"))
    keys = source(endpoint)
    await keys.start()
    assert keys.find(None) is None
    endpoint.content = OLD
    await pass_time(RETRY_MIN_S + 0.1)
    assert keys.find(None)
    await keys.stop()


async def test_kip_768_a_broker_does_not_start_without_its_file() -> None:
    keys = source(Endpoint(FileNotFoundError("no such file")), "file:///nowhere")
    with pytest.raises(KeysUnavailable, match="file:///nowhere: no such file"):
        await keys.start()
    await keys.stop()


async def test_kip_768_unknown_keys_are_looked_for_soon_but_not_often() -> None:
    endpoint = Endpoint(OLD)
    keys = source(endpoint)
    await keys.start()
    endpoint.content = NEW
    for _ in range(100):
        keys.find("new")
        await pass_time(UNKNOWN_KEY_REFRESH_S / 100)
    await pass_time(0.1)
    assert keys.find("new")
    for _ in range(1_000):
        keys.find("made up")
        await pass_time(UNKNOWN_KEY_REFRESH_S / 100)
    assert endpoint.fetches <= 12
    await keys.stop()


def test_rfc_7517_a_key_without_an_id_fits_tokens_without_one_only_if_it_is_alone() -> None:
    keys = source(Endpoint(OLD))
    keys._keys = signing_keys.keys_in(OLD)
    assert keys.find(None)
    keys._keys = signing_keys.keys_in(key_set(public(RSA_KEY, "a"), public(EC_KEY, "b")))
    assert keys.find(None) is None


def test_kip_768_what_is_fetched_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(OLD)
    assert fetched(path.as_uri()) == OLD
    monkeypatch.setattr(signing_keys, "JWKS_BYTES_MAX", len(OLD) - 1)
    with pytest.raises(ValueError, match="it is larger than"):
        fetched(path.as_uri())
    with identity_provider() as provider:
        with pytest.raises(ValueError, match="it is larger than"):
            fetched(provider.url)
        provider.is_away = True
        with pytest.raises(OSError, match="503"):
            fetched(provider.url)
