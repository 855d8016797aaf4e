"""Who is let in: hosts, tokens, and the headers of every answer."""

from __future__ import annotations

import hmac

import pytest

from medusa.apps.dashboard import guard
from medusa.apps.dashboard.guard import HEADERS, RequestGuard, host_of, is_allowed
from medusa.apps.dashboard.hub import Hub
from medusa.apps.dashboard.server import application
from tests.apps.dashboard.asked import ask

TOKEN = "a-very-secret-token"
PATHS = ("/", "/dashboard.js", "/dashboard.css", "/icon.svg")


def guarded(*, token: str = "", loopback: bool = True, names: tuple[str, ...] = ()) -> RequestGuard:
    return RequestGuard(application(Hub()), loopback=loopback, names=names, token=token, cookie="medusa-8080")


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8080", "localhost"),
        ("localhost.:80", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("[::1", ""),
        ("a:b:c", ""),
        ("a:80@evil", ""),
        ("", ""),
    ],
)
def test_the_host_in_a_header(header: str, host: str) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("header", "loopback", "allowed"),
    [
        ("localhost:8080", True, True),
        ("127.0.0.1:9999", True, True),
        ("[::1]:8080", True, True),
        ("mine.example:8080", True, True),
        ("evil.example", True, False),
        ("localhost.evil.example", True, False),
        ("127.0.0.1.evil.example", True, False),
        ("192.0.2.1:8080", True, False),
        ("", True, False),
        ("192.0.2.1:8080", False, True),
        ("[2001:db8::1]:8080", False, True),
        ("evil.example:8080", False, False),
        ("mine.example", False, True),
        ("2130706433", False, False),
        ("0x7f.1", False, False),
    ],
)
def test_hosts_that_may_be_named(header: str, loopback: bool, allowed: bool) -> None:
    assert is_allowed(header, loopback=loopback, names={"mine.example"}) is allowed


def test_another_host_gets_nothing() -> None:
    app = guarded()
    for path in (*PATHS, "/events", "/nothing"):
        answer = ask(app, path, host="evil.example")
        assert answer.status == 403
        assert b"svg" not in answer.body
    assert ask(app, host=None).status == 403
    assert ask(guarded(names=("Mine.example",)), host="mine.EXAMPLE").status == 200


def test_every_answer_has_the_headers_that_keep_others_out() -> None:
    app = guarded(token=TOKEN)
    known = {"authorization": f"Bearer {TOKEN}"}
    answers = [ask(app, path, **known) for path in (*PATHS, "/nothing")]
    answers += [ask(app), ask(app, host="evil.example"), ask(app, f"/?token={TOKEN}")]
    assert [each.status for each in answers] == [200] * 4 + [404, 401, 403, 303]
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.header(name) == value
        assert answer.header("cache-control")
    policy = HEADERS["Content-Security-Policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy


def test_only_reading_is_answered() -> None:
    assert ask(guarded(), "/", method="POST").status == 405
    assert ask(guarded(), "/events", method="POST").status == 405


def test_with_a_token_only_who_has_it_sees_anything() -> None:
    app = guarded(token=TOKEN, loopback=False)
    for path in (
        *PATHS,
        "/events",
        f"/dashboard.js?token={TOKEN}",
        "/?token=",
        "/?token=wrong",
        "/?token=%FF",
    ):
        assert ask(app, path).status == 401
    for path in PATHS:
        assert ask(app, path, authorization=f"Bearer {TOKEN}").status == 200
        assert ask(app, path, cookie=f"medusa-8080={TOKEN}; other=1").status == 200
        assert ask(app, path, cookie=f"medusa-8081={TOKEN}").status == 401
        assert ask(app, path, cookie="medusa-8080").status == 401
        assert ask(app, path, cookie="\x00=;;;\xff").status == 401
        for wrong in ("Bearer", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9", "Bearer " + "x" * 5000):
            assert ask(app, path, authorization=wrong).status == 401


def test_the_url_with_the_token_sets_a_cookie_and_leaves_the_address() -> None:
    app = guarded(token=TOKEN)
    answer = ask(app, f"/?token={TOKEN}")
    assert (answer.status, answer.header("location")) == (303, "/")
    cookie = answer.header("set-cookie")
    assert cookie.startswith(f"medusa-8080={TOKEN}; ")
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert ask(app, "/", cookie=cookie.partition(";")[0]).status == 200


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def counted(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return compare(one, other)

    compare = hmac.compare_digest
    monkeypatch.setattr(guard.hmac, "compare_digest", counted)
    assert ask(guarded(token=TOKEN), "/", authorization="Bearer wrong").status == 401
    assert (b"wrong", TOKEN.encode()) in compared


def test_the_page_names_only_what_it_brings_along() -> None:
    page = ask(guarded()).body.decode()
    assert "http:" not in page
    assert "https:" not in page
    assert " style=" not in page
    assert "<script>" not in page
    kinds = [ask(guarded(), path).header("content-type").partition(";")[0] for path in PATHS]
    assert kinds == ["text/html", "text/javascript", "text/css", "image/svg+xml"]
    assert b"innerHTML" not in ask(guarded(), "/dashboard.js").body
