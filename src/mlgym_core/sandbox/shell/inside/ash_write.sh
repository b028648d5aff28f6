# shellcheck shell=dash
# Write a file. These shells read ahead, so its bytes are part of the text.
{
  if [ -e @PATH@ ] && [ ! -f @PATH@ ]; then
    echo @PATH@': not a regular file' >&2
    false
  else
    base64 -d >@PATH@
  fi
} 2>&9 <<'__m_E'
@DATA@
__m_E
{ __m @NONCE@ @SLOT@; } 2>&6
