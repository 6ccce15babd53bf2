"""Quantities as people read them, the same on every face. Pure."""


def size(count: float | None) -> str:
    if count is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
