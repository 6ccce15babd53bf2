"""Fetch and build what the stack needs, and start nothing: `python -m headwater.stack.prepare`, for set-up.

Apart from `up`, so that a test's time limit need not allow for downloads.
"""

import sys

from headwater.errors import HeadwaterError
from headwater.stack.stack import Stack


def main() -> int:
    try:
        Stack().prepare(lambda line: print(f"  {line}", file=sys.stderr, flush=True))
    except HeadwaterError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
