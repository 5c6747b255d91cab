"""Completion scripts for shells: commands, their flags, values of flags, presets by name.

The flags of a command are asked for when they are needed, once in each shell, since that takes
about a second. Everything else is in the script.
"""

from collections.abc import Sequence

from absl import flags

from dpfl import presets
from dpfl.cli.catalogue import Binary
from dpfl.mechanisms import mechanism_file

_BASH = """\
# Completion of dpfl for bash: source <(dpfl completion bash)
declare -A _dpfl_flags
_dpfl() {
  local line="${COMP_LINE:0:COMP_POINT}" word command names=() flag
  word="${line##*[[:space:]]}"
  command="${COMP_WORDS[1]}"
  COMPREPLY=()
  if [[ "$line" =~ ^[[:space:]]*[^[:space:]]+[[:space:]]+[^[:space:]]*$ ]]; then
    COMPREPLY=($(compgen -W '@commands@ --help --version' -- "$word"))
    return
  fi
  case "$word" in
    --flagfile=*) names=(@presets@) ;;
    --strategy=*) names=(@strategies@) ;;
    -*)
      [[ -n "${_dpfl_flags[$command]:-}" ]] \\
        || _dpfl_flags[$command]="$(dpfl completion flags "$command" 2>/dev/null)"
      if [[ "$word" == *=* ]]; then
        for flag in ${_dpfl_flags[$command]}; do
          [[ "$flag" == "${word%%=*}="?* ]] && names+=("${flag#*=}")
        done
      else
        for flag in --flagfile= ${_dpfl_flags[$command]}; do
          [[ "$flag" == "$word"* && "$flag" != *=?* ]] && COMPREPLY+=("$flag")
        done
        [[ "${COMPREPLY[*]}" == *= ]] && compopt -o nospace 2>/dev/null
        return
      fi ;;
  esac
  # Bash takes what is after the last = for a word of its own.
  [[ "$word" == -*=* ]] && word="${word#*=}"
  [[ "$COMP_WORDBREAKS" == *:* && "$word" == *:* ]] && return
  COMPREPLY=($(compgen -W "${names[*]}" -- "$word"))
  ((${#names[@]})) && ((${#COMPREPLY[@]})) && return
  mapfile -t COMPREPLY < <(compgen -f -- "$word")
  compopt -o filenames 2>/dev/null
}
complete -F _dpfl dpfl
"""
_ZSH = """\
#compdef dpfl
# Completion of dpfl for zsh: source <(dpfl completion zsh)
typeset -gA _dpfl_flags
_dpfl() {
  local word="${words[CURRENT]}" command="${words[2]}"
  local -a found
  if (( CURRENT == 2 )); then
    compadd -- @commands@ --help --version
    return
  fi
  case "$word" in
    --flagfile=*) compset -P '*='; compadd -- @presets@; _files; return ;;
    --strategy=*) compset -P '*='; compadd -- @strategies@; _files; return ;;
  esac
  if [[ "$word" != -* ]]; then
    _files
    return
  fi
  [[ -n "${_dpfl_flags[$command]}" ]] \\
    || _dpfl_flags[$command]="$(dpfl completion flags "$command" 2>/dev/null)"
  found=(--flagfile= ${(f)_dpfl_flags[$command]})
  if [[ "$word" == *=* ]]; then
    compset -P '*='
    found=(${${(M)found:#${word%%=*}=?*}#*=})
    (( $#found )) && compadd -- $found
    _files
  else
    compadd -S '' -- ${(M)found:#*=}
    compadd -- ${found:#*=*}
  fi
}
compdef _dpfl dpfl
"""
SHELLS = {'bash': _BASH, 'zsh': _ZSH}


def script(shell: str, commands: Sequence[str]) -> str:
    """The completion script of a shell, one of `SHELLS`.

    Args:
      shell: its name.
      commands: all names of commands.
    """
    text = SHELLS[shell]
    for place, names in (
        ('commands', commands),
        ('presets', presets.names()),
        ('strategies', mechanism_file.names()),
    ):
        text = text.replace(f'@{place}@', ' '.join(names))
    return text.rstrip()


def flags_of(binary: Binary) -> list[str]:
    """The flags of a command, as `--name=` or as `--name` for a switch, and `--name=value` each.

    Call it once in a process: it defines the flags.
    """
    binary.define()
    words = []
    for flag in flags.FLAGS.get_key_flags_for_module(binary.name):
        if flag.boolean:
            words += [f'--{flag.name}', f'--no{flag.name}']
            continue
        words += [f'--{flag.name}=']
        words += [f'--{flag.name}={value}' for value in getattr(flag.parser, 'enum_values', ())]
    return sorted(words)
