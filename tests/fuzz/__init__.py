"""Mutated streams against the properties that hold for any input."""
