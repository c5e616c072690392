"""The route of a request path: what varies from request to request replaced."""

from __future__ import annotations

import re

OTHER = "other"
"""The route of paths that no route can be told for."""

_MAX_LENGTH = 128
_MAX_PARTS = 12
_VARIES = re.compile(
    r"[0-9]+|[0-9a-fA-F]{8,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|[A-Za-z]{1,16}[-_][0-9A-Za-z_-]*[0-9][0-9A-Za-z_-]{7,}|(?=.*[0-9]).{24,}"
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,39}")


def route_of(path: str) -> str:
    """The path with ids and numbers replaced by `{id}`; `other` for what is no path of an API.

    `/v1/responses/resp_8e0012345678` gives `/v1/responses/{id}`.
    """
    if not path.startswith("/") or len(path) > _MAX_LENGTH:
        return OTHER
    parts = path.partition("?")[0].split("/")[1:]
    if len(parts) > _MAX_PARTS:
        return OTHER
    shown = []
    for part in parts:
        if not part:
            shown.append("")
        elif _VARIES.fullmatch(part):
            shown.append("{id}")
        elif _PLAIN.fullmatch(part):
            shown.append(part)
        else:
            return OTHER
    return "/" + "/".join(shown)
