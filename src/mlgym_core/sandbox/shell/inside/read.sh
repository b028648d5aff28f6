# shellcheck shell=sh
# Print the digest of a file's first @SIZE@ bytes, and then those bytes; an action of its own.
if [ -d @PATH@ ]; then
  echo @PATH@': is a directory' >&2
  false
elif [ -e @PATH@ ] && [ ! -f @PATH@ ]; then
  echo @PATH@': not a regular file' >&2
  false
else
  command -p head -c @SIZE@ @PATH@ 2>/dev/null | command -p sha256sum && command -p head -c @SIZE@ @PATH@
fi
