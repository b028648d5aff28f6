#!/bin/sh
# Starts the tool whose name this file bears. Python leaves out what it does not need: with "site" and the image's own
# packages it would take several times as long. What it has compiled is kept beside the tools' state.
here=${0%/*} name=${0##*/}
if ! command -v python3 >/dev/null; then
  echo "$name needs python3, which is not on PATH here; use the shell's own commands (sed, grep, cat) instead"
  exit 127
fi
# The host looks where it has written here, whatever the agent has made of the variable.
[ ! -r "$here/.state" ] || { read -r MLGYM_TOOLS_STATE <"$here/.state"; export MLGYM_TOOLS_STATE; }
exec python3 -I -S -X utf8 -c '
import os, sys
state = os.environ.get("MLGYM_TOOLS_STATE")
sys.pycache_prefix = state and state + ".pyc"
sys.path.insert(0, sys.argv[1])
mask = os.umask(0o077)
from agent_tools import command
os.umask(mask)
sys.exit(command.main(sys.argv[2], sys.argv[3:]))
' "$here/lib" "$name" "$@"
