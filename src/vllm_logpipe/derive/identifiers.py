"""Trace, span and incident ids, derived from what they identify: a replay gives the same ones."""

from __future__ import annotations

from hashlib import blake2b


def trace_id(*parts: object) -> str:
    """32 hex digits for what the parts identify."""
    return _digest(parts, 16)


def span_id(*parts: object) -> str:
    """16 hex digits for what the parts identify."""
    return _digest(parts, 8)


def trace_and_span_id(*parts: object) -> tuple[str, str]:
    """Both ids at once, for a trace whose root span is what the parts identify."""
    digest = _digest(parts, 24)
    return digest[:32], digest[32:]


def _digest(parts: tuple[object, ...], size: int) -> str:
    text = "\0".join(map(str, parts))
    return blake2b(text.encode("utf-8", "backslashreplace"), digest_size=size).hexdigest()
