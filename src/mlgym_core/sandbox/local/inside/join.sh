# shellcheck shell=sh
# Enters control groups, given by folder up to "--", and becomes the program behind it.
while [ "$1" != -- ]; do
  echo $$ >"$1/cgroup.procs" || exit 125
  shift
done
shift
exec "$@"
