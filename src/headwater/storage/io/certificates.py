"""Trust: one's own authority, beside the usual ones, for those who are told of it only by a file of their kind.

Reads   s3.ca_file, the system's authorities, Java's
Writes  <cache>/trust/<digest>.pem and <digest>.p12
Key     the content, so that an authority that was renewed gets another file, and twice is once.

boto3, obstore and Arrow take the PEM file itself. Spark's JVMs want a store in Java's format, and LanceDB asks nothing
but the environment.
"""

import hashlib
import os
import re
import shlex
import shutil
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from headwater.errors import InvalidRequest, Unavailable
from headwater.settings import Settings
from headwater.storage.io.cache import cache_directory
from headwater.storage.io.java import check_java

# Where systems keep all their authorities in one file, for those whose Python was built to look elsewhere.
_SYSTEM: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_VARIABLE: Final = "SSL_CERT_FILE"
_PASSWORD: Final = "changeit"
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def read_authority(ca_file: str) -> bytes:
    """The PEM; InvalidRequest where it is not one."""
    try:
        content = Path(ca_file).read_bytes()
    except OSError as error:
        raise InvalidRequest(
            f"s3.ca_file is {ca_file}: {error.strerror}. Every machine of a cluster needs it at the same place."
        ) from error
    if not _CERTIFICATE.search(content):
        raise InvalidRequest(f"s3.ca_file is {ca_file}, which holds no certificate in PEM format.")
    return content


def trust_in_process(ca_file: str) -> None:
    """For libraries that read SSL_CERT_FILE; who trusted the usual authorities goes on trusting them."""
    usual = os.environ.get(_VARIABLE) or ssl.get_default_verify_paths().cafile
    found = next((Path(file) for file in (usual, *_SYSTEM) if file and Path(file).is_file()), None)
    known, own = found.read_bytes() if found else b"", read_authority(ca_file)
    if own not in known:
        os.environ[_VARIABLE] = str(
            _kept(known + b"\n" + own, ".pem", lambda file: file.write_bytes(known + b"\n" + own))
        )


def trusting_conf(settings: Settings, conf: Mapping[str, str]) -> dict[str, str]:
    """What makes Spark's JVMs trust it; the store travels to executors, whose directory is where files arrive."""
    ca_file = settings.text("s3.ca_file")
    if not ca_file:
        return {}
    store = java_store(ca_file)
    files = ",".join(filter(None, (conf.get("spark.files"), str(store))))
    places = {"driver": str(store), "executor": store.name}
    options = {f"spark.{jvm}.extraJavaOptions": _java_options(place) for jvm, place in places.items()}
    # Theirs last: the last word on a property counts.
    return {"spark.files": files} | {name: f"{own} {conf.get(name, '')}".strip() for name, own in options.items()}


def java_store(ca_file: str) -> Path:
    """Java's own authorities and this one."""
    home = check_java().executable.parent.parent
    usual, own = home / "lib" / "security" / "cacerts", read_authority(ca_file)

    def make(file: Path) -> None:
        if usual.is_file():
            shutil.copyfile(usual, file)
        for number, certificate in enumerate(_CERTIFICATE.findall(own)):
            _import(home / "bin" / "keytool", file, f"headwater-{number}", certificate)

    return _kept(b"\n".join((usual.read_bytes() if usual.is_file() else b"", own)), ".p12", make)


def _java_options(store: str) -> str:
    given = {"trustStore": store, "trustStorePassword": _PASSWORD}
    return " ".join(shlex.quote(f"-Djavax.net.ssl.{name}={value}") for name, value in given.items())


def _import(keytool: Path, store: Path, alias: str, certificate: bytes) -> None:
    line = [str(keytool), "-importcert", "-noprompt", "-trustcacerts", "-alias", alias, "-storepass", _PASSWORD]
    try:
        done = subprocess.run([*line, "-keystore", str(store)], check=False, input=certificate, capture_output=True)
    except OSError as error:
        raise Unavailable(
            f"{keytool} does not run ({error.strerror}), and Spark trusts s3.ca_file by its help; install Java again."
        ) from error
    if done.returncode:
        output = done.stdout.decode(errors="replace").strip()
        raise InvalidRequest(f"Java does not take the certificate of s3.ca_file: {output[-200:]}")


def _kept(content: bytes, suffix: str, make: Callable[[Path], object]) -> Path:
    """The file made from this content, whole or not at all."""
    target = cache_directory() / "trust" / f"{hashlib.sha256(content).hexdigest()[:16]}{suffix}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as scratch:
            made = Path(scratch, target.name)
            make(made)
            made.replace(target)
    return target
