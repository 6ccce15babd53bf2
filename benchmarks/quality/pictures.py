"""Character error of the built-in readers of pictures: screens drawn in several fonts, sizes, themes and languages.

Blanks count; how lines are ordered does not, as long as each stands whole.
"""

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import font_manrope
import font_source_sans_pro as sans
import font_source_serif_pro as serif
import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from headwater.domain.words import edits
from headwater.flow.models.port import Picture
from headwater.flow.models.registry import load_model
from quality import table

MODELS: Final = ("pp-ocr", "rapidocr")
ALL: Final = "all"
GOAL: Final = 1 / 5  # the most that the new model may misread, as a share of what the old one does
FONTS: Final = {
    "sans": sans.SourceSansPro,
    "sans bold": sans.SourceSansProSemibold,
    "serif": serif.SourceSerifPro,
    "geometric": font_manrope.Manrope,
}
THEMES: Final = {"light": ("#f8fafc", "#0f172a"), "dark": ("#0f172a", "#e2e8f0"), "pale": ("#fefce8", "#78716c")}
SIZES: Final = (16, 20, 26)
# By language: what an application shows, and its lines are read one by one.
SCREENS: Final = {
    "English": (
        ("Payment failed", "Your card ending in 4821 was declined.", "Order 10042, 129.90 EUR", "Try again or ask us."),
        ("Connection lost", "The mail server did not answer in 30 s.", "Error code: E-1042", "Last sync: 14:07"),
        (
            "Disk almost full",
            "Only 2 % of the disk is free.",
            "Delete old backups to make room.",
            "C:\\Users\\anna\\Docs",
        ),
        ("Ticket #88213", "From: anna.lindqvist@fabrikam.example", "Priority: high", "The hinge snapped off in May."),
        ("Monthly report", "Revenue in March: 1,280 EUR", "Orders in March: 412", "quarterly_report_final_v7.xlsx"),
        ("Update 7.3.1", "What is new", "The calendar starts on Monday.", "Crashes on export are fixed."),
    ),
    "German": (
        ("Zahlung fehlgeschlagen", "Ihre Karte wurde von der Bank abgelehnt.", "Bitte prüfen Sie Gültigkeit und Höhe."),
        ("Störung", "Der Bildschirm flackert, sobald ich das Netzteil anschließe.", "Größe: 27 Zoll, Gerät: XK-77"),
        ("Kündigung", "Wir bestätigen Ihre Kündigung zum 30. Juni.", "Mit freundlichen Grüßen, Jürgen Weiß"),
    ),
    "French": (
        ("Paiement refusé", "Votre carte a été refusée par la banque.", "Où êtes-vous ? À bientôt, ça va être réglé."),
        ("Réseau indisponible", "Vérifiez le câble, puis redémarrez le modem.", "Dernière tentative : 14 h 07"),
    ),
    "Spanish": (
        ("Pago rechazado", "¿Olvidó su contraseña? Escríbanos.", "El año pasado no había ningún cargo así."),
        ("Sin conexión", "Compruebe el cable y reinicie el módem.", "¡Atención! Señal débil en la habitación."),
    ),
    "Polish": (("Płatność odrzucona", "Sprawdź datę ważności karty.", "Dziękujemy, wróć później."),),
    "Turkish": (("Ödeme başarısız", "Lütfen kartınızı kontrol edin.", "Güncelleme yarın gece yapılacak."),),
}
DAMAGE: Final[dict[str, Callable[[Image.Image], Image.Image]]] = {
    "sharp": lambda picture: picture,
    "JPEG at 40": lambda picture: _jpeg(picture, 40),
    "blurred": lambda picture: picture.filter(ImageFilter.GaussianBlur(0.8)),
    "at 75 % of its size": lambda picture: picture.resize(
        (picture.width * 3 // 4, picture.height * 3 // 4), Image.Resampling.LANCZOS
    ),
}


@dataclass(frozen=True, slots=True)
class Screen:
    groups: tuple[str, ...]
    lines: tuple[str, ...]
    picture: Picture


@dataclass(slots=True)
class ReadBy:
    """By group of screens: characters that one model misread, and how many there are."""

    groups: dict[str, tuple[int, int]] = field(default_factory=dict)
    cpu: float = 0.0

    def add(self, screen: Screen, missed: int) -> None:
        for group in (ALL, *screen.groups):
            before, length = self.groups.get(group, (0, 0))
            self.groups[group] = (before + missed, length + sum(map(len, screen.lines)))

    def error(self, group: str) -> float:
        missed, length = self.groups[group]
        return missed / length


def report(shorter: bool) -> None:
    found = list(screens())[:: 8 if shorter else 1]
    read = {name: read_by(name, found) for name in MODELS}
    new, old = MODELS
    table.show(
        f"Pictures: character error of {len(found)} screens, blanks included",
        ("screens", *MODELS, "ratio"),
        [(group, *(table.percent(read[name].error(group)) for name in MODELS),
          table.ratio(read[new].error(group), read[old].error(group))) for group in read[new].groups],
    )  # fmt: skip
    table.show(
        "Pictures: CPU seconds a screen", ("", *MODELS), [("all", *(read[name].cpu / len(found) for name in MODELS))]
    )
    print()
    table.goal("character error:", read[new].error(ALL), read[old].error(ALL) * GOAL)


def read_by(name: str, found: Sequence[Screen]) -> ReadBy:
    model = load_model(name)
    model.load()
    read = ReadBy()
    for screen in found:
        started = time.process_time()
        lines = model.run([screen.picture])[0].text.splitlines()
        read.cpu += time.process_time() - started
        read.add(screen, _missed(screen.lines, lines))
    return read


def screens() -> Iterator[Screen]:
    """Each screen twice, so that fonts, sizes, themes and damage meet in turns."""
    number = 0
    for language, shown in SCREENS.items():
        for lines in shown * (2 if language == "English" else 3):
            font, theme = (list(each)[number % len(each)] for each in (FONTS, THEMES))
            damage = list(DAMAGE)[(number + number // len(FONTS)) % len(DAMAGE)]
            size = SIZES[number // 2 % len(SIZES)]
            picture = DAMAGE[damage](_draw(lines, FONTS[font], size, *THEMES[theme]))
            yield Screen(
                (language, font, f"{size} px", theme, damage), tuple(lines), np.asarray(picture.convert("RGB"))
            )
            number += 1


def _draw(lines: Sequence[str], font: str, size: int, paper: str, ink: str) -> Image.Image:
    picture = Image.new("RGB", (960, 540), paper)
    pen = ImageDraw.Draw(picture)
    pen.rectangle((0, 0, 960, 36), fill="#1d4ed8")
    pen.text((60, 70), lines[0], font=ImageFont.truetype(font, size * 3 // 2), fill=ink)
    for number, line in enumerate(lines[1:]):
        pen.text((60, 140 + number * size * 2), line, font=ImageFont.truetype(font, size), fill=ink)
    return picture


def _jpeg(picture: Image.Image, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


def _missed(lines: Sequence[str], read: Sequence[str]) -> int:
    return edits("\n".join(lines), "\n".join(read))
