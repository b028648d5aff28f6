# shellcheck shell=bash
# Write the @SIZE@ bytes behind this request to a file. All of them are taken whatever happens, on a full disk for
# instance: none may be read as a command.
{
  if [[ -e @PATH@ && ! -f @PATH@ ]]; then
    builtin echo @PATH@': not a regular file' >&2
    builtin command -p head -c @SIZE@ >/dev/null
    builtin false
  else
    builtin command -p head -c @SIZE@ | {
      builtin command -p cat >|@PATH@ || {
        builtin command -p cat >/dev/null
        builtin false
      }
    }
  fi
} 2>&9; { __m @NONCE@ @SLOT@; } 2>&6
