"""Scripts by which shells complete commands, options and their values; files they know themselves.

They are written once, so that a shell need not wait for Python at every press of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

SHELLS = ("bash", "zsh", "fish")

BASH = """\
_aucmax() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands}"
  else
    case "${{COMP_WORDS[1]}} $prev" in
{values}
    *) case "${{COMP_WORDS[1]}} $cur" in
{options}
      esac ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _aucmax aucmax
"""
ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"


def script(shell: str, commands: Mapping[str, Callable[..., None]]) -> str:
    """What a shell reads to complete the commands.

    Args:
        shell: one of SHELLS.
        commands: by name; their signatures have the options.
    """
    options = {name: options_of(command) for name, command in commands.items()}
    if shell == "fish":
        return _fish(options, {name: command.__doc__ or "" for name, command in commands.items()})
    values = [
        f'    "{name} {option}") words="{" ".join(choices)}" ;;'
        for name, known in options.items()
        for option, choices in known.items()
        if choices
    ]
    lines = [f'      "{name} -"*) words="{" ".join(known)}" ;;' for name, known in options.items()]
    text = BASH.format(
        commands=" ".join([*commands, "--help", "--version", "--print-completion"]),
        values="\n".join([*values, f'    "--print-completion "*) words="{" ".join(SHELLS)}" ;;']),
        options="\n".join(lines),
    )
    return text if shell == "bash" else ZSH + text


def options_of(command: Any) -> dict[str, tuple[str, ...]]:
    """A command's options, each with the values that it may have, if these are known."""
    hints = get_type_hints(command, include_extras=True)
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in hints.items():
        told = get_args(hint)[1:] if hasattr(hint, "__metadata__") else ()
        if name == "return" or tyro.conf.Positional in told:
            continue
        if is_dataclass(hint):  # a group of options
            found |= {x: v for x, v in options_of(hint).items() if x != "--help"}
            continue
        names = [about.name for about in told if getattr(about, "name", None)]
        found[f"--{(names or [name])[0].replace('_', '-')}"] = _choices(hint)
    return {**found, "--help": ()}


def _choices(hint: Any) -> tuple[str, ...]:
    """The values of a Literal, also within a union, a tuple or an annotation."""
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    inner = get_args(hint)[:1] if hasattr(hint, "__metadata__") else get_args(hint)
    return tuple(value for part in inner for value in _choices(part))


def _fish(options: Mapping[str, Mapping[str, tuple[str, ...]]], about: Mapping[str, str]) -> str:
    lines = []
    for name, known in options.items():
        said = about[name].splitlines()[0].replace("'", r"\'")
        lines.append(f"__fish_use_subcommand -f -a {name} -d '{said}'")
        for option, choices in known.items():
            values = f" -x -a '{' '.join(choices)}'" if choices else ""
            lines.append(f"'__fish_seen_subcommand_from {name}' -l {option[2:]}{values}")
    lines += [f"__fish_use_subcommand -l {option}" for option in ("help", "version")]
    lines.append(f"__fish_use_subcommand -l print-completion -x -a '{' '.join(SHELLS)}'")
    return "".join(f"complete -c aucmax -n {line}\n" for line in lines)
