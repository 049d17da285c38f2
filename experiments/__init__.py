"""Experiments with aucmax: not installed, and run from the root by ``python -m experiments.run``."""
