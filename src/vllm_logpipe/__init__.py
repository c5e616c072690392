"""vllm-logpipe: what vLLM and its neighbours print, as OpenTelemetry log records.

    from vllm_logpipe import Normalizer

    normalizer = Normalizer(source="server.log")
    records = normalizer.feed(open("server.log", "rb").read()) + normalizer.flush()
"""

from vllm_logpipe._version import __version__
from vllm_logpipe.catalogue import Catalogue, CatalogueError, load_catalogue
from vllm_logpipe.model import LogRecord
from vllm_logpipe.normalizer import Normalizer
from vllm_logpipe.sinks.ndjson import encode_ndjson

__all__ = [
    "Catalogue",
    "CatalogueError",
    "LogRecord",
    "Normalizer",
    "__version__",
    "encode_ndjson",
    "load_catalogue",
]
