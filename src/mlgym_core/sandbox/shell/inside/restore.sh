# shellcheck shell=sh disable=SC2154,SC1091  # __m_k and the file are of an earlier shell
# One line of start.sh for each saved state, the newest first: takes the first one that is complete, which its own last
# line says. By then the agent's functions may go by any name, "[" included; keywords they cannot take.
case $__m_k in "") [ ! -f @FILE@ ] || . @FILE@ ;; esac
