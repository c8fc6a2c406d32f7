"""Workers exchange parts of their results directly, without the scheduler and the client.

A task keeps a list of parts in its process (`keep`) and returns only their place. The task that finishes a part
fetches it from all processes (`merge_parts`). These keep it until a task of a later run of the same client comes, or
the client says that it ends, or another begins when it has gone (cluster.py), so that another worker can finish it too
when the first one is slow. A part whose process has gone is lost, and the client starts its tasks again.
"""

from __future__ import annotations

import asyncio
import builtins
import pickle
import secrets
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeVar

Part = TypeVar("Part")

# The operation of Dask's workers by which they request parts from each other.
_OPERATION = "bigforest_give"
# Parts on their way to a task at once.
_AT_ONCE = 4


class HeldParts(NamedTuple):
    """Where parts are: in the worker of this address, under this key. bytes: of all of them, packed; part: a single one
    that is small, packed."""

    address: str
    key: str
    bytes: int
    part: builtins.bytes = b""


class LostPart(Exception):
    """A part is not where it was, in the worker of this address: its process has gone."""


class RunNumber(NamedTuple):
    """The number of a run among those of a client: the name that Dask has for it, a slash, and a mark of its own."""

    client: str
    number: int


_LOCK = threading.Lock()
_HELD: dict[str, tuple[RunNumber, list[bytes]]] = {}


def keep(run: RunNumber, parts: Sequence[Any], small: int) -> HeldParts:
    """Keep parts in this worker, packed, until a later run of the client; a single one of at most `small` bytes is in
    the result too."""
    from distributed import get_worker

    here = get_worker()
    here.handlers[_OPERATION] = _give_part
    packed = [pickle.dumps(part) for part in parts]
    key = secrets.token_hex(16)
    with _LOCK:
        _HELD[key] = run, packed
    size = sum(map(len, packed))
    return HeldParts(str(here.address), key, size, packed[0] if len(packed) == 1 and size <= small else b"")


def forget(run: RunNumber, *, earlier: bool = False) -> None:
    """Drop the parts of a run, or those of all earlier ones of its client."""
    with _LOCK:
        same = [(key, own) for key, (own, _) in _HELD.items() if own.client == run.client]
        for key, own in same:
            if own < run if earlier else own == run:
                del _HELD[key]


def forget_others(clients: Collection[str]) -> None:
    """Drop the parts of all clients of Dask but these."""
    with _LOCK:
        for key in [key for key, (own, _) in _HELD.items() if own.client.split("/")[0] not in clients]:
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
        return _HELD[key][1][number] if key in _HELD else b""


def _give_part(key: str, number: int) -> dict[str, Any]:
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
