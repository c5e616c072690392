"""What vLLM and its neighbours print, as data: entries, templates, and looking messages up."""

from vllm_logpipe.catalogue.errors import CatalogueError
from vllm_logpipe.catalogue.loader import Catalogue, load_catalogue

__all__ = ["Catalogue", "CatalogueError", "load_catalogue"]
