# shellcheck shell=dash disable=SC2154  # __m_k and __m_g are set by a saved state
# The machinery of a shell that is not bash: as bash.sh, which see, for dash, BusyBox ash and POSIX shells with "local"
# and "-nt". These save exported variables, not functions. They read ahead, so that no request may bring raw data.
readonly __m_D=@STATE@
# What ends a marker and its fields.
__m_C=$(printf '\036\037')
__m_F=${__m_C#?}
readonly __m_C __m_F

# Quote: $1 as one word of a shell.
__m_q() {
  local s="$1" o=""
  while :; do
    case $s in
      *\'*)
        o="$o${s%%\'*}'\\''"
        s=${s#*\'}
        ;;
      *) break ;;
    esac
  done
  printf "'%s'" "$o$s"
}

# Save: what a shell must read to become like this one. The last line tells the slot, $1; a torn file lacks it.
__m_s() {
  printf 'cd -- '
  __m_q "$PWD"
  printf ' || __m_g=gone\numask '
  umask
  export -p
  printf '__m_k=%s\n' "$1"
}

# Omit: nothing but a file may be in a slot's place.
__m_o() {
  [ -f "$__m_D/$1" ] || [ ! -e "$__m_D/$1" ] || rm -rf "${__m_D:?}/$1"
}

# Directory, for the marker; nothing that could be taken for its end, nothing long.
__m_d() {
  case $PWD in
    *[$__m_C]*) ;;
    *) [ ${#PWD} -gt 1024 ] || __m_p=$PWD ;;
  esac
}

# Inform: the tools' state, as the marker's last field.
__m_i() {
  [ ! -f "$__m_D/tools" ] || __m_t=$(command -p head -c 2049 "$__m_D/tools")
  __m_t=${__m_t%%"
"*}
  case $__m_t in *[$__m_C]*) __m_t="" ;; esac
  [ ${#__m_t} -le 2048 ] || __m_t=""
  __m_t=$__m_F$__m_t
}

# Mark the end of an action on both streams, then save. $1: nonce, $2: slot. Keeps the action's exit code.
__m() {
  local r=$? __m_p="" __m_t=""
  set +exuvfC
  unset IFS
  __m_d
  [ ! -f "$__m_D/tools" ] || [ "$__m_D/$2" -nt "$__m_D/tools" ] || __m_i
  printf '\036%s:\036' "$1" >&9
  printf '\036%s:%d:%d\037%s%s\036' "$1" "$r" $$ "$__m_p" "$__m_t" >&8
  __m_o "$2"
  __m_s "$2" >|"$__m_D/$2"
  return "$r"
}

# eXit: a shell that an action ends saves itself on the way out.
__m_x() {
  set +exuvfC
  __m_o x
  __m_s x >|"$__m_D/x"
}
trap __m_x EXIT

{
  mkdir -p "$__m_D"
  rm -rf "$__m_D/x" "$__m_D/b"
  __m_s b >|"$__m_D/b"
  __m_p="" __m_t=""
  __m_d
  __m_i
  printf '\036@NONCE@:\036' >&9
  printf '\036@NONCE@:%s:%s:%s\037%s%s\036' $$ "$__m_k" "$__m_g" "$__m_p" "$__m_t" >&8
  unset __m_k __m_g __m_p __m_t
} 2>&6
