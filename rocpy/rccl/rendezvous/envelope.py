# SPDX-License-Identifier: MIT
"""Messages of a rendezvous: bounded JSON that carries the mark of a job, by HMAC."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from rocpy import platform

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MAX_BYTES", "job_key", "open_envelope", "parse_json", "seal"]

# The answer of rank 0 names the machine of each rank.
MAX_BYTES = 4 << 20


def job_key(shared: Sequence[str]) -> bytes:
    """Return the key of a job's messages.

    Parameters
    ----------
    shared
        What all processes of the job know alike, and other jobs do not. With ROCPY_RCCL_SECRET the key is made of that
        too; without it the key keeps jobs apart that meet by accident, and nobody out who wants to come in.
    """
    mark = json.dumps(["rocpy rendezvous 1", *shared]).encode()
    secret = platform.environment("ROCPY_RCCL_SECRET").encode("utf-8", "surrogateescape")
    return hmac.new(secret, mark, sha256).digest()


def _code(key: bytes, context: Sequence[str], body: str) -> str:
    return hmac.new(key, json.dumps([*context, body]).encode(), sha256).hexdigest()


def seal(key: bytes, context: Sequence[str], message: Mapping[str, Any]) -> dict[str, str]:
    """Return a message as it travels.

    Parameters
    ----------
    key
        The job's.
    context
        What else the mark holds for: direction, challenge, number of the message. A message does not pass elsewhere.
    message
        What is said.

    Examples
    --------
    >>> from rocpy.rccl.rendezvous.envelope import open_envelope, seal
    >>> open_envelope(b"key", ["a"], seal(b"key", ["a"], {"rank": 1}))
    {'rank': 1}
    >>> open_envelope(b"key", ["b"], seal(b"key", ["a"], {"rank": 1})) is None
    True
    """
    body = json.dumps(dict(message))
    return {"body": body, "mac": _code(key, context, body)}


def open_envelope(key: bytes, context: Sequence[str], envelope: Any) -> dict[str, Any] | None:
    """Return what a sealed message says; None where it does not carry the job's mark, or is nonsense."""
    if not isinstance(envelope, dict):
        return None
    body, mac = envelope.get("body"), envelope.get("mac")
    if not isinstance(body, str) or not isinstance(mac, str):
        return None
    if not hmac.compare_digest(_code(key, context, body).encode(), mac.encode("utf-8", "replace")):
        return None
    message = parse_json(body)
    return message if isinstance(message, dict) else None


def parse_json(text: bytes | str) -> Any:
    """Return the value of a JSON text from elsewhere; None for one that is wrong, too long, or too deep.

    Examples
    --------
    >>> from rocpy.rccl.rendezvous.envelope import parse_json
    >>> parse_json(b'[1]'), parse_json(b"[" * 100000), parse_json(b"{")
    ([1], None, None)
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return None
