"""What can be wrong with a message of the Simple Protocol."""

from __future__ import annotations

from headrace.errors.stops import Stopped


class SimpleInvalid(Stopped):
    """A Simple message, or a value in it, is not what the protocol and the table's schema say."""

    code = "simple-invalid"
    hint = "Look at the message, the field and the expected type that are named: whoever wrote the message must mend it."
    exit_code = 3


class SimpleUnsupported(Stopped):
    """A Simple message uses a feature of the protocol, or a version of it, that this version does not read."""

    code = "simple-unsupported"
    hint = "Turn the named feature off where the messages are made."
    exit_code = 3


class SimpleSchemaMissing(Stopped):
    """Rows wait for the schema of their table's version, and no more of them fit into the memory set aside for it."""

    code = "simple-schema-missing"
    hint = "Have BOOTSTRAP messages sent to every partition, or give the consumer the schema that is named, or more memory."
    exit_code = 3


class SimpleBacklogFull(Stopped):
    """Rows wait for WATERMARK messages of every partition, and no more of them fit into the memory set aside for it."""

    code = "simple-backlog-full"
    hint = "Look why the partition that is named gets no WATERMARK, or give the consumer more memory."
    exit_code = 3
