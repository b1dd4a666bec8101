#!/bin/sh
# The name of hvdrun that users of Horovod type. A wheel has no symbolic links, and a copy would double its size.
case "$#,$1" in
  1,-v | 1,--version)
    echo 0.28.1 # the Horovod that this stands for, as horovod.__version__: programs compare it
    exit
    ;;
esac
exec "$(dirname "$(readlink -f "$0")")/hvdrun" "$@"
