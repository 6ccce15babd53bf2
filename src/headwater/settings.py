"""Settings: one `headwater.toml`, then the environment, then options; each value knows where it came from.

Every setting documents itself: name with unit, default, range, one sentence. An unknown key is refused with the
nearest valid name.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headwater.errors import InvalidRequest, NotFound
from headwater.producer_section import SECTION, Producers, producer_sections, shown_sections
from headwater.setting import DEFAULT, Chosen, Setting, Value, checked

FILE_NAME: Final = "headwater.toml"


SETTINGS: Final = (
    Setting("raw.uri", "{lake}/raw", "Where raw objects are kept: a directory or s3://bucket/prefix."),
    Setting(
        "raw.part_bytes",
        8 << 20,
        "Objects up to this size are put whole; larger ones stream in parts.",
        minimum=5 << 20,
        maximum=1 << 30,
    ),
    Setting("put.customer", "", "Whose it is that is put, where nobody says; empty is nobody's."),
    Setting("put.producer", "", "By which name of [producers] is known what is put from here; empty is by none."),
    Setting("put.token", "", "The token by which a Kafka log's reader knows what is put from here.", secret=True),
    Setting("log.uri", "{lake}/log", "Where pointer events travel: a directory or kafka://host:port/topic."),
    Setting("log.retention_hours", 48, "How long the log keeps an event after it was published.", minimum=1),
    Setting("log.partitions", 4, "How many partitions a Kafka topic gets when it is made.", minimum=1, maximum=10_000),
    Setting("log.batch_events", 5_000, "The most events one micro-batch takes from a Kafka log.", minimum=1),
    Setting("log.batch_bytes", 4 << 20, "The most bytes of log segments one micro-batch takes.", minimum=1),
    Setting(
        "catalog.uri",
        "sqlite:///{lake}/catalog.db",
        "The Iceberg catalog: sqlite:///file, postgresql://… or https://… for REST.",
    ),
    Setting("catalog.token", "", "The token that an Iceberg REST catalog asks for.", secret=True),
    Setting("catalog.warehouse", "{lake}/warehouse", "Where the tables' files are kept: a directory or s3://…"),
    Setting(
        "catalog.sync",
        True,
        "Sync a local warehouse's files before a commit names them; false trusts the system's cache.",
    ),
    Setting("ledger.uri", "sqlite:///{lake}/ledger.db", "Leases, keys, runs: sqlite:///file or postgresql://…"),
    Setting("index.uri", "{lake}/index", "The vector index: a directory or s3://… for LanceDB."),
    Setting("index.cache_mb", 128, "How much of the index a process keeps in memory, as LanceDB's cache.", minimum=1),
    Setting("memo.uri", "{lake}/memo", "Where model results are remembered before tables are committed."),
    Setting(
        "memo.free_hours",
        168,
        "Maintenance drops free models' answers older than this, once their rows are committed; paid ones stay.",
        minimum=1,
    ),
    Setting(
        "checkpoints.uri", "{lake}/checkpoints", "Where Spark notes what it read of Kafka; a hint, never the truth."
    ),
    Setting("spark.master", "", "Spark's master URL; empty is this machine, all cores."),
    Setting(
        "spark.ship", "auto", "Python and packages for executors: packed, none, or auto (packed off this machine)."
    ),
    Setting("spark.memory_mb", 1024, "The driver JVM's heap.", minimum=512),
    Setting("run.trigger_seconds", 2.0, "How often a running stream looks for new events.", minimum=0.1),
    Setting(
        "run.freshness_seconds",
        10.0,
        "How long after a commit a running stream lets fewer than 100 new events wait for others; 0 is never.",
        minimum=0,
    ),
    Setting("run.batch_seconds", 30.0, "What a derivation batch is to take; its rows follow.", minimum=1),
    Setting(
        "run.patience_seconds",
        60.0,
        "How long a batch waits for one object; what takes longer is derived beside the run.",
        minimum=1,
    ),
    Setting("run.batch_rows", 20_000, "The most objects one derivation batch takes, per four workers.", minimum=1),
    Setting(
        "run.batch_bytes", 512 << 20, "The most raw bytes one derivation batch takes, per four workers.", minimum=1
    ),
    Setting(
        "run.driver_rows",
        0,
        "Batches of more rows than this never pass through the driver; 0 is 50,000, or 2,000 on a cluster.",
        minimum=0,
    ),
    Setting(
        "models.transcribe",
        "moonshine",
        "The speech model; on a machine that Moonshine has no wheel for, it is pocketsphinx.",
        fallback=("moonshine_voice", "pocketsphinx"),
    ),
    Setting("models.caption", "pp-ocr", "The model that reads text in pictures."),
    Setting("models.extract", "pdfium", "The model that reads text in documents."),
    Setting("models.scans", "pp-ocr", "The model that reads pages of documents that are only pictures."),
    Setting("models.embed", "static", "The embedder of texts."),
    Setting("models.picture", "", "The model that places pictures and words in one space; empty is none."),
    Setting("speech.channel_names", "", "Who speaks on a stereo call's channels: agent, customer; empty is 0, 1."),
    Setting(
        "limits.step_seconds",
        30.0,
        "What a step may take, plus limits.realtime_factor × the length of the media that it has decoded.",
        minimum=0.1,
    ),
    Setting(
        "limits.object_seconds",
        7_200.0,
        "The most that one object may take, all its steps together, whatever it claims or holds.",
        minimum=0.1,
    ),
    Setting("limits.realtime_factor", 5.0, "Seconds a speech model may take for each second of media.", minimum=0.1),
    Setting("limits.child_mb", 2048, "Memory a decoding child may add before it is stopped.", minimum=256),
    Setting(
        "limits.child_variables",
        "",
        "Environment variables that decoding children get besides the usual ones, with blanks between their names.",
    ),
    Setting("limits.pixels", 100_000_000, "The most pixels a picture or frame may have.", minimum=1),
    Setting("limits.media_minutes", 240, "The longest call or video that is processed.", minimum=1),
    Setting("limits.pages", 2_000, "The most pages a document may have.", minimum=1),
    Setting("limits.frames", 60, "The most key frames that are read in a video.", minimum=1),
    Setting("limits.object_mb", 4_096, "The largest object that is derived from.", minimum=1),
    Setting("s3.endpoint", "", "The S3 server's URL; empty is AWS."),
    Setting("s3.region", "us-east-1", "The S3 region."),
    Setting("s3.access_key", "", "The access key; empty asks the usual chain (environment, profile, role)."),
    Setting("s3.secret_key", "", "The secret key.", secret=True),
    Setting("s3.ca_file", "", "A PEM file with the authority that signed the S3 server's certificate."),
    Setting("s3.path_style", True, "Address buckets by path, as most servers other than AWS want it."),
    Setting(
        "s3.unconditional",
        False,
        "Put up with a server that ignores If-None-Match: objects are looked for before they are put.",
    ),
    Setting(
        "maintain.keep_hours",
        168,
        "How far back tables can be read, by the hour, in 168 steps at most; what was replaced is there for an hour.",
        minimum=1,
    ),
    Setting(
        "maintain.upload_hours",
        24,
        "Uploads to S3 that were begun so long ago and never completed are given up; no upload may take longer.",
        minimum=0,
    ),
    Setting("maintain.file_mb", 256, "The file size that compaction aims at.", minimum=1, maximum=512),
    Setting(
        "serve.upload_mb",
        4_096,
        "The most that one call may send to `headwater serve`; twice as much lies on disk until it is stored.",
        minimum=1,
        maximum=1 << 20,
    ),
    Setting("serve.calls_per_minute", 6_000, "How often one token may call `headwater serve`.", minimum=1),
    Setting("sql.timeout_seconds", 300.0, "How long a query of `headwater sql` may take.", minimum=0.1),
    Setting("sql.memory_mb", 2_048, "Memory that such a query, or its answer, may take.", minimum=256),
    Setting(
        "backup.keep_days",
        7,
        "How long a backup can be restored: a tag keeps the snapshots that it names, and their files.",
        minimum=1,
    ),
    Setting("telemetry.level", "info", "The least that logs/headwater.jsonl is told: debug, info, warning or error."),
)
BY_NAME: Final = {setting.name: setting for setting in SETTINGS}
# Sections whose keys are passed through as they are, quoted in TOML: [spark.conf] "spark.executor.memory" = "4g"
OPEN_SECTIONS: Final = ("spark.conf", "kafka.conf")
# [model.NAME] gives a model options and a name of its own; the model says which options there are.
MODEL_SECTION: Final = "model"
# Variables of ours that set no setting.
PREFIX: Final = "HEADWATER_"
OTHER_VARIABLES: Final = tuple(
    PREFIX + name for name in ("LAKE", "CACHE", "DEBUG", "STACK", "FAULT", "FAULT_VICTIM", "CLOCK_SKEW_SECONDS")
)
MASK: Final = "********"
# Up to the last @ before a path: a password may hold one itself.
_BESIDE_USER: Final = re.compile(r"(//[^/?#:@]*:)[^/?#]*@")
_IN_QUERY: Final = re.compile(r"\b(\w*password|\w*secret|\w*token)=[^&\s]*", re.IGNORECASE)


def masked(text: str) -> str:
    """An address without its password, wherever in it that stands."""
    return _IN_QUERY.sub(rf"\1={MASK}", _BESIDE_USER.sub(rf"\1{MASK}@", text))


@dataclass(frozen=True, slots=True)
class Settings:
    """All values of one lake. `lake` is its directory, absolute."""

    lake: Path
    chosen: Mapping[str, Chosen]
    open_sections: Mapping[str, Mapping[str, str]]
    models: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    producers: Producers = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        value = self.chosen[name].value
        return value.replace("{lake}", str(self.lake)) if isinstance(value, str) else value

    def text(self, name: str) -> str:
        return str(self[name])

    def whole(self, name: str) -> int:
        return int(self[name])

    def number(self, name: str) -> float:
        return float(self[name])

    def is_default(self, name: str) -> bool:
        """Whether nobody has set it."""
        return self.chosen[name].origin == DEFAULT

    def fallbacks(self) -> list[str]:
        """A sentence for each value that stands in for a default which this machine cannot have."""
        return [
            f"{setting.name} is {self[setting.name]}: {setting.default}, the default, has no package for this machine."
            for setting in SETTINGS
            if self.is_default(setting.name) and self.chosen[setting.name] != Chosen(setting.default, DEFAULT)
        ]

    def unheeded_variables(self, environment: Mapping[str, str]) -> list[str]:
        """A sentence for each variable that looks like one of ours, and that nobody reads: most likely a slip."""
        known = [*(setting.variable for setting in SETTINGS), *OTHER_VARIABLES]
        others = {str(value) for options in self.models.values() for value in options.values()}
        others |= {*self.text("limits.child_variables").replace(",", " ").split()}
        strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in {*known, *others})
        near = {name: difflib.get_close_matches(name, known, n=1, cutoff=0.6) for name in strange}
        return [
            f"The variable {name} sets nothing."
            + (f" Did you mean {near[name][0]}?" if near[name] else " All settings: headwater settings")
            for name in strange
        ]

    def section(self, name: str) -> Mapping[str, str]:
        return self.open_sections.get(name, {})

    def shown(self) -> list[dict[str, Any]]:
        """For `headwater settings`: every value with its origin; secrets masked."""
        return [
            {
                "name": setting.name,
                "value": _shown(setting, self[setting.name]),
                "origin": self.chosen[setting.name].origin,
                "purpose": setting.purpose,
            }
            for setting in SETTINGS
        ] + shown_sections(self.producers, FILE_NAME)


def _shown(setting: Setting, value: Value) -> Value:
    if not isinstance(value, str):
        return value
    return MASK if setting.secret and value else masked(value)


def load(
    lake: Path, options: Mapping[str, Value] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """Read the lake's settings; raises NotFound where no lake is, InvalidRequest on an unknown or bad value."""
    file = lake.absolute() / FILE_NAME
    if not file.is_file():
        raise NotFound(f"{lake} is not a lake: it has no {FILE_NAME}. Make one with: headwater init {lake}")
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{file} is not valid TOML: {error}") from error
    return resolve(lake, document, options or {}, os.environ if environment is None else environment)


def resolve(
    lake: Path, document: Mapping[str, Any], options: Mapping[str, Value], environment: Mapping[str, str]
) -> Settings:
    """File values, then environment, then options; nothing is read but which packages are there."""
    models = _model_sections(document.get(MODEL_SECTION, {}))
    producers = producer_sections(FILE_NAME, document.get(SECTION, {}))
    plain, opened = _flatten({name: body for name, body in document.items() if name not in {MODEL_SECTION, SECTION}})
    chosen = {setting.name: setting.default_here() for setting in SETTINGS}
    for name, value in plain.items():
        chosen[name] = Chosen(checked(_known(name), value, FILE_NAME), FILE_NAME)
    for setting in SETTINGS:
        if (text := environment.get(setting.variable)) is not None:
            chosen[setting.name] = Chosen(checked(setting, text, setting.variable), f"environment {setting.variable}")
    for name, value in options.items():
        chosen[name] = Chosen(checked(_known(name), value, "option"), "option")
    return Settings(lake.absolute(), chosen, opened, models, producers)


def _model_sections(body: Any) -> dict[str, dict[str, Value]]:
    if not isinstance(body, Mapping) or not all(isinstance(options, Mapping) for options in body.values()):
        raise InvalidRequest(f"{FILE_NAME}: a model's options stand in a section: [{MODEL_SECTION}.NAME]")
    for name, options in body.items():
        if odd := [key for key, value in options.items() if not isinstance(value, str | int | float | bool)]:
            raise InvalidRequest(f"{FILE_NAME}: {odd[0]} in [{MODEL_SECTION}.{name}] must be a text or a number.")
    return {name: dict(options) for name, options in body.items()}


def _flatten(document: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, dict[str, str]]]:
    plain: dict[str, Any] = {}
    opened: dict[str, dict[str, str]] = {}
    for section, body in document.items():
        if not isinstance(body, Mapping):
            _known(section)
            raise InvalidRequest(f"{FILE_NAME}: {section} must be a section, such as [{section}].")
        for key, value in body.items():
            name = f"{section}.{key}"
            if name in OPEN_SECTIONS:
                if not isinstance(value, Mapping):
                    raise InvalidRequest(f"{FILE_NAME}: {name} must be a section: [{name}]")
                opened[name] = {inner: str(text) for inner, text in value.items()}
            else:
                plain[name] = value
    return plain, opened


def _known(name: str) -> Setting:
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, [*BY_NAME, *OPEN_SECTIONS], n=1, cutoff=0.3)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InvalidRequest(f"Unknown setting {name}.{hint} All of them: headwater settings")
