"""The version, where everything that needs it can import it."""

__version__ = "0.1.0"
