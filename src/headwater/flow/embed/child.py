"""The embedder's child: one model in a process that may be lost without losing anything else.

It is told which model, says that it is loaded or why not, and then answers every batch of texts that it is given, until
its input ends or its parent dies. What is judged again by the parent is made plain here: whatever object a model
answers with, bytes and numbers travel. What the model's calls cost is said as they are made.
"""

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from headwater.domain.quarantine import known_fault
from headwater.errors import DataFault, HeadwaterError, InvalidRequest, Unavailable, describe, sound_text
from headwater.flow.child.bounds import bound_memory, open_pipes
from headwater.flow.child.frames import packed, read_message
from headwater.flow.models.answers import checked_embedded, list_answers, loading, model_faults
from headwater.flow.models.port import Model
from headwater.flow.models.registry import load_model
from headwater.flow.models.spending import Purse, billed

Message = dict[str, Any]


def main() -> None:
    batches, answers = open_pipes()
    config = read_message(batches)
    os.environ.update(config["variables"])
    try:
        model = _loaded(config["name"], config["models"])
    except InvalidRequest as error:
        _say(answers, {"refused": str(error)})
        return
    except HeadwaterError as error:
        _say(answers, {"unavailable": str(error)})
        return
    bound_memory(config["child_mb"])  # from here on: weights are as large as they are
    _say(answers, {"ready": True})
    while (batch := read_message(batches)) is not None:
        try:
            _say(answers, _answer(model, batch, answers))
        except MemoryError:
            # What failed to allocate may have left half-built things behind in foreign code.
            reason = f"It needs more memory than limits.child_mb, {config['child_mb']} MB."
            _say(answers, {**_fault("TOO_LARGE", reason), "ends": True})
            os._exit(0)


def _loaded(name: str, sections: Mapping[str, Mapping[str, Any]]) -> Model:
    model = load_model(name, sections)
    with loading(name):
        model.load()
    return model


def _answer(model: Model, batch: Mapping[str, Any], answers: BinaryIO) -> Message:
    purse = None if batch["money"] is None else Purse(batch["money"])
    texts: Sequence[str] = batch["texts"]
    try:
        with billed(purse, lambda cost: _say(answers, {"billed": cost})), model_faults():
            found = list_answers(model.run(texts), len(texts))
    except DataFault as fault:
        return _fault(fault.reason, fault.detail)
    except Unavailable as error:
        return {"unavailable": str(error), "after_seconds": _seconds(error.after_seconds)}
    return {"answers": [_plain(answer) for answer in found]}


def _plain(answer: object) -> Message:
    try:
        embedded = checked_embedded(answer, None)
    except DataFault as fault:
        return _fault(fault.reason, fault.detail)
    except HeadwaterError as error:  # an answer whose own code raises as it is looked at
        return _fault("BAD_OUTPUT", describe(error))
    vector = base64.b64encode(embedded.vector.astype("<f4").tobytes()).decode()
    return {"vector": vector, "tokens": embedded.tokens, "attempts": embedded.attempts}


def _fault(reason: object, detail: str) -> Message:
    return {"fault": [sound_text(part) for part in known_fault(reason, detail)]}


def _seconds(value: object) -> float:
    """A model of somebody else's may say anything."""
    try:
        return max(0.0, float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return 0.0


def _say(answers: BinaryIO, message: Message) -> None:
    answers.write(packed(message))


if __name__ == "__main__":
    main()
