"""A page in Chromium that notes what went wrong in it: errors of its console and its scripts, requests that failed."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
# Given up by the browser itself: a stream when one walks on, the rest of a film of which it has seen enough.
GIVEN_UP = re.compile(r"/live$|/media/|/preview/")


class Watched:
    def __init__(self, page: Page, pictures: Path, look: str) -> None:
        self.page = page
        self.faults: list[str] = []
        self.requests = 0
        self._pictures = pictures
        self._look = look
        page.on("console", lambda said: self._note(said.type in {"error", "warning"}, f"console: {said.text}"))
        page.on("pageerror", lambda error: self._note(True, f"script: {error}"))
        page.on("dialog", lambda dialog: (self._note(True, f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("requestfailed", self._failed)
        page.on("response", lambda answer: self._note(answer.status >= 400, f"{answer.status} {answer.url}"))
        page.on("request", lambda _: self._count())

    def _count(self) -> None:
        self.requests += 1

    def _note(self, is_fault: bool, words: str) -> None:
        if is_fault:
            self.faults.append(words)

    def _failed(self, request: Any) -> None:
        given_up = request.failure == "net::ERR_ABORTED" and GIVEN_UP.search(request.url.partition("?")[0])
        self._note(not given_up, f"{request.failure} {request.url}")

    def go(self, place: str) -> "Watched":
        """And wait until it stands; the stream of what goes on never ends, so not for silence."""
        self.page.goto(place, wait_until="load")
        return self

    def picture(self, name: str) -> Path:
        file = self._pictures / f"{name}-{self._look}.png"
        self.page.screenshot(path=file, full_page=self._look != "desk")
        return file

    def overflows(self) -> bool:
        """Whether one must push the page sideways to read it."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"))

    def barriers(self) -> list[str]:
        """What axe finds that keeps people out."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['impact']} {each['id']}: {each['nodes'][0]['html'][:200]}"
            for each in found
            if each["impact"] in {"serious", "critical"}
        ]


@contextmanager
def watching(browser: Browser, link: str, pictures: Path, look: str = "desk") -> Iterator[Watched]:
    """By the link that `headwater serve` prints; `look` is desk, dark or phone."""
    scheme = "dark" if look == "dark" else "light"
    context = browser.new_context(viewport=PHONE if look == "phone" else DESK, color_scheme=scheme)
    context.set_default_timeout(60_000)
    page = context.new_page()
    watched = Watched(page, pictures, look)
    page.goto(link, wait_until="load")
    try:
        yield watched
    finally:
        context.close()


def pictures_in(fallback: Path) -> Path:
    """Where pictures are kept: PICTURES_OF_PAGES, or with the test's own files."""
    place = Path(os.environ.get("PICTURES_OF_PAGES") or fallback)
    place.mkdir(parents=True, exist_ok=True)
    return place
