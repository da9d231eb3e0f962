"""Prints a script that makes the shell complete commands, operators, their options and file names.

  bash:  tenor completion bash > ~/.local/share/bash-completion/completions/tenor
  zsh:   tenor completion zsh > ~/.zfunc/_tenor        (with ~/.zfunc in fpath before compinit)
  fish:  tenor completion fish > ~/.config/fish/completions/tenor.fish"""
from tenor._cli.arguments import UsageError, add_json
from tenor._cli.output import print_json

EXAMPLES = [
    "source <(tenor completion bash)       for this shell alone",
    "tenor completion zsh",
    "tenor completion fish | source",
]
# The scripts ask the program itself, so that they know what is installed: `tenor completion --words tenor run soft`
# prints what the last word may become, a line each.
_SCRIPTS = {
    "bash": """_tenor() {
  local IFS=$'\\n' words="${COMP_LINE:0:COMP_POINT}"
  local -a typed
  IFS=' ' read -ra typed <<< "$words"
  [[ $words == *' ' ]] && typed+=('')
  COMPREPLY=($(tenor completion --words "${typed[@]}" 2>/dev/null))
  # bash breaks words at = and :, and replaces only what follows the last of them
  local last="${typed[${#typed[@]}-1]}" cut=''
  [[ $last == *[=:]* ]] && cut="${last%"${last##*[=:]}"}"
  [[ -n $cut ]] && COMPREPLY=("${COMPREPLY[@]#"$cut"}")
  [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
}
complete -o default -o bashdefault -F _tenor tenor
""",
    "zsh": """#compdef tenor
_tenor() {
  local -a found
  found=("${(@f)$(tenor completion --words "${(@)words[1,CURRENT]}" 2>/dev/null)}")
  found=("${(@)found:#}")
  if (( ${#found} )); then
    compadd -S '' -- "${(@M)found:#*=}"
    compadd -- "${(@)found:#*=}"
  else
    _files
  fi
}
if [ "$funcstack[1]" = "_tenor" ]; then _tenor "$@"; else compdef _tenor tenor; fi
""",
    "fish": """function __tenor_complete
  tenor completion --words (commandline -opc) (commandline -ct) 2>/dev/null
end
complete -c tenor -a '(__tenor_complete)'
""",
}
_WITH_OPERATOR = ("ops", "run", "check", "bench", "tune")
_VALUES = {"--device": ("cpu", "cuda"), "--vs": ("torch", "none"), "--strategy": ("auto",)}


def configure(parser):
    parser.add_argument("shell", nargs="?", choices=list(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    add_json(parser)


def parse(parser, words):
    """--words takes all that follows, dashes included."""
    asked = words[1:] if words[:1] == ["--words"] else None
    args = parser.parse_args([] if asked is not None else words)
    args.words = asked
    return args


def execute(args):
    if args.words is not None:
        for word in candidates(args.words[1:]):
            print(word)
        return 0
    if args.shell is None:
        raise UsageError("which shell? tenor completion bash, zsh or fish")
    if args.json:
        return print_json({"shell": args.shell, "script": _SCRIPTS[args.shell]})
    print(_SCRIPTS[args.shell], end="")
    return 0


def candidates(words):
    """What the last word may become, given those before it; nothing where the shell's file names are meant."""
    from tenor._cli import COMMANDS

    words = words or [""]
    last, before = words[-1], words[:-1]
    if not before:
        return _starting([*COMMANDS, "--help", "--version"], last)
    command, rest = before[0], before[1:]
    if command not in COMMANDS:
        return []
    if last.startswith("-"):
        return _starting(_options(command, rest), last) if "=" not in last else _values(command, rest, last)
    if rest and rest[-1] in _VALUES:
        return _starting(_VALUES[rest[-1]], last)
    first = not [w for w in rest if not w.startswith("-")]
    return _starting(_first_words(command), last) if first or command in ("demo", "bench") else []


def _starting(names, start):
    return sorted(n for n in names if n.startswith(start))


def _first_words(command):
    if command == "completion":
        return list(_SCRIPTS)
    if command == "demo":
        from tenor._tenor import _operators

        return {o[1] for o in _operators()}
    if command not in _WITH_OPERATOR:
        return []
    from tenor._tenor import _operators

    return {o[0] for o in _operators()}


def _options(command, rest):
    """The command's options; after `run OP` the operator's own too."""
    import importlib

    from tenor._cli.arguments import Parser
    from tenor._cli.signature import signature

    module = importlib.import_module(f"tenor._cli.cmd_{command}")
    parser = Parser(f"tenor {command}", "", [])
    module.configure(parser)
    names = [s for a in parser._actions for s in a.option_strings if s.startswith("--")]
    if command == "run" and rest:
        try:
            names += ["--" + p.name.replace("_", "-") + "=" * (not p.is_flag) for p in signature(rest[0]).parameters if p.kind not in ("*", "**")]
        except UsageError:
            pass
    return names


def _values(command, rest, last):
    name, _, value = last.partition("=")
    known = list(_VALUES.get(name, ()))
    if name == "--strategy" and command == "run" and rest:
        from tenor._tenor import _operators

        known += [s for o in _operators() if o[0] == rest[0] for s in o[4]]
    return [f"{name}={v}" for v in _starting(known, value)]
