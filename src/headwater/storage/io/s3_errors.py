"""What an S3 server's refusals mean, whichever of two SDKs heard them.

A refusal may be about one object (archived, encrypted with a lost key, denied by policy) or about us (a rotated key).
The server's code tells some of them apart; what it leaves open is left open: AccessRefused and Unavailable say only
that this request came to nothing, and who wants to know more asks for another object.
"""

import re
from typing import Final

from botocore.exceptions import ClientError
from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from headwater.errors import AccessRefused, DataFault, HeadwaterError, InvalidRequest, Unavailable

KEY_TROUBLE: Final = (
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "RequestExpired",
    "RequestTimeTooSkewed",
)
NO_BUCKET: Final = "NoSuchBucket"
OUT_OF_RANGE: Final = "InvalidRange"
_TOO_LONG: Final = ("KeyTooLongError", "KeyTooLong")
_ARCHIVED: Final = "InvalidObjectState"
_REFUSED: Final = (401, 403)
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w[\w.]*)</Code>")


def status_of(error: Exception) -> int | None:
    """What the server answered, where one was heard."""
    if isinstance(error, ClientError):
        status: int | None = error.response["ResponseMetadata"].get("HTTPStatusCode")
        return status
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return 403
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def code_of(error: Exception) -> str:
    """The server's own word for it; empty where there is none, as in every answer to a HEAD."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    found = _CODE.search(str(error))
    return found[1] if found else ""


def translate(error: Exception, key: str) -> HeadwaterError:
    code, status = code_of(error), status_of(error)
    if code in _TOO_LONG:
        return InvalidRequest(f"{key[:80]}… is too long a name for this store. Use a shorter --id.")
    if code == _ARCHIVED:
        return DataFault("UNFETCHABLE", f"{key} is archived: S3 gives it once it is restored from its storage class.")
    if status in _REFUSED or code in KEY_TROUBLE:
        why = f" ({code})" if code else ""
        return AccessRefused(f"S3 refused access to {key}{why}. Check s3.access_key, s3.secret_key and the policy.")
    return Unavailable(f"S3 failed at {key}: {_message(error)}. Check s3.endpoint and the bucket, then try again.")


def _message(error: Exception) -> str:
    code, status = code_of(error), status_of(error)
    if code and status:
        return f"it answers {status} {code}"
    return str(error).partition("\n")[0][:300]
