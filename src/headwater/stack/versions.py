"""What the stack is made of, pinned: a version changes here and nowhere else."""

from typing import Final

from headwater.stack.ivy import Module

KAFKA: Final = "3.9.2"
KAFKA_MODULES: Final = (
    Module("org.apache.kafka", "kafka_2.13", KAFKA),
    Module("org.slf4j", "slf4j-reload4j", "1.7.36"),
)
KAFKA_JARS_SHA256: Final = "a306d3d7b3e6971ae0595a1d6465f6f1345606875af557c0575dff2fdb7e93e1"

VERSITYGW: Final = "1.8.0"
# Go checks the module's bytes itself, against its public checksum database.
VERSITYGW_MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"

# The distribution chooses the minor version; logical decoding as we use it is the same since 14.
OLDEST_POSTGRES: Final = 14
