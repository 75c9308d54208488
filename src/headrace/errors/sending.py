"""Why messages can't be sent to Kafka."""

from __future__ import annotations

from headrace.errors.root import Recovery
from headrace.errors.stops import Stopped


class MessageTooLarge(Stopped):
    """A message is larger than its topic takes."""

    code = "message-too-large"
    hint = (
        "Raise max.message.bytes of the topic that is named, and max-message-bytes; or leave the table or its large columns "
        "out (filter.rules, sink.column-selectors). The job then goes on at this message."
    )
    exit_code = 3


class TopicUnfit(Stopped):
    """A topic is not there and is not to be made, or it has fewer partitions than asked for."""

    code = "topic-unfit"
    hint = "Make the topic as it is named, or change partition-num, replication-factor or auto-create-topic."
    exit_code = 3


class TopicGone(Stopped):
    """A topic was deleted while it was written to, perhaps made anew by somebody else: what was sent is there no more."""

    code = "topic-gone"
    hint = (
        "Started again, the job makes the topic as partition-num says and goes on where it is. To have everything in it, "
        "begin anew: a new checkpoint, and --start first with --archive if retention has passed the beginning."
    )
    exit_code = 3


class BrokerUnavailable(Stopped):
    """No Kafka broker answers, or none took what was sent within its time."""

    code = "broker-unavailable"
    recovery = Recovery.WAIT
    hint = "Check the addresses in the sink URI, TLS and SASL, and that the brokers run; the job goes on by itself then."
