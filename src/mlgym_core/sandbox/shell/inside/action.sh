# shellcheck shell=sh
# An action within its request's one line. The backslash keeps an alias of that name out.
\eval @COMMAND@ <&7 >&8 2>&9 6>&- 7<&- 8>&- 9>&-; { __m @NONCE@ @SLOT@; } 2>&6
