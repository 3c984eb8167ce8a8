"""A browser without a screen: asks for pages of a console, reads their forms and sends them."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

TIMEOUT_S: Final = 20.0


class Answer(NamedTuple):
    """One answer of a console."""

    status: int
    text: str
    headers: Mapping[str, str]


@dataclass
class Element:
    """An element of a page, with the text in it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Document(HTMLParser):
    """The elements of a page, in their order."""

    markup: str
    elements: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.elements:
            self.elements[-1].text += data

    def of(self, tag: str) -> Iterator[Element]:
        """Yield the elements of a kind."""
        return (one for one in self.elements if one.tag == tag)

    @property
    def token(self) -> str:
        """The token of the first form that changes something; empty if there is none."""
        found = (
            one.attributes["value"]
            for one in self.of("input")
            if one.attributes.get("name") == "token"
        )
        return next(found, "")

    @property
    def links(self) -> set[str]:
        """The pages that this one leads to."""
        return {one.attributes["href"] for one in self.of("a") if "href" in one.attributes}


class Browser:
    """Asks one console, as one user or as nobody."""

    def __init__(self, url: str, user: str = "", password: str = "") -> None:
        self.host = urlsplit(url).netloc
        self._login = base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""

    def get(self, path: str, **headers: str) -> Answer:
        """Return a page."""
        return self._ask("GET", path, None, headers)

    def page(self, path: str) -> Document:
        """Return a page that must be there."""
        answer = self.get(path)
        assert answer.status == 200, (path, answer.status, answer.text)
        return Document(answer.text)

    def send(self, action: str, **fields: object) -> Answer:
        """Send a form with the token of a page."""
        return self.forge(action, self.page("/topics").token, {}, **fields)

    def forge(
        self, action: str, given_token: str, sent_with: Mapping[str, str], **fields: object
    ) -> Answer:
        """Send a form with any token and any headers."""
        body = urlencode({"token": given_token, **fields})
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._ask("POST", f"/actions/{action}", body, {**kind, **sent_with})

    def _ask(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Answer:
        connection = HTTPConnection(self.host, timeout=TIMEOUT_S)
        login = {"Authorization": f"Basic {self._login}"} if self._login else {}
        try:
            connection.request(method, path, body, {**login, **headers})
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode(), dict(answer.getheaders()))
        finally:
            connection.close()
