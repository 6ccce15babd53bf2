"""What a decoding child may say: whatever file it reads, its worker follows nothing else."""

from typing import Any, Final

# What a child says beside its answers.
_SIGNS: Final = {
    "begun": bool,
    "done": bool,
    "fetching": bool,
    "calling": bool,
    "unavailable": str,
    "traceback": str,
    "allow": int | float,
    "billed": int | float,
    "kept": dict,
}
NUMBER_MAX: Final = 1e15  # seconds, or money


def checked_message(message: Any, jobs: int) -> Any:
    """A child's message as the worker may follow it; raises ValueError where it is none, or about no job of `jobs`."""
    if type(message) is dict and "loading" in message:
        return message
    if type(message) is not dict or type(job := message.get("job")) is not int or not 0 <= job < jobs:
        raise ValueError("a message about nothing")
    if not message.keys() & _SIGNS.keys():
        fault = message.get("fault")
        texts = [message.get("tag"), *(fault if type(fault) is list else [])]
        if any(type(text) is not str for text in texts) or len(texts) != (3 if "fault" in message else 1):
            raise ValueError("an answer of no step")
    elif any(name in message and not _is_sign(message[name], kind) for name, kind in _SIGNS.items()):
        raise ValueError("a sign that says nothing")
    return message


def _is_sign(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and (not isinstance(value, int | float) or 0 <= value <= NUMBER_MAX)
