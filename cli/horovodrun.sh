#!/bin/sh
# The name of hvdrun that users of Horovod type. A wheel has no symbolic links, and a copy would double its size.
exec "$(dirname "$(readlink -f "$0")")/hvdrun" "$@"
