"""How right the built-in models are, the new beside the old in one run, on data that ships with its truth.

Word error of speech, character error of pictures, nDCG@10 and recall@10 of search, with the CPU seconds each took.

    make bench-quality                          # all of it: some minutes on 2 cores
    make bench-quality ARGS="--only search"
    make bench-quality ARGS="--shorter"         # a part of each, to see that it runs
"""

import argparse
import platform
from datetime import UTC, datetime
from typing import Final

from quality import pictures, search, speech

PARTS: Final = {"speech": speech.report, "pictures": pictures.report, "search": search.report}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(PARTS), action="append")
    parser.add_argument("--shorter", action="store_true")
    options = parser.parse_args()
    print(
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {platform.machine()}, {platform.system()}"
    )
    for name in options.only or PARTS:
        PARTS[name](options.shorter)


if __name__ == "__main__":
    main()
