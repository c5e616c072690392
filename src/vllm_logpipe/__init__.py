"""vllm-logpipe: what vLLM and its neighbours print, as OpenTelemetry log records.

from vllm_logpipe import Normalizer

normalizer = Normalizer(source="server.log")
records = normalizer.feed(open("server.log", "rb").read()) + normalizer.flush()
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from vllm_logpipe._version import __version__

if TYPE_CHECKING:
    from vllm_logpipe.catalogue import Catalogue, CatalogueError, load_catalogue
    from vllm_logpipe.model import LogRecord
    from vllm_logpipe.normalizer import Normalizer
    from vllm_logpipe.sinks.ndjson import encode_ndjson
    from vllm_logpipe.sinks.otlp_json import encode_otlp_json

__all__ = [
    "Catalogue",
    "CatalogueError",
    "LogRecord",
    "Normalizer",
    "__version__",
    "encode_ndjson",
    "encode_otlp_json",
    "load_catalogue",
]

_HOMES = {
    "Catalogue": "vllm_logpipe.catalogue",
    "CatalogueError": "vllm_logpipe.catalogue",
    "LogRecord": "vllm_logpipe.model",
    "Normalizer": "vllm_logpipe.normalizer",
    "encode_ndjson": "vllm_logpipe.sinks.ndjson",
    "encode_otlp_json": "vllm_logpipe.sinks.otlp_json",
    "load_catalogue": "vllm_logpipe.catalogue",
}


def __getattr__(name: str) -> object:
    """Import on first use: `vllm-logpipe --version` need not load the parsers."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
