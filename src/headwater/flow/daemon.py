"""Spark's Python daemon, with what every worker needs imported before workers are forked from it.

Workers then share these modules and the language model instead of each paying a second or two for their own. Nothing
that starts threads is loaded here: they would not survive the fork.
"""

import gc
import sys
from zipimport import zipimporter

import pyarrow as pa
from pyspark.daemon import manager

import headwater.flow.derive.worker
import headwater.flow.embed.worker
import headwater.flow.partitions  # noqa: F401
from headwater.flow.models.language import tell_language


class _NoPandas:
    """A finder that denies pandas."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ImportError(name)


def spare_pandas() -> None:
    """Arrow imports pandas for its first array, a second of work, to know frames when it sees them.

    Told once that there is none, it looks again only for who asks for a frame.
    """
    denied = _NoPandas()
    sys.meta_path.insert(0, denied)
    pa.array([0])
    sys.meta_path.remove(denied)


def forget_archives() -> None:
    """Before every task Spark has its worker read the listing of pyspark's archive again, once for each package in it.

    What is imported stays; what is yet to be imported opens the archive anew.
    """
    opened = [place for place, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]
    for place in opened:
        del sys.path_importer_cache[place]


if __name__ == "__main__":
    spare_pandas()
    tell_language("Which language is this sentence written in?")
    # After every task Spark has its worker collect garbage: it need not look through all that was loaded here.
    gc.freeze()
    forget_archives()
    manager()  # type: ignore[no-untyped-call]
