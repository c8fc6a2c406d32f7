"""Workers exchange parts of their results directly, without the scheduler and the client.

A task keeps a list of parts in its process (`keep`) and returns only their place. The task that finishes a part
takes it from all processes (`merge_parts`), each of which then forgets it. A part whose process has gone is lost, and
the client starts its tasks again.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

Part = TypeVar("Part")

# The operation of Dask's workers by which they request parts from each other.
_OPERATION = "bigforest_take"
# Parts on their way to a task at once.
_AT_ONCE = 4


class HeldParts(NamedTuple):
    """Where parts are: in the worker of this address, under this key. bytes: of all of them, packed."""

    address: str
    key: str
    bytes: int


class LostPart(Exception):
    """A part is not where it was, in the worker of this address: its process has gone, or another attempt of the task
    has taken it."""


_LOCK = threading.Lock()
_HELD: dict[str, dict[int, bytes]] = {}


def keep(key: str, parts: Sequence[Any]) -> HeldParts:
    """Keep parts in this worker, packed, until they are taken. key: of no other task, nor of another attempt."""
    from distributed import get_worker

    here = get_worker()
    here.handlers[_OPERATION] = _take_part
    packed = {number: pickle.dumps(part) for number, part in enumerate(parts)}
    with _LOCK:
        _HELD[key] = packed
    return HeldParts(str(here.address), key, sum(map(len, packed.values())))


def forget(run: str) -> None:
    """Drop the remaining parts whose key begins with `run`."""
    with _LOCK:
        for key in [key for key in _HELD if key.startswith(run)]:
            del _HELD[key]


def merge_parts(held: Sequence[HeldParts], number: int, merge: Callable[[Part, Part], Part]) -> Part:
    """Part `number` of all these, merged in pairs. Raises LostPart."""
    from distributed import get_worker
    from distributed.utils import sync

    here = get_worker()
    waiting = [_own_part(one.key, number) for one in held if one.address == here.address]
    if not all(waiting):
        raise LostPart(here.address)
    others = [one for one in held if one.address != here.address]
    found: list[Part] = []
    while waiting or others:
        waiting += sync(here.loop, _fetch, here, others[:_AT_ONCE], number)
        del others[:_AT_ONCE]
        while waiting:
            part: Part = pickle.loads(waiting.pop())
            found = [merge(found[0], part)] if found else [part]
    return found[0]


def _own_part(key: str, number: int) -> bytes:
    """The packed part, which is empty where there is none."""
    with _LOCK:
        parts = _HELD.get(key, {})
        part = parts.pop(number, b"")
        if key in _HELD and not parts:
            del _HELD[key]
        return part


def _take_part(key: str, number: int) -> dict[str, Any]:
    """What a worker answers another."""
    from distributed.protocol import to_serialize

    part = _own_part(key, number)
    return {"status": "OK", "part": to_serialize(part) if part else part}


async def _fetch(here: Any, held: Sequence[HeldParts], number: int) -> list[bytes]:
    """Part `number` of some workers. Raises LostPart."""
    return list(await asyncio.gather(*(_fetch_one(here, one, number) for one in held)))


async def _fetch_one(here: Any, held: HeldParts, number: int) -> bytes:
    try:
        reply = await getattr(here.rpc(held.address), _OPERATION)(key=held.key, number=number)
    except (OSError, TimeoutError) as error:
        raise LostPart(held.address) from error
    if not isinstance(reply, dict) or not reply.get("part"):
        raise LostPart(held.address)
    return bytes(reply["part"])
