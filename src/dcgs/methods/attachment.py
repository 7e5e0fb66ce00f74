"""Arrays that travel with the messages of a method, which does not see them.

An attachment is a list of numbers and some vectors. The numbers follow the method's own arrays as bytes, by
which the receiver knows that there is an attachment: methods send no bytes. A vector that is the first array
of the message already is not sent twice.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

import numpy as np

from dcgs.methods.reduction import Value
from dcgs.protocol import Inbox, Message, Outbox

# Arrays of the method's own message, or one of the two below; vectors; which of them is the first array.
_HEAD = struct.Struct("<bbb5x")
_ARRAY, _NOTHING = -1, -2


def attached(outbox: Outbox, parts: Mapping[int, Value], neighbors: Iterable[int]) -> Outbox:
    """Return the messages of an agent to its neighbors, with what is attached for some of them."""
    messages = dict(outbox) if isinstance(outbox, Mapping) else dict.fromkeys(neighbors, outbox)
    if any(_has_attachment(message) for message in messages.values()):
        raise TypeError(
            "the messages of a method must be arrays of float64 where agents certify a gap; the last array "
            "of one is of bytes. Send numbers, or give no gap."
        )
    if not parts:
        return outbox
    made: dict[tuple[int, int], Message] = {}  # equal messages are one object, which is encoded once
    for j, value in parts.items():
        key = id(messages.get(j)), id(value)
        if key not in made:
            made[key] = _joined(messages.get(j), value)
        messages[j] = made[key]
    return messages


def detached(inbox: Inbox) -> tuple[dict[int, Message], dict[int, Value]]:
    """Return the method's own messages, and what was attached to them."""
    own, parts = dict[int, Message](), dict[int, Value]()
    for j, received in inbox.items():
        if not _has_attachment(received):
            own[j] = received
            continue
        message, parts[j] = _split(j, received)
        if message is not None:
            own[j] = message
    return own, parts


def _has_attachment(message: Message) -> bool:
    return isinstance(message, tuple) and len(message) > 0 and message[-1].dtype == np.uint8


def _joined(message: Message | None, value: Value) -> Message:
    """Return a message with its attachment."""
    numbers, *vectors = value
    arrays = message if isinstance(message, tuple) else () if message is None else (message,)
    kind = len(arrays) if isinstance(message, tuple) else _NOTHING if message is None else _ARRAY
    same = next((k for k, vector in enumerate(vectors) if arrays and vector is arrays[0]), -1)
    sent = [vector for k, vector in enumerate(vectors) if k != same]
    head = _HEAD.pack(kind, len(vectors), same) + numbers.tobytes()
    return *arrays, *sent, np.frombuffer(head, dtype=np.uint8)


def _split(sender: int, message: Message) -> tuple[Message | None, Value]:
    """Return the method's own message, if there is one, and the attachment; raise if it is not complete."""
    assert isinstance(message, tuple)
    *arrays, head = message
    kind, count, same = _HEAD.unpack_from(head.tobytes()) if head.size >= _HEAD.size else (_NOTHING, -1, -1)
    size = 1 if kind == _ARRAY else max(kind, 0)
    if len(arrays) != size + count - (same >= 0) or head.size % 8 or (same >= 0 and size == 0):
        shapes = [part.shape for part in message]
        raise ValueError(
            f"a message must be a tuple of arrays of shapes that its last array describes; agent {sender} "
            f"sent one of shapes {shapes}, which is not."
        )
    numbers = np.frombuffer(head[_HEAD.size :].tobytes(), dtype=np.float64)
    own, vectors = tuple(arrays[:size]), list(arrays[size:])
    if same >= 0:
        vectors.insert(same, own[0])
    if kind == _NOTHING:
        return None, (numbers, *vectors)
    return own[0] if kind == _ARRAY else own, (numbers, *vectors)
