#!/bin/sh
# Starts the tool whose name this file bears. Python leaves out what it does not need: with "site" and the image's own
# packages it would take several times as long. What it has compiled is kept beside the tools' state.
here=${0%/*} name=${0##*/}
if ! command -v python3 >/dev/null; then
  echo "$name needs python3, which is not on PATH here; use the shell's own commands (sed, grep, cat) instead"
  exit 127
fi
exec python3 -I -S -X utf8 -c '
import os, sys
state = os.environ.get("MLGYM_TOOLS_STATE")
sys.pycache_prefix = state and state + ".pyc"
sys.path.insert(0, sys.argv[1])
from agent_tools import command
sys.exit(command.main(sys.argv[2], sys.argv[3:]))
' "$here/lib" "$name" "$@"
