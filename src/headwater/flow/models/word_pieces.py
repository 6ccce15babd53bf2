"""Word pieces: what a tokenizer makes of a word tells whether the word means something to who was trained on them.

Words come in one piece, or in a few long ones; what nobody says comes in many short ones.
"""

from typing import Final

# Sure, and likely, beyond so many letters a piece. In shreds are 81 of 84 words that mean nothing, to WordLlama and to
# MiniLM alike; of 1,157 words of support texts 119 and 87.
LETTERS_A_PIECE: Final = {2: (3.0, 2.0), 3: (4.0, 3.5)}
# Beside words that mean something, shreds of another still help: without them, questions lose more answers than noise.
SHREDS: Final = 0.25


def sureness(word: str, pieces: int) -> float:
    """How sure it is that a word in so many pieces means something: 1, ½, or ¼ for one that is in shreds.

    ½ at most, and 0 in shreds, in a script other than Latin: they were trained on hardly any, and have pieces of it all
    the same.
    """
    if pieces <= 1:
        return 1.0 if len(word) > 2 and word.isascii() else 0.5
    sure, likely = LETTERS_A_PIECE[min(pieces, 3)]
    if len(word) > sure * pieces and word.isascii():
        return 1.0
    return 0.5 if len(word) > likely * pieces else SHREDS if word.isascii() else 0.0
