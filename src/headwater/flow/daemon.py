"""Spark's Python daemon, with what every worker needs imported before workers are forked from it.

Workers then share these modules and the language model instead of each paying a second or two for their own. Nothing
that starts threads is loaded here: they would not survive the fork.
"""

import gc
import sys
from zipimport import zipimporter

import pandas  # noqa: F401  Arrow looks for it when it makes its first array
from pyspark.daemon import manager

import headwater.flow.derive.worker
import headwater.flow.embed.worker
import headwater.flow.parts  # noqa: F401
from headwater.flow.models.language import tell_language


def forget_archives() -> None:
    """Before every task Spark has its worker read the listing of pyspark's archive again, once for each package in it.

    What is imported stays; what is yet to be imported opens the archive anew.
    """
    opened = [place for place, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]
    for place in opened:
        del sys.path_importer_cache[place]


if __name__ == "__main__":
    tell_language("Which language is this sentence written in?")
    # After every task Spark has its worker collect garbage: it need not look through all that was loaded here.
    gc.freeze()
    forget_archives()
    manager()  # type: ignore[no-untyped-call]
