"""Texts and questions are cut alike: words and stems, codes whole and in parts, scripts without blanks in pairs."""

import pytest

from headwater.domain.terms import asked_terms, folded, one_edit_away, pieces_of, stem_of, terms_of


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Crashing!", {"crashing", "~crash"}),
        ("INV-2026-0417", {"inv", "2026", "0417", "inv20260417"}),
        ("anna.lindqvist@fabrikam.example", {"anna", "lindqvist", "fabrikam", "annalindqvistfabrikamexample"}),
        ("budget_2026.csv", {"budget", "2026", "csv", "budget2026csv"}),
        ("the neighbour's Wi-Fi", {"the", "neighbour", "wi", "fi", "wifi"}),
        ("Ärger im Café", {"arger", "im", "~caf", "cafe"}),
        ("退款吗", {"退", "款", "吗", "退款", "款吗"}),
        ("สวัสดี", {"สว", "วั", "ดี"}),
        ("PINコード", {"pin", "コー", "ード"}),
        ("हिन्दी", {"हिन्दी"}),
        ("환불을", {"환불"}),
    ],
)
def test_what_a_text_is_found_by(text: str, terms: set[str]) -> None:
    assert terms <= set(terms_of(text))


@pytest.mark.parametrize(
    "forms",
    ["crash crashes crashed crashing", "invoice invoices invoiced invoicing", "cancel cancelled cancelling",
     "delivery deliveries", "Rechnung Rechnungen", "order orders ordered", "stop stopped stopping",
     "address addresses"],
)  # fmt: skip
def test_forms_of_a_word_find_one_another(forms: str) -> None:
    words = forms.split()
    assert len({stem_of(folded(word)) for word in words}) == 1
    for asked in words:
        for held in words:
            assert set(asked_terms(asked)) & set(terms_of(held)), (asked, held)


def test_codes_have_no_other_forms_and_short_words_stay() -> None:
    assert [stem_of(word) for word in ("7s", "0x80070035", "bus", "string", "evt_9f13es")] == [
        "7s", "0x80070035", "bus", "string", "evt_9f13es",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("word", "other", "is_near"),
    [("refnud", "refund", True), ("pasword", "password", True), ("refunds", "refund", True), ("refand", "refund", True),
     ("refund", "refund", False), ("erfnud", "refund", False), ("abc", "cba", False), ("", "a", True)],
)  # fmt: skip
def test_one_edit_is_a_letter_more_less_or_other_or_two_swapped(word: str, other: str, is_near: bool) -> None:
    assert one_edit_away(word, other) is is_near
    assert one_edit_away(other, word) is is_near


def test_a_piece_tells_where_it_stands_and_any_text_can_be_cut() -> None:
    text = "call Zürich: INV-2, e\u0301migré 退款。"
    assert [text[piece.start : piece.end] for piece in pieces_of(text)] == [
        "call", "Zürich", "INV-2", "e\u0301migré", "退款",
    ]  # fmt: skip
    assert list(terms_of("")) == list(terms_of(" ?! \ud800 ")) == []
    assert max(map(len, terms_of("x" * 500))) <= 80
