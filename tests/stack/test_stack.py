"""The stack itself: ready means ready, twice is once, what is killed comes back, and nobody else is touched."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater.cli.main import main
from headwater.errors import Conflict, InvalidRequest, NotFound, Unavailable
from headwater.settings import Settings, load
from headwater.stack.process import Command, is_running, start
from headwater.stack.stack import GROUPS, PARTS, Stack
from headwater.stack.state import STATE, read_state, write_state

NAMES = [part.name for part in PARTS]


@pytest.fixture
def running(stack: Stack) -> Stack:
    stack.up()
    return stack


def pids(stack: Stack) -> dict[str, int | None]:
    return {name: part["pid"] for name, part in stack.parts().items()}


def make_topic(address: str, name: str) -> None:
    client = AdminClient({"bootstrap.servers": address})  # it must outlive its answer
    client.create_topics([NewTopic(name, 1, 1)])[name].result(20)


def produce(address: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "acks": "all"})
    producer.produce(topic, value)
    assert producer.flush(20) == 0


def consume(address: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def test_what_is_up_runs_in_the_background_and_listens_on_loopback_only(running: Stack) -> None:
    assert list(pids(running)) == NAMES
    for name, pid in pids(running).items():
        process = psutil.Process(pid)
        listening = [found.laddr.ip for found in process.net_connections() if found.status == psutil.CONN_LISTEN]
        assert listening and {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}, name


def test_up_twice_is_once_even_at_the_same_time(running: Stack) -> None:
    before = pids(running)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: Stack(running.directory).up(), range(2)))
    assert pids(running) == before


def test_a_broker_that_was_killed_comes_back_on_its_port_with_its_messages(stack: Stack, kafka_uri: str) -> None:
    address, _, topic = kafka_uri.removeprefix("kafka://").partition("/")
    make_topic(address, topic)
    produce(address, topic, b"before")
    stack.kill("kafka")
    assert stack.parts()["kafka"]["pid"] is None
    stack.up(["kafka"])
    produce(address, topic, b"after")
    assert consume(address, topic, 2) == [b"before", b"after"]


def test_an_object_store_that_was_killed_comes_back_with_its_objects(stack: Stack, s3_client: Any, bucket: str) -> None:
    s3_client.put_object(Bucket=bucket, Key="a/b", Body=b"kept", IfNoneMatch="*")
    stack.kill("s3")
    stack.restart("s3")
    assert s3_client.get_object(Bucket=bucket, Key="a/b")["Body"].read() == b"kept"


def test_the_object_store_keeps_versions_where_it_is_asked_to(s3_client: Any, bucket: str) -> None:
    s3_client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    for body in (b"first", b"second"):
        s3_client.put_object(Bucket=bucket, Key="a", Body=body)
    assert len(s3_client.list_object_versions(Bucket=bucket)["Versions"]) == 2


def test_a_database_that_was_killed_comes_back_with_its_rows(stack: Stack, postgres_uri: str) -> None:
    with psycopg.connect(postgres_uri) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS number")
    stack.kill("postgres")
    stack.up(["postgres"])
    with psycopg.connect(postgres_uri) as connection:
        assert connection.execute("SELECT number FROM kept").fetchone() == (7,)


def test_the_database_decodes_its_log(postgres_uri: str) -> None:
    with psycopg.connect(postgres_uri, autocommit=True) as connection:
        slot = postgres_uri.rpartition("/")[2]
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", (slot,))
        connection.execute("CREATE TABLE changes (number int)")
        connection.execute("INSERT INTO changes VALUES (7)")
        changes = connection.execute("SELECT data FROM pg_logical_slot_get_changes(%s, NULL, NULL)", (slot,)).fetchall()
        connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    assert any("number[integer]:7" in line for (line,) in changes)


def test_the_database_asks_for_its_password(postgres_uri: str) -> None:
    owner, _, place = postgres_uri.rpartition("@")
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(owner.rpartition(":")[0] + ":wrong@" + place)


SPREAD = """
import os, sys, time
from pyspark.sql import SparkSession
session = SparkSession.builder.master(sys.argv[1]).config("spark.driver.host", "127.0.0.1")
session = session.config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
session = session.config("spark.scheduler.minRegisteredResourcesRatio", "1").getOrCreate()
def run(_):
    time.sleep(1)
    yield os.environ["PYSPARK_PYTHON"], os.path.dirname(os.getcwd())
print(sorted(set(session.sparkContext.parallelize(range(4), 4).mapPartitions(run).collect())))
"""


def test_jobs_run_on_both_workers_with_this_python_and_on_one_that_came_back(stack: Stack, cluster_url: str) -> None:
    stack.kill("spark-worker-1")
    stack.up(["spark"])
    job = [sys.executable, "-c", SPREAD, cluster_url]
    done = subprocess.run(job, check=False, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count(sys.executable) == 2
    assert all(f"spark-worker-{number}" in done.stdout for number in (1, 2))


def test_the_stack_is_a_lake_whose_settings_name_every_server(running: Stack) -> None:
    settings: Settings = load(running.directory, environment={})
    parts = running.parts()
    assert settings.text("log.uri") == parts["kafka"]["url"]
    assert settings.text("catalog.uri") == settings.text("ledger.uri") == parts["postgres"]["url"]
    assert settings.text("s3.endpoint") == parts["s3"]["url"]
    assert settings.text("spark.master") == parts["spark-master"]["url"]
    assert all(settings.text(name).startswith("s3://") for name in ("raw.uri", "catalog.warehouse", "index.uri"))
    assert settings.section("spark.conf")["spark.driver.host"] == "127.0.0.1"


# Of the files that are named on its input, those that it can read.
READER = ["xargs", "-0", "sh", "-c", 'for file; do [ -r "$file" ] && echo "$file"; done; true', "sh"]


def test_what_a_stack_holds_is_closed_to_every_other_user(running: Stack, s3_client: Any, bucket: str) -> None:
    s3_client.put_object(Bucket=bucket, Key="a/b", Body=b"secret")
    files = [str(file) for file in running.directory.rglob("*") if file.is_file()]
    assert any(name.endswith("a/b") for name in files) and any("postgres" in name for name in files)
    assert running.directory.stat().st_mode & 0o067 == 0
    for part in (*NAMES, "logs"):
        assert (running.directory / part).stat().st_mode & 0o077 == 0, part
    if os.geteuid() == 0:  # even who knows their names
        nobody = {"user": "nobody", "group": "nogroup", "extra_groups": []}
        reader = subprocess.run(READER, input="\0".join(files), cwd="/", stdout=-1, text=True, check=True, **nobody)
        assert reader.stdout == ""


def test_a_directory_that_was_open_to_all_is_closed_by_the_next_start(open_directory: Path) -> None:
    stack = Stack(open_directory)
    stack.up(["s3"])
    stack.down()
    for place in (open_directory, open_directory / "s3", open_directory / "logs"):
        place.chmod(0o755)
    stack.up(["s3"])
    assert all(place.stat().st_mode & 0o077 == 0 for place in (open_directory, open_directory / "s3"))


def test_a_users_own_settings_outlive_the_next_start(open_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["up", "--dir", str(open_directory), "--only"]
    assert main([*where, "s3"]) == 0
    file = open_directory / "headwater.toml"
    file.write_text(file.read_text().replace('uri = "s3://headwater/raw"', 'uri = "s3://mine/raw"'))
    mine = file.read_text()
    capsys.readouterr()
    assert main([*where, "s3"]) == 0
    assert file.read_text() == mine
    assert "is kept as it is" in capsys.readouterr().err


def test_keys_are_read_by_their_owner_only_and_told_to_nobody(
    running: Stack, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (STATE, "headwater.toml", "stack.toml"):
        assert (running.directory / name).stat().st_mode & 0o077 == 0
    assert main(["up", "--dir", str(running.directory), "--json"]) == 0
    said = capsys.readouterr()
    assert set(json.loads(said.out)["parts"]) == set(NAMES)
    for secret in read_state(running.directory).keys.values():
        assert secret not in said.out + said.err
        assert not any(secret in " ".join(psutil.Process(pid).cmdline()) for pid in pids(running).values())


def test_up_and_down_from_the_command_line(open_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--dir", str(open_directory)]
    assert main(["up", *place, "--only", "postgres"]) == 0
    pid = pids(Stack(open_directory))["postgres"]
    said = capsys.readouterr().out
    assert pid is not None and f"{pid}" in said
    # What is printed is what a fresh stack needs.
    assert f"headwater init {open_directory}" in said
    assert main(["init", str(open_directory)]) == main(["status", "--lake", str(open_directory)]) == 0
    assert main(["down", *place]) == 0
    assert pids(Stack(open_directory)) == {"postgres": None} and not psutil.pid_exists(pid)
    assert main(["up", *place, "--only", "postgres"]) == 0
    assert main(["down", *place, "--purge"]) == 0
    assert not open_directory.exists()
    assert main(["down", *place]) == 0


def test_a_part_that_does_not_stay_up_is_reported_with_the_end_of_its_log(open_directory: Path) -> None:
    stack = Stack(open_directory)
    stack.up(["postgres"])
    stack.down()
    (open_directory / "postgres/data/PG_VERSION").write_text("1\n")
    with pytest.raises(Unavailable, match=r"postgres did not stay up(.|\n)*incompatible"):
        stack.up(["postgres"])


def test_a_port_that_somebody_else_took_is_not_fought_for(open_directory: Path) -> None:
    stack = Stack(open_directory)
    stack.up(["s3"])
    stack.down()
    port = read_state(open_directory).ports["s3"]
    listen = f"listening = socket.create_server(('127.0.0.1', {port}))"
    code = f"import signal, socket; {listen}; print(1, flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(Conflict, match=str(port)):
            stack.up(["s3"])
        assert other.poll() is None
        other.kill()


def test_a_process_that_only_has_our_number_is_left_alone(tmp_path: Path) -> None:
    other = start(Command(["sleep", "60"]), tmp_path, tmp_path / "log")
    stack = Stack(tmp_path / "stack")
    stack.directory.mkdir()
    state = read_state(stack.directory)
    state.allot(["kafka", "kafka-controller"], [])
    state.processes["kafka"] = type(other)(other.pid, "another time")
    write_state(stack.directory, state)
    stack.kill("kafka")
    assert stack.down() == []
    assert is_running(other)
    psutil.Process(other.pid).send_signal(signal.SIGKILL)


def test_a_directory_that_holds_other_things_is_refused_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(Conflict):
        Stack(tmp_path).up(["s3"])
    assert Stack(tmp_path).down(purge=True) == []
    assert main(["down", "--dir", str(tmp_path), "--purge"]) == NotFound.exit_code
    assert "nothing was deleted" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_an_unknown_part_and_a_missing_stack_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=", ".join(GROUPS)):
        Stack(tmp_path / "stack").up(["cassandra"])
    with pytest.raises(NotFound, match="headwater up"):
        Stack(tmp_path / "stack").restart("kafka")
    assert not (tmp_path / "stack").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the database as somebody else")
def test_a_place_that_the_database_cannot_enter_is_told_before_it_is_tried(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with pytest.raises(InvalidRequest, match="--dir"):
        Stack(tmp_path / "stack").up(["postgres"])
