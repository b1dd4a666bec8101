# The shell scripts beside it source this file: it says where things are, how scripts print, and settings that all
# builds share.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/build/venv
cd "$root"

# Objects are shared between build folders (build/main, build/wheel: all at one depth) and between checkouts, so the
# cache must hash neither a folder's name nor the path to the checkout.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root
# ccache's manual asks for these where headers are precompiled: it then ignores their times, and macros they do not use.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
jobs=${HVD_JOBS:-$(nproc)}

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# one_at_a_time NAME: waits until no other script of this checkout holds NAME, and holds it until this one ends.
one_at_a_time() {
  mkdir -p build
  local lock
  exec {lock}>"build/.$1.lock"
  if ! flock -n "$lock"; then
    say "waiting for another $1 in this checkout"
    flock "$lock"
  fi
}

# quietly LOG COMMAND...: runs it with its output in LOG; shows the end of LOG when it fails.
quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    say "failed: $* (all of its output: $log)"
    return 1
  fi
}
