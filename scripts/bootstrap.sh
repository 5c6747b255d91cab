#!/usr/bin/env bash
# Sets up .venv in the repository root: the packages of requirements.lock, and dpfl itself importable.
# Call it as often as you like: when nothing is to do it returns at once. All it says goes to stderr.
# With a version, such as 3.13, it sets up .venv-3.13 with that Python and no other.
set -euo pipefail
exec >&2 </dev/null

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
venv="$root/.venv${1:+-$1}"
pythons=("${1:-3.12}")
if [[ $# -eq 0 ]]; then pythons+=(3.13 3.11); fi
stamp="$venv/bootstrap.stamp"
# A foreign path would hide or shadow the packages of .venv; without bytecode every start is slow.
unset PYTHONHOME PYTHONPATH PYTHONDONTWRITEBYTECODE

# Exit status when none of the versions is there.
no_python=3
# What the locked packages come to, in MB.
download_mb=560
installed_mb=2370

say() { printf 'bootstrap: %s\n' "$*"; }

# What a finished set-up is recorded as. The root is part of it because .venv holds absolute paths.
digest() {
  { cat "$root/requirements.lock"; printf '%s %s\n' "$root" "$1"; } | sha256sum
}

# The stamp is written last, so an interrupted set-up has none; a damaged one fails to find packages.
is_ready() {
  local version
  [[ -f "$stamp" ]] || return 1
  version="$("$venv/bin/python" - 2>/dev/null <<'PYTHON'
import importlib.util, sys
for name in ('tensorflow_federated', 'tensorflow_privacy', 'tensorflow', 'dp_accounting', 'pytest', 'dpfl'):
    if importlib.util.find_spec(name) is None:
        sys.exit(1)
print('%d.%d' % sys.version_info[:2])
PYTHON
  )" || return 1
  [[ "$(cat "$stamp")" == "$(digest "$version")" ]]
}

# Prints the path of the interpreter behind $1 if it is a CPython $2 that can make environments. Runs it
# to find out: a version manager puts names on the PATH that lead to nothing. _base_executable, because
# an activated .venv would otherwise be built from itself.
probe() {
  "$1" - "$2" 2>/dev/null <<'PYTHON'
import platform, sys
import ssl, venv  # not every build has them
ok = platform.python_implementation() == 'CPython' and '%d.%d' % sys.version_info[:2] == sys.argv[1]
print(getattr(sys, '_base_executable', None) or sys.executable) if ok else sys.exit(1)
PYTHON
}

find_python() {
  local version name candidate
  for version in "${pythons[@]}"; do
    for name in "python$version" python3 python; do
      while IFS= read -r candidate; do
        if probe "$candidate" "$version"; then return 0; fi
      done < <(type -aP "$name")
    done
  done
  return 1
}

# The command `dpfl` of this checkout. Its first lines start Python by way of sh, whose line may be long.
add_command() {
  local script="$venv/bin/dpfl"
  if [[ -x "$script" ]]; then return 0; fi
  {
    printf '%s\n' '#!/bin/sh' "'''exec' \"$venv/bin/python\" \"\$0\" \"\$@\"" "' '''"
    printf '%s\n' 'import sys' 'from dpfl.cli.main import main' 'sys.exit(main())'
  } > "$script.new"
  chmod 755 "$script.new"
  mv "$script.new" "$script"
}

# Installs the locked packages into the folder $1: with pip's own bars on a terminal, else with a line
# every ten seconds. Downloads go to a folder of .venv, so that their size can be seen.
install_packages() {
  local downloads="$venv/downloads" watcher='' status=0 show=(--quiet)
  mkdir -p "$downloads"
  if [[ -t 2 ]]; then
    show=()
  else
    watch_sizes "$downloads" "$1" 9>&- &
    watcher=$!
  fi
  # --no-compile: the import afterwards compiles what is imported, which is a small part of the whole.
  TMPDIR="$downloads" "${pip[@]}" "${show[@]}" --no-deps --require-hashes --only-binary=:all: \
      -r "$root/requirements.lock" || status=$?
  if [[ -n "$watcher" ]]; then
    kill "$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
  fi
  rm -rf "$downloads"
  return "$status"
}

# Says every ten seconds how far pip is, as long as this script lives.
watch_sizes() {
  local downloaded installed
  while sleep 10 >&- 2>&- && kill -0 $$ 2>/dev/null; do
    downloaded="$(megabytes "$1")" installed="$(megabytes "$2")"
    if ((installed < 50)); then
      say "downloaded $downloaded of about $download_mb MB ($SECONDS s)"
    else
      say "installed $installed of about $installed_mb MB ($SECONDS s)"
    fi
  done
}

megabytes() {
  local size
  size="$(du -sm "$1" 2>/dev/null | cut -f1)" || true
  printf '%s' "${size:-0}"
}

set_up() {
  local python site pip
  if [[ "$(uname -sm)" != 'Linux x86_64' ]]; then
    say "error: this is $(uname -sm); the locked packages exist for Linux x86_64 only"
    return 1
  fi
  if ! python="$(find_python)"; then
    if [[ ${#pythons[@]} -eq 1 ]]; then
      say "error: no usable Python: there is no python${pythons[0]} on the PATH"
      return "$no_python"
    fi
    say 'error: no usable Python: put python3.12 (preferred), python3.13 or python3.11 on the PATH. One of these'
    say 'gets it: uv python install 3.12 --default; pyenv install 3.12; apt install python3-venv (Debian 12, 13)'
    return "$no_python"
  fi

  say "creating $venv with $python"
  rm -rf "$venv"
  # TFF asks for Python 3.11 or earlier, which uv does not look at where it does not resolve.
  local options=(install --disable-pip-version-check --no-input --no-compile --ignore-requires-python)
  if "$python" -c 'import ensurepip' 2>/dev/null; then
    "$python" -m venv "$venv"
    pip=("$venv/bin/python" -m pip "${options[@]}")
  else  # as Debian ships it; a pip outside serves as well
    "$python" -m venv --without-pip "$venv"
    pip=("$python" -m pip --python "$venv/bin/python" "${options[@]}")
  fi
  if command -v uv >/dev/null; then pip=(uv pip install --python "$venv/bin/python"); fi

  # Importable from anywhere, without a build: what an editable install comes down to. The second line
  # lets TFF be imported without dpfl.
  site="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
  (cd "$root" && "$venv/bin/python" -c 'import os; from dpfl.cli import install_tff
print(os.getcwd(), install_tff.PTH_LINE, sep="\n", end="")') > "$site/dpfl.pth"

  say "installing the locked packages: a download of $download_mb MB, $installed_mb MB on disk; takes minutes"
  if ! install_packages "$site"; then
    say 'error: the locked packages could not be installed (see above); they need glibc 2.31 or later'
    return 1
  fi

  # C++ headers, for building kernels of one's own: 0.3 GB.
  rm -rf "$site/tensorflow/include"

  say 'trying it: the first import of TensorFlow Federated compiles its files'
  if ! TF_CPP_MIN_LOG_LEVEL=3 "$venv/bin/python" \
      -c 'import matplotlib.pyplot, tensorflow_federated, tensorflow_privacy'; then
    say 'error: TensorFlow Federated was installed and does not import (see above)'
    return 1
  fi
  digest "$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" > "$stamp.new"
  add_command
  mv "$stamp.new" "$stamp"
  say "done in $SECONDS s: $venv/bin/dpfl lists the commands"
}

# A set-up of before the command existed gets it, too.
ready() {
  is_ready && add_command
}

if ready; then exit 0; fi
# One set-up at a time. Children inherit the lock: should this shell be killed, the next one waits for a
# pip left behind instead of working beside it.
exec 9<"$root"
if command -v flock >/dev/null; then flock 9; fi
if ready; then exit 0; fi
set_up
