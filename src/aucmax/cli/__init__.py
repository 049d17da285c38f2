"""The command line: parse, call, print."""

from aucmax.cli._main import COMMANDS, main
from aucmax.cli._reproduce import reproduce

__all__ = ["COMMANDS", "main", "reproduce"]
