"""What pyspark and py4j do by themselves and must not do here: print, log what is raised anyway, cut connections."""

import logging
from pathlib import Path


def quiet_pyspark() -> None:
    """py4j logs what it interrupts, and pyspark each query that fails; the caller gets the exception anyway.

    The server for accumulators, which nobody here uses, prints a traceback when the JVM goes.
    """
    from pyspark import accumulators
    from pyspark.logger import PySparkLogger

    accumulators.AccumulatorServer.handle_error = _say_nothing  # type: ignore[method-assign, assignment]

    # pyspark's logger takes other arguments than a plain one, so it must be made by its own class first.
    theirs = [PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    for logger in (logging.getLogger("py4j"), *theirs):
        logger.handlers[:] = [logging.NullHandler()]
        logger.propagate = False
    # An interrupted call is logged by py4j on the root logger.
    logging.getLogger().addFilter(_not_py4j)


def _say_nothing(*_: object) -> None:
    pass


def interrupt_one_connection() -> None:
    """Ctrl-C costs the call it interrupts its connection, and no other.

    py4j asks the JVM to close it, and the JVM then closes whatever is connected to its port: calls of other threads,
    which are made a second time, and the next one of this thread, which may have connected anew by then.
    """
    from py4j.clientserver import ClientServerConnection

    def close(connection: ClientServerConnection, remote_port: int, local_port: int) -> None:
        if connection.socket.getsockname()[1] == remote_port:
            connection.close()
        else:  # another thread's, which py4j has taken out of its keeping
            connection.java_client.deque.append(connection)

    ClientServerConnection.shutdown_socket = close


def _not_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts
