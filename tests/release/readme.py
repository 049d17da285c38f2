"""Run the README's Python with the aucmax that is installed: ``python readme.py README.md``."""

import contextlib
import io
import re
import sys
from pathlib import Path

import aucmax


def main(path):
    assert Path(sys.prefix) in Path(aucmax.__file__).parents, aucmax.__file__
    blocks = re.findall(r"```python\n(.*?)```", Path(path).read_text(encoding="utf-8"), flags=re.S)
    assert blocks
    for number, block in enumerate(blocks, start=1):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(block, path, "exec"), {})
        print(f"README.md, block {number} of {len(blocks)}: {said.getvalue().strip()}")


if __name__ == "__main__":
    main(sys.argv[1])
