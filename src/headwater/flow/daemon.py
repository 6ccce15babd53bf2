"""Spark's Python daemon, with what every worker needs imported before workers are forked from it.

Workers then share these modules and the language model instead of each paying a second or two for their own. Nothing
that starts threads is loaded here: they would not survive the fork.
"""

import gc

import pandas  # noqa: F401  Spark's Arrow serialisers import it in every worker
from pyspark.daemon import manager

import headwater.flow.derive.worker
import headwater.flow.embed.stage  # noqa: F401
from headwater.flow.models.language import tell_language

if __name__ == "__main__":
    tell_language("Which language is this sentence written in?")
    # After every task Spark has its worker collect garbage: it need not look through all that was loaded here.
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
