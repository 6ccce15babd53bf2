"""The book of models: one active for a step, others beside it, and changes that never undo one another."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.domain.model_book import KnownModel, ModelBook, State
from headwater.errors import Conflict, InvalidRequest, NotFound
from headwater.storage.ledger.ledger import open_ledger
from headwater.storage.ledger.model_book import change_book, read_book

OLD = KnownModel("transcribe", "old", "old 1", "0" * 16, State.ACTIVE, "2026-03-01")
NEW = KnownModel("transcribe", "new", "new 2", "abcd" * 4, State.STANDBY, "2026-03-02", replayed=True)
OTHER = KnownModel("embed", "new", "new 2", "9" * 16, State.ACTIVE, "2026-03-01")
BOOK = ModelBook((OLD, NEW, OTHER))


def test_a_flip_is_one_book_for_another_and_can_be_taken_back() -> None:
    flipped = BOOK.activated(NEW)
    assert flipped.active("transcribe") == replace(NEW, state=State.ACTIVE)
    assert flipped.get("transcribe", OLD.fingerprint) == replace(OLD, state=State.STANDBY)
    assert flipped.active("embed") == OTHER
    assert flipped.activated(flipped.find("transcribe", "old")) == BOOK


def test_a_book_that_names_states_as_before_is_read() -> None:
    former = {State.STANDBY: "beside", State.PARTIAL: "some", State.RETIRING: "leaving"}
    for state, name in former.items():
        book = BOOK.with_model(replace(NEW, state=state))
        assert ModelBook.from_text(book.to_text().replace(f'"{state.value}"', f'"{name}"')) == book
    with pytest.raises(ValueError, match="unheard"):
        State("unheard")


def test_what_is_not_active_is_hidden() -> None:
    assert BOOK.hidden() == {NEW.fingerprint}
    assert BOOK.activated(NEW).hidden() == {OLD.fingerprint}
    assert ModelBook().hidden() == frozenset()


@pytest.mark.parametrize("state", [State.BUILDING, State.PARTIAL, State.RETIRING])
def test_a_model_that_is_not_complete_is_not_shown(state: State) -> None:
    book = BOOK.with_model(replace(NEW, state=state))
    with pytest.raises(Conflict, match="headwater replay transcribe --model new"):
        book.activated(book.find("transcribe", "new"))
    assert book.kept("transcribe") == (OLD,)


def test_the_active_model_stays_and_a_second_one_cannot_be() -> None:
    with pytest.raises(Conflict, match="is active"):
        BOOK.retired(OLD.step, OLD.fingerprint)
    with pytest.raises(Conflict, match="has an active model"):
        BOOK.with_model(replace(NEW, state=State.ACTIVE))


def test_a_model_is_found_by_name_label_fingerprint_or_as_the_active_one() -> None:
    for wanted in ("new", "new 2", "abcd" * 4, "abcda"):
        assert BOOK.find("transcribe", wanted) == NEW
    assert BOOK.find("transcribe", "ACTIVE") == OLD
    with pytest.raises(NotFound, match=r"it knows old \(0{16}\), new"):
        BOOK.find("transcribe", "abc")
    twice = BOOK.with_model(replace(NEW, fingerprint="f" * 16))
    with pytest.raises(InvalidRequest, match="more than one"):
        twice.find("transcribe", "new")


def test_a_replay_that_goes_on_changes_nothing_and_one_of_some_rows_begins() -> None:
    assert BOOK.with_building(NEW) == BOOK
    some = BOOK.with_model(replace(NEW, state=State.PARTIAL))
    assert some.with_building(NEW).find("transcribe", "new").state is State.BUILDING
    leaving = BOOK.retired(NEW.step, NEW.fingerprint)
    with pytest.raises(Conflict, match="being removed"):
        leaving.with_building(NEW)


def test_only_a_model_that_came_later_has_positions_of_its_own() -> None:
    assert OLD.position_in("bronze.events") == "bronze.events"
    assert NEW.position_in("bronze.events") == f"bronze.events/transcribe/{NEW.fingerprint}"


def test_a_book_is_read_as_it_was_written() -> None:
    assert ModelBook.from_text(BOOK.to_text()) == BOOK
    assert ModelBook.from_text(None) == ModelBook()


def test_two_who_change_the_book_at_once_do_not_undo_each_other(tmp_path: Path) -> None:
    def add(number: int) -> None:
        ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.db")
        for step in range(10):
            model = KnownModel(f"step{number}", "m", "m 1", f"{number}{step}", State.PARTIAL, "")
            change_book(ledger, lambda book, model=model: book.with_new(model))  # type: ignore[misc]
        ledger.close()

    open_ledger(f"sqlite:///{tmp_path}/ledger.db").close()
    threads = [threading.Thread(target=add, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_book(open_ledger(f"sqlite:///{tmp_path}/ledger.db")).models) == 40
