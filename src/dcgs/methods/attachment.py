"""Arrays that travel with the messages of a method, which does not see them.

A part of an attachment is a list of numbers and some vectors. The numbers follow the method's own arrays and
the vectors as bytes, by which the receiver knows that there is an attachment: methods send no bytes. A vector
that is the first array of the message already is not sent twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np

from dcgs.methods.reduction import Value
from dcgs.points import Point
from dcgs.protocol import Inbox, Message, Outbox

# Arrays of the method's own message, or one of the two below; vectors of the part; which of them is the first
# array of the message; the channel of the part; parts before it.
_HEAD = struct.Struct("<bbbbb3x")
_ARRAY, _NOTHING = -1, -2

Parts: TypeAlias = list[tuple[int, Value]]
"""What is attached to one message: numbers and vectors, each with the number of its channel."""


def attached(outbox: Outbox, parts: Mapping[int, Parts], neighbors: Iterable[int]) -> Outbox:
    """Return the messages of an agent to its neighbors, with what is attached for some of them."""
    messages = dict(outbox) if isinstance(outbox, Mapping) else dict.fromkeys(neighbors, outbox)
    if any(_has_attachment(message) for message in messages.values()):
        raise TypeError(
            "the messages of a method must be arrays of float64 where agents certify a gap; the last array "
            "of one is of bytes. Send numbers, or give no gap."
        )
    if not parts:
        return outbox
    made: dict[tuple[int, ...], Message] = {}  # equal messages are one object, which is encoded once
    for j, attachments in parts.items():
        key = id(messages.get(j)), *(id(value) for _, value in attachments)
        if key not in made:
            made[key] = _joined(messages.get(j), attachments)
        messages[j] = made[key]
    return messages


def detached(inbox: Inbox) -> tuple[dict[int, Message], dict[int, Parts]]:
    """Return the method's own messages, and what was attached to them."""
    messages, parts = dict[int, Message](), dict[int, Parts]()
    for j, received in inbox.items():
        if not _has_attachment(received):
            messages[j] = received
            continue
        message, parts[j] = _split(j, received)
        if message is not None:
            messages[j] = message
    return messages, parts


def _has_attachment(message: Message) -> bool:
    return isinstance(message, tuple) and len(message) > 0 and message[-1].dtype == np.uint8


def _joined(message: Message | None, parts: Parts) -> Message:
    """Return a message with its attachment."""
    arrays = message if isinstance(message, tuple) else () if message is None else (message,)
    kind = len(arrays) if isinstance(message, tuple) else _NOTHING if message is None else _ARRAY
    sent = list[Point]()
    for before, (channel, (numbers, *vectors)) in enumerate(parts):
        same = next((k for k, vector in enumerate(vectors) if arrays and vector is arrays[0]), -1)
        head = _HEAD.pack(kind, len(vectors), same, channel, before) + numbers.tobytes()
        sent += [vector for k, vector in enumerate(vectors) if k != same]
        sent.append(np.frombuffer(head, dtype=np.uint8))
    return *arrays, *sent


def _split(sender: int, message: Message) -> tuple[Message | None, Parts]:
    """Return the method's own message, if there is one, and the attachment; raise if it is not complete."""
    assert isinstance(message, tuple)
    left, parts, kind, before = list(message), Parts(), _NOTHING, 1
    try:
        while before:
            head = left.pop().tobytes()
            kind, count, same, channel, before = _HEAD.unpack_from(head)
            numbers = np.frombuffer(head[_HEAD.size :], dtype=np.float64)
            sent = count - (same >= 0)
            vectors = left[len(left) - sent :]
            del left[len(left) - sent :]
            if same >= 0:
                vectors.insert(same, message[0])
            if len(vectors) != count or (same >= 0 and kind in (_NOTHING, 0)):
                raise ValueError
            parts.insert(0, (channel, (numbers, *vectors)))
        if len(left) != (1 if kind == _ARRAY else max(kind, 0)):
            raise ValueError
    except (IndexError, struct.error, ValueError) as error:
        shapes = [part.shape for part in message]
        raise ValueError(
            f"a message must be a tuple of arrays of shapes that its last array describes; agent {sender} "
            f"sent one of shapes {shapes}, which is not."
        ) from error
    if kind == _NOTHING:
        return None, parts
    return left[0] if kind == _ARRAY else tuple(left), parts
