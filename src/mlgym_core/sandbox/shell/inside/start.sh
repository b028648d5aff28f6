# shellcheck shell=sh disable=SC2154  # __m_k is set by a saved state
# The first that a new shell reads: descriptors (6 and 7 the null device for writing and reading, 8 and 9 the
# connection), then either a saved state or, where none is complete, the initial one. bash.sh or ash.sh follows.
exec 6>/dev/null 7</dev/null 8>&1 9>&2
{
  @RESTORE@
  case $__m_k in
    "")
      @ENVIRONMENT@
      cd -- @WORKDIR@ || :
      ;;
  esac
} >/dev/null 2>&1 </dev/null
