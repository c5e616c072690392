"""Signals from records: state machines over the records of a server instance. No I/O."""
