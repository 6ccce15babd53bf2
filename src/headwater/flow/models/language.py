"""The language of a text, where the text is long enough to tell."""

from functools import lru_cache
from typing import Any, Final

LETTERS_MIN: Final = 20  # below this, names and codes decide, and the answer is a guess
LETTERS_MAX: Final = 600  # more changes the answer no longer, only the time
CONFIDENCE_MIN: Final = 0.7


def tell_language(text: str) -> str | None:
    """ISO 639-1, or None where it cannot be told."""
    start = text[:LETTERS_MAX]
    if sum(map(str.isalpha, start)) < LETTERS_MIN:
        return None
    language, confidence = _identifier().classify(start)
    return str(language) if confidence >= CONFIDENCE_MIN else None


@lru_cache(maxsize=1)
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
