"""The arms as values: what each is called, where it runs, and what it does in each phase."""

from dataclasses import dataclass
from typing import Final, Literal

Phase = Literal["cold", "same", "more", "changed"]
PHASES: Final[dict[Phase, str]] = {"cold": "cold", "same": "no-op", "more": "+1 %", "changed": "call step changed"}
VERBS: Final[dict[Phase, str]] = {"cold": "update", "same": "update", "more": "update", "changed": "change"}


@dataclass(frozen=True, slots=True)
class Arm:
    """`packages` make its environment; an arm without runs in this one. `anew` does not know what is done already."""

    name: str
    title: str
    module: str
    packages: tuple[str, ...] = ()
    anew: bool = False
    lands: bool = False

    def verb(self, phase: Phase) -> str | None:
        return None if self.anew and phase != "cold" else VERBS[phase]


FLOOR: Final = Arm("floor", "plain Python, 2 processes + Parquet", "floor")
DAFT: Final = Arm("daft", "Daft 0.7.26", "with_daft", ("daft==0.7.26",))
DATACHAIN: Final = Arm("datachain", "DataChain 0.62.0", "with_datachain", ("datachain==0.62.0",))
PIXELTABLE: Final = Arm("pixeltable", "Pixeltable 0.7.21", "with_pixeltable", ("pixeltable==0.7.21",))
_SPARK: Final = ("pyspark==4.0.5", "pyarrow==26.0.1", "pandas==2.3.3")
TUNED: Final = Arm("tuned", "PySpark 4.0.5, tuned", "tuned_pyspark", _SPARK)
NAIVE: Final = Arm("naive", "PySpark 4.0.5, naive", "naive_pyspark", _SPARK, anew=True)
HEADWATER: Final = Arm("headwater", "Headwater", "with_headwater", lands=True)
# Interleaved in this order, phase by phase: Headwater in the middle, so that a drift of the machine favours nobody.
ARMS: Final = (FLOOR, DAFT, DATACHAIN, HEADWATER, PIXELTABLE, TUNED, NAIVE)
