"""How far something is, on standard error: a live bar in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from typing import Any, Literal

Detail = Literal["count", "percentage", "time left", "bytes", "speed", "note"]


class ProgressBar:
    """A bar with a name on its left and details on its right.

    It is shown in a terminal. :meth:`say` writes a line above it, or a plain one where there is no
    bar.

    Args:
        show: False is silent, lines included.
        details: what stands right of the bar.
        width: of the bar, in characters.
        redraw: by a thread several times a second, so that the time left goes on; else whenever
            it is updated.
        terminal: False also writes the bar once, when it is closed, where there is no terminal.

    Attributes:
        live: whether there is a bar.
    """

    def __init__(
        self,
        show: bool,
        *details: Detail,
        width: int = 20,
        redraw: bool = True,
        terminal: bool = True,
    ) -> None:
        self.show, self.redraw = show, redraw
        wanted = show and (sys.stderr.isatty() or not terminal)
        self._rich: Any = _make_rich(details, width, redraw) if wanted else None
        self.live = self._rich is not None

    def begin(self, name: str, total: float | None = None, done: float = 0, note: str = "") -> None:
        """Show the bar, for something new if it was there already."""
        if self.live:
            for task in self._rich.task_ids:
                self._rich.remove_task(task)
            self._rich.add_task(name, total=total, completed=done, note=note)
            self._rich.start()

    def update(self, done: float, **fields: Any) -> None:
        """So much is done; ``fields`` may be ``name``, ``total`` and ``note``."""
        if self.live:
            if "name" in fields:
                fields["description"] = fields.pop("name")
            task = self._rich.task_ids[0]
            self._rich.update(task, completed=done, refresh=not self.redraw, **fields)

    def say(self, text: str) -> None:
        """Write a line of its own."""
        if self.live:
            self._rich.console.print(text, markup=False, highlight=False, soft_wrap=True)
        elif self.show:
            print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the bar as it is; what is said from now on comes below it."""
        if self.live and self._rich.task_ids:
            self._rich.stop()
        self.live = False

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_rich(details: tuple[Detail, ...], width: int, redraw: bool) -> Any:
    from rich import progress as rich
    from rich.console import Console

    columns: dict[Detail, rich.ProgressColumn] = {
        "count": rich.MofNCompleteColumn(),
        "percentage": rich.TextColumn("{task.percentage:>3.0f}%"),
        "time left": rich.TimeRemainingColumn(),
        "bytes": rich.DownloadColumn(),
        "speed": rich.TransferSpeedColumn(),
        "note": rich.TextColumn("{task.fields[note]}"),
    }
    return rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(bar_width=width),
        *(columns[detail] for detail in details),
        console=Console(stderr=True),
        auto_refresh=redraw,
    )
