# shellcheck shell=bash disable=SC2154,SC1090  # __m_D is set by bash.sh, the file written here
# An action too long for one line, which bash would read byte by byte: the @SIZE@ bytes behind this request become a
# file. All of them are taken whatever happens, on a full disk for instance: none may be read as a command.
{
  if [[ -e $__m_D/c && ! -f $__m_D/c ]]; then builtin command -p rm -rf "$__m_D/c"; fi
  __m_c=$__m_D/c
  builtin command -p head -c @SIZE@ | {
    builtin command -p cat >|"$__m_c" || {
      builtin command -p cat >/dev/null
      builtin false
    }
  } || __m_c=/the-command-could-not-be-stored
} 2>&6; . "$__m_c" <&7 >&8 2>&9 6>&- 7<&- 8>&- 9>&-; { __m @NONCE@ @SLOT@; } 2>&6
