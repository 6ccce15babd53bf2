"""Which intake a log has."""

from headwater.flow.drive.directory_intake import DirectoryIntake
from headwater.flow.drive.intake import Count, Intake
from headwater.flow.drive.stream_intake import StreamIntake
from headwater.flow.runner import Record, RunContext
from headwater.storage.log.directory_log import DirectoryLog


def open_intake(context: RunContext, record: Record, count: Count) -> Intake:
    """By the kind of log; what was lost is told to `count`."""
    kind = DirectoryIntake if isinstance(context.log, DirectoryLog) else StreamIntake
    return kind(context, record, count)
