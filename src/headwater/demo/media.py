"""The demo's media: spoken calls, screenshots, a screen video, a PDF and chat of four customers; and two broken files.

Everything is real media with a known truth, so that the demo can say how much its models missed.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from headwater.demo.drawing import draw_screen, encode_video, pdf_bytes, read_wav

RECORDINGS: Final = Path(__file__).parent / "recordings"
VIDEO_SOUND: Final = "screen-video"

Kind = Literal["call", "screenshot", "video", "document", "chat", "broken"]


@dataclass(frozen=True, slots=True)
class DemoItem:
    """`path` is None for a chat line, whose text is its truth. A broken file's truth is the reason it should get.

    `said` is what is to be heard in it, `shown` what is to be read in pictures of it."""

    path: Path | None
    customer: str
    kind: Kind
    truth: str
    said: str = ""
    shown: str = ""


SCREENS: Final = (
    (
        "acme",
        "payment-failed.png",
        "Payment failed",
        (
            "Your card ending in 4821 was declined by the bank.",
            "Invoice {number} is still open: 129.90 EUR",
            "Please update your payment details and try again.",
        ),
    ),
    (
        "globex",
        "connection-lost.png",
        "Connection lost",
        (
            "The mail server did not answer in 30 seconds.",
            "Check the cable, then restart the router.",
            "Error code: E-1042",
        ),
    ),
    (
        "initech",
        "invoice-overdue.png",
        "Invoice overdue",
        ("Standing desk: 798.00 EUR", "Office chair: 249.00 EUR", "Total due for order {number}: 1047.00 EUR"),
    ),
    (
        "umbrella",
        "disk-full.png",
        "Disk almost full",
        ("Only 2 percent of the disk is free.", "Delete old backups to make room.", "Report {number} was not saved."),
    ),
)
VIDEO_SCREENS: Final = (
    ("Monthly report", ("Revenue in March: 1280 EUR", "Orders in March: 412")),
    ("Export failed", ("The numbers do not add up.", "Ask support for help.")),
)
PAGES: Final = (
    (
        "Service agreement",
        "Between Headwater Demo Ltd. and Umbrella Inc.",
        "Support answers every question within one working day.",
        "Either side may end the contract with three months notice.",
    ),
    (
        "Data retention",
        "Calls and screenshots are kept for ninety days.",
        "A customer may ask for erasure at any time.",
    ),
)
CHAT: Final = (
    ("acme", "Hello, I still have not received my refund for order {number}."),
    ("acme", "The new version is so slow that nobody here can work with it."),
    ("globex", "My router loses the connection every evening around eight."),
    ("globex", "Thanks, restarting the router solved it!"),
    ("initech", "Why is my invoice twice as high as last month?"),
    ("initech", "Die Rechnung ist doppelt so hoch wie im letzten Monat, bitte prüfen Sie das."),
    ("umbrella", "How long do you keep the recordings of our calls?"),
    ("umbrella", "Please delete everything you have about me."),
)


def make_demo_media(directory: Path, seed: int) -> list[DemoItem]:
    """Write the media and tell what each one truly says. The same seed gives the same media."""
    directory.mkdir(parents=True, exist_ok=True)
    number = str(random.Random(seed).randint(10_000, 99_999))
    made = (_calls(directory), _screens(directory, number), _video(directory), _document(directory))
    items = [item for part in made for item in part]
    items += [DemoItem(None, customer, "chat", text.format(number=number)) for customer, text in CHAT]
    return [*items, *_broken(directory)]


def _calls(directory: Path) -> Iterator[DemoItem]:
    for recording in recordings():
        if recording["name"] != VIDEO_SOUND:
            path = directory / f"{recording['name']}.wav"
            path.write_bytes((RECORDINGS / path.name).read_bytes())
            yield DemoItem(path, recording["customer"], "call", recording["said"], said=recording["said"])


def _screens(directory: Path, number: str) -> Iterator[DemoItem]:
    for customer, name, title, lines in SCREENS:
        shown = [line.format(number=number) for line in lines]
        path = directory / name
        draw_screen(title, shown).save(path)
        truth = "\n".join([title, *shown])
        yield DemoItem(path, customer, "screenshot", truth, shown=truth)


def _video(directory: Path) -> Iterator[DemoItem]:
    recording = next(recording for recording in recordings() if recording["name"] == VIDEO_SOUND)
    screens = [(draw_screen(title, lines), 3.0) for title, lines in VIDEO_SCREENS]
    path = directory / "report-screen.mp4"
    path.write_bytes(encode_video(screens, read_wav(RECORDINGS / f"{VIDEO_SOUND}.wav")))
    shown = "\n".join(line for title, lines in VIDEO_SCREENS for line in (title, *lines))
    said = recording["said"]
    yield DemoItem(path, recording["customer"], "video", f"{said}\n{shown}", said, shown)


def _document(directory: Path) -> Iterator[DemoItem]:
    path = directory / "service-agreement.pdf"
    path.write_bytes(pdf_bytes(PAGES))
    yield DemoItem(path, "umbrella", "document", "\n".join(line for page in PAGES for line in page))


def _broken(directory: Path) -> Iterator[DemoItem]:
    whole = (RECORDINGS / "refund-call.wav").read_bytes()
    cut, text = directory / "cut-off-call.wav", directory / "not-a-picture.png"
    cut.write_bytes(whole[: len(whole) // 3])
    text.write_text("This is a note that somebody named like a picture.\n", encoding="utf-8")
    yield DemoItem(cut, "acme", "broken", "TRUNCATED")
    yield DemoItem(text, "globex", "broken", "UNREADABLE")


def recordings() -> list[dict[str, str]]:
    """Each recording in the package: `name`, `customer`, and what is `said` in it."""
    found: list[dict[str, str]] = json.loads((RECORDINGS / "recordings.json").read_text(encoding="utf-8"))
    return found
