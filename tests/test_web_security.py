"""The web face lets in whom it should, shows what they may see, runs nothing of what it shows, and stays up."""

import io
import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from lakes import CALL, CALL_BYTES, CHAT, SAID, SCREEN, SHOWN, parts_of, small_lake
from sample_rows import append, rows
from server import Served, serving
from waiting import let_pass, wait_until

from headwater import lake as lakes
from headwater.domain.tables import EVENTS, TRANSCRIPTS
from headwater.web.guard import without_tokens

NOBODYS = "images/globex/2026-03-01/nothing.png"
SCRIPT = "<script>alert(1)</script>"
NASTY = f"\"'>{SCRIPT}<img src=x onerror=alert(2)>{{{{7*7}}}}=cmd|' /C calc'!A0\x1b[31m\u202eend"
EVIL = "audio/acme/2026-03-01/evil%27%22%3E%3Cscript%3Ealert%283%29%3C%2Fscript%3E.wav"
THREAD = "order <b onclick=alert(4)>&7"
THEIRS = "what globex told nobody"


def hostile_lake(directory: Path) -> Path:
    """The small lake, with a call of which everything that a sender chooses is an attack; and a thread of globex's."""
    small_lake(directory)
    with lakes.open(directory) as lake:
        parts = parts_of(lake)
        pointer = parts.raw_store.put_bytes(EVIL, b"<html>" + SCRIPT.encode(), "text/html").to_dict()
        about = {"customer": "acme", "modality": "audio", "event_id": NASTY, "object_id": EVIL, "pointer": pointer}
        meta = json.dumps({NASTY: NASTY, "keys": "x", "items": SCRIPT})
        events = [
            {**about, "thread": THREAD, "meta": meta},
            {"customer": "globex", "modality": "chat", "event_id": "g1", "object_id": "chat/globex/g1",
             "text": THEIRS, "thread": "theirs"},
        ]  # fmt: skip
        append(parts.catalog.load_table(EVENTS.name), rows(EVENTS, events, 100), EVENTS.day)
        heard = {**about, "step": "transcribe", "model": NASTY, "fingerprint": "transcribe-print", "text": NASTY}
        append(parts.catalog.load_table(TRANSCRIPTS.name), rows(TRANSCRIPTS, [heard], 100), TRANSCRIPTS.day)
        lake.label(EVIL, {NASTY[:60]: NASTY}, by=NASTY)
        lake.label(SCREEN, {"mood": "theirs"}, by="globex")
    return directory


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    lake = hostile_lake(tmp_path_factory.mktemp("web") / "lake")
    with serving(lake, HEADWATER_SERVE_UPLOAD_MB="400") as running:
        yield running


@pytest.fixture(scope="module")
def admin(served: Served) -> Iterator[httpx.Client]:
    with served.client(served.token) as client:
        yield client


@pytest.fixture(scope="module")
def acme(served: Served) -> Iterator[httpx.Client]:
    """A writer that sees acme alone."""
    with served.client(served.make_token("writer", customers=["acme"])["token"]) as client:
        yield client


def audited(served: Served, action: str) -> list[dict[str, Any]]:
    """Its lines; they are written after the answer."""
    return wait_until(lambda: [row for row in served.audit() if row["action"] == action], seconds=20)


# Who comes in


def test_nobody_and_bad_tokens_are_refused_at_every_endpoint(served: Served) -> None:
    expired = served.make_token(days=1e-9)["token"]
    revoked = served.make_token()
    with lakes.open(served.directory) as lake:
        lake.access.revoke(revoked["id"])
    good = served.token
    bad = [None, "wrong", "hw_00000000_AAAA", expired, revoked["token"], good[:-1], good + "x", "hw__", "ü" * 300]
    places = ["/", "/search?q=refund", f"/object/{CALL}", f"/media/{CALL}", "/api/v1/objects", "/live", "/openapi.json"]
    for token in bad:
        with served.client() as client:
            for place in places:
                headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
                answer = client.get(place, headers=headers)
                assert answer.status_code in {401, 429}, (token, place)
                assert SAID[:10] not in answer.text
    assert next(row["status"] for row in audited(served, f"GET /object/{CALL}")) == 401


def test_a_flood_of_wrong_tokens_is_slowed_and_keeps_no_right_one_out(served: Served, admin: httpx.Client) -> None:
    with served.client("hw_00000000_AAAA") as client:
        answers = [client.get("/api/v1/objects").status_code for _ in range(100)]
    assert set(answers) == {401, 429} and answers[-1] == 429
    assert admin.get("/api/v1/objects").status_code == 200


def test_a_revoked_token_lets_nobody_in_from_the_next_call_on(served: Served, admin: httpx.Client) -> None:
    made = served.make_token()
    with served.client(made["token"]) as client:
        assert client.get("/api/v1/objects").status_code == 200
        assert admin.delete(f"/api/v1/tokens/{made['id']}").status_code == 200
        assert client.get("/api/v1/objects").status_code in {401, 429}


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8472", "", "127.0.0.1.evil.example", "[::", "a b"])
def test_a_wrong_host_is_refused(served: Served, admin: httpx.Client, host: str) -> None:
    assert admin.get("/api/v1/objects", headers={"Host": host}).status_code in {400, 403}


def test_what_changes_something_by_cookie_must_come_from_a_page_of_ours(served: Served) -> None:
    body = {"labels": {"seen": "yes"}}
    for headers in [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "null", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://127.0.0.1:1"},
        {},
    ]:
        with httpx.Client(base_url=served.address, cookies={"headwater_token": served.token}) as client:
            answer = client.post(f"/api/v1/labels/{CHAT}", json=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "CrossSite"), headers
    with served.browser(served.token) as ours:
        assert ours.post(f"/api/v1/labels/{CHAT}", json=body).status_code == 200
    labelled = f"POST /api/v1/labels/{CHAT}"
    wait_until(lambda: {row["status"] for row in audited(served, labelled)} == {200, 403}, seconds=20)


def test_the_link_leaves_a_cookie_that_scripts_and_other_sites_do_not_get(served: Served) -> None:
    answer = served.client().get(served.link)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "secure" not in cookie
    behind = served.client().get(served.link, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in behind.headers["set-cookie"].lower()
    assert answer.headers["referrer-policy"] == "no-referrer" and served.token not in answer.headers["location"]


def test_no_token_is_in_logs_or_the_audit(served: Served, admin: httpx.Client) -> None:
    made = served.make_token()
    secret = made["token"].rpartition("_")[2]
    with served.client() as client:
        for place in ["/?token=", "/?%74oken=", "/search?q=", "/nothing/"]:
            client.get(place + made["token"])
            client.get(place + made["token"] + "x")
    admin.delete(f"/api/v1/tokens/{made['token']}")
    admin.delete(f"/api/v1/tokens/{made['token'].replace('_', '%5F')}")
    wait_until(lambda: any(made["id"] in row["action"] for row in served.audit()), seconds=20)
    assert secret not in json.dumps(served.audit())
    files = [file for place in ("logs", ".") for file in (served.directory / place).glob("*") if file.is_file()]
    assert all(secret.encode() not in file.read_bytes() for file in files)
    assert without_tokens("?%74oken=abc&q=1") == "?token=…&q=1"


def test_a_token_that_calls_too_often_is_told_to_wait(tmp_path: Path) -> None:
    with serving(small_lake(tmp_path / "lake"), HEADWATER_SERVE_CALLS_PER_MINUTE="5") as few:
        with few.client(few.token) as client:
            answers = [client.get("/api/v1/customers") for _ in range(8)]
        assert [answer.status_code for answer in answers[:5]] == [200] * 5
        assert answers[-1].status_code == 429 and answers[-1].headers["retry-after"]
        with few.client(few.make_token()["token"]) as other:
            assert other.get("/api/v1/customers").status_code == 200


# Another customer's things


GLOBEX_WORDS = ("globex", "bad gateway", THEIRS)
OF_GLOBEX = [
    f"/object/{SCREEN}", f"/media/{SCREEN}", "/object/chat/globex/g1", "/media/chat/globex/g1", "/object/e2",
    "/thread/theirs", "/api/v1/threads/theirs", f"/api/v1/objects/{SCREEN}", f"/api/v1/trace/{SCREEN}",
    f"/api/v1/trace/{'d' * 24}", "/api/v1/trace/e2", f"/api/v1/trace/{SCREEN}%23probe.probe-print",
    f"/api/v1/objects/s3://bucket/{SCREEN}",
]  # fmt: skip


@pytest.mark.parametrize("place", OF_GLOBEX)
def test_another_customers_thing_is_as_if_it_were_not_there(served: Served, acme: httpx.Client, place: str) -> None:
    for query in ("", "?customer=globex", "?customer="):
        answer = acme.get(place + query)
        assert answer.status_code == 404
        told = answer.text.replace(place, "")
        assert SHOWN not in told and THEIRS not in told
    mark = re.escape(place.rpartition("/")[2].split("%")[0])
    assert any(re.search(mark, row["action"]) and row["status"] == 404 for row in audited_like(served, mark))


def audited_like(served: Served, mark: str) -> list[dict[str, Any]]:
    return wait_until(lambda: [row for row in served.audit() if re.search(mark, row["action"])], seconds=20)


def test_it_is_told_in_the_words_for_what_nobody_has(acme: httpx.Client) -> None:
    for form in ("/api/v1/objects/{}", "/api/v1/trace/{}", "/media/{}"):
        theirs, nobodys = acme.get(form.format(SCREEN)), acme.get(form.format(NOBODYS))
        assert theirs.text.replace(SCREEN, "X") == nobodys.text.replace(NOBODYS, "X")
        assert theirs.headers.keys() == nobodys.headers.keys()


@pytest.mark.parametrize("form", ["/api/v1/objects/{}", "/media/{}"])
def test_it_takes_no_other_time_than_what_nobody_has(acme: httpx.Client, form: str) -> None:
    def seconds(name: str) -> float:
        begun = time.perf_counter()
        acme.get(form.format(name))
        return time.perf_counter() - begun

    seconds(SCREEN), seconds(NOBODYS)
    pairs = [(seconds(SCREEN), seconds(NOBODYS)) for _ in range(15)]
    theirs, nobodys = (sorted(column)[:8] for column in zip(*pairs, strict=True))  # the quicker half: the least noise
    assert 0.6 < statistics.mean(theirs) / statistics.mean(nobodys) < 1.7


def test_no_endpoint_and_no_page_tells_a_word_of_another_customer(admin: httpx.Client, acme: httpx.Client) -> None:
    """Whatever the API has: each path of its description, with what is globex's in every parameter."""
    described = admin.get("/openapi.json").json()["paths"]
    tried = 0
    for path, methods in described.items():
        for method, about in methods.items():
            names = re.findall(r"{(\w+)}", path)
            for value in (SCREEN, "e2", "theirs", "events", "1", "caption"):
                place = path.format(**dict.fromkeys(names, value))
                query = {each["name"]: "bad gateway" for each in about.get("parameters", ()) if each["in"] == "query"}
                query = {"q": "bad gateway"} if "q" in query else {}
                answer = acme.request(method.upper(), place, params=query, json={} if method == "post" else None)
                told = answer.text.replace(place, "").replace(SCREEN, "")
                assert not [word for word in GLOBEX_WORDS if word in told], (method, place, told[:300])
                tried += 1
    assert tried > 50
    for page in ("/", "/search", "/search?q=bad+gateway", "/put", "/runs", "/tables", "/models", "/quarantine"):
        for accept in ("text/html", "application/json"):
            told = acme.get(page, headers={"Accept": accept}).text
            assert not [word for word in ("globex", THEIRS, SHOWN) if word in told], page


def test_asking_for_another_customer_by_name_is_asking_for_nothing(acme: httpx.Client) -> None:
    for place in ("/api/v1/search?q=page&customer=", "/api/v1/objects?customer=", "/search?customer="):
        assert acme.get(place + "globex").status_code == acme.get(place + "nobody").status_code == 404
    assert [hit["customer"] for hit in acme.get("/api/v1/search?q=bad+gateway").json()["hits"]].count("globex") == 0
    assert acme.get("/api/v1/search?q=error&where=mood=theirs").json()["hits"] == []
    assert acme.get("/api/v1/search?q=error&thread=theirs").json()["hits"] == []


def test_nothing_of_another_customer_is_changed(served: Served, acme: httpx.Client) -> None:
    assert acme.post(f"/api/v1/labels/{SCREEN}", json={"labels": {"mine": "now"}}).status_code == 404
    assert acme.post("/api/v1/objects", data={"customer": "globex", "text": "hello"}).status_code == 404
    with lakes.open(served.directory) as lake:
        assert [label["key"] for label in lake.view(SCREEN)["labels"]] == ["mood"]


def test_two_customers_at_once_each_see_their_own(served: Served) -> None:
    tokens = {name: served.make_token(customers=[name])["token"] for name in ("acme", "globex")}

    def ask(name: str) -> set[str]:
        with served.client(tokens[name]) as client:
            found = [client.get("/api/v1/search?q=refund+page").json()["hits"] for _ in range(6)]
            found += [client.get("/api/v1/objects").json()["objects"] for _ in range(6)]
        return {row["customer"] for page in found for row in page}

    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(ask, ["acme", "globex"] * 4))
    assert seen == [{"acme"}, {"globex"}] * 4


def test_a_role_does_what_it_may_and_no_more(served: Served, admin: httpx.Client) -> None:
    with served.client(served.make_token("reader")["token"]) as reader:
        for method, place, body in [
            ("POST", "/api/v1/runs", None), ("POST", f"/api/v1/labels/{CALL}", {"labels": {"a": "b"}}),
            ("POST", "/api/v1/plans", {"kind": "maintain"}), ("POST", "/api/v1/tokens", {"role": "admin"}),
            ("POST", "/api/v1/models/transcribe/active", {"model": "x"}), ("GET", "/api/v1/audit", None),
            ("GET", "/api/v1/tokens", None), ("DELETE", "/api/v1/tokens/x", None), ("GET", "/audit", None),
            ("GET", "/put", None), ("POST", "/api/v1/quarantine/dismissals", {"ids": ["e3"], "because": "x"}),
        ]:  # fmt: skip
            assert reader.request(method, place, json=body).status_code == 404, place


# What is shown does not run


@pytest.mark.parametrize(
    "place", ["/", "/search", "/search?q=alert", f"/object/{EVIL.replace('%', '%25')}", "/thread/" + THREAD, "/models",
              "/tables?table=transcripts", "/tables?table=events", "/quarantine", "/runs", "/audit", "/put", "/docs",
              f"/search?q={SCRIPT}&customer={SCRIPT}&modality={SCRIPT}", f"/nothing/{SCRIPT}", f"/object/{SCRIPT}",
              f"/tables?sql=select+'{SCRIPT}'+as+\"{SCRIPT}\"", f"/models?step={SCRIPT}&one=a&other=b",
              f"/quarantine?reason={SCRIPT}", f"/?span={SCRIPT}", f"/object/{CALL}?t={SCRIPT}",
              f"/object/{CALL}?t={'9' * 5_000}"],
)  # fmt: skip
def test_nothing_of_what_senders_chose_is_markup(served: Served, admin: httpx.Client, place: str) -> None:
    admin.get(f"/nothing/{SCRIPT}")  # a line of the audit that is an attack
    with served.browser(served.token) as browser:
        answer = browser.get(place)
    assert answer.status_code in {200, 400, 404}, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>alert" not in answer.text and "<img src=x" not in answer.text and "<b onclick" not in answer.text
    assert "{{7*7}}" not in answer.text.replace("{{7*7}}=cmd", "") and "49=cmd" not in answer.text
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy and "default-src 'none'" in policy
    inline = re.findall(r"<script(?![^>]*\bsrc=)[^>]*>|\son\w+=[\"']|\sstyle=[\"']|javascript:", answer.text)
    assert [found for found in inline if "onerror" not in found and "onclick" not in found] == []


def test_answers_of_every_kind_say_what_may_be_made_of_them(served: Served, admin: httpx.Client) -> None:
    places = ["/", "/login", "/static/headwater.js", "/api/v1/objects", f"/media/{CALL}", "/nothing", "/healthz",
              "/api/v1/objects/nothing", "/static/nothing", "/llms.txt"]  # fmt: skip
    for answer in [admin.get(place) for place in places] + [served.client().get("/api/v1/objects")]:
        assert answer.headers["x-content-type-options"] == "nosniff", answer.url
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer" and answer.headers["x-frame-options"] == "DENY"
        assert "server" not in answer.headers


def test_a_fault_of_ours_has_the_headers_too_and_tells_a_customer_nothing(served: Served) -> None:
    """By a database that is no database: nobody foresaw that."""
    broken = hostile_lake(served.directory.parent / "broken")
    with serving(broken) as running:
        token = running.make_token(customers=["acme"])["token"]
        with running.client(token) as client:
            assert client.get("/api/v1/objects").status_code == 200
            for file in broken.glob("catalog.db*"):
                file.write_bytes(b"not a database" * 100)
            answer = client.get(f"/api/v1/objects/{CALL}")
        assert answer.status_code >= 500 and answer.json()["error"]["message"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "Traceback" not in answer.text


PAGE_AS_PICTURE = b"\x89PNG\r\n\x1a\n<html><script>alert(1)</script></html>"


def test_what_was_uploaded_as_something_else_never_comes_back_as_a_page(admin: httpx.Client, served: Served) -> None:
    for name, claimed in [("a.png", "text/html"), ("b.html", "text/html"), ("c.svg", "image/svg+xml"),
                          ("d.txt", "text/html"), ("e.wav", "application/xhtml+xml")]:  # fmt: skip
        files = {"files": (name, PAGE_AS_PICTURE + name.encode(), claimed)}
        result = admin.post("/api/v1/objects", data={"customer": "poly"}, files=files).json()["results"][0]
        if result["path"] is None:
            assert result["error"]["message"]
    for place in (EVIL, CHAT, CALL):
        answer = admin.get(f"/media/{place.replace('%', '%25')}")
        kind = answer.headers["content-type"]
        assert "html" not in kind and "svg" not in kind and "xml" not in kind
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "sandbox" in answer.headers["content-security-policy"]
        if not kind.startswith(("audio/", "video/", "image/")):
            assert answer.headers["content-disposition"].startswith("attachment;")


# Places that are none


CLIMBS = ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/ledger.db", "....//....//ledger.db",
          "/etc/passwd", "%2fetc%2fpasswd", "audio/acme/../../../ledger.db", "audio/acme/2026-03-01/../../../ledger.db",
          "file:///etc/passwd", "..\\..\\ledger.db", "%00", "audio/%00/x", "headwater.toml", "a" * 5_000,
          "%ff%fe", "%ed%a0%80", "C:%5cwindows", "s3://x/audio/acme/2026-03-01/..%2f..%2fledger.db"]  # fmt: skip


@pytest.mark.parametrize("climb", CLIMBS)
def test_no_parameter_leads_out_of_the_lake(served: Served, climb: str) -> None:
    """By a socket: clients tidy paths up before they send them."""
    forms = ["/media/{}", "/object/{}", "/api/v1/objects/{}", "/api/v1/trace/{}", "/thread/{}", "/api/v1/threads/{}",
             "/static/{}", "/tables?table={}", "/api/v1/tables/{}", "/{}", "/api/v1/objects/x?as_of={}",
             "/quarantine?reason={}"]  # fmt: skip
    for form in forms:
        status, body = raw_get(served, form.format(climb.replace("\\", "%5c")))
        assert status in {200, 400, 404, 405, 409}, (form, status, body[:300])
        assert b"root:" not in body and b"SQLite format" not in body and b"[raw]" not in body
        if form.startswith(("/media", "/api/v1/objects", "/api/v1/trace", "/static")):
            assert status != 200, form


def raw_get(served: Served, path: str) -> tuple[int, bytes]:
    host, _, port = served.host.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as line:
        asked = f"GET {path} HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
        line.sendall((asked + "Connection: close\r\n\r\n").encode())
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
    return int(answer.split(b" ", 2)[1]), answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    "name", ["../../../evil.png", "..\\..\\evil.png", "/etc/cron.d/evil.png", "..", ".", "a/../../evil.png", "x" * 250,
             "ü" * 200 + ".png", "*.png", "[a].png", "a\x00b.png", "evil\r\nX: y.png", "~root.png", "-rf.png",
             "con<script>.png", "\u202egnp.evil.png", "{a}.png", "a?b.png", "a#b%2fc.png"],
)  # fmt: skip
def test_an_uploads_name_chooses_no_place(served: Served, admin: httpx.Client, name: str) -> None:
    before = {file for file in served.directory.parent.rglob("*") if "lake/" not in str(file)}
    files = {"files": (name, b"\x89PNG\r\n\x1a\n" + name.encode("utf-8", "replace"), "image/png")}
    answer = admin.post("/api/v1/objects", data={"customer": "names"}, files=files)
    assert answer.status_code in {201, 400}, answer.text
    for result in answer.json().get("results", ()):
        assert result["path"] is None or re.fullmatch(r"images/names/[\d-]{10}/[^/]+", result["path"]), result
        assert result["path"] or result["error"]["message"]
    assert {file for file in served.directory.parent.rglob("*") if "lake/" not in str(file)} == before


@pytest.mark.parametrize("customer", ["../acme", "a/b", "..", "", "x" * 300, "a\x00b", SCRIPT])
def test_a_customers_name_chooses_no_place(admin: httpx.Client, customer: str) -> None:
    answer = admin.post("/api/v1/objects", data={"customer": customer, "text": "hello"})
    assert answer.status_code in {201, 400}, answer.text
    path = answer.json()["results"][0]["path"] if answer.status_code == 201 else None
    assert path is None or re.fullmatch(r"chat/[^/]+/[^/]+", path)


# Stretches of bytes


SIZE = len(CALL_BYTES)


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        ("bytes=0-3", 206, CALL_BYTES[:4]), ("bytes=5-", 206, CALL_BYTES[5:]), ("bytes=-4", 206, CALL_BYTES[-4:]),
        ("bytes=0-999999999999", 206, CALL_BYTES), ("bytes=-999999999999", 206, CALL_BYTES),
        (f"bytes={SIZE}-", 416, b""), (f"bytes={SIZE}-{SIZE + 5}", 416, b""), ("bytes=5-2", 416, b""),
        ("bytes=-0", 416, b""), ("bytes=0-0,1-1", 200, CALL_BYTES), ("bytes=--5", 200, CALL_BYTES),
        ("bytes=", 200, CALL_BYTES), ("bytes=-", 200, CALL_BYTES), ("items=0-5", 200, CALL_BYTES),
        ("bytes=" + "9" * 4_000 + "-", 200, CALL_BYTES), ("bytes=²-³", 200, CALL_BYTES),
        ("bytes=" + ",".join(f"{n}-{n}" for n in range(2_000)), 200, CALL_BYTES), ("bytes=1e3-", 200, CALL_BYTES),
    ],
)  # fmt: skip
def test_a_stretch_is_what_was_asked_for_or_refused(admin: httpx.Client, asked: str, status: int, told: bytes) -> None:
    answer = admin.get(f"/media/{CALL}", headers={"Range": asked.encode()})
    assert (answer.status_code, answer.content) == (status, told)
    assert answer.headers.get("content-range", "").startswith("bytes") == (status in {206, 416})


def test_bytes_that_are_gone_are_an_error_and_no_broken_file(admin: httpx.Client, served: Served) -> None:
    with lakes.open(served.directory) as lake:
        known = lake.view(SCREEN)["object"]
    answer = admin.get(f"/media/{SCREEN}")
    assert known["exists"] and answer.status_code == 200
    file = next((served.directory / "raw").rglob("screen.png"))
    file.rename(file.with_suffix(".gone"))
    try:
        assert admin.get(f"/media/{SCREEN}").status_code == 404
    finally:
        file.with_suffix(".gone").rename(file)


# Crowds, and who takes long


def test_slow_callers_do_not_hold_up_others(served: Served, admin: httpx.Client) -> None:
    host, _, port = served.host.rpartition(":")
    head = f"POST /api/v1/objects HTTP/1.1\r\nHost: {served.host}\r\nAuthorization: Bearer {served.token}\r\n"
    starts = [b"GET / HT", head.encode(), (head + "Content-Length: 100\r\n\r\nab").encode(), b""]
    lines = [socket.create_connection((host, int(port)), timeout=60) for _ in range(60)]
    try:
        for number, line in enumerate(lines):
            line.sendall(starts[number % len(starts)])
        begun = time.monotonic()
        for _ in range(5):
            assert admin.get("/api/v1/customers").status_code == 200
        assert time.monotonic() - begun < 10
        # A letter now and then does not keep a place.
        unfinished = lines[0]
        unfinished.settimeout(0.5)
        assert wait_until(lambda: _was_closed(unfinished), seconds=60, every=1)
    finally:
        for line in lines:
            line.close()


def _was_closed(line: socket.socket) -> bool:
    try:
        line.sendall(b"T")
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_sql_that_never_ends_is_cut_off_and_keeps_nobody_waiting(served: Served, admin: httpx.Client) -> None:
    forever = "select count(*) from range(100000000000) a, range(100000000) b"
    answers: list[httpx.Response] = []

    def ask() -> None:
        with served.client(served.token) as client:
            answers.append(client.post("/api/v1/sql", json={"query": forever, "timeout_seconds": 6}))

    askers = [threading.Thread(target=ask) for _ in range(6)]
    for asker in askers:
        asker.start()
    let_pass(1.0, "until they are all at it; sooner, and the calls below are quicker still")
    begun = time.monotonic()
    assert admin.get("/api/v1/search?q=refund").status_code == 200
    assert time.monotonic() - begun < 4
    for asker in askers:
        asker.join(60)
    assert {answer.status_code for answer in answers} <= {400, 503}
    assert all(answer.json()["error"]["message"] for answer in answers)
    assert any("6" in answer.text for answer in answers)


@pytest.mark.parametrize(
    "query",
    ["copy (select 1) to '/tmp/out.csv'", "select * from read_text('/etc/passwd')", "select * from '/etc/passwd'",
     "attach '/tmp/x.db'", "drop table bronze.events", "delete from bronze.events", "insert into events values (1)",
     "install httpfs", "set enable_external_access=true", "select 1; drop view events", "pragma version",
     "select * from read_csv('ledger.db')", "select * from tokens", "select getenv('HOME')",
     "select * from glob('/etc/*')"],
)  # fmt: skip
def test_sql_reads_no_files_and_writes_nothing(served: Served, admin: httpx.Client, query: str) -> None:
    api = admin.post("/api/v1/sql", json={"query": query})
    page = admin.get("/tables", params={"sql": query, "format": "json"}).json()
    assert api.status_code in {400, 404}, api.text
    assert page["refused"] and page["answer"] is None
    assert "root:" not in api.text


class Endless(io.RawIOBase):
    """So many megabytes that are made as they are read."""

    def __init__(self, megabytes: int) -> None:
        self._left = megabytes << 20
        self._block = bytes(range(256)) * 4_096

    def read(self, size: int = -1) -> bytes:
        piece = self._block[: min(self._left, size if size > 0 else len(self._block))]
        self._left -= len(piece)
        return piece


def upload(served: Served, megabytes: int) -> tuple[httpx.Response, float]:
    """Its answer, and by how many MB the server grew meanwhile at most."""
    process = psutil.Process(served.process.pid)
    before = process.memory_info().rss
    most, done = [before], threading.Event()

    def look() -> None:
        while not done.wait(0.05):
            most.append(process.memory_info().rss)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with served.client(served.token) as client:
            files = {"files": ("big.wav", Endless(megabytes), "audio/wav")}
            answer = client.post("/api/v1/objects", data={"customer": "big"}, files=files, timeout=600)
    finally:
        done.set()
        looking.join()
    return answer, (max(most) - before) / (1 << 20)


def test_a_large_upload_takes_little_memory_and_leaves_nothing_behind(served: Served) -> None:
    answer, grown = upload(served, 300)
    assert answer.status_code == 201, answer.text
    assert answer.json()["results"][0]["status"] == "stored", answer.text
    assert grown < 120
    assert next((served.directory / "raw").rglob("big.wav")).stat().st_size == 300 << 20
    opened = [file.path for file in psutil.Process(served.process.pid).open_files() if "(deleted)" in file.path]
    assert opened == []


@pytest.mark.soak
def test_an_upload_of_two_gigabytes_takes_little_memory(tmp_path: Path) -> None:
    with serving(small_lake(tmp_path / "lake")) as running:
        answer, grown = upload(running, 2_048)
        assert answer.json()["results"][0]["status"] == "stored"
        assert grown < 150


def test_more_than_may_be_sent_is_refused_in_a_sentence(
    served: Served, admin: httpx.Client, acme: httpx.Client
) -> None:
    answer, _ = upload(served, 420)
    assert (answer.status_code, answer.json()["error"]["kind"]) == (413, "TooLarge")
    assert "serve.upload_mb" in answer.json()["error"]["message"]
    pieces = iter([b"x" * (1 << 20)] * 3)
    assert admin.post("/api/v1/sql", content=pieces).status_code == 413  # in pieces, of no size told before
    big = {"labels": {"a": "b" * (2 << 20)}}
    assert admin.post(f"/api/v1/labels/{CALL}", json=big).status_code == 413
    with served.client(served.make_token("reader")["token"]) as reader:
        files = {"files": ("a.wav", bytes(2 << 20), "audio/wav")}
        assert reader.post("/api/v1/objects", data={"customer": "acme"}, files=files).status_code == 413


def test_a_key_of_another_caller_finds_no_job_of_theirs(served: Served) -> None:
    answers = []
    for name in ("one", "two"):
        with served.client(served.make_token("admin", name=name)["token"]) as client:
            key = {"Idempotency-Key": "same"}
            first = client.post("/api/v1/plans", json={"kind": "rescan"}, headers=key).json()
            again = client.post("/api/v1/plans", json={"kind": "rescan"}, headers=key).json()
            assert first["id"] == again["id"]
            assert client.post("/api/v1/plans", json={"kind": "maintain"}, headers=key).status_code == 409
            answers.append(first["id"])
    assert answers[0] != answers[1]


def test_odd_requests_are_answered_and_no_fault(admin: httpx.Client) -> None:
    for method, place, about in [
        ("GET", "/search?q=" + "x" * 20_000, {}),
        ("GET", "/api/v1/search?q=" + "x" * 3_000, {}),
        ("GET", "/api/v1/search?q=%00", {}),
        ("GET", "/search?q=%ed%a0%80", {}),
        ("GET", "/search?q=a&limit=²", {}),
        ("GET", "/search?q=a&limit=99999999999999999999", {}),
        ("GET", "/search?q=a&since=never", {}),
        ("GET", "/api/v1/objects?before=99999999999999999999999", {}),
        ("GET", "/runs?limit=-1", {}),
        ("POST", "/api/v1/sql", {"content": b"{"}),
        ("POST", "/api/v1/sql", {"content": b"\xff\xfe"}),
        ("POST", "/api/v1/objects", {"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}),
        ("POST", "/api/v1/objects", {"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=a"}}),
        ("PUT", "/", {}),
        ("TRACE", "/", {}),
        ("OPTIONS", "/api/v1/objects", {}),
        ("DELETE", f"/media/{CALL}", {}),
        ("POST", f"/api/v1/labels/{CALL}", {"json": {"labels": {"": "x"}}}),
        ("POST", f"/api/v1/labels/{CALL}", {"content": b'{"labels": {"a": "\\ud800"}}'}),
        ("GET", "/api/v1/jobs/99999999999999999999999", {}),
        ("GET", "/tables?table=nothing", {}),
        ("GET", "/tables?sql=" + "(" * 3_000, {}),
    ]:
        answer = admin.request(method, place, **about)
        assert answer.status_code < 500, (method, place[:60], about, answer.text[:300])
