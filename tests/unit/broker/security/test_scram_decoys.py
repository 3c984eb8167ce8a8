"""No challenge tells whether a user exists: decoys look like real users, on every broker."""

import base64
import re
from collections import Counter

import immutables
import msgspec
import pytest

from quorate.broker.security import scram_decoys
from quorate.broker.security.credential_provider import CredentialProvider
from quorate.broker.security.sasl_exchange import (
    Challenge,
    DeferredVerification,
    SaslAuthenticationFailed,
)
from quorate.broker.security.scram import MECHANISMS, ScramSaslServer, credential, salted_password
from quorate.broker.security.scram_decoys import USUAL_KIND, CredentialKind, ScramDecoys, kind_of
from quorate.broker.security.token_secrets import TokenLogins
from quorate.client.results import ScramUpsertion
from quorate.metadata_log.image import Changes, DelegationTokenState, Image, ScramKey
from quorate.metadata_log.records import ScramCredential
from tests.support.followers import ShownImage
from tests.support.sasl import SHA_256, SHA_512, TokenClient, scram_client

KEY = bytes(range(32))
NAMES = [f"ghost-{number}" for number in range(400)]
COMMON = (8_192, bytes(range(100, 124)))
BY_KAFKAS_TOOLS = (4_096, b"1m4z8k0q3x9w5v7t2b6n1c8d0")


def users(*kinds: tuple[int, bytes], key: bytes = KEY, mechanism: int = 1) -> Image:
    """Return an image with one user of each of these iterations and salts."""
    found = {
        ScramKey(f"user-{number}", mechanism): ScramCredential(
            salt=salt, stored_key=bytes(32), server_key=bytes(32), iterations=iterations
        )
        for number, (iterations, salt) in enumerate(kinds)
    }
    return Image(scram=immutables.Map(found), scram_decoy_key=key)


def decoys(image: Image, process_key: bytes = b"process") -> ScramDecoys:
    return ScramDecoys(ShownImage(lambda: image), process_key)


def kinds(of: ScramDecoys, names: list[str] = NAMES) -> Counter[CredentialKind]:
    return Counter(kind_of(of.credential(name, SHA_256)) for name in names)


def test_decoys_are_the_same_on_every_broker_and_after_restarts() -> None:
    one, other = (decoys(users(COMMON), process) for process in (b"one", b"other"))
    for name in NAMES:
        assert one.credential(name, SHA_256) == other.credential(name, SHA_256)
    salts = {one.credential(name, how).salt for name in NAMES for how in (SHA_256, SHA_512)}
    assert len(salts) == 2 * len(NAMES)
    changed = decoys(users(COMMON, key=bytes(32)))
    assert changed.credential("ghost", SHA_256).salt != one.credential("ghost", SHA_256).salt


def test_the_mechanism_of_a_strangers_password_is_the_same_on_every_broker() -> None:
    image = users(COMMON, COMMON)
    stronger = users(COMMON, mechanism=SHA_512.number).scram
    mixed = msgspec.structs.replace(image, scram=image.scram.update(stronger))
    one, other = (decoys(mixed, process) for process in (b"one", b"other"))
    found = [one.password_mechanism(name) for name in NAMES]
    assert found == [other.password_mechanism(name) for name in NAMES]
    assert set(found) == {SHA_256, SHA_512}


def test_where_all_users_are_of_one_kind_all_decoys_are() -> None:
    found = kinds(decoys(users(COMMON, COMMON)))
    assert found == {CredentialKind(8_192, 24): len(NAMES)}


def test_without_users_decoys_are_what_the_own_tools_would_make() -> None:
    made = ScramUpsertion.of_password("anna", "SCRAM-SHA-256", "secret")
    assert CredentialKind(made.iterations, len(made.salt)) == USUAL_KIND
    assert set(kinds(decoys(Image()))) == {USUAL_KIND}


def test_each_kind_is_as_frequent_as_among_the_users() -> None:
    image = users(*[COMMON] * 30, *[BY_KAFKAS_TOOLS] * 10)
    found = kinds(decoys(image))
    texts = {kind: count for kind, count in found.items() if kind[0] == 4_096}
    assert 0.18 * len(NAMES) < sum(texts.values()) < 0.32 * len(NAMES)
    assert {salt_bytes for _, salt_bytes, _ in texts} == {25}
    for name in NAMES:
        made = decoys(image).credential(name, SHA_256)
        if made.iterations == 4_096:
            assert re.fullmatch(rb"[0-9a-z]{25}", made.salt)


def test_more_users_of_one_kind_move_decoys_to_that_kind_only() -> None:
    before = decoys(users(*[COMMON] * 10, *[BY_KAFKAS_TOOLS] * 10))
    after = decoys(users(*[COMMON] * 20, *[BY_KAFKAS_TOOLS] * 10))
    moved = 0
    for name in NAMES:
        first, then = before.credential(name, SHA_256), after.credential(name, SHA_256)
        if first != then:
            moved += 1
            assert (first.iterations, then.iterations) == (4_096, 8_192)
            assert first.salt != then.salt, "as if the user had a new password"
    assert 0 < moved < len(NAMES) // 3


def test_changes_are_counted_as_a_new_broker_counts_them() -> None:
    image = users(*[COMMON] * 3)
    shown = ShownImage(lambda: image)
    following = ScramDecoys(shown, b"process")
    following.credential("ghost", SHA_256)
    image = users(COMMON, BY_KAFKAS_TOOLS, BY_KAFKAS_TOOLS, BY_KAFKAS_TOOLS)
    assert kinds(following) == kinds(decoys(image))
    image = users()
    assert kinds(following) == kinds(decoys(image))


def test_users_of_other_iterations_change_the_salts_of_the_decoys_that_follow_them() -> None:
    """A user whose iterations change has another salt, too."""
    stronger = (16_384, COMMON[1])
    before, after = decoys(users(COMMON)), decoys(users(stronger))
    for name in NAMES[:20]:
        first, then = before.credential(name, SHA_256), after.credential(name, SHA_256)
        assert (first.iterations, then.iterations) == (8_192, 16_384)
        assert first.salt != then.salt


def test_a_change_of_one_user_is_counted_without_looking_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    image = users(*[COMMON] * 50)
    shown = ShownImage(lambda: image)
    following = ScramDecoys(shown, b"process")
    following.credential("ghost", SHA_256)
    looked_at: list[ScramCredential] = []

    def kind_noted(credential: ScramCredential) -> CredentialKind:
        looked_at.append(credential)
        return kind_of(credential)

    monkeypatch.setattr(scram_decoys, "kind_of", kind_noted)
    changed = ScramKey("user-7", 1)
    other = msgspec.structs.replace(image.scram[changed], iterations=4_096)
    image = msgspec.structs.replace(image, scram=image.scram.set(changed, other))
    following.on_image(image, Changes(scram=frozenset({changed})))
    assert set(kinds(following)) == {CredentialKind(8_192, 24), CredentialKind(4_096, 24)}
    assert looked_at == [other]


def provider(image: Image) -> CredentialProvider:
    images = ShownImage(lambda: image)
    return CredentialProvider(
        images,
        pepper=b"process",
        wall_clock_ms=lambda: 0,
        find_token=TokenLogins(images, lambda: (b"token key",)).find,
    )


def challenged(who: CredentialProvider, first: bytes, mechanism: str) -> tuple[int, int]:
    """Return the length of the salt and the iterations that the broker answers with."""
    exchange = ScramSaslServer(MECHANISMS[mechanism], who.scram, "nonce")
    step = exchange.step(first)
    assert isinstance(step, Challenge)
    fields = dict(one.split("=", 1) for one in step.response.decode().split(","))
    return len(base64.b64decode(fields["s"])), int(fields["i"])


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_stranger_gets_a_challenge_like_a_user(mechanism: str) -> None:
    how = MECHANISMS[mechanism]
    salted = salted_password(how, "secret", COMMON[1], 8_192)
    stored = {ScramKey("anna", how.number): credential(how, salted, COMMON[1], 8_192)}
    who = provider(Image(scram=immutables.Map(stored), scram_decoy_key=KEY))
    answers = {
        challenged(who, f"n,,n={name},r=abc".encode(), mechanism) for name in ("anna", *NAMES)
    }
    assert answers == {(24, 8_192)}


def test_a_proof_for_a_stranger_is_verified_and_fails_like_a_wrong_password() -> None:
    stranger = scram_client("ghost", "secret")
    who = provider(users(COMMON))
    login = who.scram("ghost", "SCRAM-SHA-256", False)
    assert [len(keys.stored_key) for keys in login.keys] == [32], "a proof is held against it"
    exchange = ScramSaslServer(SHA_256, who.scram, "nonce")
    step = exchange.step(stranger.first_message())
    assert isinstance(step, Challenge)
    stranger.process_server_first_message(step.response)
    with pytest.raises(SaslAuthenticationFailed, match="the proof does not fit"):
        exchange.step(stranger.final_message())


def test_a_token_that_is_not_there_is_answered_like_one_that_is() -> None:
    token = DelegationTokenState("User:anna", "User:anna", (), 0, 1_000, 1_000, 1)  # type: ignore[arg-type]
    there = msgspec.structs.replace(users(COMMON), tokens=immutables.Map({"token-1": token}))
    answers = []
    for image in (there, users(COMMON)):
        client = TokenClient("token-1", "wrong", "SCRAM-SHA-256")
        exchange = ScramSaslServer(SHA_256, provider(image).scram, "nonce")
        client.nonce = b"abc"
        step = exchange.step(client.first_message())
        assert isinstance(step, Challenge)
        client.process_server_first_message(step.response)
        answers.append(step.response.partition(b",")[2])
        last = exchange.step(client.final_message())
        assert isinstance(last, DeferredVerification), "both cost the same hashing"
        with pytest.raises(SaslAuthenticationFailed, match="the proof does not fit"):
            last.verify()
    assert answers[0] == answers[1]


def test_a_password_in_clear_is_hashed_for_a_stranger_as_for_a_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[tuple[str, int]] = []

    def fits(mechanism: object, stored: ScramCredential, _password: str) -> bool:
        hashed.append((mechanism.name, stored.iterations))  # type: ignore[attr-defined]
        return False

    monkeypatch.setattr("quorate.broker.security.plain_passwords.password_fits", fits)
    who = provider(users(COMMON, COMMON))
    for name in ("user-0", "ghost", "another"):
        assert who.password(name, "wrong") is None
    assert set(hashed) == {("SCRAM-SHA-256", 8_192)}
