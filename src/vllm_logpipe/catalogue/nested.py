"""Values inside values: `k=v` lists, `Namespace(…)`, dict and call representations of Python.

The scanner is a tokeniser: strings are skipped as one token, brackets are counted, so that text a
client wrote inside quotes is never read as a key.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator

MAX_NESTED_LENGTH = 262_144
"""Characters of a nested value that are looked at; what stands behind them is left unread."""

STRING = r"""(?:'(?:[^'\\]++|\\(?:.|\Z))*+(?:'|\Z)|"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z))"""
"""A Python string, to the end of the text where it is not closed; to be compiled with DOTALL.

It never fails behind a quote, whatever cuts it off: each further quote would be tried as a string
of its own, each time to the end.
"""

_TOKEN = re.compile(
    rf"""[^'"\[\](){{}}<>,=:]*+(?:(?P<string>{STRING})"""
    r"""|(?P<open>[\[({<])|(?P<close>[\])}>])|(?P<comma>,)|(?P<is>[=:])|\Z)""",
    re.DOTALL,
)
"""Plain text and the one token that ends it: most tokens are a single character."""
_CALL = re.compile(r"[A-Za-z_][\w.]*\(|\{")


def unquote(text: str) -> str:
    """The text inside a Python string literal; text that is none comes back as it is."""
    if len(text) < 2 or text[0] not in "'\"" or text[-1] != text[0]:
        return text
    inner = text[1:-1]
    if "\\" not in inner:
        return inner
    try:
        with warnings.catch_warnings():
            # An escape that Python does not know is kept as it is, which is what is wanted.
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return inner
    if not isinstance(value, str):
        return inner
    try:
        value.encode()
    except UnicodeEncodeError:
        return inner
    return value


def key_spans(text: str) -> Iterator[tuple[str, int, int]]:
    """The top-level `key=value` or `'key': value` pairs: key, start and end of the value.

    A call or a dict around the whole is peeled off. Pairs end at a comma outside all brackets.
    """
    start = 0
    end = min(len(text), MAX_NESTED_LENGTH)
    if opening := _CALL.match(text):
        start = opening.end()
    depth = 0
    key = ""
    value_start = -1
    piece_start = start
    for token in _TOKEN.finditer(text, start, end):
        kind = token.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            if depth == 0:
                end = token.end() - 1
                break
            depth -= 1
        elif depth == 0 and kind == "comma":
            if value_start >= 0:
                yield key, value_start, token.end() - 1
            value_start = -1
            piece_start = token.end()
        elif depth == 0 and kind == "is" and value_start < 0:
            key = unquote(text[piece_start : token.end() - 1].strip())
            value_start = token.end()
            if text[value_start : value_start + 1] == " ":
                value_start += 1
    if value_start >= 0:
        yield key, value_start, end


def replace_values(text: str, replacements: list[tuple[int, int, str]]) -> str:
    """The text with each span (start, end) put in place of by the given text, in order."""
    pieces: list[str] = []
    position = 0
    for start, end, value in replacements:
        pieces += (text[position:start], value)
        position = end
    pieces.append(text[position:])
    return "".join(pieces)
