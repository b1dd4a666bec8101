# Sourced by the shell scripts beside it: where things are, how they speak, and settings that all builds share.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/build/venv
cd "$root"

# Objects are shared between build folders (build/main, build/wheel: all at one depth) and between checkouts: the cache
# must hash neither a folder's name nor the way to the checkout.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$root
# What its manual asks for where headers are precompiled: their own time, and macros that they do not use, say nothing.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
jobs=${HVD_JOBS:-$(nproc)}

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# one_at_a_time NAME: wait until no other script of this checkout holds NAME; held until this one ends.
one_at_a_time() {
  mkdir -p build
  local lock
  exec {lock}>"build/.$1.lock"
  if ! flock -n "$lock"; then
    say "waiting for another $1 in this checkout"
    flock "$lock"
  fi
}

# quietly LOG COMMAND...: run it with its output in LOG; show the end of LOG when it fails.
quietly() {
  local log=$1
  shift
  if ! "$@" >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    say "failed: $* (all of its output: $log)"
    return 1
  fi
}
