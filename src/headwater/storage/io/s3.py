"""S3: the settings of one server, told to each library that speaks to it; and what counts as one location.

Five libraries reach the same buckets: obstore and boto3 (raw objects, memo), PyArrow (tables without a JVM), LanceDB
(the index) and Iceberg's S3FileIO in Spark (tables). Each has its own words for endpoint, key, addressing and
authority; they are said here and nowhere else. Empty keys ask the usual chain: environment, profile, role.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

from headwater.errors import InvalidRequest
from headwater.settings import Settings
from headwater.storage.io.certificates import read_authority, trust_in_process

if TYPE_CHECKING:
    import boto3
    from obstore.store import S3Store

# Hadoop's names for the same thing; a table written under one is read under another.
SCHEMES: Final = ("s3", "s3a", "s3n")
RETRY_SECONDS = 30.0  # a server that is restarting is waited for; one that is gone is not
REQUEST_SECONDS: Final = 3600.0
ATTEMPTS: Final = 8  # with the SDKs' growing pauses a server may say SlowDown for half a minute
FILE_IO: Final = "headwater.storage.tables.s3_file_io.S3Files"


def is_s3(uri: str) -> bool:
    return uri.partition("://")[0] in SCHEMES and "://" in uri


def one_spelling(uri: str) -> str:
    """`s3a://b/p/` and `s3n://b/p` are `s3://b/p`; what is not on S3 is left as it is."""
    return f"s3://{uri.partition('://')[2].rstrip('/')}" if is_s3(uri) else uri


@dataclass(frozen=True, slots=True)
class S3Target:
    """A place on a server and with whose key it is reached."""

    bucket: str
    prefix: str
    endpoint: str
    region: str
    access_key: str
    secret_key: str = field(repr=False)
    path_style: bool
    ca_file: str = ""
    unconditional: bool = False

    @classmethod
    def from_settings(cls, uri: str, settings: Settings, name: str = "raw.uri") -> Self:
        bucket, _, prefix = uri.partition("://")[2].partition("/")
        if not bucket:
            raise InvalidRequest(f"{name} names no bucket. Use s3://bucket/prefix.")
        if ca_file := settings.text("s3.ca_file"):
            read_authority(ca_file)
        return cls(
            bucket=bucket,
            prefix=prefix.strip("/"),
            endpoint=settings.text("s3.endpoint"),
            region=settings.text("s3.region"),
            access_key=settings.text("s3.access_key"),
            secret_key=settings.text("s3.secret_key"),
            path_style=bool(settings["s3.path_style"]),
            ca_file=ca_file,
            unconditional=bool(settings["s3.unconditional"]),
        )

    @property
    def uri(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def session(self) -> "boto3.Session":
        import boto3

        return boto3.Session(self.access_key or None, self.secret_key or None, region_name=self.region)

    def client(self, session: "boto3.Session") -> Any:
        from botocore.config import Config

        config = Config(
            s3={"addressing_style": "path" if self.path_style else "virtual"},
            connect_timeout=RETRY_SECONDS,
            retries={"mode": "standard", "max_attempts": ATTEMPTS},
            # Servers other than AWS do not all know the newer trailing checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        verify = self.ca_file or None
        return session.client("s3", endpoint_url=self.endpoint or None, config=config, verify=verify)

    def store(self, session: "boto3.Session | None" = None) -> "S3Store":
        """Without a session, boto3, which takes half a second to load, is asked only where the settings have no key."""
        from obstore.store import S3Store

        config: dict[str, Any] = {
            "region": self.region,
            "virtual_hosted_style_request": not self.path_style,
            # A bucket that locks objects takes none without a checksum; the signature needs this hash anyway.
            "checksum_algorithm": "SHA256",
        }
        if session is None and self.access_key:
            config |= {"access_key_id": self.access_key, "secret_access_key": self.secret_key}
        if self.endpoint:
            config["endpoint"] = self.endpoint if self.path_style else self._virtual_endpoint()
        return S3Store(
            self.bucket,
            prefix=self.prefix or None,
            config=config,  # type: ignore[arg-type]
            client_options=self._client_options(),
            credential_provider=self._credentials(session),
            # obstore's own default goes on for three minutes.
            retry_config={"retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )

    def _credentials(self, session: "boto3.Session | None") -> Any:
        if session is None and self.access_key:
            return None
        from obstore.auth.boto3 import Boto3CredentialProvider

        return Boto3CredentialProvider(session or self.session())

    @classmethod
    def from_iceberg(cls, bucket: str, properties: Mapping[str, str]) -> Self:
        """What `iceberg` told, read again: PyIceberg makes its files by properties alone."""
        value_of = properties.get
        return cls(
            bucket=bucket,
            prefix="",
            endpoint=value_of("s3.endpoint", ""),
            region=value_of("s3.region", ""),
            access_key=value_of("s3.access-key-id", ""),
            secret_key=value_of("s3.secret-access-key", ""),
            path_style=value_of("s3.force-virtual-addressing") != "true",
            ca_file=value_of("headwater.s3.ca-file", ""),
        )

    def iceberg(self) -> dict[str, str]:
        """For PyIceberg's catalog."""
        return _given(
            {
                "py-io-impl": FILE_IO,
                "s3.endpoint": self.endpoint,
                "s3.region": self.region,
                "s3.access-key-id": self.access_key,
                "s3.secret-access-key": self.secret_key,
                "s3.force-virtual-addressing": "" if self.path_style else "true",
                "headwater.s3.ca-file": self.ca_file,
            }
        )

    def spark(self) -> dict[str, str]:
        """For Spark's catalog, without its prefix; one's own authority goes to the JVM as a whole, in `trust`."""
        return _given(
            {
                "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
                "client.region": self.region,
                "s3.endpoint": self.endpoint,
                "s3.path-style-access": "true" if self.path_style else "false",
                "s3.access-key-id": self.access_key,
                "s3.secret-access-key": self.secret_key,
                "s3.retry.num-retries": str(ATTEMPTS),
                "s3.retry.min-wait-ms": "250",
            }
        )

    def lance(self) -> dict[str, str]:
        """For LanceDB, which knows neither profiles nor an authority of one's own: the chain is asked here."""
        if self.ca_file:
            trust_in_process(self.ca_file)
        found = self.session().get_credentials() if not self.access_key else None
        keys = found.get_frozen_credentials() if found else None
        return _given(
            {
                "endpoint": self.endpoint if self.path_style or not self.endpoint else self._virtual_endpoint(),
                "region": self.region,
                "access_key_id": keys.access_key if keys else self.access_key,
                "secret_access_key": keys.secret_key if keys else self.secret_key,
                "session_token": (keys.token or "") if keys else "",
                "allow_http": "true" if self.endpoint.startswith("http://") else "",
                "virtual_hosted_style_request": "" if self.path_style else "true",
                "client_max_retries": str(ATTEMPTS),
            }
        )

    def _client_options(self) -> Any:
        options: dict[str, Any] = {
            "allow_http": self.endpoint.startswith("http://"),
            # By default all of a request must be over in 30 s, however large its body; it is silence that tells.
            "timeout": timedelta(seconds=REQUEST_SECONDS),
            "read_timeout": timedelta(seconds=RETRY_SECONDS),
        }
        return options | ({"root_certificate": read_authority(self.ca_file)} if self.ca_file else {})

    def _virtual_endpoint(self) -> str:
        """These two want the bucket's own host where buckets are hosts."""
        scheme, _, host = self.endpoint.partition("://")
        return f"{scheme}://{self.bucket}.{host}"


def _given(options: Mapping[str, str]) -> dict[str, str]:
    """An empty value is left to the library's own default."""
    return {name: value for name, value in options.items() if value}
