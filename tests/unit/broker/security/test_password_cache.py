"""A password that was right costs no hashing again, until the user's credentials change."""

import pytest

from quorate.broker.security import password_cache
from quorate.broker.security.password_cache import PasswordCache
from quorate.broker.security.principal import KafkaPrincipal
from quorate.metadata_log.image import Image
from tests.support.followers import ShownImage
from tests.support.sasl import image_with_users

ANNA = KafkaPrincipal("anna")


class Users:
    """A broker's users, and the passwords that it has hashed."""

    def __init__(self) -> None:
        self.image: Image = image_with_users(anna="right")
        self.password = "right"
        self.hashed: list[str] = []
        self.cache = PasswordCache(ShownImage(lambda: self.image), self.verify, b"key")

    def verify(self, user: str, password: str) -> KafkaPrincipal | None:
        self.hashed.append(password)
        return KafkaPrincipal(user) if password == self.password else None

    def log_in(self, password: str, user: str = "anna") -> KafkaPrincipal | None:
        return self.cache.find(user, password) or self.cache.verification(user, password)()


def test_a_right_password_is_hashed_once_and_a_wrong_one_each_time() -> None:
    users = Users()
    assert [users.log_in("right") for _ in range(3)] == [ANNA] * 3
    assert users.hashed == ["right"]
    assert [users.log_in("wrong") for _ in range(2)] == [None] * 2
    assert users.hashed == ["right", "wrong", "wrong"]
    assert users.log_in("right") == ANNA
    assert users.hashed == ["right", "wrong", "wrong"], "wrong ones end nobody's entry"


def test_a_changed_or_deleted_credential_ends_the_entry_and_another_users_does_not() -> None:
    users = Users()
    users.log_in("right")
    others = image_with_users(berta="other").scram
    users.image = Image(scram=users.image.scram.update(others))
    assert users.cache.find("anna", "right") == ANNA
    users.image = image_with_users(anna="another")
    users.password = "another"
    assert users.log_in("right") is None
    users = Users()
    users.log_in("right")
    users.image = Image()
    assert users.cache.find("anna", "right") is None


def test_a_password_is_of_its_user_only() -> None:
    users = Users()
    users.log_in("right")
    assert users.cache.find("annar", "ight") is None
    assert users.cache.find("berta", "right") is None


def test_what_changed_while_it_was_hashed_is_not_believed() -> None:
    users = Users()
    verification = users.cache.verification("anna", "right")

    def changed(user: str, _password: str) -> KafkaPrincipal:
        users.image = image_with_users(anna="another")
        return KafkaPrincipal(user)

    users.cache._verify = changed
    assert verification() == ANNA
    assert users.cache.find("anna", "right") is None


def test_passwords_are_not_kept_and_their_number_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(password_cache, "CACHED_USERS_MAX", 2)
    users = Users()
    for name in ("a", "b", "c"):
        users.log_in("right", name)
    assert list(users.cache._verified) == ["b", "c"]
    assert "right" not in repr(users.cache._verified)
