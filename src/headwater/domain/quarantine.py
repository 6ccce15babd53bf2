"""Why a record could not be processed, and the way out of each reason."""

from typing import Final

REASONS: Final[dict[str, str]] = {
    "EMPTY": "The object has no bytes. Send the file again under a new --id.",
    "UNREADABLE": "The bytes are not what the name says, or are damaged. Send a sound copy under a new --id.",
    "TRUNCATED": "The file ends too early. Send the whole file under a new --id.",
    "TOO_LARGE": "It claims to be larger than the limits in [limits]. Raise the limit, then headwater retry.",
    "ENCRYPTED": "It needs a password. Send an unlocked copy under a new --id.",
    "UNSUPPORTED": "No decoder here reads this format. Convert it, or add a decoder, then headwater retry.",
    "MISSING_OBJECT": "The event came without its bytes. Once the object is stored, headwater retry.",
    "CORRUPT": "The stored bytes no longer match their checksum. Restore the object, then headwater retry.",
    "CRASHED": "A decoder or model crashed on it. After an upgrade, headwater retry.",
    "TIMEOUT": "It took longer than the limits in [limits]. Raise the limit, then headwater retry.",
    "BAD_OUTPUT": "The model answered with something unusable. Fix or change the model, then headwater retry.",
    "BAD_EVENT": "The log line is not an event. Mend the producer and publish again.",
    "CONFLICT": "The id was used before with other content. Publish it under an id of its own.",
    "MODEL_DOWN": "The model's endpoint did not answer. When it is back, headwater retry.",
}
